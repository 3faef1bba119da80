// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/drive_times.h"

#include <gtest/gtest.h>

namespace outrider::residency {
namespace {

TEST(DriveTimes, ADriveThatDoesOneThingAtATimeHasNoStart) {
  DriveTimes times;
  EXPECT_EQ(times.slab_ns(), 0);
  for (uint32_t i = 0; i < 20; ++i) times.add(1 + i % 4, 1000.0 * (1 + i % 4));
  EXPECT_NEAR(times.slab_ns(), 1000, 1e-6);
  EXPECT_NEAR(times.start_ns(), 0, 1e-6);
}

TEST(DriveTimes, WhereReadsOverlapMoreOfThemCostTheirRateOnly) {
  DriveTimes times;
  for (uint32_t i = 0; i < 20; ++i) times.add(1 + i % 4, 5000.0 + 100.0 * (1 + i % 4));
  EXPECT_NEAR(times.slab_ns(), 100, 1e-6);
  EXPECT_NEAR(times.start_ns(), 5000, 1e-6);
}

TEST(DriveTimes, DemandsThatAreAllAlikeAreTakenAsOneAfterTheOther) {
  DriveTimes times;
  for (uint32_t i = 0; i < 20; ++i) times.add(2, 5000);
  EXPECT_DOUBLE_EQ(times.slab_ns(), 2500);
  EXPECT_NEAR(times.start_ns(), 0, 1e-9);
}

// Only demands that were waited for are in the fit; what it says of the others is known to be too much.
TEST(DriveTimes, TellsWhichShareOfTheExpectedStallIsReal) {
  DriveTimes times;
  EXPECT_EQ(times.stalled(), 1);
  for (uint32_t i = 0; i < 100; ++i) times.add(1 + i % 3, 1000.0 * (1 + i % 3));
  for (uint32_t i = 0; i < 1000; ++i) times.add_stall(2, 500, i % 4 == 0 ? 1500 : 0);
  EXPECT_NEAR(times.stalled(), 0.25, 0.02);
  for (uint32_t i = 0; i < 1000; ++i) times.add_stall(2, 500, 1e9);  // hiccups
  EXPECT_EQ(times.stalled(), 1);
}

TEST(DriveTimes, ADriveThatHasBecomeMuchSlowerIsLearnedAnew) {
  DriveTimes times;
  for (uint32_t i = 0; i < 200; ++i) times.add(1 + i % 3, 100.0 * (1 + i % 3));
  times.add(1, 1e9);  // one is a hiccup
  EXPECT_LT(times.slab_ns() + times.start_ns(), 110);
  for (uint32_t i = 0; i < 12; ++i) times.add(1 + i % 3, 15000.0 * (1 + i % 3));
  EXPECT_NEAR(times.slab_ns(), 15000, 1);
  EXPECT_NEAR(times.start_ns(), 0, 1);
}

TEST(DriveTimes, FollowsADriveThatChanges) {
  DriveTimes times;
  for (uint32_t i = 0; i < 100; ++i) times.add(1 + i % 4, 10.0 * (1 + i % 4));
  for (uint32_t i = 0; i < 400; ++i) times.add(1 + i % 4, 1000.0 * (1 + i % 4));
  EXPECT_NEAR(times.slab_ns(), 1000, 10);
  // Neither part is below 0, whatever the noise says.
  for (uint32_t i = 0; i < 400; ++i) times.add(1 + i % 4, 1000.0 / (1 + i % 4));
  EXPECT_GE(times.slab_ns(), 0);
  EXPECT_GE(times.start_ns(), 0);
}

}  // namespace
}  // namespace outrider::residency

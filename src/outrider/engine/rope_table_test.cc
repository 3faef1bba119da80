// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace outrider::engine {
namespace {

// Angle and magnitude of pair i at position 1.
struct Turn {
  double angle, magnitude;
};
Turn turn_of(const RopeTable& table, uint32_t n_rot, uint32_t pair) {
  std::vector<float> cos_sin(n_rot);
  table.fill(1, cos_sin.data());
  const double c = cos_sin[2 * pair];
  const double s = cos_sin[2 * pair + 1];
  return {std::atan2(s, c), std::hypot(s, c)};
}

// Reference values: ../shared/spec/architectures-core.md section 12 (gpt-oss and DeepSeek V3 geometries).
TEST(RopeTable, YarnFrequenciesEqualTheSpecVectors) {
  const RopeTable oss(
      {.n_rot = 64, .base = 150000, .scaling = model::RopeScaling::kYarn, .factor = 32, .original_context = 4096}, {});
  const std::vector<std::pair<uint32_t, double>> oss_wants = {
      {0, 1.0}, {8, 0.050813275}, {12, 0.0070157139}, {17, 2.2794780e-4}, {18, 3.8308812e-5}, {31, 3.0235114e-7}};
  for (const auto& [pair, want] : oss_wants) {
    const Turn turn = turn_of(oss, 64, pair);
    EXPECT_NEAR(turn.angle / want, 1, 2e-7) << pair;
    EXPECT_NEAR(turn.magnitude, 1.34657359, 2e-7) << pair;
  }
  const RopeTable v3(
      {.n_rot = 64, .base = 10000, .scaling = model::RopeScaling::kYarn, .factor = 40, .original_context = 4096}, {});
  const std::vector<std::pair<uint32_t, double>> v3_wants = {
      {0, 1.0}, {10, 0.056234133}, {16, 0.0055}, {22, 1.7782794e-4}, {23, 3.3338036e-5}, {31, 3.3338036e-6}};
  for (const auto& [pair, want] : v3_wants) EXPECT_NEAR(turn_of(v3, 64, pair).angle / want, 1, 2e-7) << pair;
}

TEST(RopeTable, LinearScalingDivisorsAndMagnitude) {
  const std::vector<float> divisors = {1, 2, 4, 8};
  const RopeTable plain({.n_rot = 8, .base = 100}, {});
  const RopeTable divided({.n_rot = 8, .base = 100}, divisors);
  const RopeTable linear(
      {.n_rot = 8, .base = 100, .scaling = model::RopeScaling::kLinear, .factor = 4, .attn_factor = 1.5}, {});
  for (uint32_t i = 0; i < 4; ++i) {
    const double want = std::pow(100.0, -2.0 * i / 8);
    EXPECT_NEAR(turn_of(plain, 8, i).angle, want, 1e-7);
    EXPECT_NEAR(turn_of(divided, 8, i).angle, want / divisors[i], 1e-7);
    EXPECT_NEAR(turn_of(linear, 8, i).angle, want / 4, 1e-7);
    EXPECT_NEAR(turn_of(linear, 8, i).magnitude, 1.5, 1e-6);
  }
}

// Angles of far positions keep their accuracy: made in double from the position, not summed up.
TEST(RopeTable, FarPositionsAreExact) {
  const RopeTable table({.n_rot = 4, .base = 10000}, {});
  std::vector<float> cos_sin(4);
  constexpr uint32_t kFar = 1000003;
  table.fill(kFar, cos_sin.data());
  EXPECT_EQ(cos_sin[0], static_cast<float>(std::cos(1000003.0)));
  EXPECT_EQ(cos_sin[1], static_cast<float>(std::sin(1000003.0)));
  EXPECT_NEAR(cos_sin[2], std::cos(10000.03), 1e-7);
}

}  // namespace
}  // namespace outrider::engine

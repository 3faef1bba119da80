// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/guess_blend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "outrider/base/test_rng.h"

namespace outrider::engine {
namespace {

// A predictor of the true chance by rank: 0.8, 0.4, 0.1; unnamed 0.02.
constexpr std::array<double, 3> kTruth = {0.8, 0.4, 0.1};
constexpr double kUnnamedTruth = 0.02;

TEST(GuessBlend, KnowsNothingAtFirst) {
  const GuessBlend blend;
  const float first = blend.chance({0, 0, 0}), unnamed = blend.chance({kUnnamed, kUnnamed, kUnnamed});
  EXPECT_EQ(first, unnamed);
  EXPECT_LT(first, 0.2F);
  EXPECT_EQ(blend.chance({kSilent, kSilent, kSilent}), 0.5F);
}

// One predictor knows, one says the same as noise, one is silent: the chances become those of the first.
TEST(GuessBlend, ChancesAreThoseOfThePredictorThatKnows) {
  GuessBlend blend;
  TestRng rng;
  const auto draw = [&rng](double chance) { return static_cast<double>(rng.below(1000000)) < chance * 1e6 ? 1U : 0U; };
  for (int i = 0; i < 3000; ++i) {
    const auto noise = static_cast<uint32_t>(rng.below(3));
    for (uint32_t rank = 0; rank < 3; ++rank) {
      blend.learn({static_cast<uint8_t>(rank), static_cast<uint8_t>((rank + noise) % 3), kSilent}, 1,
                  draw(kTruth[rank]));
    }
    uint32_t n_surprises = 0;
    for (int k = 0; k < 10; ++k) n_surprises += draw(kUnnamedTruth);
    blend.learn({kUnnamed, kUnnamed, kSilent}, 10, n_surprises);
    blend.step();
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (const uint8_t noise : {0, 1, 2})
      EXPECT_NEAR(blend.chance({static_cast<uint8_t>(rank), noise, kSilent}), kTruth[rank], 0.12) << rank;
  }
  EXPECT_NEAR(blend.chance({kUnnamed, kUnnamed, kSilent}), kUnnamedTruth, 0.03);
}

// Two that say the same are not counted twice, as they would be if they were independent (0.94).
TEST(GuessBlend, WhatTwoPredictorsRepeatCountsOnce) {
  GuessBlend blend;
  TestRng rng;
  for (int i = 0; i < 4000; ++i) {
    blend.learn({0, 0, kSilent}, 1, rng.below(10) < 8 ? 1 : 0);
    blend.learn({1, 1, kSilent}, 1, rng.below(10) < 2 ? 1 : 0);
    blend.learn({kUnnamed, kUnnamed, kSilent}, 10, 0);
    blend.step();
  }
  EXPECT_NEAR(blend.chance({0, 0, kSilent}), 0.8, 0.08);
  EXPECT_NEAR(blend.chance({1, 1, kSilent}), 0.2, 0.08);
}

// Two that know different things are more together than each alone.
TEST(GuessBlend, WhatTwoPredictorsKnowIsAddedUp) {
  GuessBlend blend;
  TestRng rng;
  for (int i = 0; i < 4000; ++i) {
    const bool a = rng.below(2) == 0, b = rng.below(2) == 0;
    // log odds: -2 +- 1.5 +- 1.5
    const double odds = -2 + (a ? 1.5 : -1.5) + (b ? 1.5 : -1.5);
    const double chance = 1 / (1 + std::exp(-odds));
    blend.learn({static_cast<uint8_t>(a ? 0 : 1), static_cast<uint8_t>(b ? 0 : 1), kSilent}, 1,
                static_cast<double>(rng.below(1000000)) < chance * 1e6 ? 1 : 0);
    blend.step();
  }
  // The truth is 0.73, 0.12, 0.01; each alone knows 0.42 or 0.07.
  EXPECT_GT(blend.chance({0, 0, kSilent}), 0.55);
  EXPECT_LT(blend.chance({0, 1, kSilent}), 0.33);
  EXPECT_LT(blend.chance({1, 1, kSilent}), 0.06);
}

}  // namespace
}  // namespace outrider::engine

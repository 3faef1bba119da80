// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/guess_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace outrider::engine {
namespace {

std::vector<RankedGuess> guesses(double right, uint32_t n) {
  return std::vector<RankedGuess>(n, {.is_free = false, .right = right});
}

uint32_t width_of(std::span<const RankedGuess> ranked, double n_others, const GuessTimes& times) {
  return worthwhile_guesses(ranked, n_others, times).width;
}

TEST(GuessValue, ExpectedStallIsThatOfTheMissesLessWhatComputationCovers) {
  EXPECT_NEAR(expected_stall_ns({}, 2, {.slab_ns = 1000}), 2000, 3);
  EXPECT_NEAR(expected_stall_ns({}, 2, {.start_ns = 5000, .slab_ns = 1000}), 2000 + 5000 * (1 - std::exp(-2.0)), 3);
  EXPECT_NEAR(expected_stall_ns({}, 2, {.start_ns = 5000, .slab_ns = 1000, .stalled = 0.25}),
              500 + 1250 * (1 - std::exp(-2.0)), 3);
  EXPECT_EQ(expected_stall_ns({}, 0, {.start_ns = 5000, .slab_ns = 1000}), 0);
  // One miss is covered, two are not.
  const double rare = expected_stall_ns({}, 0.1, {.slab_ns = 1000, .cover_ns = 1000});
  EXPECT_NEAR(rare, 1000 * (0.1 - (1 - std::exp(-0.1))), 3);
  // Of guesses each counts with its own chance: one that is sure is not "one on average".
  const std::vector<double> sure = {1.0}, doubtful = {0.9, 0.5};
  EXPECT_NEAR(expected_stall_ns(sure, 0, {.start_ns = 5000, .slab_ns = 1000}), 6000, 3);
  EXPECT_NEAR(expected_stall_ns(doubtful, 0, {.start_ns = 5000, .slab_ns = 1000}), 1400 + 5000 * (1 - 0.1 * 0.5), 3);
}

// One thing at a time: as many as the idle time can begin, when they are mostly right.
TEST(GuessValue, IdleTimeOfTheDriveIsTheLimit) {
  const GuessTimes times = {.idle_ns = 2500, .slab_ns = 1000, .piece_ns = 300};
  EXPECT_EQ(width_of(guesses(0.8, 8), 0, times), 4U);  // the fourth where it happens to be longer
  const GuessChoice two = worthwhile_guesses(guesses(0.8, 2), 0, times);
  EXPECT_EQ(two.width, 2U);
  EXPECT_EQ(two.read_ns, 2000);
}

TEST(GuessValue, WithoutIdleTimeNothingIsRead) {
  EXPECT_EQ(width_of(guesses(0.9, 8), 0, {.idle_ns = 10, .slab_ns = 1000, .piece_ns = 300}), 0U);
  EXPECT_EQ(width_of(guesses(0.9, 8), 0, {.idle_ns = 10}), 0U);  // no demand has waited yet
}

TEST(GuessValue, WhatIsRarelyRightIsNotWorthWhatItPushesOut) {
  const GuessTimes times = {.idle_ns = 100000, .slab_ns = 1000, .piece_ns = 300};
  EXPECT_EQ(width_of(guesses(0.015, 8), 0, times), 0U);
  EXPECT_EQ(width_of(guesses(0.2, 8), 0, times), 8U);
}

TEST(GuessValue, WhatComputationCoversNeedsNoGuess) {
  GuessTimes times = {.idle_ns = 5000, .slab_ns = 1000, .cover_ns = 900, .piece_ns = 300};
  EXPECT_EQ(width_of(guesses(0.9, 2), 0, times), 2U);
  times.cover_ns = 10000;
  EXPECT_EQ(width_of(guesses(0.9, 2), 0, times), 0U);
}

// Where reads overlap a layer waits for its start unless everything it lacks was guessed: poor ranks are worth their
// reads beside others that alone would not be enough.
TEST(GuessValue, WhereReadsOverlapAWideGuessIsWorthMoreThanItsParts) {
  const GuessTimes times = {.idle_ns = 10000, .start_ns = 5000, .slab_ns = 50, .piece_ns = 50};
  EXPECT_EQ(width_of(guesses(0.5, 4), 0, times), 4U);
  EXPECT_GT(worthwhile_guesses(guesses(0.3, 12), 0, times).width, 8U);
  // When enough others are missing anyway nothing is won.
  EXPECT_EQ(width_of(guesses(0.3, 2), 6, times), 0U);
}

TEST(GuessValue, ReadsThatTheProcessorCopiesMustSaveMoreThanThat) {
  GuessTimes times = {.idle_ns = 5000, .slab_ns = 100, .piece_ns = 30, .copy_ns = 20};
  EXPECT_EQ(width_of(guesses(0.3, 3), 0, times), 3U);
  times.copy_ns = 90;
  EXPECT_EQ(width_of(guesses(0.3, 3), 0, times), 0U);
  EXPECT_EQ(width_of(guesses(0.9, 3), 0, times), 3U);  // a right one would be copied for the demand, too
}

// A wrong estimate of what is waited for makes guesses worth less, not others.
TEST(GuessValue, TheGainIsOfTheStallThatIsReal) {
  GuessTimes times = {.idle_ns = 50000, .slab_ns = 1000, .piece_ns = 300};
  const GuessChoice whole = worthwhile_guesses(guesses(0.9, 1), 0, times);
  EXPECT_NEAR(whole.gain_ns, 900 - 2, 1e-6);  // less what it pushes out
  times.stalled = 0.5;
  EXPECT_NEAR(worthwhile_guesses(guesses(0.9, 1), 0, times).gain_ns, 450 - 2, 1e-6);
  times.stalled = 0.002;
  EXPECT_EQ(width_of(guesses(0.9, 1), 0, times), 0U);
}

// One that is under way when the demand comes is waited for only for what is left of it, beside what the demand begins.
TEST(GuessValue, AReadThatIsUnderWayCountsForWhatItHasDone) {
  const GuessTimes times = {.idle_ns = 2000, .start_ns = 4000, .slab_ns = 100, .piece_ns = 100};
  const GuessChoice choice = worthwhile_guesses(guesses(1, 3), 0, times);
  EXPECT_EQ(choice.width, 3U);
  // All three are begun: instead of 4300, what is left of the third: 2300 on average.
  EXPECT_NEAR(choice.gain_ns, 2000, 150);
}

TEST(GuessValue, GuessesThatAreThereAreKeptBesideThoseThatAreRead) {
  const GuessTimes times = {.idle_ns = 5000, .slab_ns = 1000, .piece_ns = 300};
  const RankedGuess here = {.is_free = true, .right = 1}, away = {.is_free = false, .right = 0.9},
                    poor = {.is_free = false, .right = 0.01};
  EXPECT_EQ(width_of(std::vector{here, here}, 0, times), 0U);  // nothing to read
  EXPECT_EQ(width_of(std::vector{here, away, here, poor, here}, 0, times), 3U);
}

}  // namespace
}  // namespace outrider::engine

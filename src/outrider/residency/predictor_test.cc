// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/predictor.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "outrider/base/test_rng.h"

namespace outrider::residency {
namespace {

std::vector<uint32_t> guess(Predictor& predictor, uint32_t layer, int32_t token, uint32_t width) {
  std::vector<uint32_t> out(width);
  out.resize(predictor.predict(layer, token, out));
  return out;
}

void see(Predictor& predictor, uint32_t layer, int32_t token, std::vector<uint32_t> ids) {
  predictor.observe(layer, {&token, 1}, ids, static_cast<uint32_t>(ids.size()));
}

TEST(Predictor, TopScoresAreLargestFirstWithTiesAtTheLowerId) {
  const std::array<float, 6> scores = {0.5F, 0, 0.7F, 0.5F, -1, 0.7F};
  std::array<uint32_t, 6> out = {};
  ASSERT_EQ(top_scores(scores, out), 4U);
  EXPECT_EQ(out[0], 2U);
  EXPECT_EQ(out[1], 5U);
  EXPECT_EQ(out[2], 0U);
  EXPECT_EQ(out[3], 3U);
  ASSERT_EQ(top_scores(scores, std::span(out).first(1)), 1U);
  EXPECT_EQ(out[0], 2U);
  EXPECT_EQ(top_scores(scores, {}), 0U);
}

TEST(Predictor, TokenKnowsWhatATokenUsedAndFallsBackToTheLayer) {
  const auto predictor = make_token_predictor(2, 16, 100, 1 << 20);
  EXPECT_TRUE(guess(*predictor, 0, 7, 4).empty());
  for (int i = 0; i < 20; ++i) {
    see(*predictor, 0, 7, {3, 4});
    see(*predictor, 1, 7, {9, 8});
    see(*predictor, 0, 5, {1, 2});
  }
  see(*predictor, 0, 7, {3, 6});  // a one-off
  EXPECT_EQ(guess(*predictor, 0, 7, 3), (std::vector<uint32_t>{3, 4, 6}));
  EXPECT_EQ(guess(*predictor, 1, 7, 2), (std::vector<uint32_t>{8, 9}));
  EXPECT_EQ(guess(*predictor, 0, 5, 2), (std::vector<uint32_t>{1, 2}));
  const std::vector<uint32_t> unseen = guess(*predictor, 0, 99, 4);  // the layer's own frequencies
  EXPECT_EQ(unseen.size(), 4U);
  EXPECT_EQ(unseen[0], 3U);
}

TEST(Predictor, TokensThatShareAPlaceNeverGetEachOthersGuesses) {
  const uint64_t max_bytes = 1100;  // a few places
  const auto predictor = make_token_predictor(1, 64, 1000, max_bytes);
  EXPECT_LE(token_predictor_bytes(1, 64, 1000, max_bytes), max_bytes);
  TestRng rng;
  for (int i = 0; i < 5000; ++i) {
    const auto token = static_cast<int32_t>(rng.below(1000));
    see(*predictor, 0, token, {static_cast<uint32_t>(token % 64)});
    const std::vector<uint32_t> out = guess(*predictor, 0, token, 1);
    ASSERT_EQ(out.size(), 1U);
  }
  // Seen often enough, a token gets a place.
  for (int i = 0; i < 40; ++i) see(*predictor, 0, 777, {9});
  EXPECT_EQ(guess(*predictor, 0, 777, 1)[0], 9U);
}

TEST(Predictor, TokenStateIsBoundedAndGuessesTheSameAgain) {
  const uint64_t max_bytes = 8000;
  const auto predictor = make_token_predictor(3, 16, 500, max_bytes);
  EXPECT_EQ(predictor->state().size(), 3U * 16 * 4);  // the frequencies
  TestRng rng;
  for (int i = 0; i < 2000; ++i) {
    const auto token = static_cast<int32_t>(rng.below(500));
    for (uint32_t layer = 0; layer < 3; ++layer) {
      const uint32_t first = static_cast<uint32_t>(rng.below(8));
      see(*predictor, layer, token, {first, first + 4, first + 8});
    }
  }
  const std::vector<std::byte> state = predictor->state();
  EXPECT_LE(state.size(), max_bytes);
  EXPECT_GT(state.size(), max_bytes / 2);
  const auto again = make_token_predictor(3, 16, 500, max_bytes);
  see(*again, 0, 1, {15});  // replaced
  ASSERT_TRUE(again->restore(state));
  EXPECT_EQ(again->state(), state);
  for (int32_t token = 0; token < 500; ++token) {
    for (uint32_t layer = 0; layer < 3; ++layer)
      ASSERT_EQ(guess(*again, layer, token, 8), guess(*predictor, layer, token, 8));
  }
}

// Any byte changed: either refused, and nothing has changed, or every guess is an expert of the model.
TEST(Predictor, TokenRefusesAStateThatIsNone) {
  const auto teacher = make_token_predictor(1, 16, 10, 1 << 16);
  for (int32_t token = 0; token < 3; ++token) see(*teacher, 0, token, {static_cast<uint32_t>(token), 9});
  const std::vector<std::byte> state = teacher->state();
  const auto predictor = make_token_predictor(1, 16, 10, 1 << 16);
  ASSERT_TRUE(predictor->restore(state));
  for (size_t n = 0; n < state.size(); ++n) {
    const bool is_whole = n >= 16 * 4 && (n - 16 * 4) % (4 + 1 + 4 * kTokenExperts) == 0;
    if (is_whole) continue;
    EXPECT_FALSE(predictor->restore(std::span(state).first(n))) << n;
  }
  EXPECT_EQ(predictor->state(), state);
  uint32_t n_refused = 0;
  for (size_t i = 0; i < state.size(); ++i) {
    std::vector<std::byte> damaged = state;
    damaged[i] ^= std::byte{0xff};
    const std::vector<std::byte> before = predictor->state();
    if (!predictor->restore(damaged)) {
      ++n_refused;
      ASSERT_EQ(predictor->state(), before);
    }
    for (int32_t token = 0; token < 10; ++token) {
      for (const uint32_t expert : guess(*predictor, 0, token, 16)) ASSERT_LT(expert, 16U) << i;
    }
  }
  EXPECT_GT(n_refused, state.size() / 3);
  EXPECT_FALSE(make_recent_predictor(1, 16)->restore({}));
}

TEST(Predictor, RecentFollowsTheLastTokens) {
  const auto predictor = make_recent_predictor(1, 16);
  EXPECT_TRUE(guess(*predictor, 0, 0, 4).empty());
  for (int i = 0; i < 30; ++i) see(*predictor, 0, 1, {2, 3});
  for (int i = 0; i < 4; ++i) see(*predictor, 0, 1, {5, 2});
  EXPECT_EQ(guess(*predictor, 0, 0, 3), (std::vector<uint32_t>{2, 5, 3}));
}

}  // namespace
}  // namespace outrider::residency

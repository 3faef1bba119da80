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
  const uint64_t max_bytes = 600;  // a few places
  const auto predictor = make_token_predictor(1, 64, 1000, max_bytes);
  EXPECT_LT(token_predictor_bytes(1, 64, 1000, max_bytes), max_bytes + 64 * 4 * 2);
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

TEST(Predictor, RecentFollowsTheLastTokens) {
  const auto predictor = make_recent_predictor(1, 16);
  EXPECT_TRUE(guess(*predictor, 0, 0, 4).empty());
  for (int i = 0; i < 30; ++i) see(*predictor, 0, 1, {2, 3});
  for (int i = 0; i < 4; ++i) see(*predictor, 0, 1, {5, 2});
  EXPECT_EQ(guess(*predictor, 0, 0, 3), (std::vector<uint32_t>{2, 5, 3}));
}

}  // namespace
}  // namespace outrider::residency

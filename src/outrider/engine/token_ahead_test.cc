// SPDX-License-Identifier: Apache-2.0
// When the next token is guessed: while it pays, and now and then to see whether it would.
#include "outrider/engine/token_ahead.h"

#include <gtest/gtest.h>

#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/engine/cpu_device.h"

namespace outrider::engine {
namespace {

using std::chrono::microseconds;

class TokenAheadRule : public ::testing::Test {
 protected:
  TokenAheadRule() : device_(best_isa(), 1, 1, 4), weights_(kRows * kWidth) {
    TestRng random;
    for (float& w : weights_) w = random.uniform(-1.0F, 1.0F);
    head_.w = {.type = format::TensorType::kF32,
               .data = reinterpret_cast<const std::byte*>(weights_.data()),
               .row_bytes = kWidth * sizeof(float),
               .n_rows = kRows,
               .k = kWidth};
    ahead_ = std::make_unique<TokenAhead>(head_, device_, false);
  }

  // One pass; whether it was guessed. A guess saves 10 ms when it is right and loses 20 when not; 2 are spent on it.
  bool pass(bool is_right, microseconds hidden = microseconds(10000)) {
    if (!ahead_->wants_guess()) return false;
    ahead_->note_search(microseconds(2000));
    ahead_->note_guess(microseconds(20000), hidden);
    ahead_->note_outcome(is_right);
    return true;
  }
  uint32_t guesses_of(uint32_t n_passes, bool is_right, microseconds hidden = microseconds(10000)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_passes; ++i) n += pass(is_right, hidden) ? 1 : 0;
    return n;
  }

  static std::vector<float> random_input(uint64_t seed) {
    TestRng random(seed);
    std::vector<float> x(kWidth);
    for (float& value : x) value = random.uniform(-1.0F, 1.0F);
    return x;
  }
  static Rows rows_of(const std::vector<float>& x) { return {.f32 = const_cast<float*>(x.data()), .k = kWidth}; }
  std::vector<float> logits_of(const std::vector<float>& x) {
    std::vector<float> logits(kRows);
    const LinearOp whole = {&head_, logits.data()};
    device_.linear({&whole, 1}, rows_of(x), 1);
    return logits;
  }

  static constexpr uint32_t kRows = 300, kWidth = 64;
  CpuDevice device_;
  std::vector<float> weights_;
  DeviceLinear head_;
  std::unique_ptr<TokenAhead> ahead_;
};

TEST_F(TokenAheadRule, GuessesAlwaysWhileItPays) {
  EXPECT_EQ(guesses_of(200, true), 200U);
  EXPECT_NE(ahead_->report().find("guessed 200 times, right 200"), std::string::npos) << ahead_->report();
}

TEST_F(TokenAheadRule, WrongGuessesEndItAndRightOnesBringItBack) {
  EXPECT_EQ(guesses_of(40, true), 40U);
  EXPECT_LT(guesses_of(160, false), 40U);
  EXPECT_EQ(guesses_of(160, false), 10U);  // probes
  EXPECT_NE(ahead_->report().find("does not pay"), std::string::npos);
  EXPECT_GT(guesses_of(400, true), 250U);
}

TEST_F(TokenAheadRule, WhereNothingIsWaitedForItIsOnlyTried) {
  EXPECT_LE(guesses_of(160, true, microseconds(0)), 18U);
  EXPECT_LE(guesses_of(160, true, microseconds(1500)), 10U);
  EXPECT_GT(guesses_of(160, true), 100U);
}

// One slow reading, as of cold pages, does not decide for long.
TEST_F(TokenAheadRule, AHiccupIsForgotten) {
  guesses_of(20, true);
  ahead_->note_search(std::chrono::seconds(1));
  EXPECT_EQ(guesses_of(50, true), 50U);
}

// A choice that cannot be made, or whose pass never comes, costs as well.
TEST_F(TokenAheadRule, GuessesWithoutAnOutcomeEnd) {
  uint32_t n = 0;
  for (int i = 0; i < 160; ++i) {
    if (!ahead_->wants_guess()) continue;
    ahead_->note_search(microseconds(2000));
    ++n;
  }
  EXPECT_LE(n, 18U);
}

TEST_F(TokenAheadRule, LikeliestAreExactAndOfWhatCanBeChosen) {
  struct Odd final : NextTokenChooser {
    void shape(std::span<float> scores) const noexcept override {
      for (size_t id = 0; id < scores.size(); id += 2) scores[id] = -std::numeric_limits<float>::infinity();
    }
    int32_t choose(std::span<const Candidate> /*likeliest*/) noexcept override { return -1; }
  } odd;
  std::vector<float> logits(kRows);
  const std::vector<float> x = random_input(4), want = logits_of(x);
  const Rows in = rows_of(x);
  const std::span<const Candidate> likeliest = ahead_->likeliest(in, logits.data(), odd);
  ASSERT_EQ(likeliest.size(), 64U);
  for (const Candidate& c : likeliest) {
    EXPECT_EQ(c.id % 2, 1);
    EXPECT_EQ(c.logit, want[static_cast<size_t>(c.id)]);
  }
}

// What was found early is multiplied with the input that came; the next pass searches anew.
TEST_F(TokenAheadRule, AnEarlySearchServesOnePass) {
  struct All final : NextTokenChooser {
    void shape(std::span<float> /*scores*/) const noexcept override {}
    int32_t choose(std::span<const Candidate> /*likeliest*/) noexcept override { return -1; }
  } all;
  std::vector<float> logits(kRows);
  const std::vector<float> early = random_input(4), x = random_input(5);
  const auto ids_of = [](std::span<const Candidate> candidates) {
    std::vector<int32_t> ids;
    for (const Candidate& c : candidates) ids.push_back(c.id);
    return ids;
  };
  EXPECT_TRUE(ahead_->wants_guess());
  const std::vector<int32_t> of_early = ids_of(ahead_->likeliest(rows_of(early), logits.data(), all));
  EXPECT_TRUE(ahead_->wants_guess());
  const std::vector<int32_t> of_x = ids_of(ahead_->likeliest(rows_of(x), logits.data(), all));
  ASSERT_NE(of_early, of_x);

  EXPECT_TRUE(ahead_->wants_guess());
  ahead_->search_early(rows_of(early), logits.data(), all);
  const std::span<const Candidate> likeliest = ahead_->likeliest(rows_of(x), logits.data(), all);
  EXPECT_EQ(ids_of(likeliest), of_early);
  const std::vector<float> want = logits_of(x);
  for (const Candidate& c : likeliest) EXPECT_EQ(c.logit, want[static_cast<size_t>(c.id)]);
  EXPECT_TRUE(ahead_->wants_guess());
  EXPECT_EQ(ids_of(ahead_->likeliest(rows_of(x), logits.data(), all)), of_x);
  EXPECT_EQ(ahead_->n_early(), 1U);
}

// An early search counts when it outlasted its wait.
TEST_F(TokenAheadRule, WaitsForAnEarlySearchAreItsCost) {
  const auto passes = [&](microseconds early) {
    for (int i = 0; i < 40; ++i) {
      if (!ahead_->wants_guess()) continue;
      ahead_->note_early_search(early);
      ahead_->note_search(microseconds(100));
      ahead_->note_guess(microseconds(0), microseconds(1000));
      ahead_->note_outcome(true);
    }
    return ahead_->report().find("does not pay") == std::string::npos;
  };
  EXPECT_TRUE(passes(microseconds(0)));
  EXPECT_FALSE(passes(microseconds(2000)));
}

}  // namespace
}  // namespace outrider::engine

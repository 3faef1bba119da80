// SPDX-License-Identifier: Apache-2.0
// The arbiter: what it reads for, when it stops, and that wrong guesses cost nothing.
#include "outrider/engine/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "outrider/residency/test_store_model.h"

namespace outrider::engine {
namespace {

using residency::ExpertStore;
using residency::LayerPass;
using residency::StoreCounters;

constexpr uint32_t kLayers = 3;
constexpr uint32_t kExperts = 32;
constexpr uint32_t kUsed = 4;

// Experts that a token uses in a layer: a fixed set, so that its next time can be known.
std::vector<uint32_t> chosen_by(uint32_t layer, int32_t token) {
  TestRng rng(1000 * layer + static_cast<uint32_t>(token));
  std::vector<uint32_t> ids;
  while (ids.size() < kUsed) {
    const auto id = static_cast<uint32_t>(rng.below(kExperts));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

enum class Guess { kNone, kRight, kWrong };

// Guesses in place of all predictors: what the token will choose, or never anything of it.
class Oracle final : public residency::Predictor {
 public:
  explicit Oracle(bool is_right) : is_right_(is_right) {}
  std::string_view name() const noexcept override { return "oracle"; }
  void observe(uint32_t /*layer*/, std::span<const int32_t> /*tokens*/, std::span<const uint32_t> /*ids*/,
               uint32_t /*n_used*/) noexcept override {}
  uint32_t predict(uint32_t layer, int32_t token, std::span<uint32_t> out) noexcept override {
    const std::vector<uint32_t> right = chosen_by(layer, token);
    uint32_t n = 0;
    for (uint32_t e = 0; e < kExperts && n < kUsed; ++e) {
      const bool is_chosen = std::find(right.begin(), right.end(), e) != right.end();
      if (is_chosen == is_right_) out[n++] = e;
    }
    return n;
  }

 private:
  bool is_right_;
};

// A stand-in for the layer code: one token a pass, the router's guess right or wrong as asked.
class Ride {
 public:
  Ride(uint32_t width, uint32_t slots, uint32_t distance = 1, residency::Predictor* only = nullptr)
      : model_({.offset = 0,
                .n_experts = std::vector<uint32_t>(kLayers, kExperts),
                .part_bytes = std::vector<std::vector<uint64_t>>(kLayers, {512, 512})}),
        store_(model_.options(slots)) {
    spec_.n_vocab = 1000;
    spec_.router.n_experts = kExperts;
    spec_.router.n_used = kUsed;
    if (width > 0)
      ahead_ = std::make_unique<LookAhead>(
          spec_, kLayers, LookAheadOptions{.width = width, .distance = distance, .only = only}, store_);
  }

  // `tokens_seen`: how many different tokens there are.
  void run(uint32_t n_tokens, uint32_t tokens_seen, Guess guess) {
    TestRng rng(77);
    for (uint32_t i = 0; i < n_tokens; ++i) {
      const auto token = static_cast<int32_t>(rng.below(tokens_seen));
      if (ahead_) ahead_->begin_pass({&token, 1});
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::vector<uint32_t> ids = chosen_by(layer, token);
        const std::vector<uint32_t> uses(kUsed, 1);
        LayerPass pass = store_.begin(layer, ids, uses);
        if (ahead_) {
          ahead_->demand(layer, ids, kUsed);
          for (uint32_t distance = 1; distance <= kMaxAheadDistance && layer + distance < kLayers; ++distance) {
            if (ahead_->wants_guess(layer + distance, distance)) look_ahead(layer + distance, distance, token, guess);
          }
        }
        for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) pass.done(slabs);
        if (layer + 1 < kLayers) settle(layer + 1);
      }
      store_.end_step(1);
    }
  }

  void look_ahead(uint32_t layer, uint32_t distance, int32_t token, Guess guess) {
    if (guess == Guess::kNone || !ahead_->wants_router(layer, distance)) return ahead_->guess(layer, distance, {});
    const std::vector<uint32_t> right = chosen_by(layer, token);
    std::vector<uint32_t> ids = right;
    for (uint32_t e = 0; e < kExperts; ++e) {
      if (std::find(right.begin(), right.end(), e) == right.end()) ids.push_back(e);
    }
    if (guess == Guess::kWrong) std::rotate(ids.begin(), ids.begin() + kUsed, ids.end());
    ids.resize(LookAhead::router_width(spec_));
    ahead_->guess(layer, distance, ids);
  }

  // The idle time of a layer: what was admitted lands.
  void settle(uint32_t layer) {
    while (ahead_ && store_.n_reads_ahead() > 0) {
      store_.predict(layer, {});
      std::this_thread::yield();
    }
  }

  const StoreCounters& counters() const { return store_.counters(); }
  LookAhead& ahead() { return *ahead_; }

 private:
  model::ModelSpec spec_;
  residency::Model model_;
  ExpertStore store_;
  std::unique_ptr<LookAhead> ahead_;
};

// PERF-5: what is right hides reads; what is always wrong is never read for, so no demand misses more.
TEST(LookAhead, RightGuessesAreHitsAndWrongOnesCostNothing) {
  for (const uint32_t slots : {6U, 16U}) {
    Ride off(0, slots);
    off.run(300, 40, Guess::kNone);
    for (const uint32_t width : {kUsed, 8U}) {
      Oracle knowing(true), wrong(false);
      Ride right(width, slots, 1, &knowing);
      right.run(300, 40, Guess::kNone);
      EXPECT_LT(right.counters().bytes_demand, off.counters().bytes_demand * 3 / 5);
      EXPECT_LT(right.counters().misses, off.counters().misses * 3 / 5);  // half of 6 slots do not hold 4 guesses
      EXPECT_EQ(right.counters().bytes_predicted_wasted, 0U);
      Ride misled(width, slots, 1, &wrong);
      misled.run(300, 40, Guess::kNone);
      EXPECT_EQ(misled.counters().misses, off.counters().misses);
      EXPECT_EQ(misled.counters().bytes_read, off.counters().bytes_read);
      EXPECT_EQ(misled.counters().predicted, 0U);
    }
  }
}

// One that is wrong is told from others that are not.
TEST(LookAhead, AWrongRouterIsNotFollowedBesideATokenThatIsKnown) {
  Ride off(0, 6), ride(kUsed, 6);
  off.run(300, 40, Guess::kNone);
  ride.run(300, 40, Guess::kWrong);
  EXPECT_LT(ride.counters().misses, off.counters().misses);
  EXPECT_GT(ride.counters().predicted_used * 2, ride.counters().predicted);
}

TEST(LookAhead, FromFurtherAwayItIsScoredForItself) {
  Ride ride(kUsed, 12, 2);
  ride.run(200, 1000, Guess::kRight);  // hardly a token comes twice: only the router knows
  const std::vector<LookAheadScore> scores = ride.ahead().scores();
  ASSERT_EQ(scores.size(), 32U);
  EXPECT_EQ(scores[kUsed - 1].distance, 1U);
  EXPECT_EQ(scores[16 + kUsed - 1].distance, 2U);
  EXPECT_EQ(scores[16 + kUsed - 1].width, kUsed);
  // Layers 1 and 2 are known one layer ahead, layer 2 from layer 0; of the others chance, 1/8, until they are let be.
  EXPECT_GT(scores[kUsed - 1].precision, 0.6);
  EXPECT_GT(scores[16 + kUsed - 1].precision, 0.45);
  EXPECT_GT(ride.counters().predicted_used, 400U);
}

// Half of what is chosen depends on the token, the other half on what only the router knows.
TEST(LookAhead, WhatPredictorsKnowTogetherIsPutTogether) {
  residency::Model model({.offset = 0, .n_experts = {kExperts}, .part_bytes = {{512}}});
  ExpertStore store(model.options(16));
  model::ModelSpec spec;
  spec.n_vocab = 1000;
  spec.router.n_experts = kExperts;
  spec.router.n_used = kUsed;
  LookAhead ahead(spec, 1, {.width = kUsed}, store);
  TestRng rng(5);
  for (uint32_t i = 0; i < 600; ++i) {
    const auto token = static_cast<int32_t>(rng.below(20));
    std::vector<uint32_t> ids = {static_cast<uint32_t>(token) % 16, (static_cast<uint32_t>(token) * 5 + 3) % 16};
    if (ids[0] == ids[1]) ids[1] = (ids[1] + 1) % 16;
    const uint32_t a = 16 + static_cast<uint32_t>(rng.below(8)), b = 24 + static_cast<uint32_t>(rng.below(8));
    ids.insert(ids.end(), {a, b});
    std::vector<uint32_t> router = {a, b};
    for (uint32_t e = 0; router.size() < LookAhead::router_width(spec); ++e) router.push_back((i + e) % 16);
    ahead.begin_pass({&token, 1});
    ahead.guess(0, 1, router);
    const std::vector<uint32_t> uses(kUsed, 1);
    LayerPass pass = store.begin(0, ids, uses);
    ahead.demand(0, ids, kUsed);
    for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) pass.done(slabs);
  }
  EXPECT_GT(ahead.scores()[kUsed - 1].precision, 0.9);
  EXPECT_NE(ahead.report().find("blend 1"), std::string::npos) << ahead.report();
}

TEST(LookAhead, ScoresArePrecisionAndCoverageOfTheGuesses) {
  Ride ride(8, 8);
  ride.run(200, 50, Guess::kRight);
  const std::vector<LookAheadScore> scores = ride.ahead().scores();
  ASSERT_EQ(scores.size(), 16U);
  // Layers 1 and 2 are known by the router; layer 0 by the token, once it has been seen.
  EXPECT_GT(scores[3].precision, 0.85);
  EXPECT_GT(scores[3].coverage, 0.85);
  EXPECT_LT(scores[7].precision, 0.6);
  EXPECT_GE(scores[7].coverage, scores[3].coverage);
  EXPECT_EQ(ride.ahead().width(), 8U);
}

TEST(LookAhead, AutoSleepsWhenAllThatIsDemandedIsResident) {
  Ride ride(kLookAheadAuto, kExperts);
  ride.run(400, 40, Guess::kRight);
  EXPECT_NE(ride.ahead().report().find("asleep"), std::string::npos) << ride.ahead().report();
  EXPECT_FALSE(ride.ahead().wants_router(1, 1));
}

}  // namespace
}  // namespace outrider::engine

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

// A stand-in for the layer code: one token a pass, the router's guess right or wrong as asked.
class Ride {
 public:
  Ride(uint32_t width, uint32_t slots) : model_({.offset = 0, .n_experts = std::vector<uint32_t>(kLayers, kExperts),
                                                .part_bytes = std::vector<std::vector<uint64_t>>(kLayers, {512, 512})}),
                                         store_(model_.options(slots)) {
    spec_.n_vocab = 1000;
    spec_.router.n_experts = kExperts;
    spec_.router.n_used = kUsed;
    if (width > 0) ahead_ = std::make_unique<LookAhead>(spec_, kLayers, width, store_);
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
          if (layer + 1 < kLayers) look_ahead(layer + 1, token, guess);
        }
        for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) pass.done(slabs);
        if (layer + 1 < kLayers) settle(layer + 1);
      }
      store_.end_step(1);
    }
  }

  void look_ahead(uint32_t layer, int32_t token, Guess guess) {
    if (guess == Guess::kNone || !ahead_->wants_router(layer)) return ahead_->guess(layer, {});
    const std::vector<uint32_t> right = chosen_by(layer, token);
    std::vector<uint32_t> ids = right;
    for (uint32_t e = 0; e < kExperts; ++e) {
      if (std::find(right.begin(), right.end(), e) == right.end()) ids.push_back(e);
    }
    if (guess == Guess::kWrong) std::rotate(ids.begin(), ids.begin() + kUsed, ids.end());
    ids.resize(LookAhead::router_width(spec_));
    ahead_->guess(layer, ids);
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

// PERF-5: what is right hides reads; what is always wrong is not read for, and no demand misses more.
TEST(LookAhead, RightGuessesAreHitsAndWrongOnesCostNothing) {
  for (const uint32_t slots : {6U, 16U}) {
    Ride off(0, slots);
    off.run(300, 40, Guess::kNone);
    Ride right(kUsed, slots);
    right.run(300, 40, Guess::kRight);
    EXPECT_LT(right.counters().bytes_demand, off.counters().bytes_demand * 3 / 4);
    EXPECT_LT(right.counters().misses, off.counters().misses);
    EXPECT_GT(right.counters().predicted_used * 10, right.counters().predicted * 9);

    // Tokens without end, so that no other predictor knows them either.
    Ride off_new(0, slots);
    off_new.run(300, 1000, Guess::kNone);
    Ride wrong(kUsed, slots);
    wrong.run(300, 1000, Guess::kWrong);
    EXPECT_LE(wrong.counters().misses, off_new.counters().misses * 101 / 100);
    EXPECT_LE(wrong.counters().bytes_predicted_wasted, off_new.counters().bytes_demand / 10);
  }
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
  EXPECT_FALSE(ride.ahead().wants_router(1));
}

}  // namespace
}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/residency/decay_clock.h"

namespace outrider::residency {
namespace {

constexpr std::array<uint32_t, 2> kExperts = {8, 5};

void use(Policy& policy, uint32_t layer, std::vector<uint32_t> experts, std::vector<uint32_t> uses) {
  policy.observe(layer, experts, uses);
}

uint32_t victim_of(const Policy& policy, uint32_t layer, const std::vector<uint32_t>& candidates) {
  return candidates[policy.victim(layer, candidates)];
}

TEST(Policy, NamesAndTableAgree) {
  ASSERT_EQ(policy_names(),
            (std::vector<std::string_view>{"lru", "lfu", "recent1", "protect", "class-lru", "guarded"}));
  for (const std::string_view name : policy_names()) EXPECT_NE(make_policy(name, kExperts, {}), nullptr);
  EXPECT_THROW(make_policy("LRU", kExperts, {}), Error);
}

TEST(Policy, LruEvictsTheOldestDemandThenTheFewestUses) {
  const auto policy = make_policy("lru", kExperts, {});
  EXPECT_EQ(victim_of(*policy, 0, {5, 3, 7}), 3U);  // never demanded: the lowest id
  use(*policy, 0, {1, 2, 3}, {4, 9, 4});
  use(*policy, 0, {0}, {1});
  use(*policy, 1, {0, 4}, {1, 1});
  EXPECT_EQ(victim_of(*policy, 0, {0, 2, 3, 1}), 1U);  // 1 and 3 have 4 uses each
  EXPECT_EQ(victim_of(*policy, 0, {0, 2}), 2U);        // older beats fewer uses
  EXPECT_EQ(victim_of(*policy, 0, {0, 1, 6}), 6U);
  EXPECT_EQ(victim_of(*policy, 1, {4, 0}), 0U);  // layers do not mix
  use(*policy, 0, {1}, {1});
  EXPECT_EQ(victim_of(*policy, 0, {0, 1}), 0U);
}

TEST(Policy, LfuCountsHalveEveryHalfLife) {
  const auto policy = make_policy("lfu", kExperts, {.lfu_half_life_tokens = 10});
  use(*policy, 0, {1, 2}, {4, 8});
  EXPECT_EQ(victim_of(*policy, 0, {2, 1}), 1U);
  policy->end_step(10);
  use(*policy, 0, {3}, {3});
  EXPECT_EQ(victim_of(*policy, 0, {1, 3}), 1U);  // 4 are worth 2 now
  EXPECT_EQ(victim_of(*policy, 0, {2, 3}), 3U);  // 8 are worth 4
  policy->end_step(5);
  policy->end_step(5);
  use(*policy, 0, {4}, {2});
  EXPECT_EQ(victim_of(*policy, 0, {2, 4}), 2U);  // both worth 2: the older demand
  EXPECT_TRUE(policy->admit(0, 1, 2));           // what a guess may push out is the guard's business
}

// Weights grow as 2^(tokens / half-life); after thousands of half-lives the order of recent counts is still right.
TEST(Policy, LfuKeepsItsOrderOverAnyNumberOfTokens) {
  const auto policy = make_policy("lfu", kExperts, {.lfu_half_life_tokens = 1});
  use(*policy, 0, {1}, {1});
  policy->end_step(1);
  for (uint32_t step = 1; step < 3000; ++step) {
    const uint32_t older = step % 8;
    const uint32_t newer = (step + 1) % 8;
    use(*policy, 0, {older, newer}, {1, 1});
    ASSERT_EQ(victim_of(*policy, 0, {newer, older}), newer) << step;  // used in the step before as well
    policy->end_step(1);
  }
  policy->end_step(UINT32_MAX);
  use(*policy, 0, {5}, {1});
  EXPECT_NE(victim_of(*policy, 0, {5, 6}), 5U);
}

TEST(Policy, Recent1KeepsTheLastDemandThenCountsUses) {
  const auto policy = make_policy("recent1", kExperts, {});
  use(*policy, 0, {1, 2, 3}, {9, 2, 4});
  use(*policy, 0, {4}, {1});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2, 3, 4}), 2U);
  EXPECT_EQ(victim_of(*policy, 0, {1, 4}), 1U);  // nine uses do not save it from the one of the last demand
  EXPECT_TRUE(policy->admit(0, 5, 1));
  EXPECT_FALSE(policy->admit(0, 5, 4));
  use(*policy, 1, {0}, {1});
  EXPECT_FALSE(policy->admit(0, 5, 4));  // another layer's demand changes nothing here
}

TEST(Policy, ProtectSparesWhatIsExpectedUntilTheNextDemand) {
  const auto policy = make_policy("protect", kExperts, {});
  use(*policy, 0, {1}, {1});
  use(*policy, 0, {2}, {1});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 1U);
  policy->expect(0, std::vector<uint32_t>{1, 7});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 2U);
  EXPECT_EQ(victim_of(*policy, 0, {1}), 1U);  // when nothing else can leave
  EXPECT_FALSE(policy->admit(0, 7, 1));
  EXPECT_TRUE(policy->admit(0, 7, 2));
  policy->expect(0, std::vector<uint32_t>{2});  // in place of what was named before
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 1U);
  use(*policy, 0, {3}, {1});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 1U);
  EXPECT_TRUE(policy->admit(0, 7, 2));
}

TEST(Policy, ClassLruComparesPowersOfTwoThenAge) {
  const auto policy = make_policy("class-lru", kExperts, {.lfu_half_life_tokens = 100});
  use(*policy, 0, {1}, {4});  // 1 + 4: class 2
  use(*policy, 0, {2}, {6});  // class 2
  use(*policy, 0, {3}, {1});  // class 1
  EXPECT_EQ(victim_of(*policy, 0, {1, 2, 3}), 3U);
  EXPECT_EQ(victim_of(*policy, 0, {2, 1}), 1U);  // fewer uses would be 1 as well: age decides
  use(*policy, 0, {1}, {1});                     // 1 + 5: class 2 still, and younger
  EXPECT_EQ(victim_of(*policy, 0, {2, 1}), 2U);
  EXPECT_TRUE(policy->admit(0, 5, 3));   // class 0 for class 1
  EXPECT_FALSE(policy->admit(0, 5, 2));  // class 0 for class 2
}

// 600 tokens of a prompt are not 600 recent tokens: the next few outweigh what only the start of it used.
TEST(Policy, GuardedSpreadsThePassOverItsTokens) {
  const DecayClock clock(8);
  EXPECT_DOUBLE_EQ(clock.weight_in(1), 1);
  double sum = 0;
  for (int i = 0; i < 40; ++i) sum += std::exp2(-i / 8.0);
  EXPECT_NEAR(clock.weight_in(40) * 40, sum, 1e-9);
  const auto policy = make_policy("guarded", kExperts, {.lfu_half_life_tokens = 64});
  use(*policy, 0, {1, 2}, {600, 20});
  policy->end_step(1200);
  for (int i = 0; i < 6; ++i) {
    use(*policy, 0, {3}, {1});
    policy->end_step(1);
  }
  EXPECT_EQ(victim_of(*policy, 0, {1, 2, 3}), 2U);
  EXPECT_EQ(victim_of(*policy, 0, {1, 3}), 1U);
}

TEST(Policy, GuardedWeighsFrequencyAndRecency) {
  const auto policy = make_policy("guarded", kExperts, {});
  use(*policy, 0, {1, 2}, {3, 1});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 2U);
  policy->end_step(64);  // the recent part is gone
  use(*policy, 0, {2}, {1});
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 1U);  // 2 is recent
  policy->end_step(64);
  EXPECT_EQ(victim_of(*policy, 0, {1, 2}), 2U);  // and then only less frequent
}

// admit() has no side effect and answers the same twice.
TEST(Policy, AdmitIsAPureQuestion) {
  TestRng rng(7);
  for (const std::string_view name : policy_names()) {
    const auto policy = make_policy(name, kExperts, {});
    for (int step = 0; step < 100; ++step) {
      use(*policy, 0, {static_cast<uint32_t>(rng.below(8))}, {static_cast<uint32_t>(1 + rng.below(9))});
      const uint32_t victim = victim_of(*policy, 0, {0, 1, 2, 3, 4, 5, 6});
      const bool answer = policy->admit(0, 7, victim);
      EXPECT_EQ(victim_of(*policy, 0, {0, 1, 2, 3, 4, 5, 6}), victim);
      EXPECT_EQ(policy->admit(0, 7, victim), answer);
      policy->end_step(1);
    }
  }
}

TEST(Policy, TheChoiceDoesNotDependOnTheOrderOfCandidates) {
  TestRng rng;
  for (const std::string_view name : policy_names()) {
    const auto policy = make_policy(name, kExperts, {});
    for (int step = 0; step < 200; ++step) {
      std::vector<uint32_t> experts = {0, 1, 2, 3, 4, 5, 6, 7};
      for (uint32_t i = 0; i < 8; ++i) std::swap(experts[i], experts[i + rng.below(8 - i)]);
      experts.resize(1 + rng.below(8));
      std::vector<uint32_t> uses;
      for (size_t i = 0; i < experts.size(); ++i) uses.push_back(static_cast<uint32_t>(1 + rng.below(3)));
      policy->observe(0, experts, uses);
      const uint32_t chosen = victim_of(*policy, 0, experts);
      std::reverse(experts.begin(), experts.end());
      ASSERT_EQ(victim_of(*policy, 0, experts), chosen);
      if (rng.below(4) == 0) policy->end_step(3);
    }
  }
}

}  // namespace
}  // namespace outrider::residency

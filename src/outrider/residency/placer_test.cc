// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/placer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "outrider/base/test_rng.h"

namespace outrider::residency {
namespace {

Placer make_placer(std::vector<uint32_t> n_experts, uint32_t slots, const char* policy = "lru") {
  return Placer(n_experts, slots, make_policy(policy, n_experts, {}));
}

std::set<uint32_t> residents(const Placer& placer, uint32_t layer) {
  std::set<uint32_t> out(placer.occupants(layer).begin(), placer.occupants(layer).end());
  out.erase(kNoExpert);
  return out;
}

// Carries a plan out by hand and checks the laws of the store.
void check_plan(const Placer::Plan& plan, std::vector<uint32_t> holders, const std::vector<uint32_t>& demand,
                std::span<const uint32_t> after) {
  std::set<uint32_t> served;
  std::map<uint32_t, uint32_t> needed_in;  // slot -> expert of this demand that has been put or found there
  for (const Placement& hit : plan.hits) {
    ASSERT_EQ(holders[hit.slot_idx], hit.expert);
    ASSERT_TRUE(served.insert(hit.expert).second);
    needed_in[hit.slot_idx] = hit.expert;
  }
  bool in_rounds = false;
  for (const Placement& load : plan.loads) {
    ASSERT_LT(load.slot_idx, holders.size());
    ASSERT_TRUE(served.insert(load.expert).second);
    // Never onto an expert of this demand while a slot is left that holds none.
    if (needed_in.contains(load.slot_idx)) {
      in_rounds = true;
      ASSERT_EQ(needed_in.size(), holders.size());
    } else {
      ASSERT_FALSE(in_rounds);
    }
    needed_in[load.slot_idx] = load.expert;
    holders[load.slot_idx] = load.expert;
  }
  ASSERT_EQ(served, std::set<uint32_t>(demand.begin(), demand.end()));
  ASSERT_EQ(in_rounds, demand.size() > holders.size());
  ASSERT_TRUE(std::equal(holders.begin(), holders.end(), after.begin(), after.end()));
}

TEST(Placer, EveryPlanServesEachExpertOnceAndEvictsNoneItNeeds) {
  TestRng rng;
  for (const char* policy : {"lru", "lfu"}) {
    for (uint32_t slots = 1; slots <= 13; ++slots) {
      Placer placer = make_placer({12, 5}, slots, policy);
      EXPECT_EQ(placer.n_slots(0), std::min(slots, 12U));
      EXPECT_EQ(placer.n_slots(1), std::min(slots, 5U));
      for (int step = 0; step < 150; ++step) {
        const auto layer = static_cast<uint32_t>(rng.below(2));
        std::vector<uint32_t> demand(layer == 0 ? 12 : 5);
        std::iota(demand.begin(), demand.end(), 0U);
        for (size_t i = 0; i < demand.size(); ++i) std::swap(demand[i], demand[i + rng.below(demand.size() - i)]);
        demand.resize(1 + rng.below(demand.size()));
        std::vector<uint32_t> uses;
        for (size_t i = 0; i < demand.size(); ++i) uses.push_back(static_cast<uint32_t>(1 + rng.below(9)));
        const std::vector<uint32_t> holders(placer.occupants(layer).begin(), placer.occupants(layer).end());
        const Placer::Plan plan = placer.place(layer, demand, uses);
        ASSERT_NO_FATAL_FAILURE(check_plan(plan, holders, demand, placer.occupants(layer)))
            << "slots " << slots << " step " << step;
        placer.end_step(1);
      }
    }
  }
}

TEST(Placer, AfterADemandThatDoesNotFitTheHottestStay) {
  std::vector<uint32_t> demand(12);
  std::iota(demand.begin(), demand.end(), 0U);
  const std::vector<uint32_t> uses = {5, 1, 9, 2, 7, 3, 11, 4, 6, 8, 12, 10};  // hottest: 10, 6, 11, 2
  for (const char* policy : {"lru", "lfu"}) {
    Placer placer = make_placer({12}, 4, policy);
    placer.place(0, demand, uses);
    EXPECT_EQ(residents(placer, 0), (std::set<uint32_t>{2, 6, 10, 11}));
    // Once more: all four are hits, two keep their slots, the others take turns with the cold ones.
    const Placer::Plan plan = placer.place(0, demand, uses);
    EXPECT_EQ(plan.hits.size(), 4U);
    const std::set<uint32_t> now = residents(placer, 0);
    EXPECT_TRUE(now.contains(10) && now.contains(6));
  }
}

TEST(Placer, ReadsOfARoundGoToAsManySlotsAsTakeTurns) {
  std::vector<uint32_t> demand(64);
  std::iota(demand.begin(), demand.end(), 0U);
  const std::vector<uint32_t> uses(64, 1);
  Placer placer = make_placer({64}, 8);
  for (int pass = 0; pass < 4; ++pass) {
    const Placer::Plan plan = placer.place(0, demand, uses);
    std::map<uint32_t, size_t> n_loads;
    for (const Placement& load : plan.loads) ++n_loads[load.slot_idx];
    EXPECT_GE(n_loads.size(), 4U);
    const size_t most = (plan.loads.size() + n_loads.size() - 1) / n_loads.size();
    for (const auto& [slot_idx, n] : n_loads) EXPECT_LE(n, most) << "pass " << pass << " slot " << slot_idx;
  }
}

// Two layers that share their slots are one layer with all experts, to the slot.
TEST(Placer, APoolIsOneLayerOfAllExperts) {
  const std::vector<uint32_t> n_experts = {12, 5};
  TestRng rng;
  for (const std::string_view policy : policy_names()) {
    for (const uint32_t slots : {2U, 3U, 7U, 20U}) {
      Placer pool(n_experts, slots, make_policy(policy, pooled_counts(n_experts, SlotPool::kGlobal), {}),
                  SlotPool::kGlobal);
      const std::vector<uint32_t> all = {17};
      Placer one(all, std::min(slots, 12U) + std::min(slots, 5U), make_policy(policy, all, {}));
      ASSERT_EQ(pool.n_slots(1), one.n_slots(0));
      for (int step = 0; step < 100; ++step) {
        const auto layer = static_cast<uint32_t>(rng.below(2));
        const uint32_t first = layer == 0 ? 0 : 12;
        std::vector<uint32_t> demand(n_experts[layer]);
        std::iota(demand.begin(), demand.end(), 0U);
        for (size_t i = 0; i < demand.size(); ++i) std::swap(demand[i], demand[i + rng.below(demand.size() - i)]);
        demand.resize(1 + rng.below(demand.size()));
        std::vector<uint32_t> ids = demand;
        for (uint32_t& id : ids) id += first;
        const std::vector<uint32_t> uses(demand.size(), 1 + static_cast<uint32_t>(rng.below(3)));
        const Placer::Plan got = pool.place(layer, demand, uses), want = one.place(0, ids, uses);
        const auto same = [&](const Placement& a, const Placement& b) {
          return a.expert + first == b.expert && a.slot_idx == b.slot_idx;
        };
        ASSERT_TRUE(std::ranges::equal(got.hits, want.hits, same));
        ASSERT_TRUE(std::ranges::equal(got.loads, want.loads, same));
        pool.end_step(1);
        one.end_step(1);
        const std::vector<uint8_t> all_may_leave(one.n_slots(0), 1);
        const auto guess = static_cast<uint32_t>(rng.below(n_experts[layer]));
        if (pool.slot_of(layer, guess) == Placer::kNoSlot) {
          const std::vector<uint32_t> named = {guess}, named_id = {guess + first};
          pool.expect(layer, named);
          one.expect(0, named_id);
          ASSERT_EQ(pool.slot_for_prediction(layer, guess, all_may_leave),
                    one.slot_for_prediction(0, guess + first, all_may_leave));
        }
        ASSERT_EQ(pool.heat(layer, guess), one.heat(0, guess + first));
      }
    }
  }
}

TEST(Placer, RestoreTellsWhatTheSlotsReallyHold) {
  Placer placer = make_placer({6}, 3);
  const std::vector<uint32_t> demand = {0, 1, 2, 3, 4};
  const std::vector<uint32_t> uses = {1, 1, 1, 1, 1};
  placer.place(0, demand, uses);
  const std::vector<uint32_t> held = {5, kNoExpert, 0};
  placer.restore(0, held);
  const std::vector<uint32_t> next = {5, 3, 0};
  const Placer::Plan plan = placer.place(0, next, std::span(uses).first(3));
  ASSERT_EQ(plan.hits.size(), 2U);
  ASSERT_EQ(plan.loads.size(), 1U);
  EXPECT_EQ(plan.loads[0].slot_idx, 1U);
}

}  // namespace
}  // namespace outrider::residency

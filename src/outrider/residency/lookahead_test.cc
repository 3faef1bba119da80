// SPDX-License-Identifier: Apache-2.0
// Predictions and refills of the store: what they may push out, what becomes of them, and that no bit and no demand
// suffers from them.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "outrider/base/error.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/guard.h"
#include "outrider/residency/policy.h"
#include "outrider/residency/test_store_model.h"

namespace outrider::residency {
namespace {

// A drive whose gate can be shut: reads wait at it until it opens. Keeps the offsets in the order in which they came.
class GatedDrive : public io::FaultPlan {
 public:
  bool may_block() const noexcept override { return true; }
  io::ReadFault on_read(const io::ReadOp& op) override {
    std::unique_lock lock(mutex_);
    offsets_.push_back(op.offset);
    arrived_.notify_all();
    opened_.wait(lock, [this] { return !shut_; });
    return {.error = op.offset >= bad_begin_ && op.offset < bad_end_ ? EBADF : 0};
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    shut_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    shut_ = false;
    opened_.notify_all();
  }
  void fail_between(uint64_t begin, uint64_t end) {
    const std::lock_guard lock(mutex_);
    bad_begin_ = begin, bad_end_ = end;
  }
  // Waits until n reads have come since the start.
  void wait_for(size_t n) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return offsets_.size() >= n; });
  }
  std::vector<uint64_t> offsets() {
    const std::lock_guard lock(mutex_);
    return offsets_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_, arrived_;
  bool shut_ = false;
  uint64_t bad_begin_ = 0, bad_end_ = 0;
  std::vector<uint64_t> offsets_;
};

constexpr uint64_t kSlab = 4000;
// Layers of 16 experts, one part each: expert e of layer l lies at (16 l + e) * kSlab.
const Geometry kPlain = {.offset = 0, .n_experts = {16, 16, 16}, .part_bytes = {{kSlab}, {kSlab}, {kSlab}}};

class Gated {
 public:
  explicit Gated(uint32_t slots, const std::string& policy = "lru", SlotPool pool = SlotPool::kLayer) : model(kPlain) {
    StoreOptions options = model.options(slots);
    options.pool = pool;
    options.io = IoMode::kThreads;
    options.direct = DirectMode::kOff;
    options.queue_depth = 1;  // one thread: what it holds at the gate is all that has started
    options.policy = policy;
    options.faults = &drive;
    store.emplace(options);
  }
  ~Gated() { drive.open(); }
  void demand(uint32_t layer, std::vector<uint32_t> experts) {
    run_demand(*store, model, {.layer = layer, .experts = experts, .uses = std::vector<uint32_t>(experts.size(), 1)});
  }
  void predict(uint32_t layer, std::vector<uint32_t> experts) { store->predict(layer, experts); }
  const StoreCounters& counters() const { return store->counters(); }
  void expect_classes_sum() const {
    const StoreCounters& c = counters();
    EXPECT_EQ(c.bytes_read, c.bytes_demand + c.bytes_predicted_used + c.bytes_predicted_wasted +
                                c.bytes_predicted_pending + c.bytes_background);
  }

  GatedDrive drive;
  Model model;
  std::optional<ExpertStore> store;
};

uint64_t offset_of(const Model& model, uint32_t layer, uint32_t expert) {
  return model.layers[layer].parts[0].offset + expert * kSlab;
}

// The case of design.md section 6, whatever the policy; its own judgement comes on top (recent1 spares the last
// demand).
class Guard : public ::testing::TestWithParam<std::string> {};
std::string policy_case(const ::testing::TestParamInfo<std::string>& test_case) {
  std::string name = test_case.param;
  std::erase(name, '-');
  return name;
}
std::vector<std::string> all_policies() {
  const std::vector<std::string_view> names = policy_names();
  return {names.begin(), names.end()};
}
INSTANTIATE_TEST_SUITE_P(LookAhead, Guard, ::testing::ValuesIn(all_policies()), policy_case);

TEST_P(Guard, AWarmResidentSurvivesAGuessForAnUnknownExpertAndAOnceUsedDoesNot) {
  {
    Gated g(3, GetParam());
    for (int i = 0; i < 8; ++i) g.demand(0, {0, 1, 2});
    const uint64_t reads = g.counters().reads;
    g.predict(0, {9});
    EXPECT_EQ(g.counters().dropped, 1U);
    EXPECT_EQ(g.counters().admitted, 0U);
    g.demand(0, {0, 1, 2});
    EXPECT_EQ(g.counters().reads, reads);
    EXPECT_EQ(g.counters().evicted, 0U);
    EXPECT_EQ(g.counters().misses, 3U);
  }
  Gated g(3, GetParam());
  for (int i = 0; i < 8; ++i) g.demand(0, {0, 1});
  g.demand(0, {2});
  g.demand(0, {0, 1});
  g.predict(0, {9});
  EXPECT_EQ(g.counters().admitted, 1U);
  EXPECT_EQ(g.counters().dropped, 0U);
  g.drive.wait_for(4);
  g.demand(0, {9, 0, 1});
  EXPECT_EQ(g.counters().evicted, 1U);
  EXPECT_EQ(g.counters().predicted_used, 1U);
  EXPECT_EQ(g.counters().bytes_predicted_used, kSlab);
  EXPECT_TRUE(g.store->is_resident(0, 0) && g.store->is_resident(0, 1) && g.store->is_resident(0, 9));
  EXPECT_FALSE(g.store->is_resident(0, 2));
  g.expect_classes_sum();
}

// The policy would give up the warm one first: the guard does not let it, and the guess takes the next.
TEST(LookAhead, AGuessTakesTheColdestThatTheGuardLetsGo) {
  Gated g(3, "lru");
  for (int i = 0; i < 8; ++i) g.demand(0, {0, 1});
  g.demand(0, {2});
  g.predict(0, {9});
  EXPECT_EQ(g.counters().admitted, 1U);
  g.drive.wait_for(4);
  g.demand(0, {9, 0, 1});
  EXPECT_EQ(g.counters().evicted, 1U);
  EXPECT_EQ(g.counters().misses + g.counters().predicted_in_time, 4U);
  EXPECT_TRUE(g.store->is_resident(0, 0) && g.store->is_resident(0, 1));
}

TEST(LookAhead, GuardLetsGoWhatIsNotHotterByAQuarterAndFour) {
  const std::vector<uint32_t> n_experts = {4};
  EvictionGuard guard(n_experts, 8);
  const auto use = [&](uint32_t expert, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) guard.observe(0, {&expert, 1}, std::array<uint32_t, 1>{1});
  };
  use(0, 4);
  use(1, 5);
  use(2, 8);
  EXPECT_TRUE(guard.admits(0, 3, 0));   // 4 <= 4
  EXPECT_FALSE(guard.admits(0, 3, 1));  // 5 > 4
  EXPECT_TRUE(guard.admits(0, 0, 2));   // 8 <= 1.25 * 4 + 4
  EXPECT_TRUE(guard.admits(0, 0, 1));
  use(2, 2);
  EXPECT_FALSE(guard.admits(0, 0, 2));  // 10 > 9
  const uint32_t once = 3;
  guard.observe(0, {&once, 1}, std::array<uint32_t, 1>{100});
  EXPECT_TRUE(guard.admits(0, 0, 3));  // one demand, however many tokens
  EXPECT_EQ(guard.heat(0, 1), 5.0);
  guard.end_step(8);
  EXPECT_EQ(guard.heat(0, 1), 2.5);
  EXPECT_TRUE(guard.admits(0, 3, 1));
  guard.end_step(8 * 1000);  // beyond what a weight can hold
  EXPECT_LT(guard.heat(0, 1), 1e-200);
  use(1, 1);
  EXPECT_EQ(guard.heat(0, 1), 1.0);
}

TEST(LookAhead, AGuessThatIsThereInTimeIsAHit) {
  Gated g(4);
  g.predict(1, {3, 5});
  g.drive.wait_for(2);
  // Another layer's demand is served after what has started; then both guesses have landed.
  g.demand(2, {0});
  g.demand(1, {3, 5});
  const StoreCounters& c = g.counters();
  EXPECT_EQ(c.hits, 2U);
  EXPECT_EQ(c.misses, 1U);
  EXPECT_EQ(c.predicted, 2U);
  EXPECT_EQ(c.predicted_used, 2U);
  EXPECT_EQ(c.predicted_in_time, 2U);
  EXPECT_EQ(c.bytes_predicted_used, 2 * kSlab);
  EXPECT_EQ(c.bytes_demand, kSlab);
  EXPECT_EQ(c.bytes_predicted_pending, 0U);
  g.expect_classes_sum();
}

TEST(LookAhead, ADemandTakesOverAReadUnderWay) {
  Gated g(4);
  g.drive.shut();
  g.predict(1, {3, 5});
  g.drive.wait_for(1);  // 3 is at the gate, 5 is queued
  const std::vector<uint32_t> experts = {3, 5};
  const std::vector<uint32_t> uses = {1, 1};
  {
    LayerPass pass = g.store->begin(1, experts, uses);
    g.drive.open();
    for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) {
      for (const ReadySlab& slab : slabs) g.model.expect_bytes(1, slab);
      pass.done(slabs);
    }
  }
  const StoreCounters& c = g.counters();
  EXPECT_EQ(c.misses, 2U);
  EXPECT_EQ(c.predicted, 1U);
  EXPECT_EQ(c.predicted_used, 1U);
  EXPECT_EQ(c.predicted_in_time, 0U);
  EXPECT_EQ(c.dropped, 1U);
  EXPECT_EQ(c.bytes_predicted_used, kSlab);
  EXPECT_EQ(c.bytes_demand, kSlab);
  EXPECT_EQ(c.reads, 2U);
  g.expect_classes_sum();
}

TEST(LookAhead, DemandTakesQueuedGuessesBackWithTheirEvictions) {
  Gated g(2);
  g.demand(1, {0, 1});
  g.drive.shut();
  g.predict(2, {8});  // holds the drive
  g.drive.wait_for(3);
  g.predict(1, {5});  // in the place of 0, not started
  EXPECT_FALSE(g.store->is_resident(1, 0));
  const std::vector<uint32_t> experts = {2};
  const std::vector<uint32_t> uses = {1};
  {
    LayerPass pass = g.store->begin(0, experts, uses);
    EXPECT_TRUE(g.store->is_resident(1, 0));  // back again
    EXPECT_EQ(g.counters().dropped, 1U);
    EXPECT_EQ(g.counters().evicted, 0U);
    g.drive.open();
    for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) pass.done(slabs);
  }
  g.demand(1, {0, 1});
  EXPECT_EQ(g.counters().hits, 2U);
  for (const uint64_t offset : g.drive.offsets()) EXPECT_NE(offset, offset_of(g.model, 1, 5));
  g.expect_classes_sum();
}

// What the drive is asked for while a demand waits: the demand first, although the guesses came before it.
TEST(LookAhead, DemandReadsGoFirst) {
  Gated g(8);
  g.drive.shut();
  g.predict(1, {1});
  g.drive.wait_for(1);
  g.predict(2, {1, 2, 3});
  const std::vector<uint32_t> experts = {4, 5};
  const std::vector<uint32_t> uses = {1, 1};
  {
    LayerPass pass = g.store->begin(0, experts, uses);
    g.predict(1, {6});  // as the engine does: after the demand
    g.drive.open();
    for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) pass.done(slabs);
  }
  g.drive.wait_for(4);
  EXPECT_EQ(g.drive.offsets(), (std::vector<uint64_t>{offset_of(g.model, 1, 1), offset_of(g.model, 0, 4),
                                                      offset_of(g.model, 0, 5), offset_of(g.model, 1, 6)}));
  EXPECT_EQ(g.counters().dropped, 3U);
}

TEST(LookAhead, AFailedGuessIsSilentAndTheDemandAsksForItself) {
  Gated g(4);
  const uint64_t bad = offset_of(g.model, 1, 3);
  g.drive.fail_between(bad, bad + 1);
  g.predict(1, {3, 4});
  g.drive.wait_for(2);
  g.demand(0, {0});
  g.drive.fail_between(0, 0);
  g.demand(1, {3, 4});
  EXPECT_EQ(g.counters().predicted, 2U);
  EXPECT_EQ(g.counters().predicted_in_time, 1U);
  EXPECT_EQ(g.counters().evicted, 0U);
  // One that fails after the demand took it over is asked for again.
  g.drive.shut();
  g.drive.fail_between(bad + kSlab * 4, bad + kSlab * 4 + 1);
  g.predict(1, {7});
  g.drive.wait_for(5);
  const std::vector<uint32_t> experts = {7};
  const std::vector<uint32_t> uses = {1};
  LayerPass pass = g.store->begin(1, experts, uses);
  g.drive.open();
  EXPECT_THROW(static_cast<void>(pass.next()), Error);  // the drive is still bad: now it is told
  EXPECT_EQ(g.drive.offsets().size(), 6U);
}

TEST(LookAhead, WrongGuessesUnderWayNeverStandInADemandsWay) {
  Gated g(2);
  g.drive.shut();
  g.predict(0, {9});
  g.drive.wait_for(1);
  const std::vector<uint32_t> experts = {1, 2, 3};  // more than the layer holds, one slot busy
  const std::vector<uint32_t> uses = {1, 1, 1};
  {
    LayerPass pass = g.store->begin(0, experts, uses);
    g.drive.open();
    std::set<uint32_t> seen;
    for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) {
      for (const ReadySlab& slab : slabs) {
        g.model.expect_bytes(0, slab);
        seen.insert(slab.expert);
      }
      pass.done(slabs);
    }
    EXPECT_EQ(seen.size(), 3U);
  }
  EXPECT_EQ(g.counters().predicted, 1U);
  EXPECT_EQ(g.counters().predicted_used, 0U);
  EXPECT_EQ(g.counters().bytes_predicted_wasted, kSlab);
  EXPECT_EQ(g.counters().evicted_unused, 1U);
  g.expect_classes_sum();
}

TEST(LookAhead, GuessesTakeAtMostHalfOfALayer) {
  Gated g(6);
  g.predict(1, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(g.counters().admitted, 3U);
  EXPECT_EQ(g.counters().dropped, 3U);
}

// In a pool a guess may take the place of any layer's expert but of those that the open pass works on, and what it took
// comes back to its own layer when the guess is taken back.
TEST(LookAhead, AGuessInAPoolSparesTheOpenLayerAndGivesBackWhatItTook) {
  Gated g(2, "lru", SlotPool::kGlobal);  // six slots
  g.demand(2, {0, 1});
  g.demand(1, {4, 5});
  g.demand(0, {7, 8});
  const std::vector<uint32_t> experts = {7, 8}, uses = {1, 1};
  {
    LayerPass pass = g.store->begin(0, experts, uses);
    const auto slabs = pass.next();
    g.drive.shut();
    g.predict(1, {9});  // lru would give up layer 2's 0
    EXPECT_EQ(g.counters().admitted, 1U);
    EXPECT_FALSE(g.store->is_resident(2, 0));
    EXPECT_TRUE(g.store->is_resident(0, 7) && g.store->is_resident(0, 8));
    g.predict(2, {11, 12});
    EXPECT_EQ(g.counters().admitted, 2U);  // half of a layer's share
    g.drive.wait_for(7);                   // the first is at the gate, the second has not started
    pass.done(slabs);
  }
  g.demand(1, {4, 5});  // all there; the guess for 9 was wrong
  g.demand(2, {1});
  EXPECT_EQ(g.counters().dropped, 2U);
  g.drive.open();
  g.demand(0, {7, 8});
  g.demand(1, {4, 5, 3});
  g.demand(2, {0, 1});
  g.expect_classes_sum();
}

TEST(LookAhead, RefillReadsInTheBackgroundIntoFreeSlots) {
  Gated g(2);
  g.demand(0, {0});
  g.store->refill({{0, 5}, {0, 6}, {1, 3}, {1, 3}, {2, 0}});
  g.demand(2, {0, 1});
  g.drive.wait_for(5);
  g.demand(0, {0, 5});
  g.demand(1, {3});
  const StoreCounters& c = g.counters();
  EXPECT_EQ(c.bytes_background + c.bytes_demand, c.bytes_read);
  EXPECT_GT(c.bytes_background, 0U);
  EXPECT_EQ(c.reads, 5U);  // 6 found no free slot
  EXPECT_EQ(c.predicted + c.admitted + c.dropped + c.evicted, 0U);
}

// Guesses of any quality at any moment, on every I/O path and with every fault: every byte handed out is right, the
// classes sum, and with guesses that are always wrong no demand reads more than without any.
TEST(LookAhead, HideableTimeIsNeitherMoreThanTheIdleTimeNorThanTheStall) {
  Gated g(4);
  for (uint32_t i = 0; i < 12; ++i) {
    g.store->begin_step();
    g.demand(i % 3, {i % 16, (i + 5) % 16});
  }
  EXPECT_GT(g.counters().idle_ns, 0U);
  EXPECT_LE(g.counters().hideable_ns, g.counters().stall_ns);
  EXPECT_LE(g.counters().hideable_ns, g.counters().idle_ns);
  const uint64_t hideable = g.counters().hideable_ns;
  g.demand(0, {});
  EXPECT_EQ(g.counters().hideable_ns, hideable);  // nothing was waited for
}

TEST(LookAhead, AnyGuessesLeaveEveryByteRight) {
  const Model model(kOdd);
  TestRng rng;
  const std::vector<Demand> demands = random_demands(model, 12, 4, rng);
  const std::vector<io::Faults> all = {
      {}, {.shorten = true, .n_eio = 1, .reorder = true}, {.interrupt_every = 3, .n_eio = 5}};
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    for (size_t f = 0; f < all.size(); ++f) {
      for (const uint32_t slots : {1U, 2U, 5U, 9U, 16U}) {
        for (const auto& [policy, pool] : {std::pair{"lru", SlotPool::kLayer},
                                           {"lfu", SlotPool::kLayer},
                                           {"protect", SlotPool::kGlobal},
                                           {"lfu", SlotPool::kGlobal}}) {
          SCOPED_TRACE("faults " + std::to_string(f) + " slots " + std::to_string(slots) + " " + policy +
                       (pool == SlotPool::kGlobal ? " one pool" : ""));
          io::TestFaults drive({});
          StoreOptions options = model.options(slots);
          options.io = io;
          options.policy = policy;
          options.pool = pool;
          options.faults = &drive;
          ExpertStore store(options);
          if (f < 2) drive.set(all[f]);
          store.refill({{1, 2}, {0, 3}, {2, 7}, {0, 4}});
          for (const Demand& demand : demands) {
            std::vector<uint32_t> guess;
            const auto layer = static_cast<uint32_t>(rng.below(3));
            const bool is_right = rng.below(2) == 0;
            if (is_right) {
              guess = demand.experts;
              guess.resize(std::min<size_t>(guess.size(), 1 + rng.below(6)));
            } else {
              for (uint32_t e = 0; e < 4; ++e) guess.push_back((e * 2 + static_cast<uint32_t>(rng.below(2))) % 9);
              std::sort(guess.begin(), guess.end());
              guess.erase(std::unique(guess.begin(), guess.end()), guess.end());
            }
            store.predict(is_right ? demand.layer : layer, guess);
            ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
            if (rng.below(3) == 0) store.predict(layer, {});
            store.end_step(1);
            const StoreCounters& c = store.counters();
            ASSERT_EQ(c.bytes_read, c.bytes_demand + c.bytes_predicted_used + c.bytes_predicted_wasted +
                                        c.bytes_predicted_pending + c.bytes_background);
            ASSERT_LE(c.predicted_in_time, c.predicted_used);
            ASSERT_LE(c.predicted_used, c.predicted);
            ASSERT_EQ(c.hits + c.misses, c.demanded);
          }
        }
      }
    }
  }
}

// While the drive is shut, a demand's hits can be computed; then there is nothing to do but to wait, and to guess.
TEST(LookAhead, APassTellsWhenItWouldWait) {
  Gated g(4);
  g.demand(0, {0, 1});
  g.drive.shut();
  const std::vector<uint32_t> experts = {0, 2}, uses = {1, 1};
  LayerPass pass = g.store->begin(0, experts, uses);
  EXPECT_FALSE(pass.would_wait());  // there is a hit
  const auto hits = pass.next();
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].expert, 0U);
  pass.done(hits);
  EXPECT_TRUE(pass.would_wait());
  g.drive.open();
  const auto misses = pass.next();
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_FALSE(pass.would_wait());  // all is handed out
  pass.done(misses);
  EXPECT_TRUE(pass.next().empty());
}

}  // namespace
}  // namespace outrider::residency

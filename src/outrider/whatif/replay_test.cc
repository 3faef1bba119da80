// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/engine/engine.h"
#include "outrider/observe/trace_file.h"
#include "outrider/residency/policy.h"
#include "outrider/whatif/cost_model.h"

namespace outrider::whatif {
namespace {

using observe::Trace;
using observe::TraceHeader;

TraceHeader header(uint32_t n_layers, uint32_t n_experts, uint32_t n_used, uint64_t slab_bytes = 100) {
  TraceHeader header;
  header.n_used = n_used;
  header.layers.assign(n_layers, {.n_experts = n_experts, .slab_bytes = slab_bytes});
  return header;
}

void add_step(Trace& trace, const std::vector<std::vector<uint32_t>>& ids_by_layer) {
  const auto n_rows = static_cast<uint32_t>(ids_by_layer[0].size() / trace.header().n_used);
  trace.begin_step(std::vector<observe::TraceRow>(n_rows));
  for (uint32_t layer = 0; layer < ids_by_layer.size(); ++layer) trace.add_demand(layer, ids_by_layer[layer]);
  trace.end_step(n_rows);
}

// Prompts of one row to many, then single tokens; a few experts are popular.
Trace random_trace(TestRng& rng, uint32_t n_steps) {
  Trace trace(header(2, 12, 3));
  for (uint32_t step = 0; step < n_steps; ++step) {
    const auto n_rows = static_cast<uint32_t>(rng.below(6) == 0 ? 1 + rng.below(9) : 1);
    std::vector<std::vector<uint32_t>> ids(2);
    for (auto& layer : ids) {
      for (uint32_t i = 0; i < n_rows * 3; ++i) {
        layer.push_back(static_cast<uint32_t>(rng.below(2) == 0 ? rng.below(4) : rng.below(12)));
      }
    }
    add_step(trace, ids);
  }
  return trace;
}

// The most hits that any sequence of choices can have, by trying them all: which residents stay, of those that may.
uint64_t best_hits(const Trace& trace, size_t idx, uint32_t residents, uint32_t n_slots) {
  if (idx == trace.n_demands()) return 0;
  const observe::TraceDemand demand = trace.demand(idx);
  uint32_t wanted = 0;
  for (const uint32_t expert : demand.experts) wanted |= 1U << expert;
  const auto n_hits = static_cast<uint64_t>(__builtin_popcount(residents & wanted));
  const auto n_wanted = static_cast<uint32_t>(__builtin_popcount(wanted));
  const uint32_t pool = n_wanted >= n_slots ? wanted : residents & ~wanted;
  const uint32_t n_keep = n_wanted >= n_slots ? n_slots : n_slots - n_wanted;
  uint64_t best = 0;
  for (uint32_t subset = pool;; subset = (subset - 1) & pool) {
    const auto n = static_cast<uint32_t>(__builtin_popcount(subset));
    if (n == std::min<uint32_t>(n_keep, static_cast<uint32_t>(__builtin_popcount(pool)))) {
      best = std::max(best, best_hits(trace, idx + 1, n_wanted >= n_slots ? subset : subset | wanted, n_slots));
    }
    if (subset == 0) break;
  }
  return n_hits + best;
}

TEST(Replay, BeladyIsWhatTryingEverythingFinds) {
  TestRng rng;
  for (int round = 0; round < 20; ++round) {
    Trace trace(header(1, 6, 2));
    for (int step = 0; step < 8; ++step) {
      std::vector<uint32_t> ids(2 * (1 + rng.below(2)));
      for (uint32_t& id : ids) id = static_cast<uint32_t>(rng.below(6));
      add_step(trace, {ids});
    }
    for (const uint32_t n_slots : {2U, 3U, 4U}) {
      EXPECT_EQ(replay_belady(trace, n_slots).hits, best_hits(trace, 0, 0, n_slots))
          << n_slots << " slots, round " << round;
    }
  }
}

TEST(Replay, NoPolicyBeatsBeladyAndFullCachesMissOnce) {
  TestRng rng(2);
  for (int round = 0; round < 5; ++round) {
    const Trace trace = random_trace(rng, 200);
    for (const uint32_t n_slots : {3U, 5U, 8U, 11U, 12U}) {
      const Replay belady = replay_belady(trace, n_slots);
      for (const std::string_view name : residency::policy_names()) {
        const Replay replay = replay_policy(trace, name, n_slots, 64);
        EXPECT_GE(belady.hits, replay.hits) << name << ", " << n_slots << " slots";
        EXPECT_EQ(replay.hits + replay.misses, replay.demanded);
        EXPECT_EQ(replay.bytes, replay.misses * 100);
        if (n_slots == 12) {
          EXPECT_EQ(replay.misses, belady.misses);
        }
      }
      EXPECT_LE(replay_horizon(trace, n_slots, 4, 64).hits, belady.hits);
      EXPECT_EQ(replay_horizon(trace, n_slots, 1000, 64).hits, belady.hits);
    }
  }
}

TEST(Replay, APoolOfAllLayersHoldsWhatTheLayersHold) {
  TestRng rng(4);
  const Trace trace = random_trace(rng, 100);
  const Trace pooled = pool_layers(trace);
  EXPECT_EQ(pooled.n_demands(), trace.n_demands());
  EXPECT_EQ(replay_policy(pooled, "lru", 24, 256).demand_misses, replay_policy(trace, "lru", 12, 256).demand_misses);
  // Slots may go where they are needed: the bound of the pool is no worse than that of layers.
  EXPECT_GE(replay_belady(pooled, 24).hits, replay_belady(trace, 12).hits);
  EXPECT_EQ(replay_policy(pooled, "lfu", 10, 256).demanded, replay_policy(trace, "lfu", 5, 256).demanded);
}

TEST(Replay, RefusesWhatCannotBe) {
  TestRng rng(3);
  const Trace trace = random_trace(rng, 3);
  EXPECT_THROW(replay_policy(trace, "lru", 0, 256), Error);
  EXPECT_THROW(replay_policy(trace, "nonsense", 4, 256), Error);
  EXPECT_THROW(replay_belady(trace, 0), Error);
}

// What the live store did at each demand.
class LiveMisses final : public engine::PassObserver {
 public:
  explicit LiveMisses(const engine::Engine& engine) : engine_(engine) {}
  void end_layer(uint32_t) noexcept override {
    const uint64_t misses = engine_.counters().experts.misses;
    by_demand.push_back(static_cast<uint32_t>(misses - before_));
    before_ = misses;
  }
  std::vector<uint32_t> by_demand;

 private:
  const engine::Engine& engine_;
  uint64_t before_ = 0;
};

struct Recorded {
  const char* policy;
  uint32_t slots, prompt, chunk;
  residency::SlotPool pool = residency::SlotPool::kLayer;
};

// Different prompts, sizes, chunks and policies: the replay has the live run's misses at every step.
TEST(Replay, EqualsTheLiveRunAtEveryStep) {
  const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  const std::string path = ::testing::TempDir() + "outrider_replay_" + std::to_string(::getpid());
  uint64_t salt = 0;
  for (const Recorded& run : {Recorded{"lru", 8, 30, 512},
                              {"lru", 17, 90, 16},
                              {"lfu", 6, 12, 5},
                              {"lfu", 16, 50, 512},
                              {"recent1", 12, 40, 32},
                              {"protect", 10, 25, 512},
                              {"class-lru", 24, 70, 512},
                              {"guarded", 9, 60, 7},
                              {"lru", 7, 40, 16, residency::SlotPool::kGlobal},
                              {"class-lru", 8, 30, 512, residency::SlotPool::kGlobal},
                              {"guarded", 20, 60, 64, residency::SlotPool::kGlobal},
                              {"protect", 9, 20, 8, residency::SlotPool::kGlobal}}) {
    TestRng rng(++salt);
    engine::EngineOptions options;
    options.context = 160;
    options.isa = best_isa();
    options.chunk = run.chunk;
    options.slots_per_layer = run.slots;
    options.evict = run.policy;
    options.slot_pool = run.pool;
    options.lfu_half_life_tokens = 20;
    engine::Engine engine(model, options);
    const TraceHeader head = header(model.n_moe_layers(), model.spec.router.n_experts, model.spec.router.n_used);
    observe::TraceRecorder recorder(path, head, run.chunk);
    LiveMisses live(engine);
    engine.add_pass_observer(recorder);
    engine.add_pass_observer(live);
    std::vector<int32_t> ids(run.prompt);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(model.spec.n_vocab));
    engine.prefill(0, ids);
    for (int i = 0; i < 24; ++i) {
      const auto token = static_cast<int32_t>(rng.below(model.spec.n_vocab));
      engine.prefill(0, {&token, 1});
    }
    recorder.finish();
    const Trace trace = observe::read_trace(path);
    EXPECT_EQ(trace.n_tokens(), run.prompt + 24U);
    const bool is_pooled = run.pool == residency::SlotPool::kGlobal;
    const Replay replay = is_pooled
                              ? replay_policy(pool_layers(trace), run.policy, run.slots * model.n_moe_layers(), 20)
                              : replay_policy(trace, run.policy, run.slots, 20);
    EXPECT_EQ(replay.demand_misses, live.by_demand) << run.policy << ", " << run.slots << " slots";
    EXPECT_EQ(replay.hits, engine.counters().experts.hits);
    EXPECT_GT(replay.misses, 0U);
  }
  ::unlink(path.c_str());
}

TEST(CostModel, FloorPlusExposedBytes) {
  Trace trace(header(2, 8, 2, 1000));
  add_step(trace, {{0, 1, 2, 3}, {0, 1, 2, 3}});  // a prompt of two rows does not count when single rows follow
  add_step(trace, {{4, 5}, {0, 1}});
  add_step(trace, {{4, 5}, {6, 7}});
  const Replay replay = replay_policy(trace, "lru", 8, 256);
  ASSERT_EQ(replay.demand_misses, (std::vector<uint32_t>{4, 4, 2, 0, 0, 2}));
  CostModel model;
  model.drive_bytes_per_s = 1e6;  // 1 ms a slab
  model.floor_ms = 10;
  EXPECT_DOUBLE_EQ(predict_cost(trace, replay, model).ms_per_token, 10 + 2);
  EXPECT_EQ(predict_cost(trace, replay, model).n_tokens, 2U);
  model.link_bytes_per_s = 0.5e6;
  EXPECT_DOUBLE_EQ(predict_cost(trace, replay, model).ms_per_token, 10 + 4);
  model.link_bytes_per_s = 0;
  model.overlap = 0.2;  // of 5 ms a layer: one slab
  EXPECT_DOUBLE_EQ(predict_cost(trace, replay, model).ms_per_token, 10 + 1);
  model.overlap = 0;
  model.lookahead_width = 2;
  model.lookahead_precision = 0.5;
  // Only the second layer of the last step has both misses and an idle layer before it whose time was kept: one of its
  // two predictions is right. The first layer follows the layer before in the step before.
  const Cost cost = predict_cost(trace, replay, model);
  EXPECT_DOUBLE_EQ(cost.ms_per_token, 10 + (2 + 1) / 2.0);
  EXPECT_EQ(cost.wasted_bytes, 1000U);
}

}  // namespace
}  // namespace outrider::whatif

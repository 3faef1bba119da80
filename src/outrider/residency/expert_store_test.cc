// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/io/file.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/slab_layout.h"
#include "outrider/residency/test_store_model.h"

namespace outrider::residency {
namespace {

struct Path {
  IoMode io;
  DirectMode direct;
};
constexpr std::array kPaths = {Path{IoMode::kUring, DirectMode::kOn}, Path{IoMode::kUring, DirectMode::kOff},
                               Path{IoMode::kThreads, DirectMode::kOn}, Path{IoMode::kThreads, DirectMode::kOff}};

std::string describe(const Path& path) {
  return std::string(path.io == IoMode::kUring ? "uring" : "threads") +
         (path.direct == DirectMode::kOn ? " direct" : " buffered");
}

// STR-1
TEST(Residency, EveryByteIsRightForAnyCacheSizePolicyAndIoPath) {
  const Model model(kOdd);
  TestRng rng;
  const std::vector<Demand> demands = random_demands(model, 17, 4, rng);
  for (const Path& path : kPaths) {
    for (uint32_t i = 0; i < 2 * 17; ++i) {
      const uint32_t slots = 1 + i / 2;
      const SlotPool pool = i % 2 == 0 ? SlotPool::kLayer : SlotPool::kGlobal;
      SCOPED_TRACE(describe(path) + ", slots " + std::to_string(slots) +
                   (pool == SlotPool::kGlobal ? ", one pool" : ""));
      StoreOptions options = model.options(slots);
      options.pool = pool;
      options.io = path.io;
      options.direct = path.direct;
      options.policy = slots % 2 == 0 ? "lfu" : "lru";
      ExpertStore store(options);
      EXPECT_EQ(store.warnings(), std::vector<std::string>());
      EXPECT_EQ(store.slots_per_layer(), std::min(slots, 16U));
      EXPECT_EQ(store.arena_bytes(), ExpertStore::arena_bytes_for(model.layers, slots, path.direct, pool));
      uint64_t demanded = 0;
      for (const Demand& demand : demands) {
        ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
        demanded += demand.experts.size();
        if (demand.layer == 2) store.end_step(1);
      }
      const StoreCounters& counters = store.counters();
      EXPECT_EQ(counters.demanded, demanded);
      EXPECT_EQ(counters.hits + counters.misses, demanded);
      if (slots >= 16) {
        EXPECT_EQ(counters.evicted, 0U);
      }
    }
  }
}

// What a run did, so that two runs can be compared: hits, misses and evictions after each demand, and who sat where.
struct Trace {
  std::vector<std::array<uint64_t, 4>> counts;
  std::vector<std::map<uint32_t, uint32_t>> slot_of;  // by demand: expert -> slot
  friend bool operator==(const Trace&, const Trace&) = default;
};

enum class DoneOrder { kAsGiven, kBackwards, kOneByOne };

Trace trace_of(const StoreOptions& options, const std::vector<Demand>& demands, DoneOrder order, bool begins) {
  ExpertStore store(options);
  Trace trace;
  for (const Demand& demand : demands) {
    LayerPass pass = store.begin(demand.layer, demand.experts, demand.uses);
    std::map<uint32_t, uint32_t> slot_of;
    std::vector<ReadySlab> held;
    for (;;) {
      while (begins && !pass.next_begun().empty()) {
      }
      const auto slabs = pass.next();
      if (slabs.empty()) break;
      held.assign(slabs.begin(), slabs.end());
      for (const ReadySlab& slab : slabs) slot_of[slab.expert] = slab.slot_idx;
      if (order == DoneOrder::kBackwards) std::reverse(held.begin(), held.end());
      if (order == DoneOrder::kOneByOne) {
        for (const ReadySlab& slab : held) pass.done({&slab, 1});
      } else {
        pass.done(held);
      }
    }
    store.end_step(1);
    const StoreCounters& counters = store.counters();
    trace.counts.push_back({counters.hits, counters.misses, counters.evicted, counters.bytes_read});
    trace.slot_of.push_back(slot_of);
  }
  return trace;
}

TEST(Residency, VictimsDependOnDemandsAloneNotOnArrival) {
  const Model model(kOdd);
  TestRng rng;
  const std::vector<Demand> demands = random_demands(model, 25, 4, rng);
  for (const char* policy : {"lru", "lfu"}) {
    for (const uint32_t slots : {1U, 2U, 4U, 5U, 8U, 15U, 16U}) {
      SCOPED_TRACE(std::string(policy) + " " + std::to_string(slots));
      StoreOptions options = model.options(slots);
      options.policy = policy;
      options.io = IoMode::kThreads;
      options.direct = DirectMode::kOff;
      const Trace plain = trace_of(options, demands, DoneOrder::kAsGiven, false);
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        TestFaults drive({.shorten = seed % 2 == 0, .n_eio = 1, .reorder = true}, seed);
        options.faults = &drive;
        options.io = kPaths[seed % 4].io;
        options.direct = kPaths[seed % 4].direct;
        EXPECT_TRUE(trace_of(options, demands, static_cast<DoneOrder>(seed % 3), seed > 2) == plain) << "seed " << seed;
      }
    }
  }
}

// A plain model of one layer under lru, written from the words of the policy and nothing else.
TEST(Residency, HitsAndMissesAreThoseOfTheTextbook) {
  const Model model({.offset = 3, .n_experts = {16}, .part_bytes = {{100}}});
  TestRng rng;
  StoreOptions options = model.options(6);
  ExpertStore store(options);
  std::vector<uint32_t> resident;  // oldest demand first
  uint64_t hits = 0;
  for (int step = 0; step < 300; ++step) {
    const auto expert = static_cast<uint32_t>(rng.below(4) == 0 ? rng.below(16) : rng.below(7));
    const auto found = std::find(resident.begin(), resident.end(), expert);
    if (found != resident.end()) {
      ++hits;
      resident.erase(found);
    } else if (resident.size() == 6) {
      resident.erase(resident.begin());
    }
    resident.push_back(expert);
    ASSERT_NO_FATAL_FAILURE(run_demand(store, model, {.layer = 0, .experts = {expert}, .uses = {1}}));
    ASSERT_EQ(store.counters().hits, hits) << "step " << step;
  }
  EXPECT_EQ(store.counters().misses, 300 - hits);
  EXPECT_EQ(store.counters().evicted, 300 - hits - 6);
  EXPECT_EQ(store.counters().bytes_read, (300 - hits) * 100);
}

TEST(Residency, PinnedExpertIsNeverEvicted) {
  const Model model(kOdd);
  std::vector<uint32_t> all(16);
  std::iota(all.begin(), all.end(), 0U);
  const std::vector<uint32_t> ones(16, 1);
  for (const Path& path : kPaths) {
    for (uint32_t slots = 2; slots <= 16; ++slots) {
      SCOPED_TRACE(describe(path) + ", slots " + std::to_string(slots));
      StoreOptions options = model.options(slots);
      options.io = path.io;
      options.direct = path.direct;
      ExpertStore store(options);
      LayerPass pass = store.begin(0, all, ones);
      // The first slab stays pinned while everything else goes round in the other slots.
      const auto slabs_now = pass.next();
      const std::vector<ReadySlab> first(slabs_now.begin(), slabs_now.end());
      ASSERT_FALSE(first.empty());
      const ReadySlab pinned = first[0];
      std::set<uint32_t> seen;
      for (const ReadySlab& slab : first) seen.insert(slab.expert);
      pass.done(std::span(first).subspan(1));
      // What queues behind the pinned slot comes when it is given back, and not before.
      const uint32_t in_turn = (16 - slots) / slots + ((16 - slots) % slots != 0 ? 1 : 0);
      while (seen.size() + in_turn < 16) {
        const auto slabs = pass.next();
        ASSERT_FALSE(slabs.empty());
        for (const ReadySlab& slab : slabs) {
          ASSERT_NE(slab.slot_idx, pinned.slot_idx);
          ASSERT_TRUE(seen.insert(slab.expert).second);
          ASSERT_NO_FATAL_FAILURE(model.expect_bytes(0, slab));
        }
        ASSERT_NO_FATAL_FAILURE(model.expect_bytes(0, pinned));
        pass.done(slabs);
      }
      ASSERT_NO_FATAL_FAILURE(model.expect_bytes(0, pinned));
      pass.done({&pinned, 1});
      for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) {
        for (const ReadySlab& slab : slabs) ASSERT_TRUE(seen.insert(slab.expert).second);
        pass.done(slabs);
      }
      EXPECT_EQ(seen.size(), 16U);
    }
  }
}

TEST(Residency, HitsComeFirstAndReadNothing) {
  const Model model(kOdd);
  ExpertStore store(model.options(8));
  ASSERT_NO_FATAL_FAILURE(run_demand(store, model, {.layer = 0, .experts = {1, 2, 3, 4}, .uses = {1, 1, 1, 1}}));
  EXPECT_EQ(store.counters().bytes_read, 4 * model.slab_bytes(0));
  {
    const std::vector<uint32_t> experts = {9, 3, 1};
    const std::vector<uint32_t> uses = {1, 1, 1};
    LayerPass pass = store.begin(0, experts, uses);
    const auto slabs = pass.next();
    ASSERT_GE(slabs.size(), 2U);
    EXPECT_EQ(slabs[0].expert, 3U);
    EXPECT_EQ(slabs[1].expert, 1U);
  }  // dropped with a read under way and two pins
  const uint64_t stall_ns = store.counters().stall_ns;
  ASSERT_NO_FATAL_FAILURE(run_demand(store, model, {.layer = 0, .experts = {4, 9, 1, 2, 3}, .uses = {1, 1, 1, 1, 1}}));
  EXPECT_EQ(store.counters().hits, 7U);
  EXPECT_EQ(store.counters().misses, 5U);
  EXPECT_EQ(store.counters().bytes_read, 5 * model.slab_bytes(0));
  EXPECT_EQ(store.counters().stall_ns, stall_ns);
}

TEST(Residency, AnAbandonedPassLeavesAStoreThatWorks) {
  const Model model(kOdd);
  TestRng rng;
  for (const Path& path : kPaths) {
    StoreOptions options = model.options(3);
    options.io = path.io;
    options.direct = path.direct;
    ExpertStore store(options);
    for (const Demand& demand : random_demands(model, 40, 4, rng)) {
      if (rng.below(2) == 0) {
        LayerPass pass = store.begin(demand.layer, demand.experts, demand.uses);
        LayerPass moved(std::move(pass));
        // Some rounds go well, then it is dropped with pins, with reads under way, or with experts that never got a
        // slot.
        for (uint64_t n = rng.below(3); n > 0; --n) {
          const auto slabs = moved.next();
          moved.done(slabs);
          if (slabs.empty()) break;
        }
        if (rng.below(2) == 0) static_cast<void>(moved.next());
      } else {
        ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
      }
    }
  }
}

// STR-3
TEST(Residency, EveryByteIsRightWhenTheDriveMisbehaves) {
  const Model model(kOdd);
  const std::vector<Faults> all = {
      {.shorten = true},
      {.interrupt_every = 3},
      {.again_every = 3},
      {.n_eio = 1},
      {.n_eio = 3},
      {.reorder = true},
      {.shorten = true, .interrupt_every = 3, .again_every = 5, .n_eio = 1, .reorder = true}};
  TestRng rng;
  const std::vector<Demand> demands = random_demands(model, 9, 4, rng);
  for (const Path& path : kPaths) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (const uint32_t slots : {1U, 3U, 6U, 16U}) {
        SCOPED_TRACE(describe(path) + ", faults " + std::to_string(i) + ", slots " + std::to_string(slots));
        TestFaults drive({});
        StoreOptions options = model.options(slots);
        options.io = path.io;
        options.direct = path.direct;
        options.faults = &drive;
        ExpertStore store(options);
        drive.set(all[i]);
        for (const Demand& demand : demands) ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
        EXPECT_EQ(store.counters().read_retries > 0, !all[i].reorder || all[i].shorten);
        EXPECT_EQ(store.warnings(), std::vector<std::string>());
      }
    }
  }
}

// STR-5
TEST(Residency, RefusedDirectReadsGiveOneWarningAndTheSameBytes) {
  const Model model(kOdd);
  int error = 0;
  if (!io::File::open_direct(model.files[0]->path(), error).is_open())
    GTEST_SKIP() << "no direct reads in " << testing::TempDir();
  const auto warning = [&](size_t file, const char* why) {
    return "direct reads refused on " + model.files[file]->path() + " (" + why + "), using buffered";
  };
  TestRng rng;
  const std::vector<Demand> demands = random_demands(model, 9, 4, rng);
  const auto run_all = [&](ExpertStore& store) {
    for (const Demand& demand : demands) run_demand(store, model, demand);
  };
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    StoreOptions options = model.options(5);
    options.io = io;
    using Strings = std::vector<std::string>;
    {
      TestFaults drive({.direct_open_error = EINVAL});
      options.faults = &drive;
      ExpertStore store(options);
      EXPECT_EQ(store.warnings(), (Strings{warning(0, "EINVAL"), warning(1, "EINVAL")}));
      run_all(store);
      EXPECT_EQ(store.warnings().size(), 2U);
    }
    for (const uint64_t alignment : {512ULL, 4096ULL, 65536ULL}) {
      TestFaults drive({.direct_alignment = alignment});
      options.faults = &drive;
      ExpertStore store(options);
      EXPECT_EQ(store.warnings().size(), alignment > kDirectBlock ? 2U : 0U);
      run_all(store);
    }
    for (const uint32_t n_accepted : {0U, 1U, 7U}) {
      TestFaults drive({});
      options.faults = &drive;
      ExpertStore store(options);
      EXPECT_EQ(store.warnings(), Strings());
      drive.set({.n_direct_accepted = n_accepted});
      run_all(store);
      Strings warnings = store.warnings();
      std::sort(warnings.begin(), warnings.end());
      EXPECT_EQ(warnings, (Strings{warning(0, "EINVAL"), warning(1, "EINVAL")}));
    }
  }
}

TEST(Residency, RefusedRingGivesOneWarningAndTheSameBytes) {
  const Model model(kOdd);
  TestFaults drive({.ring_error = EPERM});
  StoreOptions options = model.options(4);
  options.faults = &drive;
  ExpertStore store(options);
  EXPECT_EQ(store.warnings(), std::vector<std::string>{"io: io_uring refused (EPERM), using threads"});
  TestRng rng;
  for (const Demand& demand : random_demands(model, 9, 4, rng))
    ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
}

TEST(Residency, AReadErrorIsToldOnceAndLeavesTheStoreUsable) {
  const Model model(kOdd);
  const PartSource& bad = model.layers[0].parts[1];
  const uint64_t bad_offset = bad.offset + 6 * bad.n_bytes;
  const std::vector<uint32_t> experts = {2, 6, 7, 11, 0};
  const std::vector<uint32_t> uses = {1, 1, 1, 1, 1};
  for (const Path& path : kPaths) {
    for (const uint32_t slots : {1U, 2U, 5U, 16U}) {
      SCOPED_TRACE(describe(path) + ", slots " + std::to_string(slots));
      TestFaults drive({});
      StoreOptions options = model.options(slots);
      options.io = path.io;
      options.direct = path.direct;
      options.faults = &drive;
      ExpertStore store(options);
      drive.set(
          {.file = model.files[bad.file_idx]->path(), .bad_begin = bad_offset, .bad_end = bad_offset + bad.n_bytes});
      std::set<uint32_t> seen;
      uint32_t n_errors = 0;
      {
        LayerPass pass = store.begin(0, experts, uses);
        for (;;) {
          std::span<const ReadySlab> slabs;
          try {
            slabs = pass.next();
          } catch (const Error& error) {
            ++n_errors;
            EXPECT_EQ(error.kind(), ErrorKind::kIo);
            EXPECT_NE(std::string(error.what()).find("Input/output error (EIO)"), std::string::npos) << error.what();
            EXPECT_EQ(std::string(error.what()).find(model.files[bad.file_idx]->path() + ": read at offset "), 0U)
                << error.what();
            continue;
          }
          if (slabs.empty()) break;
          for (const ReadySlab& slab : slabs) {
            ASSERT_TRUE(seen.insert(slab.expert).second);
            ASSERT_NO_FATAL_FAILURE(model.expect_bytes(0, slab));
          }
          pass.done(slabs);
        }
      }
      EXPECT_EQ(n_errors, 1U);
      // Direct reads take whole blocks, so experts 5 and 7 may share the bad block; 2, 11 and 0 never do.
      for (const uint32_t expert : {2U, 11U, 0U}) EXPECT_TRUE(seen.contains(expert)) << expert;
      EXPECT_FALSE(seen.contains(6));
      // Other layers, and once the drive has healed this expert too.
      drive.set({});
      ASSERT_NO_FATAL_FAILURE(run_demand(store, model, {.layer = 1, .experts = {0, 8}, .uses = {1, 1}}));
      ASSERT_NO_FATAL_FAILURE(run_demand(store, model, {.layer = 0, .experts = experts, .uses = uses}));
    }
  }
}

// A packed layer: an expert's parts side by side, experts on blocks.
TEST(Residency, PartsThatLieSideBySideAreOneRead) {
  const Geometry geometry = {
      .offset = 8192, .n_experts = {16, 9}, .part_bytes = {{2304, 2304, 4609}, {5000, 3001}}, .packed_stride = 12288};
  const Model model(geometry);
  for (const DirectMode direct : {DirectMode::kAuto, DirectMode::kOff}) {
    StoreOptions options = model.options(4);
    options.direct = direct;
    ExpertStore store(options);
    TestRng rng(31);
    for (const Demand& demand : random_demands(model, 40, 3, rng))
      ASSERT_NO_FATAL_FAILURE(run_demand(store, model, demand));
    const StoreCounters counters = store.counters();
    EXPECT_GT(counters.misses, 40U);
    EXPECT_EQ(counters.reads, counters.misses + counters.read_retries);
    const bool is_direct = store.warnings().empty() && direct == DirectMode::kAuto;
    EXPECT_TRUE(!is_direct || store.arena_bytes() == 4 * (12288U + 8192U)) << store.arena_bytes();
  }
  // Plain stacks of one expert lie side by side too, but nothing says that more would: two reads.
  const Model one({.offset = 0, .n_experts = {1}, .part_bytes = {{4096}}});
  LayerSource source = one.layers[0];
  source.n_parts = 2;
  source.parts[1] = source.parts[0];
  source.parts[1].offset += source.parts[0].n_bytes;
  EXPECT_EQ(make_slab_layout(std::array{source}, 1, DirectMode::kOff).layers[0].reads.n_parts, 2U);
}

}  // namespace
}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// STR-6, for the thread and address sanitizers: several stores work at once on the same files while each is closed and
// opened again with another number of slots, and passes are dropped with reads under way.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "outrider/base/error.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/expert_store.h"

namespace outrider::residency {
namespace {

constexpr uint32_t kExperts = 24;
constexpr uint64_t kPartBytes = 3001;

class Worker {
 public:
  Worker(const io::TestFile& file, uint64_t seed) : file_(file), random_(seed), drive_({}, seed) {}

  // Returns how many slabs were checked; UINT64_MAX when one was wrong.
  uint64_t run(uint32_t n_stores) {
    uint64_t n_checked = 0;
    for (uint32_t i = 0; i < n_stores; ++i) {
      StoreOptions options;
      options.files = {file_.path()};
      options.layers = {LayerSource{.n_experts = kExperts, .n_parts = 2,
                                    .parts = {PartSource{.file_idx = 0, .offset = 5, .n_bytes = kPartBytes},
                                              PartSource{.file_idx = 0, .offset = 5 + kExperts * kPartBytes, .n_bytes = kPartBytes}}}};
      options.slots_per_layer = 1 + i % kExperts;  // starts small, grows, starts again
      options.io = random_.below(2) == 0 ? IoMode::kUring : IoMode::kThreads;
      options.direct = random_.below(2) == 0 ? DirectMode::kOn : DirectMode::kOff;
      options.policy = random_.below(2) == 0 ? "lru" : "lfu";
      drive_.set({.n_direct_accepted = random_.below(4) == 0 ? 10 : UINT32_MAX, .shorten = random_.below(2) == 0, .interrupt_every = 5,
                  .reorder = true});
      options.faults = &drive_;
      ExpertStore store(options);
      for (int step = 0; step < 20; ++step) {
        if (!pass(store, options.layers[0], n_checked)) return UINT64_MAX;
        store.end_step(1);
      }
    }
    return n_checked;
  }

 private:
  bool pass(ExpertStore& store, const LayerSource& layer, uint64_t& n_checked) {
    std::array<uint32_t, kExperts> experts;
    std::array<uint32_t, kExperts> uses;
    for (uint32_t i = 0; i < kExperts; ++i) experts[i] = i, uses[i] = 1 + i % 3;
    for (uint32_t i = 0; i < kExperts; ++i) std::swap(experts[i], experts[i + random_.below(kExperts - i)]);
    const size_t n_demanded = 1 + random_.below(kExperts);
    // Guesses, right and wrong, race with the demand that follows; a refill runs behind both.
    if (random_.below(4) == 0) store.refill({{0, experts[0]}, {0, experts[kExperts - 1]}, {0, experts[5]}});
    store.predict(0, std::span(experts).subspan(random_.below(kExperts / 2), random_.below(kExperts / 2)));
    LayerPass open = store.begin(0, std::span(experts).first(n_demanded), std::span(uses).first(n_demanded));
    const bool drop = random_.below(4) == 0;
    for (auto slabs = open.next(); !slabs.empty(); slabs = open.next()) {
      if (drop && random_.below(2) == 0) return true;
      for (const ReadySlab& slab : slabs) {
        for (uint32_t part = 0; part < 2; ++part) {
          const auto wanted = file_.bytes(layer.parts[part].offset + slab.expert * kPartBytes, kPartBytes);
          if (std::memcmp(slab.parts[part], wanted.data(), kPartBytes) != 0) return false;
        }
        ++n_checked;
      }
      open.done(slabs);
    }
    return true;
  }

  const io::TestFile& file_;
  Random random_;
  io::TestFaults drive_;
};

TEST(Residency, ManyStoresOpenedAndClosedAtOnceStayRight) {
  const io::TestFile file(5 + 2 * kExperts * kPartBytes);
  std::array<std::atomic<uint64_t>, 4> n_checked = {};
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < n_checked.size(); ++i) {
      threads.emplace_back([&, i] { n_checked[i] = Worker(file, 100 + i).run(24); });
    }
  }
  for (const auto& n : n_checked) {
    EXPECT_NE(n.load(), UINT64_MAX);
    EXPECT_GT(n.load(), 1000U);
  }
}

}  // namespace
}  // namespace outrider::residency

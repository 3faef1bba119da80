// SPDX-License-Identifier: Apache-2.0
// STR-6, for the thread and address sanitizers: several stores work at once on the same files while each is closed and
// opened again with another number of slots, and passes are dropped with reads under way. A store's number of slots is
// fixed, so this is what moving the limit of a cache means here. OUTRIDER_STRESS_SECONDS=300 in the environment makes
// it the bug log's five minutes, with another number of slots every 10 ms; without it, a short run of a fixed length.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "outrider/base/error.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/expert_store.h"

namespace outrider::residency {
namespace {

constexpr uint32_t kExperts = 24;
constexpr uint64_t kPartBytes = 3001;

using Clock = std::chrono::steady_clock;

std::chrono::seconds stress_time() {
  const char* const text = std::getenv("OUTRIDER_STRESS_SECONDS");  // NOLINT(concurrency-mt-unsafe): one thread yet
  return std::chrono::seconds(text == nullptr ? 0 : std::atoll(text));
}

class Worker {
 public:
  Worker(const io::TestFile& file, uint64_t seed) : file_(file), random_(seed), drive_({}, seed) {}

  // Returns how many slabs were checked; UINT64_MAX when one was wrong. Opens 24 stores for 20 passes each; or, given a
  // time, stores for 10 ms each until it is over.
  uint64_t run(std::chrono::seconds time) {
    uint64_t n_checked = 0;
    const bool is_timed = time.count() > 0;
    const auto end = Clock::now() + time;
    for (n_stores_ = 0; is_timed ? Clock::now() < end : n_stores_ < 24; ++n_stores_) {
      StoreOptions options;
      options.files = {file_.path()};
      options.layers = {LayerSource{
          .n_experts = kExperts,
          .n_parts = 2,
          .parts = {PartSource{.file_idx = 0, .offset = 5, .n_bytes = kPartBytes},
                    PartSource{.file_idx = 0, .offset = 5 + kExperts * kPartBytes, .n_bytes = kPartBytes}}}};
      options.slots_per_layer = 1 + n_stores_ % kExperts;  // starts small, grows, starts again
      options.io = random_.below(2) == 0 ? IoMode::kUring : IoMode::kThreads;
      options.direct = random_.below(2) == 0 ? DirectMode::kOn : DirectMode::kOff;
      options.policy = random_.below(2) == 0 ? "lru" : "lfu";
      drive_.set({.n_direct_accepted = random_.below(4) == 0 ? 10 : UINT32_MAX,
                  .shorten = random_.below(2) == 0,
                  .interrupt_every = 5,
                  .reorder = true});
      options.faults = &drive_;
      ExpertStore store(options);
      const auto closing = Clock::now() + std::chrono::milliseconds(10);
      for (int step = 0; is_timed ? Clock::now() < closing : step < 20; ++step) {
        if (!pass(store, options.layers[0], n_checked)) return UINT64_MAX;
        store.end_step(1);
      }
    }
    return n_checked;
  }
  uint32_t n_stores() const { return n_stores_; }

 private:
  bool is_right(const LayerSource& layer, const ReadySlab& slab, uint32_t n_parts) const {
    for (uint32_t part = 0; part < n_parts; ++part) {
      const auto wanted = file_.bytes(layer.parts[part].offset + slab.expert * kPartBytes, kPartBytes);
      if (std::memcmp(slab.parts[part], wanted.data(), kPartBytes) != 0) return false;
    }
    return true;
  }
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
    const bool drop = random_.below(4) == 0, begins = random_.below(2) == 0;
    for (;;) {
      // What has landed of a slab is read while the rest of it is written.
      while (begins) {
        const auto begun = open.next_begun();
        if (begun.empty()) break;
        if (drop && random_.below(4) == 0) return true;
        for (const ReadySlab& slab : begun) {
          if (!is_right(layer, slab, 1)) return false;
        }
      }
      const auto slabs = open.next();
      if (slabs.empty()) break;
      if (drop && random_.below(2) == 0) return true;
      for (const ReadySlab& slab : slabs) {
        if (!is_right(layer, slab, 2)) return false;
        ++n_checked;
      }
      open.done(slabs);
    }
    return true;
  }

  const io::TestFile& file_;
  Random random_;
  io::TestFaults drive_;
  uint32_t n_stores_ = 0;
};

TEST(Residency, ManyStoresOpenedAndClosedAtOnceStayRight) {
  const io::TestFile file(5 + 2 * kExperts * kPartBytes);
  const std::chrono::seconds time = stress_time();
  std::array<std::atomic<uint64_t>, 4> n_checked = {};
  std::atomic<uint64_t> n_stores = 0;
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < n_checked.size(); ++i) {
      threads.emplace_back([&, i] {
        Worker worker(file, 100 + i);
        n_checked[i] = worker.run(time);
        n_stores += worker.n_stores();
      });
    }
  }
  uint64_t n_all = 0;
  for (const auto& n : n_checked) {
    EXPECT_NE(n.load(), UINT64_MAX);
    EXPECT_GT(n.load(), 1000U);
    n_all += n;
  }
  if (time.count() > 0) {
    std::printf("%llu stores, %llu slabs compared\n", static_cast<unsigned long long>(n_stores),
                static_cast<unsigned long long>(n_all));
  }
}

}  // namespace
}  // namespace outrider::residency

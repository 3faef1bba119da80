// SPDX-License-Identifier: Apache-2.0
// What a demand costs: nothing but bookkeeping when all are hits, the drive when all are misses. Eight experts of three
// parts a demand, as in decoding; sizes in KiB a part. Build with -DOUTRIDER_BENCHES=ON, run outrider_residency_bench.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "outrider/base/check.h"
#include "outrider/base/random.h"
#include "outrider/residency/expert_store.h"

namespace outrider::residency {
namespace {

constexpr uint32_t kExperts = 64;
constexpr uint32_t kTopK = 8;

class Model {
 public:
  explicit Model(uint64_t part_bytes) : path("/tmp/outrider_store_bench_" + std::to_string(getpid()) + ".bin") {
    std::ofstream out(path, std::ios::binary);
    std::vector<uint64_t> words(part_bytes / 8);
    Random random(1);
    for (uint32_t i = 0; i < 3 * kExperts; ++i) {
      for (uint64_t& word : words) word = random.next_u64();
      out.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(part_bytes));
    }
    source = {.n_experts = kExperts, .n_parts = 3, .parts = {}};
    for (uint32_t part = 0; part < 3; ++part) source.parts[part] = {0, part * kExperts * part_bytes, part_bytes};
  }
  ~Model() { std::remove(path.c_str()); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string path;
  LayerSource source;
};

void demand(ExpertStore& store, std::span<const uint32_t> experts) {
  static constexpr std::array<uint32_t, kTopK> kUses = {1, 1, 1, 1, 1, 1, 1, 1};
  LayerPass pass = store.begin(0, experts, kUses);
  uint32_t n_slabs = 0;
  for (auto slabs = pass.next(); !slabs.empty(); slabs = pass.next()) {
    n_slabs += static_cast<uint32_t>(slabs.size());
    for (const ReadySlab& slab : slabs) benchmark::DoNotOptimize(*slab.parts[2]);
    pass.done(slabs);
  }
  OUTRIDER_CHECK(n_slabs == kTopK);
}

void run(benchmark::State& state, uint32_t slots, IoMode io, DirectMode direct) {
  const Model model(static_cast<uint64_t>(state.range(0)) << 10);
  ExpertStore store({.files = {model.path},
                     .layers = {model.source},
                     .slots_per_layer = slots,
                     .policy = "lru",
                     .lfu_half_life_tokens = 256,
                     .io = io,
                     .direct = direct,
                     .queue_depth = 16,
                     .faults = nullptr});
  std::array<uint32_t, kTopK> experts = {};
  // Round robin: with fewer slots than experts, lru never hits.
  auto next_token = [&, first = 0U]() mutable {
    for (uint32_t i = 0; i < kTopK; ++i) experts[i] = (first + i) % kExperts;
    first += kTopK;
    demand(store, experts);
    store.end_step(1);
  };
  for (uint32_t token = 0; token < kExperts / kTopK; ++token) next_token();
  const StoreCounters before = store.counters();
  for (auto _ : state) next_token();
  const StoreCounters& after = store.counters();
  state.SetBytesProcessed(static_cast<int64_t>(after.bytes_read - before.bytes_read));
  state.counters["hits"] =
      static_cast<double>(after.hits - before.hits) / static_cast<double>(after.demanded - before.demanded);
}

BENCHMARK_CAPTURE(run, all_hits, kExperts, IoMode::kAuto, DirectMode::kAuto)->Arg(36);
BENCHMARK_CAPTURE(run, all_misses_uring_direct, 16, IoMode::kUring, DirectMode::kOn)
    ->Arg(36)
    ->Arg(288)
    ->Arg(864)
    ->UseRealTime();
BENCHMARK_CAPTURE(run, all_misses_threads_direct, 16, IoMode::kThreads, DirectMode::kOn)
    ->Arg(36)
    ->Arg(288)
    ->Arg(864)
    ->UseRealTime();
BENCHMARK_CAPTURE(run, all_misses_uring_cached, 16, IoMode::kUring, DirectMode::kOff)
    ->Arg(36)
    ->Arg(288)
    ->Arg(864)
    ->UseRealTime();
BENCHMARK_CAPTURE(run, all_misses_threads_cached, 16, IoMode::kThreads, DirectMode::kOff)
    ->Arg(36)
    ->Arg(288)
    ->Arg(864)
    ->UseRealTime();

}  // namespace
}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// The sketch of a head of 151,936 x 2,048 on the instruction sets that this processor has: `scores` of all rows on one
// and two threads (bytes/s of signs, to be held against `read` of matmul_bench), `tables` of one x, `largest` 1,024 of
// the scores, `block` from f32 rows that lie in the second cache (weights/s). With two threads the time printed is half
// of what passes.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/cpu.h"
#include "outrider/base/random.h"
#include "outrider/kernels/sketch/largest_scores.h"
#include "outrider/kernels/sketch/sketch_variants.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kRows = 151'936, kK = 2048;
constexpr uint32_t kBlocks = kRows / kSketchBlockRows;

// Signs at random, in 2 MiB pages as the engine's are.
struct Problem {
  Problem() : memory(sketch_bytes(kRows, kK), "sketch"), tables(sketch_table_bytes(kK), "tables"), scores(kRows) {
    Random rng(1);
    sketch = lay_out_sketch(memory.data(), kRows, kK);
    rows.resize(uint64_t{kSketchBlockRows} * kK);
    for (float& w : rows) w = static_cast<float>(rng.normal());
    sketch_columns(sketch, rows.data(), kSketchBlockRows);
    for (uint64_t i = 0; i < uint64_t{kRows} * kK / 64; ++i)
      reinterpret_cast<uint64_t*>(sketch.signs)[i] = rng.next_u64();
    for (uint32_t i = 0; i < kRows; ++i) {
      sketch.row_scale[i] = rng.uniform(0.5F, 1.5F);
      sketch.row_along[i] = rng.uniform(-1.0F, 1.0F);
    }
    x.resize(kK);
    for (float& v : x) v = static_cast<float>(rng.normal());
    sketch_tables(sketch, x.data(), tables.data());
  }
  AlignedBuffer memory, tables;
  Sketch sketch;
  std::vector<float> rows, x, scores;
};

Problem& problem() {
  static const std::unique_ptr<Problem> only = std::make_unique<Problem>();
  return *only;
}

void scores(benchmark::State& state, SketchVariant variant) {
  Problem& p = problem();
  const auto n_threads = static_cast<uint32_t>(state.threads()), thread = static_cast<uint32_t>(state.thread_index());
  const uint32_t begin = kBlocks * thread / n_threads, end = kBlocks * (thread + 1) / n_threads;
  for (auto _ : state) {
    variant.scores(p.sketch, p.tables.data(), begin, end, p.scores.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * int64_t{end - begin} * kSketchBlockRows * (kK / 8));
}

void block(benchmark::State& state, SketchVariant variant) {
  Problem& p = problem();
  AlignedBuffer memory(sketch_bytes(kSketchBlockRows, kK), "sketch");
  const Sketch sketch = lay_out_sketch(memory.data(), kSketchBlockRows, kK);
  sketch_columns(sketch, p.rows.data(), kSketchBlockRows);
  for (auto _ : state) {
    variant.block(sketch, 0, p.rows.data(), kSketchBlockRows);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kSketchBlockRows} * kK);
}

void tables(benchmark::State& state) {
  Problem& p = problem();
  for (auto _ : state) {
    sketch_tables(p.sketch, p.x.data(), p.tables.data());
    benchmark::ClobberMemory();
  }
}

void largest(benchmark::State& state) {
  Problem& p = problem();
  sketch_variants().back().scores(p.sketch, p.tables.data(), 0, kBlocks, p.scores.data());
  std::vector<uint32_t> ids(1024);
  std::vector<uint64_t> scratch(largest_scores_scratch(kRows, ids.size()));
  for (auto _ : state) {
    largest_scores(p.scores, ids, scratch);
    benchmark::ClobberMemory();
  }
}

const int kRegistered = [] {
  for (const SketchVariant& variant : sketch_variants()) {
    if (!isa_supported(variant.needs)) continue;
    const std::string isa(isa_name(variant.needs));
    for (const int n_threads : {1, 2}) {
      benchmark::RegisterBenchmark(("sketch/scores/" + isa).c_str(), scores, variant)
          ->Threads(n_threads)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
    benchmark::RegisterBenchmark(("sketch/block/" + isa).c_str(), block, variant)->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("sketch/tables", tables)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("sketch/largest", largest)->Unit(benchmark::kMicrosecond);
  return 0;
}();

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// Every row of the variant table that this processor can run, one thread: `hot` is one token over weights that lie in
// the second cache, `row` one token and `few` four tokens over 64 MiB of cold weights (bytes/s, to be held against
// `read`, the rate at which one thread can read those pages), `tile` 32 and `many` 64 tokens over 1 MiB. Items are
// products, a weight's once for each token: with one token they are weights.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/cpu.h"
#include "outrider/base/random.h"
#include "outrider/kernels/matmul/matmul_variants.h"
#include "outrider/kernels/quantize_act/quantize_act.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kK = 2048;
constexpr uint64_t kColdBytes = 64ULL << 20;
constexpr uint64_t kHotBytes = 384ULL << 10;

struct Problem {
  // Weights lie in 2 MiB pages, as the engine's do: with 4 KiB pages the address translation halves the rate.
  Problem(format::TensorType type, uint64_t weight_bytes, uint32_t n_tokens_in)
      : n_tokens(n_tokens_in), buffer(weight_bytes, "weights") {
    const uint64_t row_bytes = format::row_bytes(type, kK);
    const auto n_rows = static_cast<uint32_t>(weight_bytes / row_bytes);
    Random rng(1);
    // Bytes 0x30..0x3B: every scale is a normal number, whatever its format; no work depends on the values.
    bytes = {buffer.data(), n_rows * row_bytes};
    for (std::byte& b : bytes) b = static_cast<std::byte>(0x30 + rng.next_u64() % 12);
    f32.resize(n_tokens * uint64_t{kK});
    for (float& x : f32) x = rng.uniform(-1.0F, 1.0F);
    q_bytes.resize(f32.size() + 64);
    q = q_bytes.data() + (64 - reinterpret_cast<uintptr_t>(q_bytes.data()) % 64) % 64;  // as the engine's buffers are
    d.resize(f32.size() / 32);
    sum32.resize(f32.size() / 32);
    sum16.resize(f32.size() / 16);
    choose_quantize_act(Isa::kScalar)(f32.data(), n_tokens * kK, q, d.data(), sum32.data(), sum16.data());
    out.resize(n_tokens * uint64_t{n_rows});
    args.weights = {type, bytes.data(), row_bytes, n_rows, kK};
    args.row_end = n_rows;
    args.x = {f32.data(), kK, q, d.data(), sum32.data(), sum16.data(), kK};
    args.n_tokens = n_tokens;
    args.out = out.data();
    args.out_stride = n_rows;
  }
  uint32_t n_tokens;
  AlignedBuffer buffer;
  std::span<std::byte> bytes;
  std::vector<float> f32, d, out;
  std::vector<int8_t> q_bytes;
  int8_t* q;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
  MatmulArgs args;
};

void run_variant(benchmark::State& state, MatmulVariant variant, uint64_t weight_bytes, uint32_t n_tokens) {
  Problem problem(variant.type, weight_bytes, n_tokens);
  for (auto _ : state) {
    variant.fn(problem.args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * problem.bytes.size()));
  const uint64_t macs = uint64_t{problem.args.row_end} * kK * n_tokens;
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * macs));
}

void read_only(benchmark::State& state) {
  AlignedBuffer buffer(kColdBytes, "data");
  uint64_t* data = buffer.as<uint64_t>();
  std::fill_n(data, kColdBytes / 8, 1);
  for (auto _ : state) {
    uint64_t sum[8] = {};
    for (uint64_t i = 0; i < kColdBytes / 8; i += 8) {
      for (uint64_t j = 0; j < 8; ++j) sum[j] += data[i + j];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kColdBytes));
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("read", read_only);
  for (const MatmulVariant& variant : matmul_variants()) {
    if (!isa_supported(variant.needs)) continue;
    const std::string name =
        std::string(format::type_info(variant.type).name) + "/" + std::string(isa_name(variant.needs));
    benchmark::RegisterBenchmark(("hot/" + name).c_str(), run_variant, variant, kHotBytes, 1);
    benchmark::RegisterBenchmark(("row/" + name).c_str(), run_variant, variant, kColdBytes, 1);
    benchmark::RegisterBenchmark(("few/" + name).c_str(), run_variant, variant, kColdBytes, 4);
    benchmark::RegisterBenchmark(("tile/" + name).c_str(), run_variant, variant, 1ULL << 20, 32);
    benchmark::RegisterBenchmark(("many/" + name).c_str(), run_variant, variant, 1ULL << 20, 64);
  }
  return 0;
}();

}  // namespace
}  // namespace outrider::kernels

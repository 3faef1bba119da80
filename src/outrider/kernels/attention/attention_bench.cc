// SPDX-License-Identifier: Apache-2.0
// Attention of one row on the instruction sets that this processor has, one thread: KV heads one after the other, each
// with its group of query heads; as prefill does it, several tokens at once. Items are (position, head) pairs, so the
// rate is what docs/performance.md gives in cycles. 512 positions of one KV head lie in the second cache, 8,192 of four
// in the third or in memory.
#include <benchmark/benchmark.h>

#include <string>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/cpu.h"
#include "outrider/base/random.h"
#include "outrider/kernels/attention/attention.h"

namespace outrider::kernels {
namespace {

struct Shape {
  const char* name;
  uint32_t width, n_heads, n_kv_heads, n_positions;  // n_heads: of one KV head
  KvType type;
  uint32_t n_tokens = 1;  // the last of which sees all positions
};

void run(benchmark::State& state, Shape shape, Isa isa) {
  const uint64_t row_bytes = kv_row_bytes(shape.type, shape.width);
  const uint64_t head_bytes = shape.n_positions * row_bytes;
  // In 2 MiB pages, as the engine's cache is; queries aligned as the engine's buffers are.
  AlignedBuffer keys(shape.n_kv_heads * head_bytes, "keys");
  AlignedBuffer values(shape.n_kv_heads * head_bytes, "values");
  const uint64_t group_floats = uint64_t{shape.n_heads} * shape.n_tokens * shape.width;
  AlignedBuffer q(shape.n_kv_heads * group_floats * sizeof(float), "queries");
  AlignedBuffer out(shape.n_kv_heads * group_floats * sizeof(float), "outputs");
  AlignedBuffer scratch(attention_scratch_floats(shape.width) * sizeof(float), "scratch");
  Random rng(1);
  for (uint64_t i = 0; i < shape.n_kv_heads * group_floats; ++i) q.as<float>()[i] = rng.uniform(-1.0F, 1.0F);
  const StoreKvFn store = choose_store_kv(Isa::kScalar);
  for (uint64_t row = 0; row < uint64_t{shape.n_kv_heads} * shape.n_positions; ++row) {
    for (AlignedBuffer* buffer : {&keys, &values}) {
      float x[128];
      for (float& v : x) v = rng.uniform(-1.0F, 1.0F);
      store(x, shape.width, shape.type, buffer->data() + row * row_bytes);
    }
  }
  const AttentionFn attention = choose_attention(isa);
  for (auto _ : state) {
    for (uint32_t h = 0; h < shape.n_kv_heads; ++h) {
      attention({.q = q.as<float>() + h * group_floats,
                 .k_cache = keys.data() + h * head_bytes,
                 .v_cache = values.data() + h * head_bytes,
                 .k_stride = row_bytes,
                 .v_stride = row_bytes,
                 .k_type = shape.type,
                 .v_type = shape.type,
                 .dk = shape.width,
                 .dv = shape.width,
                 .end = shape.n_positions - shape.n_tokens + 1,
                 .scale = 0.1F,
                 .scratch = scratch.as<float>(),
                 .out = out.as<float>() + h * group_floats,
                 .n_heads = shape.n_heads,
                 .n_tokens = shape.n_tokens,
                 .q_stride = uint64_t{shape.n_heads} * shape.width,
                 .out_stride = uint64_t{shape.n_heads} * shape.width});
    }
    benchmark::ClobberMemory();
  }
  int64_t n_visible = 0;
  for (uint32_t t = 0; t < shape.n_tokens; ++t) n_visible += shape.n_positions - t;
  state.SetItemsProcessed(state.iterations() * n_visible * shape.n_kv_heads * shape.n_heads);
}

constexpr Shape kShapes[] = {
    {"f16/128x8/512", 128, 8, 1, 512, KvType::kF16},        {"f16/128x8/8192x4", 128, 8, 4, 8192, KvType::kF16},
    {"f32/128x8/512", 128, 8, 1, 512, KvType::kF32},        {"q8_0/128x8/512", 128, 8, 1, 512, KvType::kQ8_0},
    {"f16/64x4/512", 64, 4, 1, 512, KvType::kF16},          {"f16/64x4/8192x2", 64, 4, 2, 8192, KvType::kF16},
    {"f16/128x8x4/512", 128, 8, 1, 512, KvType::kF16, 4},   {"q8_0/128x8x4/512", 128, 8, 1, 512, KvType::kQ8_0, 4},
    {"f16/128x1x32/512", 128, 1, 1, 512, KvType::kF16, 32}, {"f16/64x4x8/512", 64, 4, 1, 512, KvType::kF16, 8}};

const int kRegistered = [] {
  for (const Shape& shape : kShapes) {
    for (const Isa isa : kAllIsas) {
      if (!isa_supported(isa)) continue;
      benchmark::RegisterBenchmark(("attention/" + std::string(shape.name) + "/" + std::string(isa_name(isa))).c_str(),
                                   run, shape, isa);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace outrider::kernels

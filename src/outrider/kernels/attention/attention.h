// SPDX-License-Identifier: Apache-2.0
// Softmax attention of query heads that share cached keys and values, by fixed chunks of kAttentionChunk positions.
// Per chunk: scores s_p = scale * (q . k_p) (dot by the float law over f32 q and the exactly widened k), m = max s,
// e_p = exp(s_p - m), l = sum e_p (float law over p), o_j = fma(e_p, v_pj, o_j) in rising p. Triples (m, l, o) merge in
// rising chunk order; the result is o / l. The chunk grid starts at position 0 whatever the window or the parallel
// split, so the bits of a row depend on its own position and history only.
// In detail: a chunk holds positions [128 c, 128 c + 128); those outside [begin, end) take no part, chunks without any
// are skipped. e_p joins lane p mod 32 of l; o starts at +0. Merging (M, L, O) with the next (m, l, o):
//   M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L' = fma(l, b, L a), O'_j = fma(o_j, b, O_j a)
// A sink comes last: L' = fma(L, a, b) with m = sink, O'_j = O_j a. max leaves NaN out, exp does not: a score of
// NaN or +infinity, -infinity alone, or NaN in a visible value row gives NaN in the output, so the fault shows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/base/isa.h"

namespace outrider::kernels {

inline constexpr uint32_t kAttentionChunk = 128;

enum class KvType : uint8_t { kF16, kF32, kQ8_0 };

// Bytes of one head vector of `width` elements. Q8_0 needs width % 32 == 0.
constexpr uint64_t kv_row_bytes(KvType type, uint32_t width) noexcept {
  switch (type) {
    case KvType::kF16:
      return 2ULL * width;
    case KvType::kF32:
      return 4ULL * width;
    case KvType::kQ8_0:
      return width / 32 * 34ULL;
  }
  return 0;
}

struct AttentionArgs {
  const float* q = nullptr;            // (n_heads, dk)
  const std::byte* k_cache = nullptr;  // position p at k_cache + p * k_stride, kv_row_bytes(type, dk) each
  const std::byte* v_cache = nullptr;
  uint64_t k_stride = 0, v_stride = 0;
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  uint32_t dk = 0, dv = 0;
  uint32_t begin = 0, end = 0;  // positions [begin, end) are visible; begin > 0 with a sliding window; end > begin
  float scale = 1;
  const float* sink = nullptr;  // (n_heads) logits that join the softmax without a value, unscaled; or nullptr
  float* scratch = nullptr;     // attention_scratch_floats(dv)
  float* out = nullptr;         // (n_heads, dv)
  uint32_t n_heads = 1;         // each gets the bits it would get alone; several are faster than one by one
  // Tokens at neighbouring positions: token t has its queries at q + t * q_stride and its outputs at out + t *
  // out_stride (floats), and sees [begin, end + t). Each gets the bits it would get alone, too.
  uint32_t n_tokens = 1;
  uint64_t q_stride = 0, out_stride = 0;
};

// So many heads of one token are always worth sharing their keys; heads times tokens from which on more gain nothing.
inline constexpr uint32_t kAttentionHeadsAtOnce = 4;
inline constexpr uint32_t kAttentionQueriesAtOnce = 32;

// For any n_heads.
constexpr uint32_t attention_scratch_floats(uint32_t dv) noexcept {
  return kAttentionHeadsAtOnce * (kAttentionChunk + dv);
}

using AttentionFn = void (*)(const AttentionArgs& args) noexcept;
AttentionFn choose_attention(Isa isa) noexcept;

// Stores one f32 head vector as a cache row of `type` (f16: RNE; q8_0: d = f16(amax / 127), q = RNE(x * (127 / amax)),
// all q 0 when d rounds to 0, d = NaN when the block holds NaN or infinity). `row` needs no alignment.
using StoreKvFn = void (*)(const float* x, uint32_t width, KvType type, std::byte* row) noexcept;
StoreKvFn choose_store_kv(Isa isa) noexcept;

}  // namespace outrider::kernels

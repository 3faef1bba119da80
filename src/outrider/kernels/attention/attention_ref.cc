// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/attention/attention_variants.h"
#include "outrider/kernels/functions/float_law_ref-inl.h"
#include "outrider/kernels/functions/functions_ref-inl.h"
#include "outrider/numerics/float16.h"

namespace outrider::kernels {
namespace {

// Bytes may be unaligned (q8_0 blocks are 34 bytes).
template <typename T>
T load(const std::byte* from) noexcept {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}

// Element j of a cache row, exactly. d * q of q8_0 has 19 significant bits at most, so it is exact too.
float row_element(const std::byte* row, KvType type, uint32_t j) noexcept {
  switch (type) {
    case KvType::kF16:
      return numerics::f16_to_f32(load<uint16_t>(row + 2 * j));
    case KvType::kF32:
      return load<float>(row + 4 * j);
    case KvType::kQ8_0: {
      const std::byte* block = row + j / 32 * 34;
      return numerics::f16_to_f32(load<uint16_t>(block)) * static_cast<float>(load<int8_t>(block + 2 + j % 32));
    }
  }
  return 0;
}

// The (max, sum, out) of the positions [begin, end), all in one chunk.
struct Triple {
  float m, l;
  float* o;  // (dv)
};

void chunk_triple(const AttentionArgs& args, const float* q, uint32_t begin, uint32_t end, float* e,
                  Triple& t) noexcept {
  t.m = -__builtin_inff();
  for (uint32_t p = begin; p < end; ++p) {
    const std::byte* row = args.k_cache + p * args.k_stride;
    FloatLanes dot;
    for (uint32_t j = 0; j < args.dk; ++j) dot.join(j, q[j], row_element(row, args.k_type, j));
    const float score = args.scale * dot.fold();
    e[p % kAttentionChunk] = score;
    t.m = score > t.m ? score : t.m;  // a NaN is left out here; it comes back as e and reaches l and o
  }
  FloatLanes sum;
  for (uint32_t j = 0; j < args.dv; ++j) t.o[j] = 0;
  for (uint32_t p = begin; p < end; ++p) {
    const float e_p = exp_ref(e[p % kAttentionChunk] - t.m);
    sum.join(p % kAttentionChunk, e_p, 1.0F);
    const std::byte* row = args.v_cache + p * args.v_stride;
    for (uint32_t j = 0; j < args.dv; ++j) t.o[j] = __builtin_fmaf(e_p, row_element(row, args.v_type, j), t.o[j]);
  }
  t.l = sum.fold();
}

void attend(const AttentionArgs& args, const float* q, const float* sink, float* out) noexcept {
  float* e = args.scratch;
  Triple total{0, 0, out};
  Triple part{0, 0, args.scratch + kAttentionChunk};
  bool first = true;
  for (uint32_t begin = args.begin; begin < args.end;) {
    const uint32_t chunk_end = begin - begin % kAttentionChunk + kAttentionChunk;
    const uint32_t end = chunk_end < args.end ? chunk_end : args.end;
    chunk_triple(args, q, begin, end, e, first ? total : part);
    if (!first) {
      const float m = part.m > total.m ? part.m : total.m;
      const float old_factor = exp_ref(total.m - m);
      const float new_factor = exp_ref(part.m - m);
      total.l = __builtin_fmaf(part.l, new_factor, total.l * old_factor);
      for (uint32_t j = 0; j < args.dv; ++j) {
        total.o[j] = __builtin_fmaf(part.o[j], new_factor, total.o[j] * old_factor);
      }
      total.m = m;
    }
    first = false;
    begin = end;
  }
  if (sink != nullptr) {
    const float m = *sink > total.m ? *sink : total.m;
    const float old_factor = exp_ref(total.m - m);
    total.l = __builtin_fmaf(total.l, old_factor, exp_ref(*sink - m));
    for (uint32_t j = 0; j < args.dv; ++j) total.o[j] *= old_factor;
  }
  for (uint32_t j = 0; j < args.dv; ++j) out[j] = total.o[j] / total.l;
}

}  // namespace

void attention_ref(const AttentionArgs& args) noexcept {
  AttentionArgs token = args;
  for (uint64_t t = 0; t < args.n_tokens; ++t, ++token.end) {
    const float* q = args.q + t * args.q_stride;
    float* out = args.out + t * args.out_stride;
    for (uint64_t h = 0; h < args.n_heads; ++h) {
      attend(token, q + h * args.dk, args.sink != nullptr ? args.sink + h : nullptr, out + h * args.dv);
    }
  }
}

}  // namespace outrider::kernels

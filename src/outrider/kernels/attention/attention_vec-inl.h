// SPDX-License-Identifier: Apache-2.0
// attention on vectors, for every instruction set. Include after a vec_*-inl.h.
#pragma once

#include "outrider/kernels/attention/attention.h"
#include "outrider/kernels/functions/functions_vec-inl.h"
#include "outrider/kernels/vec/float_law_vec-inl.h"

namespace outrider::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Elements [j, j + kWidth) of a cache row, exactly; j is a multiple of kWidth.
template <typename V, KvType kType>
typename V::F load_row(const std::byte* row, uint32_t j) noexcept {
  if constexpr (kType == KvType::kF32) {
    return V::load(reinterpret_cast<const float*>(row + 4ULL * j));
  } else if constexpr (kType == KvType::kF16) {
    return V::load_f16(row + 2ULL * j);
  } else {
    const std::byte* block = row + j / 32 * 34ULL;
    return V::mul(V::set1_f16(block), V::load_i8(block + 2 + j % 32));
  }
}

// The same for the last n < kWidth elements of a row, 0 above. Rows of q8_0 are whole blocks.
template <typename V, KvType kType>
typename V::F load_row_part(const std::byte* row, uint32_t j, uint32_t n) noexcept {
  constexpr uint64_t kElementBytes = kType == KvType::kF32 ? 4 : 2;
  alignas(64) std::byte rest[4 * V::kWidth] = {};
  __builtin_memcpy(rest, row + kElementBytes * j, kElementBytes * n);
  return load_row < V, kType == KvType::kQ8_0 ? KvType::kF16 : kType > (rest, 0);
}

// The lanes of the law of q_h . keys[i] for h * kKeys + i. Each key is widened once for all heads, each part of a query
// loaded once for all keys.
template <typename V, KvType kType, uint32_t kHeads, uint32_t kKeys>
void dots(const float* q, uint32_t dk, const std::byte* const* keys,
          typename V::F (&acc)[kHeads * kKeys][kLaneRegs<V>]) noexcept {
  using F = typename V::F;
  constexpr uint32_t kW = V::kWidth;
  constexpr uint32_t kRegs = kLaneRegs<V>;
#pragma GCC unroll 8
  for (auto& lanes : acc) {
#pragma GCC unroll 4
    for (F& lane : lanes) lane = V::zero();
  }
  uint32_t j = 0;
  for (; j + 32 <= dk; j += 32) {
#pragma GCC unroll 4
    for (uint32_t a = 0; a < kRegs; ++a) {
      F q_part[kHeads];
#pragma GCC unroll 4
      for (uint32_t h = 0; h < kHeads; ++h) q_part[h] = V::keep(V::load(q + h * dk + j + a * kW));
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kKeys; ++i) {
        const F k_part = load_row<V, kType>(keys[i], j + a * kW);
#pragma GCC unroll 4
        for (uint32_t h = 0; h < kHeads; ++h) {
          F& lanes = acc[h * kKeys + i][a];
          lanes = V::fma(q_part[h], k_part, lanes);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t a = 0; a < kRegs; ++a) {
    if (j >= dk) break;
    const uint32_t part = dk - j < kW ? dk - j : kW;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kKeys; ++i) {
      const F k_part = load_row_part<V, kType>(keys[i], j, part);
#pragma GCC unroll 4
      for (uint32_t h = 0; h < kHeads; ++h) {
        F& lanes = acc[h * kKeys + i][a];
        lanes = V::fma_part(V::load_part(q + h * dk + j, part), k_part, lanes, part);
      }
    }
    j += part;
  }
}

// Where a chunk's scores go: of head h at to + h * 128.
template <typename V, KvType kType, uint32_t kHeads>
void eight_scores(const float* q, uint32_t dk, const std::byte* const* keys, float scale, float* to) noexcept {
  constexpr uint32_t kKeys = kHeads == 1 ? V::kKeysOfOneHead : V::kKeysOfAGroup;
  if constexpr (kHeads == 4 && kKeys == 2 && requires { typename V::FoldsTogether; }) {
    // Four keys at a time: what they have with the heads folds together, without a way through memory.
    for (uint32_t i = 0; i < 8; i += 4) {
      typename V::F two[2];
#pragma GCC unroll 2
      for (uint32_t k = 0; k < 4; k += 2) {
        typename V::F acc[kHeads * kKeys][kLaneRegs<V>];
        dots<V, kType, kHeads, kKeys>(q, dk, keys + i + k, acc);
        two[k / 2] = V::fold_to_pairs(acc);
      }
      V::store_quarters(to + i, kAttentionChunk, V::mul(V::set1(scale), V::fold_pairs(two[0], two[1])));
    }
  } else {
    __m256 rows[kHeads][8];
    for (uint32_t k = 0; k < 8; k += kKeys) {
      typename V::F acc[kHeads * kKeys][kLaneRegs<V>];
      dots<V, kType, kHeads, kKeys>(q, dk, keys + k, acc);
#pragma GCC unroll 4
      for (uint32_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kKeys; ++i) rows[h][k + i] = V::fold_to_8(acc[h * kKeys + i]);
      }
    }
    for (uint32_t h = 0; h < kHeads; ++h) {
      _mm256_storeu_ps(to + h * kAttentionChunk, _mm256_mul_ps(_mm256_set1_ps(scale), fold_8_rows(rows[h])));
    }
  }
}

// Asks for the row of the next chunk in the place of row p, into the second cache: rows are read at the pace of
// products with several heads, too slow a stream for the hardware to run ahead of.
inline void fetch_next(const std::byte* cache, uint64_t stride, uint32_t p, uint32_t end) noexcept {
  if (p + kAttentionChunk >= end) return;
  const std::byte* row = cache + (p + kAttentionChunk) * stride;
  for (uint64_t at = 0; at < stride; at += 64) _mm_prefetch(reinterpret_cast<const char*>(row + at), _MM_HINT_T1);
}

// scores[h * 128 + p mod 128] for [begin, end), all in one chunk, eight at a time; the last eight may repeat the last
// position.
template <typename V, KvType kType, uint32_t kHeads>
void chunk_scores(const AttentionArgs& args, const float* q, uint32_t begin, uint32_t end, bool fetches,
                  float* scores) noexcept {
  for (uint32_t p = begin; p < end; p += 8) {
    const std::byte* keys[8];
    for (uint32_t i = 0; i < 8; ++i) keys[i] = args.k_cache + (p + i < end ? p + i : end - 1) * args.k_stride;
    for (uint32_t i = 0; fetches && i < 8; ++i) fetch_next(args.k_cache, args.k_stride, p + i, args.end);
    float* to = scores + p % kAttentionChunk;
    if (end - p >= 8) {
      eight_scores<V, kType, kHeads>(q, args.dk, keys, args.scale, to);
      continue;
    }
    alignas(64) float last[kHeads * kAttentionChunk];  // the first eight of each 128 are used
    eight_scores<V, kType, kHeads>(q, args.dk, keys, args.scale, last);
    for (uint32_t h = 0; h < kHeads; ++h) {
      for (uint32_t i = 0; i < end - p; ++i) to[h * kAttentionChunk + i] = last[h * kAttentionChunk + i];
    }
  }
}

// Scores at places [first, last) of the chunk to e = exp(score - m). Whole vectors are worked on: places outside take a
// score of -infinity, hence e = 0, which leaves every lane of l as it is.
template <typename V>
void chunk_exp(float* e, uint32_t first, uint32_t last, float& m, float& l) noexcept {
  using F = typename V::F;
  constexpr uint32_t kW = V::kWidth;
  const uint32_t low = first / kW * kW;
  const uint32_t high = (last + kW - 1) / kW * kW;
  for (uint32_t i = low; i < first; ++i) e[i] = kMinusInfinity;
  for (uint32_t i = last; i < high; ++i) e[i] = kMinusInfinity;
  F most = V::set1(kMinusInfinity);
  for (uint32_t i = low; i < high; i += kW) most = V::greater_or_second(V::load(e + i), most);
  float lanes[kW];
  V::store(lanes, most);
  m = lanes[0];
  for (uint32_t i = 1; i < kW; ++i) m = lanes[i] > m ? lanes[i] : m;
  const F m_all = V::set1(m);
  F acc[kLaneRegs<V>];
  for (auto& a : acc) a = V::zero();
  for (uint32_t i = low; i < high; i += kW) {
    const F value = exp_vec<V>(V::sub(V::load(e + i), m_all));
    V::store(e + i, value);
    F& a = acc[i / kW % kLaneRegs<V>];
    a = V::add(a, value);
  }
  l = fold_8(V::fold_to_8(acc));
}

// o[h * dv + j] = sum of e_p v_pj in rising p, for the kRegs * kWidth elements from j on.
template <typename V, KvType kType, uint32_t kHeads, uint32_t kRegs>
void weigh_block(const AttentionArgs& args, uint32_t begin, uint32_t end, const float* e, uint32_t j, bool fetches,
                 float* o) noexcept {
  using F = typename V::F;
  F acc[kHeads][kRegs];
#pragma GCC unroll 4
  for (auto& out : acc) {
#pragma GCC unroll 8
    for (F& r : out) r = V::zero();
  }
  const std::byte* row = args.v_cache + begin * args.v_stride;
  for (uint32_t p = begin; p < end; ++p, row += args.v_stride) {
    const float* e_p = e + p % kAttentionChunk;
    if (fetches) fetch_next(args.v_cache, args.v_stride, p, args.end);
    F v[kRegs];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegs; ++r) v[r] = load_row<V, kType>(row, j + r * V::kWidth);
#pragma GCC unroll 4
    for (uint32_t h = 0; h < kHeads; ++h) {
      const F weight = V::set1(e_p[h * kAttentionChunk]);
#pragma GCC unroll 8
      for (uint32_t r = 0; r < kRegs; ++r) acc[h][r] = V::fma(weight, v[r], acc[h][r]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kRegs; ++r) V::store(o + h * args.dv + j + r * V::kWidth, acc[h][r]);
  }
}

// The same for the last elements, fewer than a vector.
template <typename V, KvType kType, uint32_t kHeads>
void weigh_part(const AttentionArgs& args, uint32_t begin, uint32_t end, const float* e, uint32_t j,
                float* o) noexcept {
  const uint32_t part = args.dv - j;
  for (uint32_t h = 0; h < kHeads; ++h) {
    auto acc = V::zero();
    for (uint32_t p = begin; p < end; ++p) {
      const auto v = load_row_part<V, kType>(args.v_cache + p * args.v_stride, j, part);
      acc = V::fma(V::set1(e[h * kAttentionChunk + p % kAttentionChunk]), v, acc);
    }
    V::store_part(o + h * args.dv + j, acc, part);
  }
}

template <typename V, KvType kType, uint32_t kHeads>
void chunk_weigh(const AttentionArgs& args, uint32_t begin, uint32_t end, const float* e, bool fetches,
                 float* o) noexcept {
  constexpr uint32_t kW = V::kWidth;
  constexpr uint32_t kMost = kHeads == 1 ? 8 : V::kWidth / kHeads;  // sums of a head: half of the registers
  uint32_t j = 0;
  for (; j + kMost * kW <= args.dv; j += kMost * kW) {
    weigh_block<V, kType, kHeads, kMost>(args, begin, end, e, j, fetches && j == 0, o);
  }
  for (; j + 2 * kW <= args.dv; j += 2 * kW)
    weigh_block<V, kType, kHeads, 2>(args, begin, end, e, j, fetches && j == 0, o);
  for (; j + kW <= args.dv; j += kW) weigh_block<V, kType, kHeads, 1>(args, begin, end, e, j, fetches && j == 0, o);
  if (j < args.dv) weigh_part<V, kType, kHeads>(args, begin, end, e, j, o);
}

// Calls op(first, n) for the pieces of [0, dv) that fill a vector, and once for the rest.
template <typename V, typename Op>
void by_vectors(uint32_t dv, Op op) noexcept {
  for (uint32_t j = 0; j < dv; j += V::kWidth) op(j, dv - j < V::kWidth ? dv - j : V::kWidth);
}

struct ChunkFns {
  void (*scores)(const AttentionArgs&, const float* q, uint32_t begin, uint32_t end, bool fetches,
                 float* scores) noexcept;
  void (*weigh)(const AttentionArgs&, uint32_t begin, uint32_t end, const float* e, bool fetches, float* o) noexcept;
};

template <typename V, uint32_t kHeads>
ChunkFns chunk_fns(KvType k_type, KvType v_type) noexcept {
  ChunkFns fns{chunk_scores<V, KvType::kF16, kHeads>, chunk_weigh<V, KvType::kF16, kHeads>};
  if (k_type == KvType::kF32) fns.scores = chunk_scores<V, KvType::kF32, kHeads>;
  if (k_type == KvType::kQ8_0) fns.scores = chunk_scores<V, KvType::kQ8_0, kHeads>;
  if (v_type == KvType::kF32) fns.weigh = chunk_weigh<V, KvType::kF32, kHeads>;
  if (v_type == KvType::kQ8_0) fns.weigh = chunk_weigh<V, KvType::kQ8_0, kHeads>;
  return fns;
}

// (m, l, out) takes the triple of the next chunk.
template <typename V>
void merge(float part_m, float part_l, const float* part_o, uint32_t dv, float& m, float& l, float* out) noexcept {
  const float merged = part_m > m ? part_m : m;
  const float old_factor = exp_ref(m - merged);
  const float new_factor = exp_ref(part_m - merged);
  l = __builtin_fmaf(part_l, new_factor, l * old_factor);
  by_vectors<V>(dv, [&](uint32_t j, uint32_t n) {
    const auto old = V::mul(load_upto<V>(out + j, n), V::set1(old_factor));
    store_upto<V>(out + j, V::fma(load_upto<V>(part_o + j, n), V::set1(new_factor), old), n);
  });
  m = merged;
}

// The sink joins, then out = o / l.
template <typename V>
void finish(const float* sink, float m, float l, uint32_t dv, float* out) noexcept {
  float factor = 1;
  if (sink != nullptr) {
    const float merged = *sink > m ? *sink : m;
    factor = exp_ref(m - merged);
    l = __builtin_fmaf(l, factor, exp_ref(*sink - merged));
  }
  by_vectors<V>(dv, [&](uint32_t j, uint32_t n) {
    const auto o = V::mul(load_upto<V>(out + j, n), V::set1(factor));  // times 1 changes nothing
    store_upto<V>(out + j, V::div(o, V::set1(l)), n);
  });
}

// The running (m, l) of heads that go through the chunks together; their o is in the output.
constexpr uint32_t kHeadsTogether = 16;
struct Softmax {
  float m[kHeadsTogether], l[kHeadsTogether];
};

// One chunk for the heads from first_head on, kHeads of them, whose sums m and l are.
template <typename V, uint32_t kHeads>
void attend_chunk(const AttentionArgs& args, uint32_t first_head, uint32_t begin, uint32_t end, bool fetches, float* m,
                  float* l) noexcept {
  const ChunkFns fns = chunk_fns<V, kHeads>(args.k_type, args.v_type);
  const float* q = args.q + static_cast<uint64_t>(first_head) * args.dk;
  float* out = args.out + static_cast<uint64_t>(first_head) * args.dv;
  float* e = args.scratch;                                  // (kHeads, 128)
  float* part_o = args.scratch + kHeads * kAttentionChunk;  // (kHeads, dv)
  const bool is_first = begin == args.begin;
  float part_m[kHeads];
  float part_l[kHeads];
  fns.scores(args, q, begin, end, fetches, e);
  for (uint32_t h = 0; h < kHeads; ++h) {
    chunk_exp<V>(e + h * kAttentionChunk, begin % kAttentionChunk, (end - 1) % kAttentionChunk + 1, part_m[h],
                 part_l[h]);
  }
  fns.weigh(args, begin, end, e, fetches, is_first ? out : part_o);
  for (uint32_t h = 0; h < kHeads; ++h) {
    if (is_first) {
      m[h] = part_m[h];
      l[h] = part_l[h];
    } else {
      merge<V>(part_m[h], part_l[h], part_o + h * args.dv, args.dv, m[h], l[h], out + h * args.dv);
    }
  }
}

// All heads take a chunk before any takes the next one: its keys and values come from memory once.
template <typename V>
void attend(const AttentionArgs& args, uint32_t first_head, uint32_t n_heads) noexcept {
  constexpr uint32_t kGroup = V::kHeadsOfAGroup;
  static_assert(kGroup <= kAttentionHeadsAtOnce);
  Softmax sums;
  for (uint32_t begin = args.begin; begin < args.end;) {
    const uint32_t chunk_end = begin - begin % kAttentionChunk + kAttentionChunk;
    const uint32_t end = chunk_end < args.end ? chunk_end : args.end;
    uint32_t h = 0;
    for (; h + kGroup <= n_heads; h += kGroup) {
      attend_chunk<V, kGroup>(args, first_head + h, begin, end, h == 0, sums.m + h, sums.l + h);
    }
    for (; h < n_heads; ++h) attend_chunk<V, 1>(args, first_head + h, begin, end, h == 0, sums.m + h, sums.l + h);
    begin = end;
  }
  for (uint32_t h = 0; h < n_heads; ++h) {
    const uint64_t head = first_head + h;
    finish<V>(args.sink != nullptr ? args.sink + head : nullptr, sums.m[h], sums.l[h], args.dv,
              args.out + head * args.dv);
  }
}

template <typename V>
void attention_vec(const AttentionArgs& args) noexcept {
  AttentionArgs token = args;
  for (uint32_t t = 0; t < args.n_tokens; ++t, ++token.end, token.q += args.q_stride, token.out += args.out_stride) {
    for (uint32_t h = 0; h < args.n_heads; h += kHeadsTogether) {
      attend<V>(token, h, args.n_heads - h < kHeadsTogether ? args.n_heads - h : kHeadsTogether);
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// Keys are widened in registers and all queries walk past them: what a key has with a query, eight of the law's 32
// lanes at a time, needs dk / 32 registers of key, so eight hold the keys' parts and each part of a query is loaded
// once for them. Values are widened by the first four queries and kept for the others. Widths that do not fit go by
// attention_vec-inl.h.
#include "outrider/kernels/vec/vec_avx2-inl.h"
// The vector type comes first.
#include "outrider/kernels/attention/attention_variants.h"
#include "outrider/kernels/attention/attention_vec-inl.h"

namespace outrider::kernels {
namespace {

using V = VecAvx2;
using F = __m256;

// A value that is used several times stays in a register: GCC would load and widen it for each use.
F keep(F v) noexcept {
  asm("" : "+x"(v));
  return v;
}

// Queries that share a register of values, and elements of a value row in registers: eight sums.
constexpr uint32_t kTile = 4, kSlice = 16;
constexpr uint32_t kMostQueries = kAttentionQueriesAtOnce;

// Keys of kSteps * 32 elements that are held at once: their parts of a pass fill at most twelve registers.
template <uint32_t kSteps>
inline constexpr uint32_t kKeysHeld = kSteps > 6   ? 1
                                      : kSteps > 2 ? 2
                                                   : 4;

// Of eight keys, the one at a place in memory: i and i + 4 are neighbours, which fold_places() makes use of.
constexpr uint32_t key_at(uint32_t place) noexcept { return place / 2 + place % 2 * 4; }

// Queries that take a chunk together: heads of tokens, tokens rising, so that later ones see no less.
struct Queries {
  uint32_t n = 0;
  const float* q[kMostQueries];
  float* out[kMostQueries];
  uint32_t end[kMostQueries];                          // of the visible positions
  float m[kMostQueries], l[kMostQueries];              // of the chunks so far
  float before[kMostQueries], part[kMostQueries];      // with which those and the chunk at hand merge
  alignas(32) float e[kMostQueries][kAttentionChunk];  // scores of the chunk at hand, then weights
};

// Its positions that any query sees, and the end of what the last query sees at all.
struct Chunk {
  uint32_t begin, end, last;
  bool is_first;
};

uint32_t visible_end(const Queries& queries, uint32_t h, const Chunk& chunk) noexcept {
  return queries.end[h] < chunk.end ? queries.end[h] : chunk.end;
}

// Of each query with eight keys: the folds 16 and 8 of the lanes, in the making.
struct Lanes {
  alignas(32) float even[kMostQueries][8][8];  // [query][place of the key]: lanes 0 to 7 + 16 to 23, at last all
  alignas(32) float odd[kMostQueries][4][8];   // lanes 8 to 15 of the keys held
};

// The scale of each 32 elements of a key, q8_0 only.
template <uint32_t kSteps>
using Scales = float[kKeysHeld<kSteps>][kSteps];

template <KvType kType, uint32_t kSteps>
F key_part(const std::byte* key, const float* scales, uint32_t step, uint32_t lane) noexcept {
  if constexpr (kType != KvType::kQ8_0) return load_row<V, kType>(key, 32 * step + lane);
  return V::mul(_mm256_broadcast_ss(scales + step), V::load_i8(key + 34ULL * step + 2 + lane));
}

// Lanes kLane to kLane + 7 of the queries with the keys from `place` on: in the order 0, 16, 8, 24. The first product
// of a lane is rounded as fma with +0 rounds it, but for the sign of a zero, which no exp of a score shows.
template <KvType kType, uint32_t kSteps, uint32_t kLane>
inline void eight_lanes(const Queries& queries, const std::byte* const* keys, uint32_t place,
                        const Scales<kSteps>& scales, Lanes& lanes) noexcept {
  constexpr uint32_t kKeys = kKeysHeld<kSteps>;
  F key[kKeys][kSteps];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kKeys; ++i) {
#pragma GCC unroll 8
    for (uint32_t s = 0; s < kSteps; ++s) {
      key[i][s] = keep(key_part<kType, kSteps>(keys[key_at(place + i)], scales[i], s, kLane));
    }
  }
#pragma GCC unroll 2
  for (uint32_t h = 0; h < queries.n; ++h) {
    F acc[kKeys];
#pragma GCC unroll 8
    for (uint32_t s = 0; s < kSteps; ++s) {
      const F q_part = keep(V::load(queries.q[h] + 32 * s + kLane));
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kKeys; ++i) {
        acc[i] = s == 0 ? V::mul(q_part, key[i][s]) : V::fma(q_part, key[i][s], acc[i]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kKeys; ++i) {
      float* even = lanes.even[h][place + i];
      float* odd = lanes.odd[h][i];
      if constexpr (kLane == 0) V::store(even, acc[i]);
      if constexpr (kLane == 16) V::store(even, V::add(V::load(even), acc[i]));
      if constexpr (kLane == 8) V::store(odd, acc[i]);
      if constexpr (kLane == 24) V::store(even, V::add(V::load(even), V::add(V::load(odd), acc[i])));
    }
  }
}

// The folds 4, 2, 1: result lane i is of key i.
inline F fold_places(const float (&rows)[8][8]) noexcept {
  F four[4];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    // (low of i, high of i + 4) and, since they are neighbours, (high of i, low of i + 4)
    const float* low = rows[2 * i];
    four[i] = V::add(_mm256_blend_ps(V::load(low), V::load(low + 8), 0xF0), V::load(low + 4));
  }
  const auto two = [](F a, F b) { return V::add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE)); };
  const F low = two(four[0], four[1]);
  const F high = two(four[2], four[3]);
  return V::add(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xDD));
}

// Scores of the queries with eight keys, to queries.e[h][at] on.
template <KvType kType, uint32_t kSteps>
void eight_keys(const std::byte* const* keys, float scale, uint32_t at, Queries& queries) noexcept {
  constexpr uint32_t kKeys = kKeysHeld<kSteps>;
  Lanes lanes;
  for (uint32_t place = 0; place < 8; place += kKeys) {
    Scales<kSteps> scales;
    for (uint32_t i = 0; kType == KvType::kQ8_0 && i < kKeys; ++i) {
      for (uint32_t s = 0; s < kSteps; ++s) {
        scales[i][s] = _mm256_cvtss_f32(V::set1_f16(keys[key_at(place + i)] + 34ULL * s));
      }
    }
    eight_lanes<kType, kSteps, 0>(queries, keys, place, scales, lanes);
    eight_lanes<kType, kSteps, 16>(queries, keys, place, scales, lanes);
    eight_lanes<kType, kSteps, 8>(queries, keys, place, scales, lanes);
    eight_lanes<kType, kSteps, 24>(queries, keys, place, scales, lanes);
  }
  for (uint32_t h = 0; h < queries.n; ++h) {
    V::store(queries.e[h] + at, V::mul(V::set1(scale), fold_places(lanes.even[h])));
  }
}

// Scores at the places of the chunk's positions, and at up to seven more before and after.
template <KvType kType, uint32_t kSteps>
void scores_of_chunk(const AttentionArgs& args, const Chunk& chunk, Queries& queries) noexcept {
  for (uint32_t p = chunk.begin / 8 * 8; p < chunk.end; p += 8) {
    const std::byte* keys[8];
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t at = p + i < chunk.begin ? chunk.begin : p + i < chunk.end ? p + i : chunk.end - 1;
      keys[i] = args.k_cache + at * args.k_stride;
      fetch_next(args.k_cache, args.k_stride, p + i, chunk.last);
    }
    eight_keys<kType, kSteps>(keys, args.scale, p % kAttentionChunk, queries);
  }
}

// exp_vec() of four vectors in step, for one alone waits for its own results. No x is above 0. Where none is below
// kNear or NaN, no result is subnormal, and 2^n is multiplied in by adding n to the exponent: bit 23 on of `shifted`,
// whose other bits a shift by 23 drops.
void exp_of_four(F (&x)[4]) noexcept {
  constexpr float kNear = -86.0F;
  F is_near[4], shifted[4], p[4];
#pragma GCC unroll 4
  for (uint32_t a = 0; a < 4; ++a) {
    is_near[a] = _mm256_cmp_ps(x[a], V::set1(kNear), _CMP_GE_OQ);
    x[a] = V::greater_or_second(V::set1(kExpLow), x[a]);
    shifted[a] = V::fma(x[a], V::set1(kLog2E), V::set1(kRoundShift));
  }
#pragma GCC unroll 4
  for (uint32_t a = 0; a < 4; ++a) {
    const F n = V::sub(shifted[a], V::set1(kRoundShift));
    x[a] = V::fma(n, V::set1(-kLn2Low), V::fma(n, V::set1(-kLn2High), x[a]));
    p[a] = V::fma(V::set1(kExpPoly[4]), x[a], V::set1(kExpPoly[3]));
  }
  constexpr float kRest[5] = {kExpPoly[2], kExpPoly[1], kExpPoly[0], 1.0F, 1.0F};
#pragma GCC unroll 5
  for (const float c : kRest) {
#pragma GCC unroll 4
    for (uint32_t a = 0; a < 4; ++a) p[a] = V::fma(p[a], x[a], V::set1(c));
  }
  const F all_near = _mm256_and_ps(_mm256_and_ps(is_near[0], is_near[1]), _mm256_and_ps(is_near[2], is_near[3]));
  const bool near = _mm256_movemask_ps(all_near) == 0xFF;
#pragma GCC unroll 4
  for (uint32_t a = 0; a < 4; ++a) {
    if (near) {
      x[a] = _mm256_castsi256_ps(_mm256_add_epi32(V::bits(p[a]), _mm256_slli_epi32(V::bits(shifted[a]), 23)));
    } else {
      const __m256i exponent = V::isub(V::bits(shifted[a]), V::bits(V::set1(kRoundShift)));
      const __m256i half = V::half(exponent);
      x[a] = V::mul(V::mul(p[a], V::pow2(half)), V::pow2(V::isub(exponent, half)));
    }
  }
}

// Scores at places [first, last) of the chunk to e = exp(score - m), as chunk_exp() of attention_vec-inl.h.
void exp_of_chunk(float* e, uint32_t first, uint32_t last, float& m, float& l) noexcept {
  const uint32_t low = first / 32 * 32;
  const uint32_t high = (last + 31) / 32 * 32;
  for (uint32_t i = low; i < first; ++i) e[i] = kMinusInfinity;
  for (uint32_t i = last; i < high; ++i) e[i] = kMinusInfinity;
  F most[4];
  for (F& r : most) r = V::set1(kMinusInfinity);
  for (uint32_t i = low; i < high; i += 32) {
#pragma GCC unroll 4
    for (uint32_t a = 0; a < 4; ++a) most[a] = V::greater_or_second(V::load(e + i + 8 * a), most[a]);
  }
  F all = V::greater_or_second(V::greater_or_second(most[0], most[1]), V::greater_or_second(most[2], most[3]));
  all = V::greater_or_second(all, _mm256_permute2f128_ps(all, all, 0x01));
  all = V::greater_or_second(all, _mm256_shuffle_ps(all, all, 0x4E));
  all = V::greater_or_second(all, _mm256_shuffle_ps(all, all, 0xB1));
  m = _mm256_cvtss_f32(all);
  F acc[4];
  for (F& r : acc) r = V::zero();
#pragma GCC unroll 1
  for (uint32_t i = low; i < high; i += 32) {
    F x[4];
#pragma GCC unroll 4
    for (uint32_t a = 0; a < 4; ++a) x[a] = V::sub(V::load(e + i + 8 * a), all);
    exp_of_four(x);
#pragma GCC unroll 4
    for (uint32_t a = 0; a < 4; ++a) {
      V::store(e + i + 8 * a, x[a]);
      acc[a] = V::add(acc[a], x[a]);
    }
  }
  l = fold_8(V::fold_to_8(acc));
}

// kSlice elements of value rows; row p is that of place p of the chunk.
struct Slice {
  const std::byte* rows;  // at the slice; of q8_0 at its block
  uint64_t stride;
  uint32_t in_block;      // q8_0: where in the block the slice begins
  uint64_t fetch_at = 0;  // from the row to bytes to ask for
};

template <KvType kType>
Slice slice_at(const std::byte* rows, uint64_t stride, uint32_t j) noexcept {
  if constexpr (kType == KvType::kQ8_0) return {rows + j / 32 * 34ULL, stride, j % 32};
  return {rows + j * (kType == KvType::kF32 ? 4ULL : 2ULL), stride, 0};
}

// sums += e_p v_p for the places [from, to), of kQueries queries whose weights are 128 apart. With kKeeps widened rows
// go to `widened`, too, and bytes are asked for.
template <KvType kType, uint32_t kQueries, bool kKeeps>
void add_slice(const Slice& slice, uint32_t from, uint32_t to, const float* e, float* widened,
               float (*sums)[kSlice]) noexcept {
  F acc[kQueries + 1][2];  // of no queries when rows are only widened
#pragma GCC unroll 4
  for (uint32_t h = 0; h < kQueries; ++h) {
    acc[h][0] = V::load(sums[h]);
    acc[h][1] = V::load(sums[h] + 8);
  }
  // Copies, for GCC would read the slice anew after each store.
  const std::byte* row = slice.rows + from * slice.stride;
  const uint64_t stride = slice.stride, fetch_at = slice.fetch_at;
  const uint32_t in_block = kType == KvType::kQ8_0 ? slice.in_block : 0;
  float* keep_at = widened + kSlice * from;
#pragma GCC unroll 1
  for (const float* e_p = e + from; e_p < e + to; ++e_p, row += stride, keep_at += kSlice) {
    const F v[2] = {keep(load_row<V, kType>(row, in_block)), keep(load_row<V, kType>(row, in_block + 8))};
    if constexpr (kKeeps) {
      _mm_prefetch(reinterpret_cast<const char*>(row + fetch_at), _MM_HINT_T1);
      V::store(keep_at, v[0]);
      V::store(keep_at + 8, v[1]);
    }
#pragma GCC unroll 4
    for (uint32_t h = 0; h < kQueries; ++h) {
      const F weight = keep(_mm256_broadcast_ss(e_p + h * kAttentionChunk));
      acc[h][0] = V::fma(weight, v[0], acc[h][0]);
      acc[h][1] = V::fma(weight, v[1], acc[h][1]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t h = 0; h < kQueries; ++h) {
    V::store(sums[h], acc[h][0]);
    V::store(sums[h] + 8, acc[h][1]);
  }
}

// The places of a chunk that a tile of queries sees: [from, end[h]), of which all see those below `common`.
struct TilePlaces {
  uint32_t from, common, most, end[kTile];
};

// A slice of the values, from column `column` of the outputs on, for the queries [first, first + kTile). kKeeps: see
// add_slice().
template <KvType kType, bool kKeeps>
void weigh_tile(const Slice& slice, const TilePlaces& places, uint32_t column, bool is_first, uint32_t first,
                float* widened, Queries& queries) noexcept {
  alignas(32) float sums[kTile][kSlice] = {};
  add_slice<kType, kTile, kKeeps>(slice, places.from, places.common, queries.e[first], widened, sums);
  if constexpr (kKeeps) add_slice<kType, 0, true>(slice, places.common, places.most, queries.e[first], widened, sums);
  for (uint32_t h = 0; h < kTile; ++h) {
    if (places.end[h] == places.from) continue;
    if (places.end[h] > places.common) {  // what not all of them see
      const Slice kept = slice_at<KvType::kF32>(reinterpret_cast<const std::byte*>(widened), kSlice * sizeof(float), 0);
      add_slice<KvType::kF32, 1, false>(kept, places.common, places.end[h], queries.e[first + h], widened, sums + h);
    }
    const F before = V::set1(queries.before[first + h]);
    const F part = V::set1(queries.part[first + h]);
    float* out = queries.out[first + h] + column;
    for (uint32_t i = 0; i < kSlice; i += 8) {
      const F sum = V::load(sums[h] + i);
      V::store(out + i, is_first ? sum : V::fma(sum, part, V::mul(V::load(out + i), before)));
    }
  }
}

TilePlaces tile_places(const Queries& queries, uint32_t first, const Chunk& chunk) noexcept {
  const uint32_t base = chunk.begin - chunk.begin % kAttentionChunk;
  TilePlaces places;
  places.from = chunk.begin - base;
  for (uint32_t h = 0; h < kTile; ++h) {
    const uint32_t end = visible_end(queries, first + h, chunk);
    places.end[h] = end > chunk.begin ? end - base : places.from;
  }
  places.common = places.end[0];
  places.most = places.end[kTile - 1];  // later queries see no less
  return places;
}

// Four queries at a time take a slice before any takes the next one. The last four go first: they need, and so widen,
// every row.
template <KvType kType>
void weigh_tiles(const AttentionArgs& args, const Chunk& chunk, Queries& queries) noexcept {
  alignas(32) float widened[kAttentionChunk * kSlice];
  const uint32_t n_tiles = queries.n / kTile;
  TilePlaces places[kMostQueries / kTile];
  for (uint32_t t = 0; t < n_tiles; ++t) places[t] = tile_places(queries, t * kTile, chunk);
  const std::byte* rows = args.v_cache + uint64_t{chunk.begin - places[0].from} * args.v_stride;
  const uint64_t next_chunk = chunk.end < chunk.last ? kAttentionChunk * args.v_stride : 0;
  const Slice kept = slice_at<KvType::kF32>(reinterpret_cast<const std::byte*>(widened), kSlice * sizeof(float), 0);
  for (uint32_t j = 0; j < args.dv; j += kSlice) {
    Slice slice = slice_at<kType>(rows, args.v_stride, j);
    slice.fetch_at = next_chunk;
    uint32_t t = n_tiles - 1;
    weigh_tile<kType, true>(slice, places[t], j, chunk.is_first, t * kTile, widened, queries);
    while (t-- > 0) {
      weigh_tile<KvType::kF32, false>(kept, places[t], j, chunk.is_first, t * kTile, widened, queries);
    }
  }
}

// The queries that are left, one by one.
template <KvType kType>
void weigh_rest(const AttentionArgs& args, const Chunk& chunk, Queries& queries) noexcept {
  for (uint32_t h = queries.n / kTile * kTile; h < queries.n; ++h) {
    const uint32_t end = visible_end(queries, h, chunk);
    if (end <= chunk.begin) continue;
    float* out = queries.out[h];
    float* part = args.scratch;
    chunk_weigh<V, kType, 1>(args, chunk.begin, end, queries.e[h], true, chunk.is_first ? out : part);
    if (chunk.is_first) continue;
    for (uint32_t j = 0; j < args.dv; j += 8) {
      const F old = V::mul(V::load(out + j), V::set1(queries.before[h]));
      V::store(out + j, V::fma(V::load(part + j), V::set1(queries.part[h]), old));
    }
  }
}

// Weights of the chunk, and the factors with which it joins those before.
void weights_of_chunk(const Chunk& chunk, Queries& queries) noexcept {
  for (uint32_t h = 0; h < queries.n; ++h) {
    const uint32_t end = visible_end(queries, h, chunk);
    if (end <= chunk.begin) continue;
    float m = 0, l = 0;
    exp_of_chunk(queries.e[h], chunk.begin % kAttentionChunk, (end - 1) % kAttentionChunk + 1, m, l);
    if (!chunk.is_first) {
      const float merged = m > queries.m[h] ? m : queries.m[h];
      queries.before[h] = exp_ref(queries.m[h] - merged);
      queries.part[h] = exp_ref(m - merged);
      l = __builtin_fmaf(l, queries.part[h], queries.l[h] * queries.before[h]);
      m = merged;
    }
    queries.m[h] = m;
    queries.l[h] = l;
  }
}

using ScoresFn = void (*)(const AttentionArgs&, const Chunk&, Queries&) noexcept;

template <KvType kType>
ScoresFn scores_for(uint32_t dk) noexcept {
  switch (dk) {
    case 32:
      return scores_of_chunk<kType, 1>;
    case 64:
      return scores_of_chunk<kType, 2>;
    case 96:
      return scores_of_chunk<kType, 3>;
    case 128:
      return scores_of_chunk<kType, 4>;
    case 192:
      return scores_of_chunk<kType, 6>;
    case 256:  // f16: by pairs of heads, 0.96 times as long
      return kType == KvType::kF16 ? nullptr : scores_of_chunk<kType, 8>;
  }
  return nullptr;
}

ScoresFn scores_for(KvType type, uint32_t dk) noexcept {
  return type == KvType::kF16   ? scores_for<KvType::kF16>(dk)
         : type == KvType::kF32 ? scores_for<KvType::kF32>(dk)
                                : scores_for<KvType::kQ8_0>(dk);
}

template <KvType kType>
void weigh(const AttentionArgs& args, const Chunk& chunk, Queries& queries) noexcept {
  if (queries.n >= kTile) weigh_tiles<kType>(args, chunk, queries);
  weigh_rest<kType>(args, chunk, queries);
}

void attend_walking(const AttentionArgs& args, ScoresFn scores, uint32_t first, Queries& queries) noexcept {
  for (uint32_t h = 0; h < queries.n; ++h) {
    const uint64_t token = (first + h) / args.n_heads;
    const uint64_t head = (first + h) % args.n_heads;
    queries.q[h] = args.q + token * args.q_stride + head * args.dk;
    queries.out[h] = args.out + token * args.out_stride + head * args.dv;
    queries.end[h] = args.end + static_cast<uint32_t>(token);
  }
  Chunk chunk{args.begin, 0, queries.end[queries.n - 1], true};
  for (; chunk.begin < chunk.last; chunk.begin = chunk.end, chunk.is_first = false) {
    const uint32_t chunk_end = chunk.begin - chunk.begin % kAttentionChunk + kAttentionChunk;
    chunk.end = chunk_end < chunk.last ? chunk_end : chunk.last;
    scores(args, chunk, queries);
    weights_of_chunk(chunk, queries);
    if (args.v_type == KvType::kF16) weigh<KvType::kF16>(args, chunk, queries);
    if (args.v_type == KvType::kF32) weigh<KvType::kF32>(args, chunk, queries);
    if (args.v_type == KvType::kQ8_0) weigh<KvType::kQ8_0>(args, chunk, queries);
  }
  for (uint32_t h = 0; h < queries.n; ++h) {
    const float* sink = args.sink != nullptr ? args.sink + (first + h) % args.n_heads : nullptr;
    finish<V>(sink, queries.m[h], queries.l[h], args.dv, queries.out[h]);
  }
}

}  // namespace

void attention_avx2(const AttentionArgs& args) noexcept {
  const ScoresFn scores = scores_for(args.k_type, args.dk);
  const uint32_t n = args.n_tokens * args.n_heads;
  if (scores == nullptr || args.dv % kSlice != 0 || n < kTile) return attention_vec<V>(args);
  Queries queries;
  for (uint32_t first = 0; first < n; first += kMostQueries) {
    queries.n = n - first < kMostQueries ? n - first : kMostQueries;
    attend_walking(args, scores, first, queries);
  }
}

}  // namespace outrider::kernels

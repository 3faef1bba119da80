// SPDX-License-Identifier: Apache-2.0
// The AVX2 kernel for several tokens: eight rows are the eight int32 of a register. A group of the rows is unpacked and
// transposed once and then serves all tokens of the call, and block sums need no folding. The eight lanes of
// matmul_law.h are eight registers for each token, kept in memory between groups. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/rows_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileRows = 8;
constexpr uint32_t kTileTokens = 32;  // 8 KiB of lanes

// One group of eight rows; element r of every register belongs to row r.
struct Tile {
  __m256i codes[64];  // four codes of a row in each element; register 8 * block + quad
  __m256 d[8], dm[8];
  __m256i sc0[8], sc1[8];  // sub-scale of the block, or of its halves
  __m256i mn0[8], mn1[8];
};

// v[i] element j <- v[j] element i.
inline void transpose(__m256i (&v)[8]) noexcept {
  __m256i t[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256i a = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    const __m256i b = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    const __m256i c = _mm256_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m256i d = _mm256_unpackhi_epi32(v[i + 2], v[i + 3]);
    t[i] = _mm256_unpacklo_epi64(a, c);
    t[i + 1] = _mm256_unpackhi_epi64(a, c);
    t[i + 2] = _mm256_unpacklo_epi64(b, d);
    t[i + 3] = _mm256_unpackhi_epi64(b, d);
  }
  // Now part p of t[4 * i + j] holds column 4 * p + j of rows 4 * i to 4 * i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x20);
    v[4 + j] = _mm256_permute2x128_si256(t[j], t[4 + j], 0x31);
  }
}

inline __m256i low_words(__m256i pairs) noexcept { return _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16); }

template <typename Format>
inline void pack_scales(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
  __m256i d[8], dm[8], sc[8], mn[8];
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const GroupScales s = Format::scales(rows[r]);
    d[r] = _mm256_castps_si256(s.d);
    dm[r] = _mm256_castps_si256(s.dm);
    sc[r] = s.sc;
    mn[r] = s.mn;
  }
  transpose(d);
  for (int b = 0; b < 8; ++b) tile.d[b] = _mm256_castsi256_ps(d[b]);
  if constexpr (Format::kMin != Min::kNone) {
    transpose(dm);
    for (int b = 0; b < 8; ++b) tile.dm[b] = _mm256_castsi256_ps(dm[b]);
  }
  if constexpr (Format::kScale != SubScale::kNone) {
    constexpr bool kHalves = Format::kScale == SubScale::kHalf;
    transpose(sc);
    for (int b = 0; b < 8; ++b) {
      tile.sc0[b] = kHalves ? low_words(sc[b]) : sc[b];
      if constexpr (kHalves) tile.sc1[b] = _mm256_srai_epi32(sc[b], 16);
    }
  }
  if constexpr (Format::kMin == Min::kBlock || Format::kMin == Min::kHalf) {
    transpose(mn);
    for (int b = 0; b < 8; ++b) {
      tile.mn0[b] = Format::kMin == Min::kHalf ? low_words(mn[b]) : mn[b];
      if constexpr (Format::kMin == Min::kHalf) tile.mn1[b] = _mm256_srai_epi32(mn[b], 16);
    }
  }
}

template <typename Format>
inline void pack_tile(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
#pragma GCC unroll 8
  for (uint32_t b = 0; b < 8; ++b) {
    __m256i v[kTileRows];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kTileRows; ++r) v[r] = Format::codes(rows[r], b);
    transpose(v);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; ++i) tile.codes[8 * b + i] = v[i];
  }
  pack_scales<Format>(rows, tile);
}

inline __m256i spread_quad(const int8_t* q) noexcept {
  int32_t quad;
  __builtin_memcpy(&quad, q, sizeof quad);
  return _mm256_set1_epi32(quad);
}

// The sums of kQuads quads from the one at `codes` and q on, for kTokens tokens. maddubs gives at most
// 2 * kMostCode * 127 in int16; as many of them as stay below 2^15 are added before they are widened.
template <typename Format, uint32_t kTokens, uint32_t kQuads>
inline void dot_quads(const __m256i* codes, const ActGroup* acts, uint32_t at, __m256i (&dot)[kTokens]) noexcept {
  constexpr uint32_t kSafe = 32767 / (2 * Format::kMostCode * 127);
  constexpr uint32_t kRun = kSafe >= kQuads ? kQuads : kSafe >= 4 ? 4 : kSafe >= 2 ? 2 : 1;
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (uint32_t first = 0; first < kQuads; first += kRun) {
    __m256i words[kTokens];
#pragma GCC unroll 8
    for (uint32_t quad = first; quad < first + kRun; ++quad) {
      const __m256i code = codes[quad];
#pragma GCC unroll 4
      for (uint32_t t = 0; t < kTokens; ++t) {
        const __m256i q = spread_quad(acts[t].q + at + 4 * quad);
        __m256i product;
        if constexpr (Format::kSigned) {
          product = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(q, code));
        } else {
          product = _mm256_maddubs_epi16(code, q);
        }
        words[t] = quad == first ? product : _mm256_add_epi16(words[t], product);
      }
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m256i sum = _mm256_madd_epi16(words[t], ones);
      dot[t] = first == 0 ? sum : _mm256_add_epi32(dot[t], sum);
    }
  }
}

// Block b of the tile joins a lane: dot0 (and dot1, of the halves) as join_group has them.
template <typename Format>
inline __m256 join_block(__m256 lane, const Tile& tile, uint32_t b, __m256i dot0, __m256i dot1,
                         const ActGroup& a) noexcept {
  const auto offset = [](int sum) { return _mm256_set1_epi32(Format::kOffset * sum); };
  const int16_t* halves = a.sum16 + 2 * b;
  __m256i isum = dot0;
  if constexpr (Format::kScale == SubScale::kHalf) {
    if constexpr (Format::kOffset != 0) {
      dot0 = _mm256_sub_epi32(dot0, offset(halves[0]));
      dot1 = _mm256_sub_epi32(dot1, offset(halves[1]));
    }
    isum = _mm256_add_epi32(_mm256_mullo_epi32(dot0, tile.sc0[b]), _mm256_mullo_epi32(dot1, tile.sc1[b]));
  } else {
    if constexpr (Format::kOffset != 0) isum = _mm256_sub_epi32(isum, offset(a.sum32[b]));
    if constexpr (Format::kScale == SubScale::kBlock) isum = _mm256_mullo_epi32(isum, tile.sc0[b]);
  }
  const __m256 d_a = _mm256_set1_ps(a.d[b]);
  lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum), _mm256_mul_ps(tile.d[b], d_a), lane);
  if constexpr (Format::kMin != Min::kNone) {
    __m256i msum;
    if constexpr (Format::kMin == Min::kFloat) {
      msum = _mm256_set1_epi32(a.sum32[b]);
    } else if constexpr (Format::kMin == Min::kBlock) {
      msum = _mm256_mullo_epi32(tile.mn0[b], _mm256_set1_epi32(a.sum32[b]));
    } else {
      msum = _mm256_add_epi32(_mm256_mullo_epi32(tile.mn0[b], _mm256_set1_epi32(halves[0])),
                              _mm256_mullo_epi32(tile.mn1[b], _mm256_set1_epi32(halves[1])));
    }
    lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(msum), _mm256_mul_ps(tile.dm[b], d_a), lane);
  }
  return lane;
}

template <typename Format, uint32_t kTokens>
inline void join_tile(const Tile& tile, uint32_t n_blocks, const ActGroup* acts, __m256 (*lanes)[8]) noexcept {
  for (uint32_t b = 0; b < n_blocks; ++b) {
    __m256i dot0[kTokens];
    __m256i dot1[kTokens];
    if constexpr (Format::kScale == SubScale::kHalf) {
      dot_quads<Format, kTokens, 4>(tile.codes + 8 * b, acts, 32 * b, dot0);
      dot_quads<Format, kTokens, 4>(tile.codes + 8 * b + 4, acts, 32 * b + 16, dot1);
    } else {
      dot_quads<Format, kTokens, 8>(tile.codes + 8 * b, acts, 32 * b, dot0);
      for (__m256i& none : dot1) none = _mm256_setzero_si256();
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      lanes[t][b] = join_block<Format>(lanes[t][b], tile, b, dot0[t], dot1[t], acts[t]);
    }
  }
}

// Eight rows (or n_rows of them, the others repeat the last) for tokens [first, first + n), n <= kTileTokens.
template <typename Format>
void run_rows_tile(const MatmulArgs& args, uint32_t row, uint32_t n_rows, uint32_t first, uint32_t n) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  const uint8_t* rows[kTileRows];
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint64_t at = row + (r < n_rows ? r : n_rows - 1);
    rows[r] = reinterpret_cast<const uint8_t*>(args.weights.data) + at * args.weights.row_bytes;
  }
  ActGroup acts[kTileTokens];
  __m256 lanes[kTileTokens][8];
  for (uint32_t t = 0; t < n; ++t) {
    acts[t] = act_of(args, first + t);
    for (__m256& lane : lanes[t]) lane = _mm256_setzero_ps();
  }
  Tile tile;
  const auto join = [&](uint32_t n_blocks) {
    uint32_t t = 0;
    for (; t + 4 <= n; t += 4) join_tile<Format, 4>(tile, n_blocks, acts + t, lanes + t);
    for (; t < n; ++t) join_tile<Format, 1>(tile, n_blocks, acts + t, lanes + t);
  };
  for (uint32_t g = 0; g < n_groups; ++g) {
    pack_tile<Format>(rows, tile);
    join(8);
    for (const uint8_t*& p : rows) p += Format::kBytes;
    for (uint32_t t = 0; t < n; ++t) acts[t] = act_at(acts[t], 1);
  }
  if (n_left != 0) {
    uint8_t padded[kTileRows][Format::kBytes] = {};
    const uint8_t* padded_rows[kTileRows];
    for (uint32_t r = 0; r < kTileRows; ++r) {
      __builtin_memcpy(padded[r], rows[r], Format::kBytes / 8 * n_left);
      padded_rows[r] = padded[r];
    }
    pack_tile<Format>(padded_rows, tile);
    join(n_left);
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n_rows)), lane);
  for (uint32_t t = 0; t < n; ++t) {
    const __m256(&l)[8] = lanes[t];
    const __m256 even = _mm256_add_ps(_mm256_add_ps(l[0], l[4]), _mm256_add_ps(l[2], l[6]));
    const __m256 odd = _mm256_add_ps(_mm256_add_ps(l[1], l[5]), _mm256_add_ps(l[3], l[7]));
    _mm256_maskstore_ps(args.out + (first + t) * args.out_stride + row, mask, _mm256_add_ps(even, odd));
  }
}

// Few tokens go row by row, more go by tiles.
template <typename Format>
void run_matmul(const MatmulArgs& args) noexcept {
  constexpr uint32_t kLeastTokens = 5;
  if (args.n_tokens < kLeastTokens) {
    run_rows<Format>(args);
    return;
  }
  for (uint32_t first = 0; first < args.n_tokens; first += kTileTokens) {
    const uint32_t n = args.n_tokens - first < kTileTokens ? args.n_tokens - first : kTileTokens;
    for (uint32_t row = args.row_begin; row < args.row_end; row += kTileRows) {
      run_rows_tile<Format>(args, row, args.row_end - row < kTileRows ? args.row_end - row : kTileRows, first, n);
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI kernel for several tokens: sixteen rows are the sixteen int32 of a register. A group of the rows is
// unpacked and transposed once and then serves all tokens of the call, and block sums need no folding. The eight lanes
// of matmul_law.h are eight registers for each token, kept in memory between groups. Two such tiles share each
// activation that is spread over a register: with one, these loads and not the products are the limit (Zen 4).
// Internal linkage.
#pragma once

#include "outrider/kernels/matmul/rows_avx512-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileRows = 16;
constexpr uint32_t kTileTokens = 64;  // 64 KiB of lanes in two tiles: unpacking once matters more than the first cache
constexpr uint32_t kMostTiles = 2;

// One group of sixteen rows; element r of every register belongs to row r.
struct Tile {
  __m512i codes[64];      // four codes of a row in each element; register 8 * block + quad
  __m512 d[8], dm[8];     // only the first when a group has one scale
  __m512 sc0[8], sc1[8];  // sub-scale of the block, or of its halves
  __m512i sc_off[8];      // kHalf: -kOffset times the pair of sub-scales, as int16
  __m512i mn[8];          // a pair of int16: the mins of the halves, kBlock: the same twice
};

// In each 128-bit part: v[i] element j <- v[j] element i.
inline void transpose_parts(__m512i& v0, __m512i& v1, __m512i& v2, __m512i& v3) noexcept {
  const __m512i a = _mm512_unpacklo_epi32(v0, v1);
  const __m512i b = _mm512_unpackhi_epi32(v0, v1);
  const __m512i c = _mm512_unpacklo_epi32(v2, v3);
  const __m512i d = _mm512_unpackhi_epi32(v2, v3);
  v0 = _mm512_unpacklo_epi64(a, c);
  v1 = _mm512_unpackhi_epi64(a, c);
  v2 = _mm512_unpacklo_epi64(b, d);
  v3 = _mm512_unpackhi_epi64(b, d);
}

// v[i] element j <- v[j] element i.
inline void transpose(__m512i (&v)[16]) noexcept {
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) transpose_parts(v[i], v[i + 1], v[i + 2], v[i + 3]);
    // Now part p of v[4 * i + j] holds column 4 * p + j of rows 4 * i to 4 * i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xDD);
    v[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(a, c, 0xDD);
    v[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[12 + j] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
}

// out[i] element r <- v[r] element i.
inline void transpose(const __m256i (&v)[kTileRows], __m512i (&out)[8]) noexcept {
  __m512i t[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) t[r] = _mm512_inserti64x4(_mm512_castsi256_si512(v[r]), v[r + 8], 1);
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) transpose_parts(t[r], t[r + 1], t[r + 2], t[r + 3]);
  // Parts of t[4 * h + j]: column j of rows 4 * h to 4 * h + 3, column 4 + j of them, the same of the rows 8 further.
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    out[j] = _mm512_permutex2var_epi64(t[j], low, t[4 + j]);
    out[4 + j] = _mm512_permutex2var_epi64(t[j], high, t[4 + j]);
  }
}

inline __m512 low_words(__m512i pairs) noexcept {
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16));
}
inline __m512 high_words(__m512i pairs) noexcept { return _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16)); }

// Element r of v[i]: dword i of the 16 bytes at `at` of row r.
inline void load_16_bytes(const uint8_t* const (&rows)[kTileRows], uint32_t at, __m512i (&v)[4]) noexcept {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < 4; ++r) {
    v[r] = _mm512_castsi128_si512(load_128(rows[r] + at));
    v[r] = _mm512_inserti32x4(v[r], load_128(rows[r + 4] + at), 1);
    v[r] = _mm512_inserti32x4(v[r], load_128(rows[r + 8] + at), 2);
    v[r] = _mm512_inserti32x4(v[r], load_128(rows[r + 12] + at), 3);
  }
  transpose_parts(v[0], v[1], v[2], v[3]);
}

// Q4_K and Q5_K: the sixteen bytes that begin a block, of all rows at once.
inline void pack_k4_scales(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
  __m512i v[4];  // d and dmin; the three dwords of numerics::k4_scale_min
  load_16_bytes(rows, 0, v);
  tile.d[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v[0]));
  const __m512 dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v[0], 16)));
  tile.dm[0] = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0F));
  const __m512i six_bits = _mm512_set1_epi32(63);
  const __m512i high_bits = _mm512_set1_epi32(48);
  const auto mins = [](__m512i mn) { return _mm512_or_si512(mn, _mm512_slli_epi32(mn, 16)); };
#pragma GCC unroll 4
  for (uint32_t b = 0; b < 4; ++b) {
    const __m512i scale = _mm512_srli_epi32(v[1], 8 * b);
    const __m512i min = _mm512_srli_epi32(v[2], 8 * b);
    const __m512i low = _mm512_srli_epi32(v[3], 8 * b);  // of scale and min of block b + 4
    const __m512i nibble = _mm512_set1_epi32(15);
    tile.sc0[b] = _mm512_cvtepi32_ps(_mm512_and_si512(scale, six_bits));
    tile.mn[b] = mins(_mm512_and_si512(min, six_bits));
    tile.sc0[b + 4] = _mm512_cvtepi32_ps(_mm512_or_si512(
        _mm512_and_si512(low, nibble), _mm512_and_si512(_mm512_srli_epi32(scale, 2), high_bits)));
    tile.mn[b + 4] = mins(_mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(low, 4), nibble),
                                          _mm512_and_si512(_mm512_srli_epi32(min, 2), high_bits)));
  }
}

template <typename Format>
concept K4Scales = requires { typename Format::K4ScalesTag; };

template <typename Format>
inline void pack_scales(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
  __m256i d[kTileRows], dm[kTileRows], sc[kTileRows], mn[kTileRows];
  alignas(64) float one_d[kTileRows];
  alignas(64) float one_dm[kTileRows];
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const GroupScales s = Format::scales(rows[r]);
    d[r] = _mm256_castps_si256(s.d);
    dm[r] = _mm256_castps_si256(s.dm);
    sc[r] = s.sc;
    mn[r] = s.mn;
    _mm_store_ss(one_d + r, _mm256_castps256_ps128(s.d));
    _mm_store_ss(one_dm + r, _mm256_castps256_ps128(s.dm));
  }
  __m512i columns[8];
  if constexpr (Format::kBlocksApart) {
    transpose(d, columns);
    for (int b = 0; b < 8; ++b) tile.d[b] = _mm512_castsi512_ps(columns[b]);
    if constexpr (Format::kMin != Min::kNone) {
      transpose(dm, columns);
      for (int b = 0; b < 8; ++b) tile.dm[b] = _mm512_castsi512_ps(columns[b]);
    }
  } else {
    tile.d[0] = _mm512_load_ps(one_d);
    tile.dm[0] = _mm512_load_ps(one_dm);
  }
  if constexpr (Format::kScale != SubScale::kNone) {
    transpose(sc, columns);
    for (int b = 0; b < 8; ++b) {
      if constexpr (Format::kScale == SubScale::kBlock) {
        tile.sc0[b] = _mm512_cvtepi32_ps(columns[b]);
      } else {
        tile.sc0[b] = low_words(columns[b]);
        tile.sc1[b] = high_words(columns[b]);
        tile.sc_off[b] = _mm512_mullo_epi16(columns[b], _mm512_set1_epi16(-Format::kOffset));
      }
    }
  }
  if constexpr (Format::kMin == Min::kBlock || Format::kMin == Min::kHalf) {
    transpose(mn, columns);
    for (int b = 0; b < 8; ++b) {
      tile.mn[b] =
          Format::kMin == Min::kHalf ? columns[b] : _mm512_or_si512(columns[b], _mm512_slli_epi32(columns[b], 16));
    }
  }
}

// Formats with 16-byte pieces of nibbles: pieces of four rows are transposed at a time, before they are split.
template <typename Format>
inline void pack_nibbles(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (uint32_t piece = 0; piece < 8; ++piece) {
    __m512i v[4];
    load_16_bytes(rows, Format::nibbles_at(piece), v);
#pragma GCC unroll 4
    for (uint32_t quad = 0; quad < 4; ++quad) {
      const __m512i low = _mm512_and_si512(v[quad], mask);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(v[quad], 4), mask);
      tile.codes[Format::low_column(piece) + quad] = Format::of_nibbles(low);
      tile.codes[Format::high_column(piece) + quad] = Format::of_nibbles(high);
    }
  }
}

template <typename Format>
concept NibblePieces = requires(__m512i v) {
  Format::of_nibbles(v);
};

template <typename Format>
inline void pack_tile(const uint8_t* const (&rows)[kTileRows], Tile& tile) noexcept {
  if constexpr (NibblePieces<Format>) {
    pack_nibbles<Format>(rows, tile);
  } else {
    for (uint32_t j = 0; j < 4; ++j) {
      __m512i v[kTileRows];
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kTileRows; ++r) v[r] = Format::pair(rows[r], j);
      transpose(v);
#pragma GCC unroll 16
      for (uint32_t i = 0; i < 16; ++i) tile.codes[16 * j + i] = v[i];
    }
  }
  if constexpr (K4Scales<Format>) {
    pack_k4_scales(rows, tile);
  } else {
    pack_scales<Format>(rows, tile);
  }
}

// Four bytes at p in every element.
inline __m512i spread(const void* p) noexcept {
  int32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return _mm512_set1_epi32(value);
}

// dot[i][t] += the products of quads [kFrom, kTo) of block b.
template <uint32_t kTiles, uint32_t kTokens, uint32_t kFrom, uint32_t kTo>
inline void join_quads(const Tile* tiles, uint32_t b, const ActGroup* acts, __m512i (&dot)[kTiles][kTokens]) noexcept {
#pragma GCC unroll 8
  for (uint32_t quad = kFrom; quad < kTo; ++quad) {
    __m512i codes[kTiles];
#pragma GCC unroll 2
    for (uint32_t i = 0; i < kTiles; ++i) codes[i] = tiles[i].codes[8 * b + quad];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m512i q = spread(acts[t].q + 32 * b + 4 * quad);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], codes[i], q);
    }
  }
}

// float(isum) of matmul_law.h of block b. Sub-scales multiply in f32, where a product of 32-bit integers costs three
// times as much (Zen 4): codes, scales and offsets keep every partial sum below 2^24 in the order taken, so all are
// exact.
template <typename Format, uint32_t kTiles, uint32_t kTokens>
inline void block_sums(const Tile* tiles, uint32_t b, const ActGroup* acts, __m512 (&isum)[kTiles][kTokens]) noexcept {
  __m512i dot[kTiles][kTokens];
  if constexpr (Format::kScale == SubScale::kHalf) {
#pragma GCC unroll 2
    for (auto& dots : dot) {
#pragma GCC unroll 4
      for (__m512i& sum : dots) sum = _mm512_setzero_si512();
    }
    join_quads<kTiles, kTokens, 0, 4>(tiles, b, acts, dot);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m512i halves = spread(acts[t].sum16 + 2 * b);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) {
        const __m512 first = _mm512_cvtepi32_ps(dot[i][t]);
        if constexpr (Format::kOffset == 0) {
          isum[i][t] = _mm512_mul_ps(first, tiles[i].sc0[b]);
        } else {
          const __m512 offset = _mm512_cvtepi32_ps(_mm512_madd_epi16(tiles[i].sc_off[b], halves));
          isum[i][t] = _mm512_fmadd_ps(first, tiles[i].sc0[b], offset);
        }
        dot[i][t] = _mm512_setzero_si512();
      }
    }
    join_quads<kTiles, kTokens, 4, 8>(tiles, b, acts, dot);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) {
        isum[i][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][t]), tiles[i].sc1[b], isum[i][t]);
      }
    }
  } else {
    constexpr int kShift = Format::kOffset == 0 ? 0 : __builtin_ctz(Format::kOffset);
    static_assert(Format::kOffset == 0 || Format::kOffset == 1 << kShift);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      __m512i start = _mm512_setzero_si512();
      if constexpr (Format::kOffset != 0) {
        start = _mm512_sub_epi32(start, _mm512_slli_epi32(spread(acts[t].sum32 + b), kShift));
      }
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) dot[i][t] = start;
    }
    join_quads<kTiles, kTokens, 0, 8>(tiles, b, acts, dot);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) {
        isum[i][t] = _mm512_cvtepi32_ps(dot[i][t]);
        if constexpr (Format::kScale == SubScale::kBlock) isum[i][t] = _mm512_mul_ps(isum[i][t], tiles[i].sc0[b]);
      }
    }
  }
}

using Lanes = __m512[kMostTiles][8];

// n_blocks blocks of the tiles join the lanes of kTokens tokens.
template <typename Format, uint32_t kTiles, uint32_t kTokens>
inline void join_tile(const Tile* tiles, uint32_t n_blocks, const ActGroup* acts, Lanes* lanes) noexcept {
  for (uint32_t b = 0; b < n_blocks; ++b) {
    const uint32_t at = Format::kBlocksApart ? b : 0;
    __m512 isum[kTiles][kTokens];
    block_sums<Format, kTiles, kTokens>(tiles, b, acts, isum);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m512 d_a = _mm512_set1_ps(acts[t].d[b]);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kTiles; ++i) {
        const Tile& tile = tiles[i];
        __m512 lane = _mm512_fmadd_ps(isum[i][t], _mm512_mul_ps(tile.d[at], d_a), lanes[t][i][b]);
        if constexpr (Format::kMin != Min::kNone) {
          __m512i msum;
          if constexpr (Format::kMin == Min::kFloat) {
            msum = spread(acts[t].sum32 + b);
          } else {
            msum = _mm512_madd_epi16(tile.mn[b], spread(acts[t].sum16 + 2 * b));
          }
          lane = _mm512_fmadd_ps(_mm512_cvtepi32_ps(msum), _mm512_mul_ps(tile.dm[at], d_a), lane);
        }
        lanes[t][i][b] = lane;
      }
    }
  }
}

template <typename Format, uint32_t kTiles>
void join_tokens(const Tile* tiles, uint32_t n_blocks, const ActGroup* acts, Lanes* lanes, uint32_t n) noexcept {
  uint32_t t = 0;
  for (; t + 4 <= n; t += 4) join_tile<Format, kTiles, 4>(tiles, n_blocks, acts + t, lanes + t);
  switch (n - t) {
    case 3:
      join_tile<Format, kTiles, 3>(tiles, n_blocks, acts + t, lanes + t);
      break;
    case 2:
      join_tile<Format, kTiles, 2>(tiles, n_blocks, acts + t, lanes + t);
      break;
    case 1:
      join_tile<Format, kTiles, 1>(tiles, n_blocks, acts + t, lanes + t);
      break;
    default:
      break;
  }
}

// kTiles times sixteen rows (or n_rows in all, the others repeat the last) for tokens [first, first + n), n <=
// kTileTokens.
template <typename Format, uint32_t kTiles>
void run_tile(const MatmulArgs& args, uint32_t row, uint32_t n_rows, uint32_t first, uint32_t n) noexcept {
  const uint32_t n_groups = args.weights.k / 256;
  const uint32_t n_left = Format::kBlocksApart ? args.weights.k / 32 % 8 : 0;
  const uint8_t* rows[kTiles][kTileRows];
  for (uint32_t r = 0; r < kTiles * kTileRows; ++r) {
    const uint64_t at = row + (r < n_rows ? r : n_rows - 1);
    rows[r / kTileRows][r % kTileRows] =
        reinterpret_cast<const uint8_t*>(args.weights.data) + at * args.weights.row_bytes;
  }
  ActGroup acts[kTileTokens];
  Lanes lanes[kTileTokens];
  for (uint32_t t = 0; t < n; ++t) {
    acts[t] = act_of(args, first + t);
    for (uint32_t i = 0; i < kTiles; ++i) {
      for (__m512& lane : lanes[t][i]) lane = _mm512_setzero_ps();
    }
  }
  // The next tiles come to the second-level cache meanwhile: so many rows are too many streams for the hardware.
  const uint64_t next = row + kTiles * kTileRows < args.row_end ? kTiles * kTileRows * args.weights.row_bytes : 0;
  Tile tiles[kTiles];
  for (uint32_t g = 0; g < n_groups; ++g) {
    for (uint32_t i = 0; i < kTiles; ++i) {
      for (uint32_t r = 0; next != 0 && r < kTileRows; ++r) prefetch_group<Format::kBytes>(rows[i][r] + next);
      pack_tile<Format>(rows[i], tiles[i]);
      for (const uint8_t*& p : rows[i]) p += Format::kBytes;
    }
    join_tokens<Format, kTiles>(tiles, 8, acts, lanes, n);
    for (uint32_t t = 0; t < n; ++t) acts[t] = act_at(acts[t], 1);
  }
  if (n_left != 0) {
    for (uint32_t i = 0; i < kTiles; ++i) {
      uint8_t padded[kTileRows][Format::kBytes] = {};
      const uint8_t* padded_rows[kTileRows];
      for (uint32_t r = 0; r < kTileRows; ++r) {
        __builtin_memcpy(padded[r], rows[i][r], Format::kBytes / 8 * n_left);
        padded_rows[r] = padded[r];
      }
      pack_tile<Format>(padded_rows, tiles[i]);
    }
    join_tokens<Format, kTiles>(tiles, n_left, acts, lanes, n);
  }
  for (uint32_t i = 0; i < kTiles; ++i) {
    const uint32_t n_own = n_rows - i * kTileRows < kTileRows ? n_rows - i * kTileRows : kTileRows;
    const auto mask = static_cast<__mmask16>((1U << n_own) - 1);
    for (uint32_t t = 0; t < n; ++t) {
      const __m512(&l)[8] = lanes[t][i];
      const __m512 even = _mm512_add_ps(_mm512_add_ps(l[0], l[4]), _mm512_add_ps(l[2], l[6]));
      const __m512 odd = _mm512_add_ps(_mm512_add_ps(l[1], l[5]), _mm512_add_ps(l[3], l[7]));
      float* out = args.out + (first + t) * args.out_stride + row + i * kTileRows;
      _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(even, odd));
    }
  }
}

// A format may give nibbles_at(i), where piece i of 16 bytes of nibbles lies in a group; low_column(i) and
// high_column(i), the first of the four Tile::codes that its low and high nibbles make; of_nibbles(v), the unsigned
// codes of nibbles.

// Few tokens go row by row; more, and very long rows, go by tiles.
template <typename Format>
void run_matmul(const MatmulArgs& args) noexcept {
  if (args.n_tokens <= Format::kFewTokens && args.weights.k < 256 * (kMostRowGroups + 1)) {
    run_rows<Format, Format::kFewTokens>(args);
    return;
  }
  for (uint32_t first = 0; first < args.n_tokens; first += kTileTokens) {
    const uint32_t n = args.n_tokens - first < kTileTokens ? args.n_tokens - first : kTileTokens;
    for (uint32_t row = args.row_begin; row < args.row_end; row += kMostTiles * kTileRows) {
      const uint32_t n_rows = args.row_end - row < kMostTiles * kTileRows ? args.row_end - row : kMostTiles * kTileRows;
      if (n_rows > kTileRows) {
        run_tile<Format, 2>(args, row, n_rows, first, n);
      } else {
        run_tile<Format, 1>(args, row, n_rows, first, n);
      }
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

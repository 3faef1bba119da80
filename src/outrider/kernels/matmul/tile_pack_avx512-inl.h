// SPDX-License-Identifier: Apache-2.0
// Weights as the AVX-512 tile kernel (tile_avx512-inl.h) reads them: unpacked and transposed, so that the sixteen rows
// of a tile are the sixteen int32 of a register. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/rows_avx512-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileRows = 16;
constexpr uint32_t kPanelGroups = 8;  // 64 KiB of codes in two tiles, which the second-level cache gives in time
constexpr uint32_t kPanelUnits = 8 * (kPanelGroups + 1);

// A piece of kTiles tiles: at most kPanelGroups groups and the blocks of another that end a row. Block b of group g is
// unit b * stride + g, so that the blocks that join one lane follow each other. Element r of a register belongs to row
// r.
template <uint32_t kTiles>
struct Panel {
  __m512i codes[kPanelUnits][8][kTiles];                      // four codes of a row in each element
  __m512 d[kPanelUnits][kTiles], dm[kPanelUnits][kTiles];     // of units; of groups when a group has one scale
  __m512 sc0[kPanelUnits][kTiles], sc1[kPanelUnits][kTiles];  // sub-scale of the block, or of its halves
  __m512 mn[kPanelUnits][kTiles];                             // Min::kBlock
  __m512i mn_pair[kPanelUnits][kTiles];                       // Min::kHalf: two int16
  uint32_t stride;  // odd: the lanes' parts then lie apart in the first-level cache
};

// A group of the sixteen rows of a tile. Kept in memory: GCC would spill as many addresses to vector registers.
struct Rows {
  const uint8_t* row[kTileRows];
  const uint8_t* operator[](uint32_t r) const noexcept { return row[r]; }
};

// Where a tile's group goes. Passed by value: what a function stores could change it otherwise, for all the compiler
// knows.
template <uint32_t kTiles>
struct Place {
  Panel<kTiles>& panel;
  uint32_t group, tile;
  uint64_t stride;

  uint64_t unit(uint32_t b) const noexcept { return b * stride + group; }
  // Column 8 * b + quad.
  __m512i& codes(uint32_t column) const noexcept { return panel.codes[unit(column / 8)][column % 8][tile]; }
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

inline __m256i two_loads(const uint8_t* low, const uint8_t* high) noexcept {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(low)), load_128(high), 1);
}

// Element r of v[i]: dword i of the 16 bytes at `at` of row r.
inline void load_16_bytes(const Rows& rows, uint32_t at, __m512i (&v)[4]) noexcept {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < 4; ++r) {
    const __m256i low = two_loads(rows[r] + at, rows[r + 4] + at);
    v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), two_loads(rows[r + 8] + at, rows[r + 12] + at), 1);
  }
  transpose_parts(v[0], v[1], v[2], v[3]);
}

// Element r: the f16 at `at` of row r.
inline __m512 load_halfs(const Rows& rows, uint32_t at) noexcept {
  alignas(32) uint16_t bits[kTileRows];
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kTileRows; ++r) __builtin_memcpy(bits + r, rows[r] + at, sizeof bits[r]);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits)));
}

// Q4_K and Q5_K: the sixteen bytes that begin a block, of all rows at once.
template <uint32_t kTiles>
inline void pack_k4_scales(const Rows& rows, Place<kTiles> to) noexcept {
  __m512i v[4];  // d and dmin; the three dwords of numerics::k4_scale_min
  load_16_bytes(rows, 0, v);
  to.panel.d[to.group][to.tile] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v[0]));
  const __m512 dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v[0], 16)));
  to.panel.dm[to.group][to.tile] = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0F));
  const __m512i six_bits = _mm512_set1_epi32(63);
  const __m512i high_bits = _mm512_set1_epi32(48);
#pragma GCC unroll 4
  for (uint32_t b = 0; b < 4; ++b) {
    const __m512i scale = _mm512_srli_epi32(v[1], 8 * b);
    const __m512i min = _mm512_srli_epi32(v[2], 8 * b);
    const __m512i low = _mm512_srli_epi32(v[3], 8 * b);  // of scale and min of block b + 4
    const __m512i nibble = _mm512_set1_epi32(15);
    to.panel.sc0[to.unit(b)][to.tile] = _mm512_cvtepi32_ps(_mm512_and_si512(scale, six_bits));
    to.panel.mn[to.unit(b)][to.tile] = _mm512_cvtepi32_ps(_mm512_and_si512(min, six_bits));
    to.panel.sc0[to.unit(b + 4)][to.tile] = _mm512_cvtepi32_ps(
        _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(_mm512_srli_epi32(scale, 2), high_bits)));
    to.panel.mn[to.unit(b + 4)][to.tile] = _mm512_cvtepi32_ps(_mm512_or_si512(
        _mm512_and_si512(_mm512_srli_epi32(low, 4), nibble), _mm512_and_si512(_mm512_srli_epi32(min, 2), high_bits)));
  }
}

// Words of the blocks of a group: element r of v[i]: word 2 * i of row r, and above it word 2 * i + 1.
template <typename Words>
inline void load_words(const Rows& rows, Words words, __m512i (&v)[4]) noexcept {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < 4; ++r) {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(words(rows[r])), words(rows[r + 4]), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(words(rows[r + 8])), words(rows[r + 12]), 1);
    v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  transpose_parts(v[0], v[1], v[2], v[3]);
}

// Formats with blocks of 32: the words of load_words() to scales.
template <typename Format, uint32_t kTiles>
inline void pack_word_scales(const Rows& rows, Place<kTiles> to) noexcept {
  __m512i v[4];
  load_words(
      rows, [](const uint8_t* p) { return Format::d_words(p); }, v);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    to.panel.d[to.unit(2 * i)][to.tile] = Format::even_scale(v[i]);
    to.panel.d[to.unit(2 * i + 1)][to.tile] = Format::odd_scale(v[i]);
  }
  if constexpr (Format::kMin != Min::kNone) {
    load_words(
        rows, [](const uint8_t* p) { return Format::m_words(p); }, v);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      to.panel.dm[to.unit(2 * i)][to.tile] = Format::even_scale(v[i]);
      to.panel.dm[to.unit(2 * i + 1)][to.tile] = Format::odd_scale(v[i]);
    }
  }
}

template <typename Format>
concept K4Scales = requires {
  typename Format::K4ScalesTag;
};

template <typename Format, uint32_t kTiles>
inline void pack_scales(const Rows& rows, Place<kTiles> to) noexcept {
  to.panel.d[to.group][to.tile] = load_halfs(rows, Format::Block::kD);
  __m256i sc[kTileRows], mn[kTileRows];
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const GroupScales s = Format::scales(rows[r]);
    sc[r] = s.sc;
    mn[r] = s.mn;
  }
  __m512i columns[8];
  transpose(sc, columns);
  for (uint32_t b = 0; b < 8; ++b) {
    if constexpr (Format::kScale == SubScale::kBlock) {
      to.panel.sc0[to.unit(b)][to.tile] = _mm512_cvtepi32_ps(columns[b]);
    } else {
      to.panel.sc0[to.unit(b)][to.tile] = low_words(columns[b]);
      to.panel.sc1[to.unit(b)][to.tile] = high_words(columns[b]);
    }
  }
  if constexpr (Format::kMin == Min::kHalf) {
    to.panel.dm[to.group][to.tile] = _mm512_xor_ps(load_halfs(rows, Format::Block::kDmin), _mm512_set1_ps(-0.0F));
    transpose(mn, columns);
    for (uint32_t b = 0; b < 8; ++b) to.panel.mn_pair[to.unit(b)][to.tile] = columns[b];
  }
}

// Formats with 16-byte pieces of nibbles: pieces of four rows are transposed at a time, before they are split.
template <typename Format, uint32_t kTiles>
inline void pack_nibbles(const Rows& rows, Place<kTiles> to) noexcept {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (uint32_t piece = 0; piece < 8; ++piece) {
    __m512i v[4];
    load_16_bytes(rows, Format::nibbles_at(piece), v);
#pragma GCC unroll 4
    for (uint32_t quad = 0; quad < 4; ++quad) {
      const __m512i low = _mm512_and_si512(v[quad], mask);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(v[quad], 4), mask);
      to.codes(Format::low_column(piece) + quad) = Format::of_nibbles(low);
      to.codes(Format::high_column(piece) + quad) = Format::of_nibbles(high);
    }
  }
}

// Formats whose blocks are 32 bytes of codes, with block_at(b) and of_bytes(v): what makes bytes unsigned codes.
template <typename Format, uint32_t kTiles>
inline void pack_bytes(const Rows& rows, Place<kTiles> to) noexcept {
#pragma GCC unroll 2
  for (uint32_t b = 0; b < 8; ++b) {
    __m256i v[kTileRows];
#pragma GCC unroll 16
    for (uint32_t r = 0; r < kTileRows; ++r) v[r] = load_256(rows[r] + Format::block_at(b));
    __m512i columns[8];
    transpose(v, columns);
#pragma GCC unroll 8
    for (uint32_t quad = 0; quad < 8; ++quad) to.codes(8 * b + quad) = Format::of_bytes(columns[quad]);
  }
}

// Q6_K: 64 bytes of low nibbles and 32 bytes of high bits make four blocks.
template <typename Format, uint32_t kTiles>
inline void pack_q6_codes(const Rows& rows, Place<kTiles> to) noexcept {
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i high_bits = _mm512_set1_epi8(48);
  constexpr int kOrAnd = 0xF8;  // a | (b & c)
  for (uint32_t half = 0; half < 2; ++half) {
#pragma GCC unroll 2
    for (uint32_t part = 0; part < 2; ++part) {  // elements 16 * part to 16 * part + 15 of each block
      __m512i even[4], odd[4], high[4];          // low bits of blocks 0 and 2, of 1 and 3; high bits
      load_16_bytes(rows, Format::Block::kQl + 64 * half + 16 * part, even);
      load_16_bytes(rows, Format::Block::kQl + 64 * half + 32 + 16 * part, odd);
      load_16_bytes(rows, Format::Block::kQh + 32 * half + 16 * part, high);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = 32 * half + 4 * part + i;
        const auto join = [&](__m512i low, __m512i bits) {
          return _mm512_ternarylogic_epi32(_mm512_and_si512(low, nibble), bits, high_bits, kOrAnd);
        };
        to.codes(column) = join(even[i], _mm512_slli_epi16(high[i], 4));
        to.codes(column + 8) = join(odd[i], _mm512_slli_epi16(high[i], 2));
        to.codes(column + 16) = join(_mm512_srli_epi16(even[i], 4), high[i]);
        to.codes(column + 24) = join(_mm512_srli_epi16(odd[i], 4), _mm512_srli_epi16(high[i], 2));
      }
    }
  }
}

template <typename Format, uint32_t kTiles>
inline void pack_q6_scales(const Rows& rows, Place<kTiles> to) noexcept {
  to.panel.d[to.group][to.tile] = load_halfs(rows, Format::Block::kD);
  __m512i v[4];  // the halves of two blocks
  load_16_bytes(rows, Format::Block::kScales, v);
  const auto byte = [](__m512i four, uint32_t i) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(four, 24 - 8 * i), 24));
  };
#pragma GCC unroll 8
  for (uint32_t b = 0; b < 8; ++b) {
    to.panel.sc0[to.unit(b)][to.tile] = byte(v[b / 2], b % 2 * 2);
    to.panel.sc1[to.unit(b)][to.tile] = byte(v[b / 2], b % 2 * 2 + 1);
  }
}

template <typename Format>
concept Q6Layout = requires {
  typename Format::Q6LayoutTag;
};
template <typename Format>
concept WordScales = requires(const uint8_t* p) {
  Format::d_words(p);
};
template <typename Format>
concept ByteBlocks = requires {
  Format::block_at(0);
};
template <typename Format>
concept NibblePieces = requires(__m512i v) {
  Format::of_nibbles(v);
};

template <typename Format, uint32_t kTiles>
inline void pack_tile(const Rows& rows, Place<kTiles> to) noexcept {
  if constexpr (NibblePieces<Format>) {
    pack_nibbles<Format>(rows, to);
  } else if constexpr (ByteBlocks<Format>) {
    pack_bytes<Format>(rows, to);
  } else if constexpr (Q6Layout<Format>) {
    pack_q6_codes<Format>(rows, to);
  } else {
    for (uint32_t j = 0; j < 4; ++j) {
      __m512i v[kTileRows];
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kTileRows; ++r) v[r] = Format::pair(rows[r], j);
      transpose(v);
#pragma GCC unroll 16
      for (uint32_t i = 0; i < 16; ++i) to.codes(16 * j + i) = v[i];
    }
  }
  if constexpr (K4Scales<Format>) {
    pack_k4_scales(rows, to);
  } else if constexpr (Q6Layout<Format>) {
    pack_q6_scales<Format>(rows, to);
  } else if constexpr (WordScales<Format>) {
    pack_word_scales<Format>(rows, to);
  } else {
    static_assert(!Format::kBlocksApart && (Format::kMin == Min::kNone || Format::kMin == Min::kHalf));
    pack_scales<Format>(rows, to);
  }
}

}  // namespace
}  // namespace outrider::kernels

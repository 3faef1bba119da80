// SPDX-License-Identifier: Apache-2.0
// Weights as the AVX2 tile kernel (tile_avx2-inl.h) reads them: unpacked and transposed, so that eight rows are the
// eight int32 of a register. Internal linkage.
#pragma once

#include <type_traits>

#include "outrider/kernels/matmul/formats_256_avx2-inl.h"
#include "outrider/kernels/matmul/formats_32_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileRows = 16;
// 16 KiB of codes and signs: half of the first-level cache.
template <typename Format>
constexpr uint32_t kPanelGroups = Format::kSigned ? 2 : 4;
template <typename Format>
constexpr uint32_t kPanelUnits = 8 * kPanelGroups<Format>;

template <typename Format>
constexpr bool kHalves = Format::kScale == SubScale::kHalf;

// Signed codes are kept as sizes, and as the places of their factors in q, -q, q, -q, ... of a quad.
template <bool kSigned>
struct Signs {};
template <>
struct Signs<true> {
  __m256i signs[8][2];
};

// A block of sixteen rows; [i] is for rows 8 * i to 8 * i + 7, element r of a register for row r of them.
template <typename Format>
struct Unit : Signs<Format::kSigned> {
  __m256i codes[8][2];                     // four codes of a row in each element
  __m256i sc[kHalves<Format> ? 2 : 1][2];  // int16: a sub-scale twice, to multiply sums of two products
  __m256i mn[2];                           // Min::kBlock: f32; Min::kHalf: the mins of both halves as int16
};

// At most kPanelGroups groups of sixteen rows.
template <typename Format>
struct Panel {
  static constexpr uint32_t kHeads = Format::kBlocksApart ? kPanelUnits<Format> : kPanelGroups<Format>;
  Unit<Format> units[kPanelUnits<Format>];
  __m256 d[kHeads][2], dm[kHeads][2];  // of units; of groups when a group has one scale
};

// A group of the rows of a panel.
struct Rows {
  const uint8_t* row[kTileRows];
};

// In each 128-bit part: v[i] element j <- v[j] element i.
inline void transpose_parts(__m256i (&v)[4]) noexcept {
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]);
  const __m256i b = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c);
  v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d);
  v[3] = _mm256_unpackhi_epi64(b, d);
}

// v[i] element r: dword i of the 16 bytes that words(row r) gives.
template <typename Words>
inline void load_columns(const uint8_t* const* rows, Words words, __m256i (&v)[4]) noexcept {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < 4; ++r) {
    v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(words(rows[r])), words(rows[r + 4]), 1);
  }
  transpose_parts(v);
}

inline void load_16_bytes(const uint8_t* const* rows, uint32_t at, __m256i (&v)[4]) noexcept {
  load_columns(
      rows, [at](const uint8_t* p) { return load_128(p + at); }, v);
}

// v[i] element r: element i of a row's register.
template <typename Row>
inline void load_wide_columns(const uint8_t* const* rows, Row row, __m256i (&v)[8]) noexcept {
  __m256i wide[8];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < 8; ++r) wide[r] = row(rows[r]);
#pragma GCC unroll 2
  for (uint32_t half = 0; half < 2; ++half) {
    __m256i part[4];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < 4; ++r) {
      part[r] = _mm256_permute2x128_si256(wide[r], wide[r + 4], half == 0 ? 0x20 : 0x31);
    }
    transpose_parts(part);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) v[4 * half + i] = part[i];
  }
}

// How the codes of a format lie in a group:
//   nibbles  pieces of 16 bytes; at(piece), and the quads to which the low nibbles of its four dwords go, low(piece),
//            and the high ones, high(piece), numbered through the group; of(v) makes codes of nibbles
//   bytes    at(b), 32 bytes of a block
//   others   Format::codes
template <typename Format>
struct Layout {};

template <typename Block>
struct BlockNibbles {
  static constexpr uint32_t at(uint32_t piece) noexcept { return piece * Block::kBytes + Block::kQs; }
  static constexpr uint32_t low(uint32_t piece) noexcept { return 8 * piece; }
  static constexpr uint32_t high(uint32_t piece) noexcept { return 8 * piece + 4; }
  static __m256i of(__m256i v) noexcept { return v; }
};
template <>
struct Layout<GroupQ4_0> : BlockNibbles<numerics::Q4_0> {};
template <>
struct Layout<GroupQ4_1> : BlockNibbles<numerics::Q4_1> {};
template <>
struct Layout<GroupIq4Nl> : BlockNibbles<numerics::IQ4_NL> {
  static __m256i of(__m256i v) noexcept { return lookup(numerics::kIq4Values, v); }
};
template <>
struct Layout<GroupMxfp4> : BlockNibbles<numerics::MXFP4> {
  static __m256i of(__m256i v) noexcept {
    return _mm256_add_epi8(lookup(numerics::kFp4Values, v), _mm256_set1_epi8(GroupMxfp4::kOffset));
  }
};
template <>
struct Layout<GroupIq4Xs> : Layout<GroupIq4Nl> {
  static constexpr uint32_t at(uint32_t piece) noexcept { return numerics::IQ4_XS::kQs + 16 * piece; }
};
template <>
struct Layout<GroupQ4K> : BlockNibbles<numerics::Q4_0> {
  static constexpr uint32_t at(uint32_t piece) noexcept { return numerics::Q4_K::kQs + 16 * piece; }
  static constexpr uint32_t low(uint32_t piece) noexcept { return 16 * (piece / 2) + 4 * (piece % 2); }
  static constexpr uint32_t high(uint32_t piece) noexcept { return low(piece) + 8; }
};
template <>
struct Layout<GroupQ8_0> {
  static constexpr uint32_t bytes_at(uint32_t b) noexcept { return b * numerics::Q8_0::kBytes + numerics::Q8_0::kQs; }
};

template <typename Format>
concept NibblePieces = requires(__m256i v) {
  Layout<Format>::of(v);
};
template <typename Format>
concept ByteBlocks = requires {
  Layout<Format>::bytes_at(0);
};

template <typename Format>
inline void put_codes(Unit<Format>& unit, uint32_t quad, uint32_t i, __m256i codes) noexcept {
  if constexpr (Format::kSigned) {
    unit.codes[quad][i] = _mm256_abs_epi8(codes);
    // 2 * j, one more for negative codes
    unit.signs[quad][i] =
        _mm256_sub_epi8(_mm256_set1_epi32(0x06040200), _mm256_cmpgt_epi8(_mm256_setzero_si256(), codes));
  } else {
    unit.codes[quad][i] = codes;
  }
}

template <typename Format>
inline void pack_nibbles(const uint8_t* const* rows, uint32_t i, Unit<Format>* units) noexcept {
  const __m256i mask = _mm256_set1_epi8(15);
  using L = Layout<Format>;
#pragma GCC unroll 8
  for (uint32_t piece = 0; piece < 8; ++piece) {
    __m256i v[4];
    load_16_bytes(rows, L::at(piece), v);
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t low = L::low(piece) + j;
      const uint32_t high = L::high(piece) + j;
      put_codes<Format>(units[low / 8], low % 8, i, L::of(_mm256_and_si256(v[j], mask)));
      put_codes<Format>(units[high / 8], high % 8, i, L::of(_mm256_and_si256(_mm256_srli_epi16(v[j], 4), mask)));
    }
  }
}

template <typename Format>
inline void pack_bytes(const uint8_t* const* rows, uint32_t i, Unit<Format>* units) noexcept {
  for (uint32_t b = 0; b < 8; ++b) {
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      __m256i v[4];
      load_16_bytes(rows, Layout<Format>::bytes_at(b) + 16 * half, v);
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) put_codes<Format>(units[b], 4 * half + j, i, v[j]);
    }
  }
}

// Q6_K: 64 bytes of low nibbles and 32 bytes of high bits make four blocks.
inline void pack_q6_codes(const uint8_t* const* rows, uint32_t i, Unit<GroupQ6K>* units) noexcept {
  using Block = numerics::Q6_K;
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i high_bits = _mm256_set1_epi8(48);
#pragma GCC unroll 4
  for (uint32_t part = 0; part < 4; ++part) {  // elements 16 * (part % 2) and on of blocks 4 * (part / 2) and on
    const uint32_t half = part / 2;
    const uint32_t at = 16 * (part % 2);
    __m256i even[4], odd[4], high[4];  // low bits of blocks 0 and 2, of 1 and 3; high bits
    load_16_bytes(rows, Block::kQl + 64 * half + at, even);
    load_16_bytes(rows, Block::kQl + 64 * half + 32 + at, odd);
    load_16_bytes(rows, Block::kQh + 32 * half + at, high);
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      const auto join = [&](__m256i low, __m256i bits) {
        return _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(bits, high_bits));
      };
      Unit<GroupQ6K>* to = units + 4 * half;
      const uint32_t quad = 4 * (part % 2) + j;
      to[0].codes[quad][i] = join(even[j], _mm256_slli_epi16(high[j], 4));
      to[1].codes[quad][i] = join(odd[j], _mm256_slli_epi16(high[j], 2));
      to[2].codes[quad][i] = join(_mm256_srli_epi16(even[j], 4), high[j]);
      to[3].codes[quad][i] = join(_mm256_srli_epi16(odd[j], 4), _mm256_srli_epi16(high[j], 2));
    }
  }
}

template <typename Format>
inline void pack_codes(const uint8_t* const* rows, uint32_t i, Unit<Format>* units) noexcept {
  if constexpr (NibblePieces<Format>) {
    pack_nibbles<Format>(rows, i, units);
  } else if constexpr (ByteBlocks<Format>) {
    pack_bytes<Format>(rows, i, units);
  } else if constexpr (std::is_same_v<Format, GroupQ6K>) {
    pack_q6_codes(rows, i, units);
  } else {
#pragma GCC unroll 8
    for (uint32_t b = 0; b < 8; ++b) {
      __m256i v[8];
      load_wide_columns(
          rows, [b](const uint8_t* p) { return Format::codes(p, b); }, v);
#pragma GCC unroll 8
      for (uint32_t j = 0; j < 8; ++j) units[b].codes[j][i] = v[j];
    }
  }
}

// Element r: the f16 at `at` of row r.
inline __m256 load_halfs(const uint8_t* const* rows, uint32_t at) noexcept {
  alignas(16) uint16_t bits[8];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < 8; ++r) __builtin_memcpy(bits + r, rows[r] + at, sizeof bits[r]);
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(bits)));
}

// The low and the high word of every dword, in both its words.
inline __m256i low_twice(__m256i pairs) noexcept {
  return _mm256_blend_epi16(pairs, _mm256_slli_epi32(pairs, 16), 0xAA);
}
inline __m256i high_twice(__m256i pairs) noexcept {
  return _mm256_blend_epi16(pairs, _mm256_srli_epi32(pairs, 16), 0x55);
}

// Q4_K and Q5_K: the sixteen bytes that begin a block, of eight rows at once.
template <typename Format>
inline void pack_k4_scales(const uint8_t* const* rows, uint32_t i, Panel<Format>& panel, uint32_t group) noexcept {
  __m256i v[4];  // d and dmin; the three dwords of numerics::k4_scale_min
  load_16_bytes(rows, 0, v);
  const __m256i words =
      _mm256_shuffle_epi8(v[0], _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9,
                                                 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  const __m256i halfs = _mm256_permute4x64_epi64(words, 0xD8);  // d of eight rows, dmin of eight rows
  panel.d[group][i] = _mm256_cvtph_ps(_mm256_castsi256_si128(halfs));
  panel.dm[group][i] = _mm256_xor_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halfs, 1)), _mm256_set1_ps(-0.0F));
  const __m256i six_bits = _mm256_set1_epi32(63);
  const __m256i high_bits = _mm256_set1_epi32(48);
  const __m256i nibble = _mm256_set1_epi32(15);
  Unit<Format>* units = panel.units + 8 * group;
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    const __m256i scale = _mm256_srli_epi32(v[1], 8 * b);
    const __m256i min = _mm256_srli_epi32(v[2], 8 * b);
    const __m256i low = _mm256_srli_epi32(v[3], 8 * b);  // of scale and min of block b + 4
    const __m256i scale4 =
        _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(_mm256_srli_epi32(scale, 2), high_bits));
    const __m256i min4 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(low, 4), nibble),
                                         _mm256_and_si256(_mm256_srli_epi32(min, 2), high_bits));
    units[b].sc[0][i] = low_twice(_mm256_and_si256(scale, six_bits));
    units[b + 4].sc[0][i] = low_twice(scale4);
    units[b].mn[i] = _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_and_si256(min, six_bits)));
    units[b + 4].mn[i] = _mm256_castps_si256(_mm256_cvtepi32_ps(min4));
  }
}

inline void pack_q6_scales(const uint8_t* const* rows, uint32_t i, Panel<GroupQ6K>& panel, uint32_t group) noexcept {
  using Block = numerics::Q6_K;
  panel.d[group][i] = load_halfs(rows, Block::kD);
  __m256i v[4];  // the halves of two blocks
  load_16_bytes(rows, Block::kScales, v);
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) {
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v[b / 2], 8), 8);  // bytes 0 and 2
    const __m256i odd = _mm256_srai_epi16(v[b / 2], 8);                         // bytes 1 and 3
    Unit<GroupQ6K>& unit = panel.units[8 * group + static_cast<uint32_t>(b)];
    unit.sc[0][i] = b % 2 == 0 ? low_twice(even) : high_twice(even);
    unit.sc[1][i] = b % 2 == 0 ? low_twice(odd) : high_twice(odd);
  }
}

// Formats with blocks of 32: the f16 of a block of eight rows. That of row r is word r of a load that begins 2 * r
// bytes early, which the first block has no room for.
template <typename Format>
inline void pack_block_halfs(const uint8_t* const* rows, uint32_t at, __m256 (*to)[2], uint32_t i) noexcept {
  static_assert(Format::Block::kBytes >= 18);  // 16 bytes from word 0 or 1 on are of the block
  to[0][i] = load_halfs(rows, at);
#pragma GCC unroll 8
  for (uint32_t b = 1; b < 8; ++b) {
    const auto word = [&](uint32_t r) { return load_128(rows[r] + b * Format::Block::kBytes + at - 2 * r); };
    __m128i bits = word(0);
    bits = _mm_blend_epi16(bits, word(1), 1 << 1);
    bits = _mm_blend_epi16(bits, word(2), 1 << 2);
    bits = _mm_blend_epi16(bits, word(3), 1 << 3);
    bits = _mm_blend_epi16(bits, word(4), 1 << 4);
    bits = _mm_blend_epi16(bits, word(5), 1 << 5);
    bits = _mm_blend_epi16(bits, word(6), 1 << 6);
    bits = _mm_blend_epi16(bits, word(7), 1 << 7);
    to[b][i] = _mm256_cvtph_ps(bits);
  }
}

template <typename Format>
inline void pack_scales(const uint8_t* const* rows, uint32_t i, Panel<Format>& panel, uint32_t group) noexcept {
  if constexpr (requires { Format::Block::kM; }) {
    pack_block_halfs<Format>(rows, Format::Block::kM, panel.dm + 8 * group, i);
  }
  if constexpr (std::is_same_v<Format, GroupQ6K>) {
    pack_q6_scales(rows, i, panel, group);
  } else if constexpr (std::is_same_v<Format, GroupQ4K> || std::is_same_v<Format, GroupQ5K>) {
    pack_k4_scales(rows, i, panel, group);
  } else if constexpr (Format::kBlocksApart && requires { Format::Block::kD; }) {
    pack_block_halfs<Format>(rows, Format::Block::kD, panel.d + 8 * group, i);
  } else if constexpr (Format::kBlocksApart) {
    __m256i v[8];
    load_wide_columns(
        rows, [](const uint8_t* p) { return _mm256_castps_si256(Format::scales(p).d); }, v);
    for (uint32_t b = 0; b < 8; ++b) panel.d[8 * group + b][i] = _mm256_castsi256_ps(v[b]);
  } else {
    Unit<Format>* units = panel.units + 8 * group;
    panel.d[group][i] = load_halfs(rows, Format::Block::kD);
    __m256i v[8];
    load_wide_columns(
        rows, [](const uint8_t* p) { return Format::scales(p).sc; }, v);
    for (uint32_t b = 0; b < 8; ++b) {
      units[b].sc[0][i] = low_twice(v[b]);
      if constexpr (kHalves<Format>) units[b].sc[1][i] = high_twice(v[b]);
    }
    if constexpr (Format::kMin == Min::kHalf) {
      panel.dm[group][i] = _mm256_xor_ps(load_halfs(rows, Format::Block::kDmin), _mm256_set1_ps(-0.0F));
      load_wide_columns(
          rows, [](const uint8_t* p) { return Format::scales(p).mn; }, v);
      for (uint32_t b = 0; b < 8; ++b) units[b].mn[i] = v[b];
    }
  }
}

// A group of sixteen rows.
template <typename Format>
inline void pack_group(const Rows& rows, Panel<Format>& panel, uint32_t group) noexcept {
  for (uint32_t i = 0; i < 2; ++i) {
    pack_codes<Format>(rows.row + 8 * i, i, panel.units + 8 * group);
    pack_scales<Format>(rows.row + 8 * i, i, panel, group);
  }
}

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 32 elements as eight-block groups (group_avx2-inl.h), in 256-bit code.
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"
#include "outrider/numerics/blocks.h"

namespace outrider::kernels {
namespace {

// The 16-bit words at p, p + kStride, ..., p + 7 * kStride.
template <uint32_t kStride>
inline __m128i load_8_words(const uint8_t* p) noexcept {
  const auto word = [p](uint32_t i) {
    uint16_t value;
    __builtin_memcpy(&value, p + i * kStride, sizeof value);
    return static_cast<int>(value);
  };
  __m128i v = _mm_cvtsi32_si128(word(0));
  v = _mm_insert_epi16(v, word(1), 1);
  v = _mm_insert_epi16(v, word(2), 2);
  v = _mm_insert_epi16(v, word(3), 3);
  v = _mm_insert_epi16(v, word(4), 4);
  v = _mm_insert_epi16(v, word(5), 5);
  v = _mm_insert_epi16(v, word(6), 6);
  return _mm_insert_epi16(v, word(7), 7);
}

template <uint32_t kStride>
inline __m256 load_8_halfs(const uint8_t* p) noexcept {
  return _mm256_cvtph_ps(load_8_words<kStride>(p));
}

// 16 bytes to 32 nibbles: the low ones, then the high ones.
inline __m256i nibbles(const uint8_t* p) noexcept {
  const __m128i bytes = load_128(p);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

// 32 bits to 32 bytes of 0 or 16.
inline __m256i high_bits(const uint8_t* p) noexcept {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
  const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of), bit_of);
  return _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit_of), _mm256_set1_epi8(16));
}

inline __m256i lookup(const int8_t (&table)[16], __m256i codes) noexcept {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_128(table)), codes);
}

struct Format32 {
  static constexpr bool kBlocksApart = true;
  static constexpr SubScale kScale = SubScale::kNone;
  static constexpr Min kMin = Min::kNone;
  static constexpr bool kSigned = false;
  static constexpr int kOffset = 0;
  static constexpr uint32_t kFewTokens = 3;
};

struct GroupQ4_0 : Format32 {
  using Block = numerics::Q4_0;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 15;
  static constexpr int kOffset = 8;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept { return nibbles(p + b * Block::kBytes + Block::kQs); }
  static GroupScales scales(const uint8_t* p) noexcept { return {load_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct GroupQ4_1 : Format32 {
  using Block = numerics::Q4_1;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 15;
  static constexpr Min kMin = Min::kFloat;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept { return nibbles(p + b * Block::kBytes + Block::kQs); }
  static GroupScales scales(const uint8_t* p) noexcept {
    return {load_8_halfs<Block::kBytes>(p + Block::kD), load_8_halfs<Block::kBytes>(p + Block::kM)};
  }
};

struct GroupQ5_0 : Format32 {
  using Block = numerics::Q5_0;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 31;
  static constexpr int kOffset = 16;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    p += b * Block::kBytes;
    return _mm256_or_si256(nibbles(p + Block::kQs), high_bits(p + Block::kQh));
  }
  static GroupScales scales(const uint8_t* p) noexcept { return {load_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct GroupQ5_1 : Format32 {
  using Block = numerics::Q5_1;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 31;
  static constexpr Min kMin = Min::kFloat;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    p += b * Block::kBytes;
    return _mm256_or_si256(nibbles(p + Block::kQs), high_bits(p + Block::kQh));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    return {load_8_halfs<Block::kBytes>(p + Block::kD), load_8_halfs<Block::kBytes>(p + Block::kM)};
  }
};

struct GroupQ8_0 : Format32 {
  using Block = numerics::Q8_0;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 128;
  static constexpr bool kSigned = true;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept { return load_256(p + b * Block::kBytes + Block::kQs); }
  static GroupScales scales(const uint8_t* p) noexcept { return {load_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct GroupIq4Nl : Format32 {
  using Block = numerics::IQ4_NL;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 127;
  static constexpr bool kSigned = true;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    return lookup(numerics::kIq4Values, nibbles(p + b * Block::kBytes + Block::kQs));
  }
  static GroupScales scales(const uint8_t* p) noexcept { return {load_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

// numerics::e8m0_half of int32: the exponent field is e - 1; e = 0 and 1 are the subnormals 2^-128 and 2^-127.
inline __m256 halved_powers(__m256i e) noexcept {
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
  return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal));
}

struct GroupMxfp4 : Format32 {
  using Block = numerics::MXFP4;
  static constexpr uint32_t kBytes = 8 * Block::kBytes;
  static constexpr int kMostCode = 24;
  static constexpr int kOffset = 12;  // numerics::kFp4Values are -12..12
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    const __m256i value = lookup(numerics::kFp4Values, nibbles(p + b * Block::kBytes + Block::kQs));
    return _mm256_add_epi8(value, _mm256_set1_epi8(kOffset));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    __m128i e = _mm_cvtsi32_si128(p[0]);
    e = _mm_insert_epi8(e, p[1 * Block::kBytes], 1);
    e = _mm_insert_epi8(e, p[2 * Block::kBytes], 2);
    e = _mm_insert_epi8(e, p[3 * Block::kBytes], 3);
    e = _mm_insert_epi8(e, p[4 * Block::kBytes], 4);
    e = _mm_insert_epi8(e, p[5 * Block::kBytes], 5);
    e = _mm_insert_epi8(e, p[6 * Block::kBytes], 6);
    e = _mm_insert_epi8(e, p[7 * Block::kBytes], 7);
    return {halved_powers(_mm256_cvtepu8_epi32(e))};
  }
};

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 256 elements as eight-block groups (group_avx2-inl.h), in 256-bit code: a group is one
// stored block, its sub-blocks are the blocks of matmul_law.h.
#pragma once

#include "outrider/kernels/matmul/group_avx2-inl.h"
#include "outrider/numerics/blocks.h"

namespace outrider::kernels {
namespace {

struct Format256 {
  static constexpr bool kBlocksApart = false;
  static constexpr SubScale kScale = SubScale::kBlock;
  static constexpr Min kMin = Min::kNone;
  static constexpr bool kSigned = false;
  static constexpr int kOffset = 0;
  static constexpr uint32_t kFewTokens = 3;
};

inline __m256 spread_half(const uint8_t* p) noexcept {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

inline __m256 spread_minus_half(const uint8_t* p) noexcept {
  return _mm256_xor_ps(spread_half(p), _mm256_set1_ps(-0.0F));
}

inline uint32_t load_dword(const uint8_t* p) noexcept {
  uint32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

inline __m256i widen_8_bytes(uint32_t low, uint32_t high) noexcept {
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(low | static_cast<uint64_t>(high) << 32)));
}

// Bit `from` of every byte, moved to bit `to`.
inline __m256i move_bit(__m256i v, int from, int to) noexcept {
  const __m256i bit = _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(1 << from)));
  return from < to ? _mm256_slli_epi16(bit, to - from) : _mm256_srli_epi16(bit, from - to);
}

// (v >> shift) & mask in every byte.
inline __m256i bits_of_bytes(__m256i v, int shift, int mask) noexcept {
  return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(static_cast<char>(mask)));
}

struct GroupQ2K : Format256 {
  using Block = numerics::Q2_K;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 3;
  static constexpr SubScale kScale = SubScale::kHalf;
  static constexpr Min kMin = Min::kHalf;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    return bits_of_bytes(load_256(p + Block::kQs + 32 * (b / 4)), static_cast<int>(2 * (b % 4)), 3);
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    const __m128i packed = load_128(p + Block::kScales);
    const __m128i low = _mm_set1_epi8(15);
    return {spread_half(p + Block::kD), spread_minus_half(p + Block::kDmin),
            _mm256_cvtepu8_epi16(_mm_and_si128(packed, low)),
            _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(packed, 4), low))};
  }
};

struct GroupQ3K : Format256 {
  using Block = numerics::Q3_K;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 7;
  static constexpr SubScale kScale = SubScale::kHalf;
  static constexpr int kOffset = 4;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    const __m256i low = bits_of_bytes(load_256(p + Block::kQs + 32 * (b / 4)), static_cast<int>(2 * (b % 4)), 3);
    return _mm256_or_si256(low, move_bit(load_256(p + Block::kHmask), static_cast<int>(b), 2));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    uint64_t low;  // bytes 0..7: two nibbles each, for k and k + 8
    __builtin_memcpy(&low, p + Block::kScales, sizeof low);
    const uint64_t high = load_dword(p + Block::kScales + 8);  // two bits of k, k + 4, k + 8, k + 12 in each byte
    constexpr uint64_t kNibble = 0x0F0F0F0F0F0F0F0F;
    constexpr uint64_t kTwoBits = 0x03030303;
    const uint64_t first = (low & kNibble) | ((high & kTwoBits) | (high >> 2 & kTwoBits) << 32) << 4;
    const uint64_t second = (low >> 4 & kNibble) | ((high >> 4 & kTwoBits) | (high >> 6 & kTwoBits) << 32) << 4;
    const __m128i packed = _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
    const __m128i sc = _mm_sub_epi8(packed, _mm_set1_epi8(32));
    return {.d = spread_half(p + Block::kD), .sc = _mm256_cvtepi8_epi16(sc)};
  }
};

// The 6-bit scales and mins of Q4_K and Q5_K out of 12 bytes: numerics::k4_scale_min for all eight blocks.
inline GroupScales scales_q4k(const uint8_t* packed, const uint8_t* d, const uint8_t* dmin) noexcept {
  const uint32_t s0 = load_dword(packed);
  const uint32_t s1 = load_dword(packed + 4);
  const uint32_t s2 = load_dword(packed + 8);
  constexpr uint32_t kSixBits = 0x3F3F3F3F;
  constexpr uint32_t kNibble = 0x0F0F0F0F;
  constexpr uint32_t kTwoBits = 0x03030303;
  return {spread_half(d), spread_minus_half(dmin),
          widen_8_bytes(s0 & kSixBits, (s2 & kNibble) | (s0 >> 6 & kTwoBits) << 4),
          widen_8_bytes(s1 & kSixBits, (s2 >> 4 & kNibble) | (s1 >> 6 & kTwoBits) << 4)};
}

struct GroupQ4K : Format256 {
  using Block = numerics::Q4_K;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 15;
  static constexpr Min kMin = Min::kBlock;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    return bits_of_bytes(load_256(p + Block::kQs + 32 * (b / 2)), static_cast<int>(4 * (b % 2)), 15);
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    return scales_q4k(p + Block::kScales, p + Block::kD, p + Block::kDmin);
  }
};

struct GroupQ5K : Format256 {
  using Block = numerics::Q5_K;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 31;
  static constexpr Min kMin = Min::kBlock;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    const __m256i low = bits_of_bytes(load_256(p + Block::kQs + 32 * (b / 2)), static_cast<int>(4 * (b % 2)), 15);
    return _mm256_or_si256(low, move_bit(load_256(p + Block::kQh), static_cast<int>(b), 4));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    return scales_q4k(p + Block::kScales, p + Block::kD, p + Block::kDmin);
  }
};

struct GroupQ6K : Format256 {
  using Block = numerics::Q6_K;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 63;
  static constexpr SubScale kScale = SubScale::kHalf;
  static constexpr int kOffset = 32;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    const uint32_t half = b / 4;
    const uint32_t quarter = b % 4;
    const __m256i ql = load_256(p + Block::kQl + 64 * half + 32 * (quarter % 2));
    const __m256i qh = load_256(p + Block::kQh + 32 * half);
    const __m256i high = bits_of_bytes(qh, static_cast<int>(2 * quarter), 3);
    return _mm256_or_si256(bits_of_bytes(ql, static_cast<int>(4 * (quarter / 2)), 15), _mm256_slli_epi16(high, 4));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    return {.d = spread_half(p + Block::kD), .sc = _mm256_cvtepi8_epi16(load_128(p + Block::kScales))};
  }
};

struct GroupIq4Xs : Format256 {
  using Block = numerics::IQ4_XS;
  static constexpr uint32_t kBytes = Block::kBytes;
  static constexpr int kMostCode = 127;
  static constexpr bool kSigned = true;
  static __m256i codes(const uint8_t* p, uint32_t b) noexcept {
    const __m128i bytes = load_128(p + Block::kQs + 16 * b);
    const __m256i code = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_128(numerics::kIq4Values)), code);
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    uint16_t high_bits;
    __builtin_memcpy(&high_bits, p + Block::kScalesH, sizeof high_bits);
    const __m256i low = _mm256_set1_epi32(static_cast<int>(load_dword(p + Block::kScalesL)));
    const __m256i high = _mm256_set1_epi32(high_bits);
    const __m256i four =
        _mm256_and_si256(_mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)), _mm256_set1_epi32(15));
    const __m256i two =
        _mm256_and_si256(_mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)), _mm256_set1_epi32(3));
    const __m256i sc = _mm256_sub_epi32(_mm256_or_si256(four, _mm256_slli_epi32(two, 4)), _mm256_set1_epi32(32));
    return {.d = spread_half(p + Block::kD), .sc = sc};
  }
};

}  // namespace
}  // namespace outrider::kernels

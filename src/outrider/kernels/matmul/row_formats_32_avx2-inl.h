// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 32 elements for the AVX2 kernels: two_blocks() of block_sums_avx2-inl.h, and scales that
// are collected by blends. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/block_sums_avx2-inl.h"
#include "outrider/kernels/matmul/formats_32_avx2-inl.h"

namespace outrider::kernels {
namespace {

// The 16-bit words at p, p + kStride, ..., p + 7 * kStride. A load that starts 2 * i bytes before word i has it in
// place i, so that blends collect them; an insertion would take one of the two shuffle pipes for each word.
template <uint32_t kStride>
inline __m128i blend_8_words(const uint8_t* p) noexcept {
  if constexpr (kStride == 18) {  // loads lie side by side: a wide one has two words
    const __m256i low = _mm256_blend_epi32(load_256(p), load_256(p + 32), 0x22);
    const __m256i high = _mm256_blend_epi32(load_256(p + 64), load_256(p + 96), 0x88);
    const __m256i both = _mm256_blend_epi32(low, high, 0xCC);
    return _mm_blend_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1), 0xAA);
  } else {
    constexpr uint32_t kStep = kStride - 2;
    const __m128i a = _mm_blend_epi16(load_128(p), load_128(p + kStep), 0x02);
    const __m128i b = _mm_blend_epi16(load_128(p + 2 * kStep), load_128(p + 3 * kStep), 0x08);
    const __m128i c = _mm_blend_epi16(load_128(p + 4 * kStep), load_128(p + 5 * kStep), 0x20);
    const __m128i d = _mm_blend_epi16(load_128(p + 6 * kStep), load_128(p + 7 * kStep), 0x80);
    return _mm_blend_epi16(_mm_blend_epi16(a, b, 0x0C), _mm_blend_epi16(c, d, 0xC0), 0xF0);
  }
}

// f16 scales at the blocks' first bytes.
template <uint32_t kStride>
inline GroupScales blend_scales(const uint8_t* p) noexcept {
  return {_mm256_cvtph_ps(blend_8_words<kStride>(p))};
}

// f16 scale and minimum at the blocks' first bytes.
template <uint32_t kStride>
inline GroupScales blend_scales_and_mins(const uint8_t* p) noexcept {
  const auto pairs = [p](uint32_t b) {  // of blocks b, b + 1, b + 4 and b + 5
    const uint8_t* low = p + b * kStride;
    const uint8_t* high = low + 4 * kStride;
    const __m128i first = _mm_blend_epi32(load_128(low), load_128(low + kStride - 4), 0x2);
    const __m128i second = _mm_blend_epi32(load_128(high - 8), load_128(high + kStride - 12), 0x8);
    return _mm256_cvtph_ps(_mm_blend_epi32(first, second, 0xC));
  };
  const __m256 a = pairs(0);
  const __m256 b = pairs(2);
  return {_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD)};
}

// The bytes at p, p + kStride, ..., as the low bytes of int32; kStride is 17: loads 16 bytes apart have byte i in place
// i.
inline __m256i blend_8_bytes(const uint8_t* p) noexcept {
  const __m256i low = _mm256_blend_epi16(load_256(p), load_256(p + 32), 0x02);
  const __m256i high = _mm256_blend_epi16(load_256(p + 64), load_256(p + 96), 0x08);
  const __m256i both = _mm256_blend_epi16(low, high, 0x0C);
  const __m128i odd = _mm_set1_epi16(-256);
  return _mm256_cvtepu8_epi32(_mm_blendv_epi8(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1), odd));
}

inline __m256i low_nibbles(__m256i v) noexcept { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
inline __m256i high_nibbles(__m256i v) noexcept { return low_nibbles(_mm256_srli_epi16(v, 4)); }

// The nibbles of the 16 bytes at `at` of blocks i and i + 4.
template <uint32_t kStride>
inline void two_of_nibbles(const uint8_t* at, uint32_t i, __m256i (&out)[2]) noexcept {
  const __m256i raw = load_two(at + i * kStride, at + (i + 4) * kStride);
  out[0] = low_nibbles(raw);
  out[1] = high_nibbles(raw);
}

// Adds 16 where the 32 bits at `at` of blocks i and i + 4 are set.
template <uint32_t kStride>
inline void two_of_high_bits(const uint8_t* at, uint32_t i, __m256i (&out)[2]) noexcept {
  const __m256i bits =
      _mm256_blend_epi32(broadcast_dword(at + i * kStride), broadcast_dword(at + (i + 4) * kStride), 0xF0);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
  // 16 with the sign of what the bit leaves in its byte: bit 7 leaves -128.
  const __m256i sixteen = _mm256_set1_epi64x(static_cast<int64_t>(0xF010101010101010ULL));
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const int64_t byte = h * 0x0202020202020202;
    const __m256i byte_of = _mm256_setr_epi64x(byte, byte + 0x0101010101010101, byte, byte + 0x0101010101010101);
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(bits, byte_of), bit_of);
    out[h] = _mm256_or_si256(out[h], _mm256_sign_epi8(sixteen, spread));
  }
}

struct RowQ4_0 : GroupQ4_0 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales<Block::kBytes>(p); }
};

struct RowQ4_1 : GroupQ4_1 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales_and_mins<Block::kBytes>(p); }
};

struct RowQ5_0 : GroupQ5_0 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
    two_of_high_bits<Block::kBytes>(p + Block::kQh, i, out);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales<Block::kBytes>(p); }
};

struct RowQ5_1 : GroupQ5_1 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
    two_of_high_bits<Block::kBytes>(p + Block::kQh, i, out);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales_and_mins<Block::kBytes>(p); }
};

struct RowQ8_0 : GroupQ8_0 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    const uint8_t* low = p + i * Block::kBytes + Block::kQs;
    const uint8_t* high = low + 4 * Block::kBytes;
    out[0] = load_two(low, high);
    out[1] = load_two(low + 16, high + 16);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales<Block::kBytes>(p); }
};

struct RowIq4Nl : GroupIq4Nl {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
    for (__m256i& v : out) v = lookup(numerics::kIq4Values, v);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return blend_scales<Block::kBytes>(p); }
};

struct RowMxfp4 : GroupMxfp4 {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    // numerics::kFp4Values plus kOffset
    alignas(16) static constexpr int8_t kCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    two_of_nibbles<Block::kBytes>(p + Block::kQs, i, out);
    for (__m256i& v : out) v = lookup(kCodes, v);
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    static_assert(Block::kBytes == 17);
    return {halved_powers(blend_8_bytes(p))};
  }
};

}  // namespace
}  // namespace outrider::kernels

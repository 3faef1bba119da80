// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 32 elements for the AVX-512 kernels (rows_avx512-inl.h says what a format is there).
#pragma once

#include "outrider/kernels/matmul/formats_32_avx2-inl.h"
#include "outrider/kernels/matmul/rows_avx512-inl.h"

namespace outrider::kernels {
namespace {

// The 16-bit words at p, p + kStride, ..., p + 7 * kStride: two loads and one permutation take as many as two times 64
// bytes hold, single loads the others. Reads inside the 8 * kStride bytes at p only.
template <uint32_t kStride>
inline __m128i gather_8_words(const uint8_t* p) noexcept {
  constexpr uint32_t kInLoad = (64 - 2) / kStride + 1;  // blocks whose word lies in a load that starts at one's word
  constexpr uint32_t kPart = kInLoad < 4 ? kInLoad : 4;
  alignas(16) static constexpr auto kOrder = [] {
    struct {
      int16_t index[8];
    } order = {};
    for (uint32_t i = 0; i < 2 * kPart; ++i) {
      order.index[i] = static_cast<int16_t>(i < kPart ? i * kStride / 2 : 32 + (i - kPart) * kStride / 2);
    }
    return order;
  }();
  const __m512i first = _mm512_loadu_si512(p);
  const __m512i second = _mm512_loadu_si512(p + kPart * kStride);
  const __m512i order = _mm512_castsi128_si512(load_128(kOrder.index));
  __m128i v = _mm512_castsi512_si128(_mm512_permutex2var_epi16(first, order, second));
  const auto word = [p](uint32_t i) {
    uint16_t value;
    __builtin_memcpy(&value, p + i * kStride, sizeof value);
    return static_cast<int>(value);
  };
  if constexpr (kPart < 3) {
    v = _mm_insert_epi16(v, word(4), 4);
    v = _mm_insert_epi16(v, word(5), 5);
  }
  if constexpr (kPart < 4) {
    v = _mm_insert_epi16(v, word(6), 6);
    v = _mm_insert_epi16(v, word(7), 7);
  }
  return v;
}

template <uint32_t kStride>
inline __m256 gather_8_halfs(const uint8_t* p) noexcept {
  return _mm256_cvtph_ps(gather_8_words<kStride>(p));
}

// Two times 32 bits as one mask.
inline __mmask64 bit_pair(const uint8_t* p, uint32_t stride) noexcept {
  uint32_t low;
  uint32_t high;
  __builtin_memcpy(&low, p, sizeof low);
  __builtin_memcpy(&high, p + stride, sizeof high);
  return low | static_cast<uint64_t>(high) << 32;
}

// The 5-bit codes of two blocks.
template <typename Block>
inline __m512i five_bit_pair(const uint8_t* p) noexcept {
  const __m512i low = nibble_pair(p + Block::kQs, Block::kBytes);
  return _mm512_mask_add_epi8(low, bit_pair(p + Block::kQh, Block::kBytes), low, _mm512_set1_epi8(16));
}

struct PlainNibbles {
  static __m512i of(__m512i v) noexcept { return v; }
};

struct WideQ4_0 : GroupQ4_0, NibbleBlocks<PlainNibbles, numerics::Q4_0::kQs, numerics::Q4_0::kBytes> {
  static GroupScales scales(const uint8_t* p) noexcept { return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct WideQ4_1 : GroupQ4_1, NibbleBlocks<PlainNibbles, numerics::Q4_1::kQs, numerics::Q4_1::kBytes> {
  static GroupScales scales(const uint8_t* p) noexcept {
    return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD), .dm = gather_8_halfs<Block::kBytes>(p + Block::kM)};
  }
};

struct WideQ5_0 : GroupQ5_0 {
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept { return five_bit_pair<Block>(p + 2 * j * Block::kBytes); }
  static GroupScales scales(const uint8_t* p) noexcept { return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct WideQ5_1 : GroupQ5_1 {
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept { return five_bit_pair<Block>(p + 2 * j * Block::kBytes); }
  static GroupScales scales(const uint8_t* p) noexcept {
    return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD), .dm = gather_8_halfs<Block::kBytes>(p + Block::kM)};
  }
};

struct WideQ8_0 : GroupQ8_0 {
  static constexpr int kOffset = 128;
  static constexpr uint32_t kFewTokens = 7;  // nothing to unpack
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    p += 2 * j * Block::kBytes + Block::kQs;
    const __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(p)), load_256(p + Block::kBytes), 1);
    return _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
  }
  static GroupScales scales(const uint8_t* p) noexcept { return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct Fp4Codes {
  static constexpr int kOffset = 16;  // a power of two, so that taking it off is a shift
  static __m512i of(__m512i v) noexcept { return _mm512_shuffle_epi8(wide_table(numerics::kFp4Values, kOffset), v); }
};

struct WideIq4Nl : GroupIq4Nl, NibbleBlocks<Iq4Codes, numerics::IQ4_NL::kQs, numerics::IQ4_NL::kBytes> {
  static constexpr int kOffset = Iq4Codes::kOffset;
  static GroupScales scales(const uint8_t* p) noexcept { return {.d = gather_8_halfs<Block::kBytes>(p + Block::kD)}; }
};

struct WideMxfp4 : GroupMxfp4, NibbleBlocks<Fp4Codes, numerics::MXFP4::kQs, numerics::MXFP4::kBytes> {
  static constexpr int kOffset = Fp4Codes::kOffset;
  static GroupScales scales(const uint8_t* p) noexcept {
    // e of block i is byte 17 * i: the low half of a word for even i, the high half for odd i.
    const __m512i order = _mm512_castsi128_si512(_mm_setr_epi16(0, 8, 17, 25, 32, 40, 49, 57));
    const __m512i words =
        _mm512_permutex2var_epi16(_mm512_loadu_si512(p), order, _mm512_loadu_si512(p + 4 * Block::kBytes));
    const __m256i wide = _mm256_cvtepu16_epi32(_mm512_castsi512_si128(words));
    const __m256i e =
        _mm256_and_si256(_mm256_srlv_epi32(wide, _mm256_setr_epi32(0, 8, 0, 8, 0, 8, 0, 8)), _mm256_set1_epi32(255));
    const __m256 exponent = _mm256_cvtepi32_ps(_mm256_sub_epi32(e, _mm256_set1_epi32(128)));
    return {.d = _mm256_scalef_ps(_mm256_set1_ps(1.0F), exponent)};
  }
};

}  // namespace
}  // namespace outrider::kernels

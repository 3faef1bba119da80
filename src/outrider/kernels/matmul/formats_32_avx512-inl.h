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

// The scales of blocks with an f16. Tiles read them by d_words() and m_words(), the words of the eight blocks of a
// group; even_scale() and odd_scale() make f32 of the lower and of the upper words of sixteen pairs.
template <typename Block>
struct HalfScales {
  static __m128i d_words(const uint8_t* p) noexcept { return gather_8_words<Block::kBytes>(p + Block::kD); }
  static __m512 even_scale(__m512i pairs) noexcept { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)); }
  static __m512 odd_scale(__m512i pairs) noexcept { return even_scale(_mm512_srli_epi32(pairs, 16)); }
  static GroupScales scales(const uint8_t* p) noexcept { return {.d = _mm256_cvtph_ps(d_words(p))}; }
};

template <typename Block>
struct HalfScalesAndMins : HalfScales<Block> {
  static __m128i m_words(const uint8_t* p) noexcept { return gather_8_words<Block::kBytes>(p + Block::kM); }
  static GroupScales scales(const uint8_t* p) noexcept {
    return {.d = _mm256_cvtph_ps(HalfScales<Block>::d_words(p)), .dm = _mm256_cvtph_ps(m_words(p))};
  }
};

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

struct WideQ4_0 : GroupQ4_0,
                  NibbleBlocks<PlainNibbles, numerics::Q4_0::kQs, numerics::Q4_0::kBytes>,
                  HalfScales<numerics::Q4_0> {
  using HalfScales<Block>::scales;
};

struct WideQ4_1 : GroupQ4_1,
                  NibbleBlocks<PlainNibbles, numerics::Q4_1::kQs, numerics::Q4_1::kBytes>,
                  HalfScalesAndMins<numerics::Q4_1> {
  using HalfScalesAndMins<Block>::scales;
};

struct WideQ5_0 : GroupQ5_0, HalfScales<numerics::Q5_0> {
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept { return five_bit_pair<Block>(p + 2 * j * Block::kBytes); }
  using HalfScales<Block>::scales;
};

struct WideQ5_1 : GroupQ5_1, HalfScalesAndMins<numerics::Q5_1> {
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept { return five_bit_pair<Block>(p + 2 * j * Block::kBytes); }
  using HalfScalesAndMins<Block>::scales;
};

struct WideQ8_0 : GroupQ8_0, HalfScales<numerics::Q8_0> {
  static constexpr int kOffset = 128;
  static constexpr uint32_t kFewTokens = 7;  // nothing to unpack
  static constexpr uint32_t block_at(uint32_t b) noexcept { return b * Block::kBytes + Block::kQs; }
  static __m512i of_bytes(__m512i v) noexcept { return _mm512_xor_si512(v, _mm512_set1_epi8(-128)); }
  static __m512i pair(const uint8_t* p, uint32_t j) noexcept {
    p += 2 * j * Block::kBytes + Block::kQs;
    const __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(p)), load_256(p + Block::kBytes), 1);
    return of_bytes(codes);
  }
  using HalfScales<Block>::scales;
};

struct Fp4Codes {
  static constexpr int kOffset = 16;  // a power of two, so that taking it off is a shift
  static __m512i of(__m512i v) noexcept { return _mm512_shuffle_epi8(wide_table(numerics::kFp4Values, kOffset), v); }
};

struct WideIq4Nl : GroupIq4Nl,
                   NibbleBlocks<Iq4Codes, numerics::IQ4_NL::kQs, numerics::IQ4_NL::kBytes>,
                   HalfScales<numerics::IQ4_NL> {
  static constexpr int kOffset = Iq4Codes::kOffset;
  using HalfScales<Block>::scales;
};

struct WideMxfp4 : GroupMxfp4, NibbleBlocks<Fp4Codes, numerics::MXFP4::kQs, numerics::MXFP4::kBytes> {
  static constexpr int kOffset = Fp4Codes::kOffset;
  // e of block i is byte 17 * i: the low half of a word for even i, the high half for odd i.
  static __m128i d_words(const uint8_t* p) noexcept {
    const __m512i order = _mm512_castsi128_si512(_mm_setr_epi16(0, 8, 17, 25, 32, 40, 49, 57));
    return _mm512_castsi512_si128(
        _mm512_permutex2var_epi16(_mm512_loadu_si512(p), order, _mm512_loadu_si512(p + 4 * Block::kBytes)));
  }
  static __m512 even_scale(__m512i pairs) noexcept { return scale(_mm512_and_si512(pairs, _mm512_set1_epi32(255))); }
  static __m512 odd_scale(__m512i pairs) noexcept { return scale(_mm512_srli_epi32(pairs, 24)); }
  static __m512 scale(__m512i e) noexcept {
    return _mm512_scalef_ps(_mm512_set1_ps(1.0F), _mm512_cvtepi32_ps(_mm512_sub_epi32(e, _mm512_set1_epi32(128))));
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    const __m256i wide = _mm256_cvtepu16_epi32(d_words(p));
    const __m256i e =
        _mm256_and_si256(_mm256_srlv_epi32(wide, _mm256_setr_epi32(0, 8, 0, 8, 0, 8, 0, 8)), _mm256_set1_epi32(255));
    const __m256 exponent = _mm256_cvtepi32_ps(_mm256_sub_epi32(e, _mm256_set1_epi32(128)));
    return {.d = _mm256_scalef_ps(_mm256_set1_ps(1.0F), exponent)};
  }
};

}  // namespace
}  // namespace outrider::kernels

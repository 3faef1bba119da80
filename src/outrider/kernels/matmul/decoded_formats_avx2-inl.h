// SPDX-License-Identifier: Apache-2.0
// The formats without an integer unit (docs/numerics.md "Float products") in 256-bit code, which AVX2 and AVX-512
// share. A weight is a small number times a scale, and that product is exact: so it has the bits that
// numerics/dequant.h gives. Internal linkage throughout.
//
// A format is a struct for one stored block with
//   kElems, kBytes   of a block
//   load(p)          takes the block at p in; p must stay alive. Reads inside the block only.
//   weights(g)       elements 8 * g to 8 * g + 7
// Grids are looked up as f32: what the kernels have too few of is loads and shuffles, and bytes would need widening.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "outrider/kernels/matmul/group_avx2-inl.h"
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/iq_grids.h"

namespace outrider::kernels {
namespace {

template <typename Block>
struct DecodedBlock {
  static constexpr uint32_t kElems = Block::kElems;
  static constexpr uint32_t kBytes = Block::kBytes;
};

inline float half_at(const uint8_t* p) noexcept {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

template <typename T>
inline T load_as(const void* p) noexcept {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

// Leaves an array in memory: GCC would take its parts out of the register that was stored, by shuffles, which are the
// scarce thing here where loads are not.
template <typename Array>
inline void keep_stored(Array& array) noexcept {
  asm("" : "+m"(array));
}

inline __m256i low_8_bytes(const uint8_t* p) noexcept {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

inline void store_dwords(uint32_t* p, __m256i v) noexcept { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }

// An entry of a grid of eight values; two of one of four. The arrays' own operators are inline functions of another
// module (style.md section 7), hence plain addresses.
inline __m256 entry(const void* grid, uint32_t index) noexcept {
  return _mm256_loadu_ps(static_cast<const float*>(grid) + 8 * index);
}
inline __m256 two_entries(const void* grid, uint32_t low, uint32_t high) noexcept {
  const auto* floats = static_cast<const float*>(grid);
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(floats + 4 * low)), _mm_loadu_ps(floats + 4 * high),
                              1);
}

// Negates element i where bit 8 * (g % 4) + i of the four bytes of signs at `signs` is set, which serve four groups.
inline __m256 negate(__m256 v, const void* signs, uint32_t g) noexcept {
  const __m256i to_top = _mm256_sub_epi32(_mm256_set1_epi32(static_cast<int>(31 - 8 * (g % 4))),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i bits = _mm256_sllv_epi32(_mm256_set1_epi32(load_as<int>(signs)), to_top);
  const __m256i top = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));
  return _mm256_xor_ps(v, _mm256_castsi256_ps(top));
}

// numerics::even_signs of 32 codes of seven bits.
inline __m256i even_signs_32(__m256i codes) noexcept {
  // Bit 7 is the parity of the index.
  const __m128i nibble = _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
  const __m256i parity = _mm256_broadcastsi128_si256(nibble);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(7));
  const __m256i odd = _mm256_xor_si256(_mm256_shuffle_epi8(parity, codes), _mm256_shuffle_epi8(parity, high));
  return _mm256_or_si256(codes, odd);
}

// Four codes of seven bits, the low 28 bits of each word, to sign bytes.
inline __m256i signs_of_words(__m256i words) noexcept {
  const auto field = [](__m256i v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi32(mask)); };
  const __m256i low = _mm256_or_si256(field(words, 0x7F), field(_mm256_slli_epi32(words, 1), 0x7F00));
  const __m256i high =
      _mm256_or_si256(field(_mm256_slli_epi32(words, 2), 0x7F0000), field(_mm256_slli_epi32(words, 3), 0x7F000000));
  return even_signs_32(_mm256_or_si256(low, high));
}

// (d * (0.5 + s)) * factor
inline __m256 half_scales(float d, __m256i s, float factor) noexcept {
  const __m256 times = _mm256_add_ps(_mm256_set1_ps(0.5F), _mm256_cvtepi32_ps(s));
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(d), times), _mm256_set1_ps(factor));
}

// d * (2 * s + 1)
inline __m256 odd_scales(float d, __m256i s) noexcept {
  const __m256i times = _mm256_or_si256(_mm256_add_epi32(s, s), _mm256_set1_epi32(1));
  return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(times));
}

// The nibbles of the eight bytes of `v`, the low one of each first.
inline __m128i nibbles_of_8(__m128i v) noexcept {
  const __m128i mask = _mm_set1_epi8(15);
  return _mm_unpacklo_epi8(_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi16(v, 4), mask));
}

struct DecodedIq2Xxs : DecodedBlock<numerics::IQ2_XXS> {
  using Block = numerics::IQ2_XXS;
  const uint8_t* indices;
  alignas(32) uint8_t sign_bytes[32];
  alignas(32) float scales[8];

  void load(const uint8_t* p) noexcept {
    indices = p + Block::kQs;
    const __m256 low = _mm256_castsi256_ps(load_256(indices));
    const __m256 high = _mm256_castsi256_ps(load_256(indices + 32));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xDD));
    const __m256i words = _mm256_permute4x64_epi64(odd, 0xD8);
    _mm256_store_si256(reinterpret_cast<__m256i*>(sign_bytes), signs_of_words(words));
    _mm256_store_ps(scales, half_scales(half_at(p + Block::kD), _mm256_srli_epi32(words, 28), 0.25F));
    keep_stored(sign_bytes);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m256 v = entry(&numerics::kIq2XxsFloats, indices[8 * (g / 4) + g % 4]);
    return _mm256_mul_ps(negate(v, sign_bytes + g / 4 * 4, g), _mm256_set1_ps(scales[g / 4]));
  }
};

// IQ2_XS and IQ2_S: a nibble for each 16 elements.
inline void store_half_scales(float d, const uint8_t* nibbles, float (&scales)[16]) noexcept {
  const __m128i s = nibbles_of_8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles)));
  _mm256_store_ps(scales, half_scales(d, _mm256_cvtepu8_epi32(s), 0.25F));
  _mm256_store_ps(scales + 8, half_scales(d, _mm256_cvtepu8_epi32(_mm_srli_si128(s, 8)), 0.25F));
}

struct DecodedIq2Xs : DecodedBlock<numerics::IQ2_XS> {
  using Block = numerics::IQ2_XS;
  alignas(32) uint16_t indices[32];
  alignas(32) uint8_t sign_bytes[32];
  alignas(32) float scales[16];

  void load(const uint8_t* p) noexcept {
    const __m256i low = load_256(p + Block::kQs);
    const __m256i high = load_256(p + Block::kQs + 32);
    const __m256i mask = _mm256_set1_epi16(511);
    _mm256_store_si256(reinterpret_cast<__m256i*>(indices), _mm256_and_si256(low, mask));
    _mm256_store_si256(reinterpret_cast<__m256i*>(indices + 16), _mm256_and_si256(high, mask));
    const __m256i packed = _mm256_packus_epi16(_mm256_srli_epi16(low, 9), _mm256_srli_epi16(high, 9));
    const __m256i codes = _mm256_permute4x64_epi64(packed, 0xD8);
    _mm256_store_si256(reinterpret_cast<__m256i*>(sign_bytes), even_signs_32(codes));
    store_half_scales(half_at(p + Block::kD), p + Block::kScales, scales);
    keep_stored(indices);
    keep_stored(sign_bytes);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m256 v = entry(&numerics::kIq2XsFloats, indices[g]);
    return _mm256_mul_ps(negate(v, sign_bytes + g / 4 * 4, g), _mm256_set1_ps(scales[g / 2]));
  }
};

struct DecodedIq2S : DecodedBlock<numerics::IQ2_S> {
  using Block = numerics::IQ2_S;
  const uint8_t* sign_bytes;
  alignas(32) uint32_t indices[32];
  alignas(32) float scales[16];

  void load(const uint8_t* p) noexcept {
    sign_bytes = p + Block::kSigns;
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i qh = _mm256_set1_epi32(load_as<uint16_t>(p + Block::kQh + 2 * i));
      const __m256i two = _mm256_and_si256(_mm256_srlv_epi32(qh, shifts), _mm256_set1_epi32(3));
      const __m256i low = low_8_bytes(p + Block::kQs + 8 * i);
      store_dwords(indices + 8 * i, _mm256_or_si256(low, _mm256_slli_epi32(two, 8)));
    }
    store_half_scales(half_at(p + Block::kD), p + Block::kScales, scales);
    keep_stored(indices);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m256 v = entry(&numerics::kIq2SFloats, indices[g]);
    return _mm256_mul_ps(negate(v, sign_bytes + g / 4 * 4, g), _mm256_set1_ps(scales[g / 2]));
  }
};

struct DecodedIq3Xxs : DecodedBlock<numerics::IQ3_XXS> {
  using Block = numerics::IQ3_XXS;
  const uint8_t* indices;
  alignas(32) uint8_t sign_bytes[32];
  alignas(32) float scales[8];

  void load(const uint8_t* p) noexcept {
    indices = p + Block::kQs;
    const __m256i words = load_256(p + Block::kSignsAndScales);
    _mm256_store_si256(reinterpret_cast<__m256i*>(sign_bytes), signs_of_words(words));
    _mm256_store_ps(scales, half_scales(half_at(p + Block::kD), _mm256_srli_epi32(words, 28), 0.5F));
    keep_stored(sign_bytes);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m256 v = two_entries(&numerics::kIq3XxsFloats, indices[2 * g], indices[2 * g + 1]);
    return _mm256_mul_ps(negate(v, sign_bytes + g / 4 * 4, g), _mm256_set1_ps(scales[g / 4]));
  }
};

struct DecodedIq3S : DecodedBlock<numerics::IQ3_S> {
  using Block = numerics::IQ3_S;
  const uint8_t* sign_bytes;
  alignas(32) uint16_t indices[64];
  alignas(32) float scales[8];

  void load(const uint8_t* p) noexcept {
    sign_bytes = p + Block::kSigns;
    const __m256i bits =
        _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i low = _mm256_cvtepu8_epi16(load_128(p + Block::kQs + 16 * i));
      const __m256i high = _mm256_and_si256(_mm256_set1_epi16(load_as<int16_t>(p + Block::kQh + 2 * i)), bits);
      const __m256i ninth = _mm256_and_si256(_mm256_cmpeq_epi16(high, bits), _mm256_set1_epi16(256));
      _mm256_store_si256(reinterpret_cast<__m256i*>(indices + 16 * i), _mm256_or_si256(low, ninth));
    }
    const __m128i s = nibbles_of_8(_mm_cvtsi32_si128(load_as<int>(p + Block::kScales)));
    _mm256_store_ps(scales, odd_scales(half_at(p + Block::kD), _mm256_cvtepu8_epi32(s)));
    keep_stored(indices);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept {
    const __m256 v = two_entries(&numerics::kIq3SFloats, indices[2 * g], indices[2 * g + 1]);
    return _mm256_mul_ps(negate(v, sign_bytes + g / 4 * 4, g), _mm256_set1_ps(scales[g / 4]));
  }
};

// IQ1: scale * (grid value + shift) of codes of numerics::kIq1Codes.
inline __m256 iq1_weights(uint32_t index, float scale) noexcept {
  const auto* codes = static_cast<const uint32_t*>(static_cast<const void*>(&numerics::kIq1Codes));
  const __m256i nibbles = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(codes[index])),
                                            _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256 levels = _mm256_setr_ps(-0.875F, 0.125F, 1.125F, 0, -1.125F, -0.125F, 0.875F, 0);
  return _mm256_permutevar8x32_ps(_mm256_mul_ps(levels, _mm256_set1_ps(scale)), nibbles);  // its low three bits count
}

struct DecodedIq1S : DecodedBlock<numerics::IQ1_S> {
  using Block = numerics::IQ1_S;
  alignas(32) uint32_t indices[32];
  alignas(32) float scales[8];

  void load(const uint8_t* p) noexcept {
    const __m256i shifts = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
    const __m256i minus_shifts = _mm256_setr_epi32(4, 4, 4, 4, 20, 20, 20, 20);  // bit 15 of each half to bit 11
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i qh = _mm256_set1_epi32(load_as<int>(p + Block::kQh + 4 * i));
      const __m256i three = _mm256_and_si256(_mm256_srlv_epi32(qh, shifts), _mm256_set1_epi32(7));
      const __m256i minus = _mm256_and_si256(_mm256_srlv_epi32(qh, minus_shifts), _mm256_set1_epi32(2048));
      const __m256i high = _mm256_or_si256(_mm256_slli_epi32(three, 8), minus);
      store_dwords(indices + 8 * i, _mm256_or_si256(low_8_bytes(p + Block::kQs + 8 * i), high));
    }
    const __m256i qh = _mm256_cvtepu16_epi32(load_128(p + Block::kQh));
    const __m256i s = _mm256_and_si256(_mm256_srli_epi32(qh, 12), _mm256_set1_epi32(7));
    _mm256_store_ps(scales, odd_scales(half_at(p + Block::kD), s));
    keep_stored(indices);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept { return iq1_weights(indices[g], scales[g / 4]); }
};

struct DecodedIq1M : DecodedBlock<numerics::IQ1_M> {
  using Block = numerics::IQ1_M;
  alignas(32) uint32_t indices[32];
  alignas(32) float scales[16];

  void load(const uint8_t* p) noexcept {
    const uint8_t* words = p + Block::kScales;
    uint32_t d_bits = 0;  // the block scale is spread over the top nibbles of the four scale words
    for (uint32_t w = 0; w < 4; ++w) d_bits |= static_cast<uint32_t>(load_as<uint16_t>(words + 2 * w) >> 12) << (4 * w);
    const float d = _cvtsh_ss(static_cast<uint16_t>(d_bits));
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256i qh = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<int>(p + Block::kQh + 4 * i)), shifts);
      const __m256i high = _mm256_slli_epi32(_mm256_and_si256(qh, _mm256_set1_epi32(15)), 8);
      store_dwords(indices + 8 * i, _mm256_or_si256(low_8_bytes(p + Block::kQs + 8 * i), high));
    }
    const __m256i fields = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; ++i) {
      const __m256i s = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<int>(words + 4 * i)), fields);
      _mm256_store_ps(scales + 8 * i, odd_scales(d, _mm256_and_si256(s, _mm256_set1_epi32(7))));
    }
    keep_stored(indices);
    keep_stored(scales);
  }
  __m256 weights(uint32_t g) const noexcept { return iq1_weights(indices[g], scales[g / 2]); }
};

}  // namespace
}  // namespace outrider::kernels

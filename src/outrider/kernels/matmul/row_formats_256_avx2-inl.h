// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 256 elements for the AVX2 kernels: two_blocks() of block_sums_avx2-inl.h, and scales in
// vector registers. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/block_sums_avx2-inl.h"
#include "outrider/kernels/matmul/formats_256_avx2-inl.h"

namespace outrider::kernels {
namespace {

// The f16 at p and the negative of the one after it, everywhere.
inline void spread_two_halfs(const uint8_t* p, GroupScales& s) noexcept {
  const __m256 both = _mm256_cvtph_ps(_mm_set1_epi32(static_cast<int>(load_dword(p))));
  s.d = _mm256_moveldup_ps(both);
  s.dm = _mm256_xor_ps(_mm256_movehdup_ps(both), _mm256_set1_ps(-0.0F));
}

inline __m256i broadcast_128(const uint8_t* p) noexcept { return _mm256_broadcastsi128_si256(load_128(p)); }

// A bit for each of eight blocks in bytes: shifted so that blocks i and i + 4 have theirs in place i.
inline __m256i bits_of_four(const uint8_t* p) noexcept {
  return _mm256_srlv_epi64(broadcast_128(p), _mm256_setr_epi64x(0, 0, 4, 4));
}

// Half h of blocks i and i + 4 of the nibbles of Q4_K and Q5_K: 32 bytes have two blocks.
inline __m256i wide_nibbles(const uint8_t* qs, uint32_t i, uint32_t h) noexcept {
  const uint8_t* low = qs + 32 * (i / 2) + 16 * h;
  return bits_of_bytes(load_two(low, low + 64), static_cast<int>(4 * (i % 2)), 15);
}

// To shuffle by: bytes `first` to `first` + 3 of each 128-bit part as int32.
inline __m256i dword_of_byte(int first) noexcept {
  constexpr int kZeros = INT32_MIN + 0x00808000;  // the upper three bytes
  const __m128i part = _mm_setr_epi32(kZeros + first, kZeros + first + 1, kZeros + first + 2, kZeros + first + 3);
  return _mm256_broadcastsi128_si256(part);
}

// numerics::k4_scale_min for all eight blocks, as scales_q4k(): the 12 bytes are three int32; scales of blocks 0 to 3
// and minima of 0 to 3 are the lower six bits of the first two, those of 4 to 7 nibbles of the third and their
// uppermost two bits.
inline GroupScales vector_scales_q4k(const uint8_t* packed, const uint8_t* d) noexcept {
  const __m128i v = load_128(packed);
  const __m128i low = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(v, 0xA4), _mm_setr_epi32(0, 0, 0, 4)),
                                    _mm_setr_epi32(0x3F3F3F3F, 0x3F3F3F3F, 0x0F0F0F0F, 0x0F0F0F0F));
  const __m128i high =
      _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(v, 0x40), 2), _mm_setr_epi32(0, 0, 0x30303030, 0x30303030));
  // Dwords: scales 0 to 3, minima 0 to 3, scales 4 to 7, minima 4 to 7.
  const __m256i both = _mm256_permute4x64_epi64(_mm256_castsi128_si256(_mm_or_si128(low, high)), 0x50);
  GroupScales s;
  s.sc = _mm256_shuffle_epi8(both, dword_of_byte(0));
  s.mn = _mm256_shuffle_epi8(both, dword_of_byte(4));
  spread_two_halfs(d, s);
  return s;
}

struct RowQ2K : GroupQ2K {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const uint8_t* low = p + Block::kQs + 16 * h;
      out[h] = bits_of_bytes(load_two(low, low + 32), static_cast<int>(2 * i), 3);
    }
  }
  static GroupScales scales(const uint8_t* p) noexcept {
    const __m128i packed = load_128(p + Block::kScales);
    const __m128i low = _mm_set1_epi8(15);
    GroupScales s;
    s.sc = _mm256_cvtepu8_epi16(_mm_and_si128(packed, low));
    s.mn = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(packed, 4), low));
    spread_two_halfs(p + Block::kD, s);
    return s;
  }
};

struct RowQ3K : GroupQ3K {
  // A byte of nibbles has codes of blocks i and i + 2 for even and for odd i; their third bits come from a table.
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    alignas(16) static constexpr int8_t kEven[16] = {0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68};
    alignas(16) static constexpr int8_t kOdd[16] = {0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68};
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const uint8_t* low = p + Block::kQs + 16 * h;
      const __m256i two_bits = bits_of_bytes(load_two(low, low + 32), static_cast<int>(2 * (i % 2)), 0x33);
      const __m256i table = _mm256_broadcastsi128_si256(load_128(i % 2 == 0 ? kEven : kOdd));
      const __m256i bits = _mm256_and_si256(bits_of_four(p + Block::kHmask + 16 * h), _mm256_set1_epi8(15));
      const __m256i nibbles = _mm256_or_si256(two_bits, _mm256_shuffle_epi8(table, bits));
      out[h] = bits_of_bytes(nibbles, static_cast<int>(4 * (i / 2)), 15);
    }
  }
  // Scale k: four bits of byte k mod 8, two of byte 8 + k mod 4.
  static GroupScales scales(const uint8_t* p) noexcept {
    static_assert(Block::kScales >= 2 && Block::kScales + 14 <= Block::kBytes);
    const __m128i v = load_128(p + Block::kScales - 2);  // not past the block's end
    const __m128i low = _mm_and_si128(
        _mm_srlv_epi64(_mm_shuffle_epi8(v, _mm_set1_epi64x(0x0908070605040302)), _mm_setr_epi32(0, 0, 4, 0)),
        _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(
        _mm_srlv_epi32(_mm_shuffle_epi8(v, _mm_set1_epi32(0x0D0C0B0A)), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    const __m128i sc = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
    return {.d = spread_half(p + Block::kD), .sc = _mm256_cvtepi8_epi16(sc)};
  }
};

struct RowQ4K : GroupQ4K {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) out[h] = wide_nibbles(p + Block::kQs, i, h);
  }
  static GroupScales scales(const uint8_t* p) noexcept { return vector_scales_q4k(p + Block::kScales, p + Block::kD); }
};

// By four bits: 16 where bit i is set.
inline __m256i sixteen_where(uint32_t i) noexcept {
  constexpr int64_t kLow[4] = {0x1000100010001000, 0x1010000010100000, 0x1010101000000000, 0};
  constexpr int64_t kHigh[4] = {0x1000100010001000, 0x1010000010100000, 0x1010101000000000, 0x1010101010101010};
  return _mm256_setr_epi64x(kLow[i], kHigh[i], kLow[i], kHigh[i]);
}

struct RowQ5K : GroupQ5K {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const __m256i bits = _mm256_and_si256(bits_of_four(p + Block::kQh + 16 * h), _mm256_set1_epi8(15));
      out[h] = _mm256_or_si256(wide_nibbles(p + Block::kQs, i, h), _mm256_shuffle_epi8(sixteen_where(i), bits));
    }
  }
  static GroupScales scales(const uint8_t* p) noexcept { return vector_scales_q4k(p + Block::kScales, p + Block::kD); }
};

struct RowQ6K : GroupQ6K {
  // Blocks i and i + 4 are the same quarter of the lower and of the upper half.
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      const uint8_t* ql = p + Block::kQl + 32 * (i % 2) + 16 * h;
      const uint8_t* qh = p + Block::kQh + 16 * h;
      const __m256i low = bits_of_bytes(load_two(ql, ql + 64), static_cast<int>(4 * (i / 2)), 15);
      const __m256i two_bits = load_two(qh, qh + 32);
      const __m256i moved = i == 0   ? _mm256_slli_epi16(two_bits, 4)
                            : i == 1 ? _mm256_slli_epi16(two_bits, 2)
                            : i == 2 ? two_bits
                                     : _mm256_srli_epi16(two_bits, 2);
      out[h] = _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
    }
  }
};

struct RowIq4Xs : GroupIq4Xs {
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    const uint8_t* low = p + Block::kQs + 16 * i;
    const __m256i raw = load_two(low, low + 64);
    const __m256i table = _mm256_broadcastsi128_si256(load_128(numerics::kIq4Values));
    out[0] = _mm256_shuffle_epi8(table, bits_of_bytes(raw, 0, 15));
    out[1] = _mm256_shuffle_epi8(table, bits_of_bytes(raw, 4, 15));
  }
};

}  // namespace
}  // namespace outrider::kernels

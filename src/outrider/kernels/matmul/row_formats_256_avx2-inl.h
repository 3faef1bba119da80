// SPDX-License-Identifier: Apache-2.0
// The formats with blocks of 256 elements for the AVX2 kernels: two_blocks() of block_sums_avx2-inl.h, and scales in
// vector registers. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/block_sums_avx2-inl.h"
#include "outrider/kernels/matmul/formats_256_avx2-inl.h"

namespace outrider::kernels {
namespace {

// The f16 at p and the one after it, everywhere.
inline void spread_two_halfs(const uint8_t* p, GroupScales& s) noexcept {
  const __m256 both = _mm256_cvtph_ps(_mm256_castsi256_si128(broadcast_dword(p)));
  s.d = _mm256_moveldup_ps(both);
  s.dm = _mm256_movehdup_ps(both);
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

// numerics::k4_scale_min for all eight blocks: the 12 bytes are three int32; scales of blocks 0 to 3 and minima of 0 to
// 3 are the lower six bits of the first two, those of 4 to 7 nibbles of the third and the uppermost two bits of the
// first two.
inline GroupScales vector_scales_q4k(const uint8_t* packed, const uint8_t* d) noexcept {
  int64_t two;
  __builtin_memcpy(&two, packed, sizeof two);
  const __m256i first = _mm256_set1_epi64x(two);
  const __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_blend_epi32(first, broadcast_dword(packed + 8), 0xF0),
                                                         _mm256_setr_epi32(0, 0, 0, 0, 0, 4, 0, 0)),
                                       _mm256_setr_epi64x(0x3F3F3F3F3F3F3F3F, 0, 0x0F0F0F0F0F0F0F0F, 0));
  const __m256i high = _mm256_and_si256(_mm256_srli_epi32(first, 2), _mm256_setr_epi64x(0, 0, 0x3030303030303030, 0));
  const __m256i both = _mm256_or_si256(low, high);  // of each part: four scales, four minima
  GroupScales s;
  s.sc = _mm256_shuffle_epi8(both, dword_of_byte(0));
  s.mn = _mm256_shuffle_epi8(both, dword_of_byte(4));
  spread_two_halfs(d, s);
  return s;
}

struct RowQ2K : GroupQ2K {
  static constexpr Order kOrder = Order::kOcts;
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    const __m256i shifts = _mm256_setr_epi64x(0, 2, 4, 6);
#pragma GCC unroll 2
    for (uint32_t h = 0; h < 2; ++h) {
      int64_t raw;
      __builtin_memcpy(&raw, p + Block::kQs + 32 * h + 8 * i, 8);
      out[h] = _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(raw), shifts), _mm256_set1_epi8(3));
    }
  }
  static HalfScales scales(const uint8_t* p) noexcept {
    const __m256i packed = broadcast_128(p + Block::kScales);
    const __m256i low = _mm256_and_si256(packed, _mm256_set1_epi8(15));
    HalfScales s;
    s.sc = _mm256_shuffle_epi8(low, words_of_bytes(0, 0));
    s.sc1 = _mm256_shuffle_epi8(low, words_of_bytes(1, 1));
    s.mn = _mm256_srli_epi16(_mm256_shuffle_epi8(packed, words_of_bytes(0, 1)), 4);
    spread_two_halfs(p + Block::kD, s);
    return s;
  }

 private:
  // To shuffle by: for each block of a lane its bytes `first` and `second`, of two, as int16.
  static __m256i words_of_bytes(int first, int second) noexcept {
    const auto both = [=](int block) {
      return static_cast<int>(0x80008000U) + (2 * block + first) + ((2 * block + second) << 16);
    };
    return _mm256_setr_epi32(both(0), both(1), both(4), both(5), both(2), both(3), both(6), both(7));
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
  // Scale k: four bits of byte k mod 8, two of byte 8 + k mod 4; as words, of which a part has eight.
  static GroupScales scales(const uint8_t* p) noexcept {
    static_assert(Block::kScales >= 2 && Block::kScales + 14 == Block::kBytes && Block::kD == Block::kScales + 12);
    const __m256i v = broadcast_128(p + Block::kScales - 2);  // not past the block's end
    const __m256i low_at =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, 9, -1));
    const __m256i high_at =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 10, -1, 11, -1, 12, -1, 13, -1, 10, -1, 11, -1, 12, -1, 13));
    const __m256i low = _mm256_and_si256(
        _mm256_shuffle_epi8(_mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4)), low_at), _mm256_set1_epi16(15));
    const __m256i high = _mm256_and_si256(
        _mm256_srlv_epi64(_mm256_shuffle_epi8(v, high_at), _mm256_setr_epi64x(4, 6, 8, 10)), _mm256_set1_epi16(0x30));
    const __m256i sc = _mm256_sub_epi16(_mm256_or_si256(low, high), _mm256_set1_epi16(32));
    const __m256 d = _mm256_cvtph_ps(_mm256_castsi256_si128(broadcast_dword(p + Block::kD - 2)));
    return {.d = _mm256_movehdup_ps(d), .sc = sc};
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
  static HalfScales scales(const uint8_t* p) noexcept {
    const __m256 d = _mm256_cvtph_ps(_mm256_castsi256_si128(broadcast_dword(p + Block::kD - 2)));
    const __m256i pairs = _mm256_cvtepi8_epi16(load_128(p + Block::kScales));
    const __m256i first = _mm256_broadcastsi128_si256(_mm_setr_epi32(0x01000100, 0x05040504, 0x09080908, 0x0D0C0D0C));
    HalfScales s;
    s.d = _mm256_movehdup_ps(d);
    s.sc = _mm256_shuffle_epi8(pairs, first);
    s.sc1 = _mm256_shuffle_epi8(pairs, _mm256_or_si256(first, _mm256_set1_epi8(2)));
    return s;
  }
};

struct RowIq4Xs : GroupIq4Xs {
  static constexpr Order kOrder = Order::kBeside;
  static void two_blocks(const uint8_t* p, uint32_t i, __m256i (&out)[2]) noexcept {
    const __m256i raw = load_256(p + Block::kQs + 32 * i);
    const __m256i table = _mm256_broadcastsi128_si256(load_128(numerics::kIq4Values));
    out[0] = _mm256_shuffle_epi8(table, bits_of_bytes(raw, 0, 15));
    out[1] = _mm256_shuffle_epi8(table, bits_of_bytes(raw, 4, 15));
  }
  // By lane: four bits of the low parts and two of the high ones, which follow d.
  static GroupScales scales(const uint8_t* p) noexcept {
    static_assert(Block::kScalesH == Block::kD + 2);
    const __m256i first = broadcast_dword(p + Block::kD);
    const __m256i low = broadcast_dword(p + Block::kScalesL);
    const __m256i four =
        _mm256_and_si256(_mm256_srlv_epi32(low, _mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28)), _mm256_set1_epi32(15));
    const __m256i two = _mm256_and_si256(_mm256_srlv_epi32(first, _mm256_setr_epi32(12, 16, 20, 24, 14, 18, 22, 26)),
                                         _mm256_set1_epi32(0x30));
    const __m256i sc = _mm256_sub_epi32(_mm256_or_si256(four, two), _mm256_set1_epi32(32));
    return {.d = _mm256_moveldup_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(first))), .sc = sc};
  }
};

}  // namespace
}  // namespace outrider::kernels

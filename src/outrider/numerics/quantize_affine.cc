// SPDX-License-Identifier: Apache-2.0
// Q2_K, Q4_K, Q5_K: a value is (d * s) * code - (dmin * m), with small unsigned integers s and m per sub-block. The
// search minimises the squared error, unweighted.
//  1. Per sub-block: for each of a few widths of the code range, codes are rounded and (scale, min >= 0) follow by
//  least
//     squares; codes are rounded once more with them; the best width wins.
//  2. Per block: d and dmin give the largest scale and min the ends of their integer ranges; each sub-block takes the
//     best of nine neighbouring (s, m) by the true error; d and dmin are fitted again by least squares.
#include <algorithm>
#include <span>

#include "outrider/numerics/blocks.h"
#include "outrider/numerics/quantize_families.h"

namespace outrider::numerics::internal {
namespace {

struct Affine {
  float scale = 0, min = 0;  // value = scale * code - min
};

// Sums over the codes q that x gets: what least squares needs.
struct Sums {
  float x = 0, q = 0, xq = 0, qq = 0;
};

inline float code_of(float x, Affine a, float inverse, int32_t most) noexcept {
  return static_cast<float>(round_clamped((x + a.min) * inverse, 0, most));
}

Sums sums_of(const float* x, uint32_t n, Affine a, int32_t most) noexcept {
  const float inverse = a.scale == 0 ? 0.0F : 1.0F / a.scale;
  Sums sums;
  for (uint32_t i = 0; i < n; ++i) {
    const float q = code_of(x[i], a, inverse, most);
    sums.x += x[i];
    sums.q += q;
    sums.xq += x[i] * q;
    sums.qq += q * q;
  }
  return sums;
}

float squared_error(const float* x, uint32_t n, Affine a, int32_t most) noexcept {
  const float inverse = a.scale == 0 ? 0.0F : 1.0F / a.scale;
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const float difference = x[i] - (a.scale * code_of(x[i], a, inverse, most) - a.min);
    sum += difference * difference;
  }
  return sum;
}

// The (scale, min) of least squared error for fixed codes, min kept >= 0, scale kept >= 0.
Affine least_squares(const Sums& s, uint32_t n, Affine fallback) noexcept {
  const auto count = static_cast<float>(n);
  const float determinant = count * s.qq - s.q * s.q;
  if (determinant > 0) {
    const float scale = (count * s.xq - s.x * s.q) / determinant;
    const float min = (scale * s.q - s.x) / count;
    if (scale > 0 && min >= 0) return {scale, min};
  }
  if (s.qq > 0 && s.xq > 0) return {s.xq / s.qq, 0};
  return fallback;
}

Affine best_affine(const float* x, uint32_t n, int32_t most, std::span<const float> widths) noexcept {
  float low = 0, high = x[0];
  for (uint32_t i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (high - low < 1e-15F) return {0, -low};
  Affine best{0, -low};
  float best_error = squared_error(x, n, best, most);
  for (const float width : widths) {
    Affine a{(high - low) / width, -low};
    for (int round = 0; round < 2; ++round) {
      a = least_squares(sums_of(x, n, a, most), n, a);
      const float error = squared_error(x, n, a, most);
      if (error < best_error) {
        best_error = error;
        best = a;
      }
    }
  }
  return best;
}

template <uint32_t kSubs>
struct AffineBlock {
  float d = 0, dmin = 0;  // already rounded to f16
  int32_t scales[kSubs] = {}, mins[kSubs] = {};
  float error = 0;
  Affine of(uint32_t sub) const noexcept {
    return {d * static_cast<float>(scales[sub]), dmin * static_cast<float>(mins[sub])};
  }
};

template <uint32_t kSubs>
AffineBlock<kSubs> with_block_scales(const float* x, const Affine (&wanted)[kSubs], float d, float dmin, int32_t most,
                                     int32_t sub_most) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  AffineBlock<kSubs> block;
  block.d = rounded_scale(d);
  block.dmin = rounded_scale(dmin);
  const auto steps = [sub_most](float value, float unit) {
    return unit == 0 ? 0 : round_clamped(value / unit, 0, sub_most);
  };
  for (uint32_t sub = 0; sub < kSubs; ++sub) {
    const int32_t scale = steps(wanted[sub].scale, block.d);
    const int32_t min = steps(wanted[sub].min, block.dmin);
    float best_error = -1;
    for (int32_t s = std::max(scale - 1, 0); s <= std::min(scale + 1, sub_most); ++s) {
      for (int32_t m = std::max(min - 1, 0); m <= std::min(min + 1, sub_most); ++m) {
        const Affine a{block.d * static_cast<float>(s), block.dmin * static_cast<float>(m)};
        const float error = squared_error(x + sub * kN, kN, a, most);
        if (best_error >= 0 && error >= best_error) continue;
        best_error = error;
        block.scales[sub] = s;
        block.mins[sub] = m;
      }
    }
    block.error += best_error;
  }
  return block;
}

// d and dmin of least squared error for the codes and sub-scales of `block`: value = d * (s q) - dmin * m.
template <uint32_t kSubs>
Affine refitted(const float* x, const AffineBlock<kSubs>& block, int32_t most) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  float aa = 0, am = 0, mm = 0, xa = 0, xm = 0;  // a = s q
  for (uint32_t sub = 0; sub < kSubs; ++sub) {
    const Sums sums = sums_of(x + sub * kN, kN, block.of(sub), most);
    const auto s = static_cast<float>(block.scales[sub]);
    const auto m = static_cast<float>(block.mins[sub]);
    aa += s * s * sums.qq;
    am += s * m * sums.q;
    mm += m * m * static_cast<float>(kN);
    xa += s * sums.xq;
    xm += m * sums.x;
  }
  const float determinant = aa * mm - am * am;
  if (!(determinant > 0)) return {block.d, block.dmin};
  const Affine fit{(xa * mm - xm * am) / determinant, (xa * am - xm * aa) / determinant};
  return fit.scale > 0 && fit.min >= 0 ? fit : Affine{block.d, block.dmin};
}

// `most`: largest code; `sub_most`: largest sub-scale and sub-min; `widths`: code ranges tried for (high - low).
template <uint32_t kSubs>
AffineBlock<kSubs> fit_block(const float* x, int32_t most, int32_t sub_most, std::span<const float> widths) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  Affine wanted[kSubs];
  float largest_scale = 0, largest_min = 0;
  for (uint32_t sub = 0; sub < kSubs; ++sub) {
    wanted[sub] = best_affine(x + sub * kN, kN, most, widths);
    largest_scale = std::max(largest_scale, wanted[sub].scale);
    largest_min = std::max(largest_min, wanted[sub].min);
  }
  const auto range = static_cast<float>(sub_most);
  AffineBlock<kSubs> best = with_block_scales(x, wanted, largest_scale / range, largest_min / range, most, sub_most);
  for (int round = 0; round < 2; ++round) {
    const Affine unit = refitted(x, best, most);
    const AffineBlock<kSubs> next = with_block_scales(x, wanted, unit.scale, unit.min, most, sub_most);
    if (next.error >= best.error) break;
    best = next;
  }
  return best;
}

template <uint32_t kSubs>
void codes_of(const float* x, const AffineBlock<kSubs>& block, int32_t most, uint8_t (&codes)[256]) noexcept {
  for (uint32_t i = 0; i < 256; ++i) {
    const Affine a = block.of(i / (256 / kSubs));
    codes[i] = static_cast<uint8_t>(code_of(x[i], a, a.scale == 0 ? 0.0F : 1.0F / a.scale, most));
  }
}

// The 12 bytes of eight 6-bit scales and eight 6-bit mins of Q4_K and Q5_K.
void store_scales_and_mins(const AffineBlock<8>& block, std::byte* s) noexcept {
  for (uint32_t sub = 0; sub < 4; ++sub) {
    const auto scale_high = static_cast<uint32_t>(block.scales[sub + 4]);
    const auto min_high = static_cast<uint32_t>(block.mins[sub + 4]);
    store_u8(s + sub, static_cast<uint32_t>(block.scales[sub]) | (scale_high >> 4) << 6);
    store_u8(s + sub + 4, static_cast<uint32_t>(block.mins[sub]) | (min_high >> 4) << 6);
    store_u8(s + sub + 8, (scale_high & 15U) | (min_high & 15U) << 4);
  }
}

// Low four bits of the codes: 64 elements share 32 bytes, the even sub-block is low.
void store_nibbles(const uint8_t (&codes)[256], std::byte* qs) noexcept {
  for (uint32_t i = 0; i < 128; ++i) {
    const uint32_t element = i / 32 * 64 + i % 32;
    store_u8(qs + i, (codes[element] & 15U) | (codes[element + 32] & 15U) << 4);
  }
}

constexpr float kQ2Widths[] = {2.2F, 2.5F, 2.8F, 3.0F, 3.3F, 3.7F, 4.2F};
constexpr float kQ4Widths[] = {13.6F, 14.0F, 14.4F, 14.8F, 15.2F, 15.6F, 16.0F, 16.5F, 17.0F};
constexpr float kQ5Widths[] = {29.8F, 30.3F, 30.7F, 31.1F, 31.5F, 32.0F, 32.5F};

}  // namespace

void quantize_q2_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q2_K>(x, blocks, n_elems, [](const float* v, std::byte* out) {
    const auto block = fit_block<16>(v, 3, 15, kQ2Widths);
    uint8_t codes[256];
    codes_of(v, block, 3, codes);
    std::memset(out, 0, Q2_K::kBytes);
    store_u16(out + Q2_K::kD, scale_bits(block.d));
    store_u16(out + Q2_K::kDmin, scale_bits(block.dmin));
    for (uint32_t sub = 0; sub < 16; ++sub) {
      store_u8(out + Q2_K::kScales + sub,
               static_cast<uint32_t>(block.scales[sub]) | static_cast<uint32_t>(block.mins[sub]) << 4);
    }
    for (uint32_t i = 0; i < 256; ++i) {
      out[Q2_K::kQs + i / 128 * 32 + i % 32] |=
          static_cast<std::byte>(static_cast<uint32_t>(codes[i]) << (2 * (i % 128 / 32)));
    }
  });
}

void quantize_q4_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q4_K>(x, blocks, n_elems, [](const float* v, std::byte* out) {
    const auto block = fit_block<8>(v, 15, 63, kQ4Widths);
    uint8_t codes[256];
    codes_of(v, block, 15, codes);
    store_u16(out + Q4_K::kD, scale_bits(block.d));
    store_u16(out + Q4_K::kDmin, scale_bits(block.dmin));
    store_scales_and_mins(block, out + Q4_K::kScales);
    store_nibbles(codes, out + Q4_K::kQs);
  });
}

void quantize_q5_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q5_K>(x, blocks, n_elems, [](const float* v, std::byte* out) {
    const auto block = fit_block<8>(v, 31, 63, kQ5Widths);
    uint8_t codes[256];
    codes_of(v, block, 31, codes);
    store_u16(out + Q5_K::kD, scale_bits(block.d));
    store_u16(out + Q5_K::kDmin, scale_bits(block.dmin));
    store_scales_and_mins(block, out + Q5_K::kScales);
    store_nibbles(codes, out + Q5_K::kQs);
    for (uint32_t l = 0; l < 32; ++l) {
      uint32_t fifth = 0;
      for (uint32_t sub = 0; sub < 8; ++sub) fifth |= static_cast<uint32_t>(codes[32 * sub + l] >> 4) << sub;
      store_u8(out + Q5_K::kQh + l, fifth);
    }
  });
}

}  // namespace outrider::numerics::internal

// SPDX-License-Identifier: Apache-2.0
// Formats without a minimum: a value is scale * code value. The search minimises the squared error, unweighted.
//  1. Per sub-block: the extreme element is mapped onto each of a few target values; codes are rounded, the scale that
//     is best for those codes follows by least squares, codes are rounded once more with it; the best target wins.
//  2. Per block of 256: the block scale d is chosen so that the largest sub-scale gets an end of its integer range;
//     each sub-scale takes the best of three neighbouring integers by the true error; d is fitted again by least
//     squares.
#include <algorithm>

#include "outrider/numerics/blocks.h"
#include "outrider/numerics/quantize_families.h"

namespace outrider::numerics::internal {
namespace {

// Code sets: index(v) of the nearest code value, value(index), and the targets tried for the extreme element.
template <int32_t kLow, int32_t kHigh>
struct Linear {
  static constexpr uint32_t kZero = static_cast<uint32_t>(-kLow);
  static uint32_t index(float v) noexcept { return static_cast<uint32_t>(round_clamped(v, kLow, kHigh) - kLow); }
  static float value(uint32_t index) noexcept { return static_cast<float>(static_cast<int32_t>(index) + kLow); }
};

struct Q3Codes : Linear<-4, 3> {
  static constexpr float kTargets[] = {-4.9F, -4.6F, -4.3F, -4.0F, -3.7F, -3.4F, -3.1F, -2.8F, 3.0F, 3.3F};
};
struct Q6Codes : Linear<-32, 31> {
  static constexpr float kTargets[] = {-32.6F, -32.3F, -32.0F, -31.7F, -31.4F, -31.1F, -30.8F, 31.0F, 31.4F};
};

// Code of the IQ4 value nearest to v, by half-open steps of 1/2 from -128: the middles between neighbouring values are
// multiples of 1/2, so the steps decide exactly.
struct Iq4Steps {
  uint8_t code[512];
};
constexpr Iq4Steps make_iq4_steps() {
  Iq4Steps steps{};
  uint8_t at = 0;
  for (int32_t step = 0; step < 512; ++step) {
    while (at < 15 && step - 256 >= kIq4Values[at] + kIq4Values[at + 1]) ++at;
    steps.code[step] = at;
  }
  return steps;
}
constexpr Iq4Steps kIq4Steps = make_iq4_steps();

struct Iq4Codes {
  static constexpr float kTargets[] = {-140, -134, -127, -122, -116, -110, -104, -98, -92, 113, 119, 125};
  static constexpr uint32_t kZero = 8;  // value 1: the format has no zero, its blocks of zeros have scale 0
  static uint32_t index(float v) noexcept {
    return kIq4Steps.code[static_cast<uint32_t>(std::clamp(2.0F * v + 256.0F, 0.0F, 511.0F))];
  }
  static float value(uint32_t index) noexcept { return static_cast<float>(kIq4Values[index]); }
};

// Sums over the codes that x gets under a scale: of x * value and of value^2.
struct Projection {
  float xv = 0, vv = 0;
  float gain() const noexcept { return vv > 0 ? xv * xv / vv : 0.0F; }  // what the best scale takes off the error
};

template <typename Codes>
Projection project(const float* x, uint32_t n, float inverse) noexcept {
  Projection sums;
  for (uint32_t i = 0; i < n; ++i) {
    const float value = Codes::value(Codes::index(x[i] * inverse));
    sums.xv += x[i] * value;
    sums.vv += value * value;
  }
  return sums;
}

// The scale of least squared error over n elements; 0 when all are (nearly) zero.
template <typename Codes>
float best_scale(const float* x, uint32_t n) noexcept {
  const float extreme = extreme_of(x, n);
  if (std::fabs(extreme) < 1e-15F) return 0.0F;
  float best_gain = 0;
  float scale = 0;
  for (const float target : Codes::kTargets) {
    Projection fit = project<Codes>(x, n, target / extreme);
    if (fit.vv <= 0 || fit.xv == 0) continue;
    const Projection refined = project<Codes>(x, n, fit.vv / fit.xv);
    if (refined.gain() > fit.gain()) fit = refined;
    if (fit.gain() > best_gain) {
      best_gain = fit.gain();
      scale = fit.xv / fit.vv;
    }
  }
  return scale;
}

template <typename Codes>
float squared_error(const float* x, uint32_t n, float scale) noexcept {
  const float inverse = scale == 0 ? 0.0F : 1.0F / scale;
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const float difference = x[i] - scale * Codes::value(Codes::index(x[i] * inverse));
    sum += difference * difference;
  }
  return sum;
}

// A block of 256: d (already rounded to f16), the integer sub-scales and the error they give.
template <uint32_t kSubs>
struct TwoLevel {
  float d = 0;
  int32_t scales[kSubs] = {};
  float error = 0;
};

template <typename Codes, uint32_t kSubs>
TwoLevel<kSubs> with_block_scale(const float* x, const float (&wanted)[kSubs], float d, int32_t low,
                                 int32_t high) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  TwoLevel<kSubs> result;
  result.d = rounded_scale(d);
  for (uint32_t sub = 0; sub < kSubs; ++sub) {
    const float* part = x + sub * kN;
    int32_t best = 0;
    float best_error = squared_error<Codes>(part, kN, 0.0F);
    if (result.d != 0 && wanted[sub] != 0) {
      const int32_t near = round_clamped(wanted[sub] / result.d, low, high);
      for (int32_t scale = std::max(near - 1, low); scale <= std::min(near + 1, high); ++scale) {
        const float error = squared_error<Codes>(part, kN, result.d * static_cast<float>(scale));
        if (error < best_error) {
          best_error = error;
          best = scale;
        }
      }
    }
    result.scales[sub] = best;
    result.error += best_error;
  }
  return result;
}

// The block scale of least squared error for the codes and sub-scales of `level`.
template <typename Codes, uint32_t kSubs>
float refitted_block_scale(const float* x, const TwoLevel<kSubs>& level) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  float xv = 0, vv = 0;
  for (uint32_t sub = 0; sub < kSubs; ++sub) {
    if (level.scales[sub] == 0) continue;
    const auto scale = static_cast<float>(level.scales[sub]);
    const Projection sums = project<Codes>(x + sub * kN, kN, 1.0F / (level.d * scale));
    xv += scale * sums.xv;
    vv += scale * scale * sums.vv;
  }
  return vv > 0 ? xv / vv : level.d;
}

template <typename Codes, uint32_t kSubs>
TwoLevel<kSubs> fit_block(const float* x, int32_t low, int32_t high) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  float wanted[kSubs];
  for (uint32_t sub = 0; sub < kSubs; ++sub) wanted[sub] = best_scale<Codes>(x + sub * kN, kN);
  const float extreme = extreme_of(wanted, kSubs);
  TwoLevel<kSubs> best = with_block_scale<Codes>(x, wanted, extreme / static_cast<float>(low), low, high);
  for (int round = 0; round < 2 && best.d != 0; ++round) {
    const float d = refitted_block_scale<Codes>(x, best);
    const TwoLevel<kSubs> next = with_block_scale<Codes>(x, wanted, d, low, high);
    if (next.error >= best.error) break;
    best = next;
  }
  return best;
}

// The 256 codes of a fitted block.
template <typename Codes, uint32_t kSubs>
void codes_of(const float* x, const TwoLevel<kSubs>& level, uint8_t (&codes)[256]) noexcept {
  constexpr uint32_t kN = 256 / kSubs;
  for (uint32_t i = 0; i < 256; ++i) {
    const float scale = level.d * static_cast<float>(level.scales[i / kN]);
    codes[i] = static_cast<uint8_t>(scale == 0 ? Codes::kZero : Codes::index(x[i] * (1.0F / scale)));
  }
}

// 32 codes of 4 bits: byte j holds j (low nibble) and j + 16.
void store_nibbles(const uint8_t* codes, std::byte* qs) noexcept {
  for (uint32_t j = 0; j < 16; ++j) store_u8(qs + j, codes[j] | static_cast<uint32_t>(codes[j + 16]) << 4);
}

}  // namespace

void quantize_q3_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q3_K>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const auto level = fit_block<Q3Codes, 16>(v, -32, 31);
    uint8_t codes[256];  // 0..7: value + 4, so that bit 2 set means "nothing is subtracted"
    codes_of<Q3Codes>(v, level, codes);
    std::memset(block, 0, Q3_K::kBytes);
    store_u16(block + Q3_K::kD, scale_bits(level.d));
    for (uint32_t sub = 0; sub < 16; ++sub) {
      const auto packed = static_cast<uint32_t>(level.scales[sub] + 32);
      std::byte* s = block + Q3_K::kScales;
      s[sub % 8] |= static_cast<std::byte>((packed & 15U) << (4 * (sub / 8)));
      s[8 + sub % 4] |= static_cast<std::byte>((packed >> 4) << (2 * (sub / 4)));
    }
    for (uint32_t i = 0; i < 256; ++i) {
      block[Q3_K::kQs + i / 128 * 32 + i % 32] |= static_cast<std::byte>((codes[i] & 3U) << (2 * (i % 128 / 32)));
      block[Q3_K::kHmask + i % 32] |= static_cast<std::byte>((codes[i] >> 2) << (i / 32));
    }
  });
}

void quantize_q6_k(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<Q6_K>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const auto level = fit_block<Q6Codes, 16>(v, -128, 127);
    uint8_t codes[256];
    codes_of<Q6Codes>(v, level, codes);
    std::memset(block, 0, Q6_K::kBytes);
    store_u16(block + Q6_K::kD, scale_bits(level.d));
    for (uint32_t sub = 0; sub < 16; ++sub)
      store_u8(block + Q6_K::kScales + sub, static_cast<uint32_t>(level.scales[sub]));
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
      block[Q6_K::kQl + 64 * half + 32 * (quarter % 2) + l] |=
          static_cast<std::byte>((codes[i] & 15U) << (quarter / 2 * 4));
      block[Q6_K::kQh + 32 * half + l] |= static_cast<std::byte>((codes[i] >> 4) << (2 * quarter));
    }
  });
}

void quantize_iq4_nl(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<IQ4_NL>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const float d = rounded_scale(best_scale<Iq4Codes>(v, 32));
    uint8_t codes[32];
    for (uint32_t i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>(d == 0 ? Iq4Codes::kZero : Iq4Codes::index(v[i] * (1.0F / d)));
    }
    store_u16(block + IQ4_NL::kD, scale_bits(d));
    store_nibbles(codes, block + IQ4_NL::kQs);
  });
}

void quantize_iq4_xs(const float* x, std::byte* blocks, uint64_t n_elems) noexcept {
  make_each_block<IQ4_XS>(x, blocks, n_elems, [](const float* v, std::byte* block) {
    const auto level = fit_block<Iq4Codes, 8>(v, -32, 31);
    uint8_t codes[256];
    codes_of<Iq4Codes>(v, level, codes);
    store_u16(block + IQ4_XS::kD, scale_bits(level.d));
    uint32_t high = 0;
    uint32_t low[4] = {};
    for (uint32_t sub = 0; sub < 8; ++sub) {
      const auto packed = static_cast<uint32_t>(level.scales[sub] + 32);
      high |= (packed >> 4) << (2 * sub);
      low[sub / 2] |= (packed & 15U) << (4 * (sub % 2));
      store_nibbles(codes + 32 * sub, block + IQ4_XS::kQs + 16 * sub);
    }
    store_u16(block + IQ4_XS::kScalesH, static_cast<uint16_t>(high));
    for (uint32_t j = 0; j < 4; ++j) store_u8(block + IQ4_XS::kScalesL + j, low[j]);
  });
}

}  // namespace outrider::numerics::internal

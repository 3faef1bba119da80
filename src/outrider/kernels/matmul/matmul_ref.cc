// SPDX-License-Identifier: Apache-2.0
// The scalar specification of the integer products: matmul_law.h, line by line.
#include <cmath>
#include <cstdint>

#include "outrider/kernels/matmul/matmul_law.h"
#include "outrider/kernels/matmul/matmul_variants.h"
#include "outrider/numerics/blocks.h"

namespace outrider::kernels {
namespace {

namespace nm = numerics;

// The activations of one block.
struct Act {
  const int8_t* q;
  int32_t sum32;
  const int16_t* sum16;
};

// What one block of weights contributes.
struct Unit {
  int32_t isum;
  float d;
  int32_t msum = 0;
  float dm = 0;
};

// Sum over i in [begin, end) of code(i) * q[i].
template <typename Code>
int32_t dot(const int8_t* q, uint32_t begin, uint32_t end, Code code) noexcept {
  int32_t sum = 0;
  for (uint32_t i = begin; i < end; ++i) sum += static_cast<int32_t>(code(i)) * q[i];
  return sum;
}

// The nibble of element i in the 32-element formats: low nibbles first.
uint32_t nibble(const std::byte* qs, uint32_t i) noexcept { return (nm::load_u8(qs + i % 16) >> (i / 16 * 4)) & 15U; }

uint32_t bit(const std::byte* qh, uint32_t i) noexcept { return (nm::load_u32(qh) >> i) & 1U; }

struct UnitQ4_0 : nm::Q4_0 {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return static_cast<int32_t>(nibble(p + kQs, i)) - 8; };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD)};
  }
};

struct UnitQ4_1 : nm::Q4_1 {
  static constexpr bool kHasMin = true;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return nibble(p + kQs, i); };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD), a.sum32, nm::load_f16(p + kM)};
  }
};

struct UnitQ5_0 : nm::Q5_0 {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return static_cast<int32_t>(nibble(p + kQs, i) | bit(p + kQh, i) << 4) - 16; };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD)};
  }
};

struct UnitQ5_1 : nm::Q5_1 {
  static constexpr bool kHasMin = true;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return nibble(p + kQs, i) | bit(p + kQh, i) << 4; };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD), a.sum32, nm::load_f16(p + kM)};
  }
};

struct UnitQ8_0 : nm::Q8_0 {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return nm::load_i8(p + kQs + i); };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD)};
  }
};

struct UnitIq4Nl : nm::IQ4_NL {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return nm::kIq4Values[nibble(p + kQs, i)]; };
    return {dot(a.q, 0, 32, code), nm::load_f16(p + kD)};
  }
};

struct UnitMxfp4 : nm::MXFP4 {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t, const Act& a) noexcept {
    const auto code = [p](uint32_t i) { return nm::kFp4Values[nibble(p + kQs, i)]; };
    return {dot(a.q, 0, 32, code), nm::e8m0_half(nm::load_u8(p + kE))};
  }
};

struct UnitQ2K : nm::Q2_K {
  static constexpr bool kHasMin = true;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const std::byte* qs = p + kQs + 32 * (sub / 4);
    const auto code = [qs, sub](uint32_t i) { return (nm::load_u8(qs + i) >> (2 * (sub % 4))) & 3U; };
    const uint32_t s0 = nm::load_u8(p + kScales + 2 * sub);
    const uint32_t s1 = nm::load_u8(p + kScales + 2 * sub + 1);
    const auto low = [](uint32_t s) { return static_cast<int32_t>(s & 15U); };
    const auto high = [](uint32_t s) { return static_cast<int32_t>(s >> 4); };
    return {low(s0) * dot(a.q, 0, 16, code) + low(s1) * dot(a.q, 16, 32, code), nm::load_f16(p + kD),
            high(s0) * a.sum16[0] + high(s1) * a.sum16[1], -nm::load_f16(p + kDmin)};
  }
};

struct UnitQ3K : nm::Q3_K {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const std::byte* qs = p + kQs + 32 * (sub / 4);
    const auto code = [p, qs, sub](uint32_t i) {
      const uint32_t low = (nm::load_u8(qs + i) >> (2 * (sub % 4))) & 3U;
      const uint32_t high = (nm::load_u8(p + kHmask + i) >> sub) & 1U;
      return static_cast<int32_t>(low | high << 2) - 4;
    };
    return {nm::q3_k_scale(p + kScales, 2 * sub) * dot(a.q, 0, 16, code) +
                nm::q3_k_scale(p + kScales, 2 * sub + 1) * dot(a.q, 16, 32, code),
            nm::load_f16(p + kD)};
  }
};

struct UnitQ4K : nm::Q4_K {
  static constexpr bool kHasMin = true;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const std::byte* qs = p + kQs + 32 * (sub / 2);
    const auto code = [qs, sub](uint32_t i) { return (nm::load_u8(qs + i) >> (4 * (sub % 2))) & 15U; };
    const nm::ScaleMin s = nm::k4_scale_min(p + kScales, sub);
    return {s.scale * dot(a.q, 0, 32, code), nm::load_f16(p + kD), s.min * a.sum32, -nm::load_f16(p + kDmin)};
  }
};

struct UnitQ5K : nm::Q5_K {
  static constexpr bool kHasMin = true;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const std::byte* qs = p + kQs + 32 * (sub / 2);
    const auto code = [p, qs, sub](uint32_t i) {
      const uint32_t low = (nm::load_u8(qs + i) >> (4 * (sub % 2))) & 15U;
      return low | ((nm::load_u8(p + kQh + i) >> sub) & 1U) << 4;
    };
    const nm::ScaleMin s = nm::k4_scale_min(p + kScales, sub);
    return {s.scale * dot(a.q, 0, 32, code), nm::load_f16(p + kD), s.min * a.sum32, -nm::load_f16(p + kDmin)};
  }
};

struct UnitQ6K : nm::Q6_K {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const uint32_t half = sub / 4;
    const uint32_t quarter = sub % 4;
    const std::byte* ql = p + kQl + 64 * half + 32 * (quarter % 2);
    const std::byte* qh = p + kQh + 32 * half;
    const auto code = [ql, qh, quarter](uint32_t i) {
      const uint32_t low = (nm::load_u8(ql + i) >> (4 * (quarter / 2))) & 15U;
      const uint32_t high = (nm::load_u8(qh + i) >> (2 * quarter)) & 3U;
      return static_cast<int32_t>(low | high << 4) - 32;
    };
    return {nm::load_i8(p + kScales + 2 * sub) * dot(a.q, 0, 16, code) +
                nm::load_i8(p + kScales + 2 * sub + 1) * dot(a.q, 16, 32, code),
            nm::load_f16(p + kD)};
  }
};

struct UnitIq4Xs : nm::IQ4_XS {
  static constexpr bool kHasMin = false;
  static Unit unit(const std::byte* p, uint32_t sub, const Act& a) noexcept {
    const auto code = [p, sub](uint32_t i) { return nm::kIq4Values[nibble(p + kQs + 16 * sub, i)]; };
    return {nm::iq4_xs_scale(p, sub) * dot(a.q, 0, 32, code), nm::load_f16(p + kD)};
  }
};

float fold(const float (&acc)[kBlockLanes]) noexcept {
  const float a0 = acc[0] + acc[4];
  const float a1 = acc[1] + acc[5];
  const float a2 = acc[2] + acc[6];
  const float a3 = acc[3] + acc[7];
  return (a0 + a2) + (a1 + a3);
}

template <typename Format>
float dot_row(const std::byte* row, const numerics::Activations& x, uint64_t token) noexcept {
  constexpr uint32_t kSubs = Format::kElems / kProductBlock;
  const uint32_t n_blocks = x.k / kProductBlock;
  float acc[kBlockLanes] = {};
  for (uint32_t b = 0; b < n_blocks; ++b) {
    const uint64_t block = token * n_blocks + b;
    const Act act = {x.q + block * kProductBlock, x.sum32[block], x.sum16 + 2 * block};
    const Unit unit = Format::unit(row + static_cast<uint64_t>(b / kSubs) * Format::kBytes, b % kSubs, act);
    float& lane = acc[b % kBlockLanes];
    lane = std::fma(static_cast<float>(unit.isum), unit.d * x.d[block], lane);
    if constexpr (Format::kHasMin) lane = std::fma(static_cast<float>(unit.msum), unit.dm * x.d[block], lane);
  }
  return fold(acc);
}

template <typename Format>
void run(const MatmulArgs& args) noexcept {
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const std::byte* row = args.weights.data + r * args.weights.row_bytes;
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      const uint64_t token = args.token_rows != nullptr ? args.token_rows[i] : i;
      args.out[i * args.out_stride + r] = dot_row<Format>(row, args.x, token);
    }
  }
}

}  // namespace

void matmul_q4_0_ref(const MatmulArgs& args) noexcept { run<UnitQ4_0>(args); }
void matmul_q4_1_ref(const MatmulArgs& args) noexcept { run<UnitQ4_1>(args); }
void matmul_q5_0_ref(const MatmulArgs& args) noexcept { run<UnitQ5_0>(args); }
void matmul_q5_1_ref(const MatmulArgs& args) noexcept { run<UnitQ5_1>(args); }
void matmul_q8_0_ref(const MatmulArgs& args) noexcept { run<UnitQ8_0>(args); }
void matmul_q2_k_ref(const MatmulArgs& args) noexcept { run<UnitQ2K>(args); }
void matmul_q3_k_ref(const MatmulArgs& args) noexcept { run<UnitQ3K>(args); }
void matmul_q4_k_ref(const MatmulArgs& args) noexcept { run<UnitQ4K>(args); }
void matmul_q5_k_ref(const MatmulArgs& args) noexcept { run<UnitQ5K>(args); }
void matmul_q6_k_ref(const MatmulArgs& args) noexcept { run<UnitQ6K>(args); }
void matmul_iq4_nl_ref(const MatmulArgs& args) noexcept { run<UnitIq4Nl>(args); }
void matmul_iq4_xs_ref(const MatmulArgs& args) noexcept { run<UnitIq4Xs>(args); }
void matmul_mxfp4_ref(const MatmulArgs& args) noexcept { run<UnitMxfp4>(args); }

}  // namespace outrider::kernels

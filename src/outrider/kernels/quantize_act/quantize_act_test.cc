// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/quantize_act/quantize_act.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/kernels/quantize_act/quantize_act_variants.h"

namespace outrider::kernels {
namespace {

struct Row {
  explicit Row(uint32_t k) : q(k, 99), d(k / 32, -1), sum32(k / 32, 77), sum16(k / 16, 55) {}
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
};

Row quantize(QuantizeActFn fn, const float* x, uint32_t k) {
  Row row(k);
  fn(x, k, row.q.data(), row.d.data(), row.sum32.data(), row.sum16.data());
  return row;
}

// Rows of every kind: normal numbers of several magnitudes, exact ties, zeros, subnormals, NaN and infinity.
std::vector<float> random_row(Random& rng, uint32_t k) {
  std::vector<float> x(k);
  for (uint32_t b = 0; b < k / 32; ++b) {
    const uint64_t kind = rng.below(10);
    const float magnitude = std::ldexp(1.0F, static_cast<int>(rng.below(250)) - 125);
    for (uint32_t i = 32 * b; i < 32 * b + 32; ++i) {
      switch (kind) {
        case 0:
          x[i] = 0.0F;
          break;
        case 1:
          x[i] = std::bit_cast<float>(static_cast<uint32_t>(rng.next_u64() & 0x807FFFFFU));
          break;
        case 2:
          x[i] = static_cast<float>(static_cast<int>(rng.below(509)) - 254) * 0.5F;
          break;  // ties when amax is 127
        case 3:
          x[i] = static_cast<float>(rng.normal());
          break;
        default:
          x[i] = static_cast<float>(rng.normal()) * magnitude;
          break;
      }
    }
    if (kind == 2) x[32 * b + rng.below(32)] = rng.below(2) != 0 ? 127.0F : -127.0F;
    if (kind == 9) {
      const float faults[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), std::bit_cast<float>(0xFFC01234U)};
      x[32 * b + rng.below(32)] = faults[rng.below(4)];
    }
  }
  return x;
}

TEST(QuantizeAct, EveryVariantHasTheBitsOfTheReference) {
  TestRng rng(41);
  for (const QuantizeActVariant& variant : quantize_act_variants()) {
    if (!isa_supported(variant.needs)) GTEST_SKIP() << "no " << isa_name(variant.needs);
    for (const uint32_t k : {0U, 32U, 64U, 96U, 256U, 2048U, 7168U}) {
      for (const uint32_t offset : {0U, 1U, 3U}) {
        const std::vector<float> x = random_row(rng, k + 32);
        const Row want = quantize(quantize_act_ref, x.data() + offset, k);
        const Row got = quantize(variant.fn, x.data() + offset, k);
        EXPECT_EQ(want.q, got.q) << isa_name(variant.needs) << " k " << k;
        EXPECT_EQ(want.sum32, got.sum32);
        EXPECT_EQ(want.sum16, got.sum16);
        EXPECT_TRUE(k == 0 || std::memcmp(want.d.data(), got.d.data(), want.d.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST(QuantizeAct, ReferenceFollowsTheFormula) {
  TestRng rng(42);
  const uint32_t k = 32 * 400;
  const std::vector<float> x = random_row(rng, k);
  const Row row = quantize(quantize_act_ref, x.data(), k);
  for (uint32_t b = 0; b < k / 32; ++b) {
    float amax = 0;
    bool is_finite = true;
    for (uint32_t i = 32 * b; i < 32 * b + 32; ++i) {
      is_finite = is_finite && std::isfinite(x[i]);
      amax = std::max(amax, std::fabs(x[i]));
    }
    int32_t sums[2] = {0, 0};
    const bool is_zero = !is_finite || amax < std::ldexp(1.0F, -121);
    for (uint32_t i = 32 * b; i < 32 * b + 32; ++i) {
      const int want = is_zero ? 0 : static_cast<int>(std::nearbyint(x[i] * (127.0F / amax)));
      EXPECT_EQ(row.q[i], want);
      sums[(i % 32) / 16] += row.q[i];
    }
    EXPECT_EQ(row.sum16[2 * b], sums[0]);
    EXPECT_EQ(row.sum16[2 * b + 1], sums[1]);
    EXPECT_EQ(row.sum32[b], sums[0] + sums[1]);
    if (!is_finite) {
      EXPECT_TRUE(std::isnan(row.d[b]));
    } else {
      EXPECT_EQ(row.d[b], is_zero ? 0.0F : amax / 127.0F);
    }
  }
}

TEST(QuantizeAct, ExtremesStayWithin127) {
  TestRng rng(43);
  std::vector<float> x(32);
  for (int round = 0; round < 20000; ++round) {
    const float amax = std::bit_cast<float>(0x03000000U + static_cast<uint32_t>(rng.below(0x7C800000U)));
    x.assign(32, amax);
    x[1] = -amax;
    const Row row = quantize(quantize_act_ref, x.data(), 32);
    ASSERT_EQ(row.q[0], 127) << amax;
    ASSERT_EQ(row.q[1], -127) << amax;
    ASSERT_EQ(row.sum32[0], 30 * 127);
  }
}

TEST(QuantizeAct, ForcedIsaIsTheOneChosen) {
  for (const QuantizeActVariant& variant : quantize_act_variants()) {
    EXPECT_EQ(choose_quantize_act(variant.needs), variant.fn);
  }
  EXPECT_EQ(choose_quantize_act(Isa::kScalar), &quantize_act_ref);
  EXPECT_NE(choose_quantize_act(best_isa()), nullptr);
}

}  // namespace
}  // namespace outrider::kernels

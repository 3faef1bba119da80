// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/kernels/elementwise/elementwise_variants.h"
#include "outrider/kernels/functions/functions_ref-inl.h"
#include "outrider/kernels/isa_test.h"

namespace outrider::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kLengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 509, 1408, 2880};

// Ordinary activations, any bit pattern at all, and the special values.
std::vector<float> mixed(Random& rng, uint64_t n) {
  constexpr float kSpecial[] = {0.0F,    -0.0F,   kInf,    -kInf,  kNan,  88.7F, 88.73F,
                                -88.73F, -104.0F, -103.9F, 1e-40F, 3e38F, -3e38F};
  std::vector<float> x(n);
  for (float& v : x) {
    switch (rng.below(8)) {
      case 0:
        v = std::bit_cast<float>(static_cast<uint32_t>(rng.next_u64()));
        break;
      case 1:
        v = kSpecial[rng.below(std::size(kSpecial))];
        break;
      case 2:
        v = rng.uniform(-110, 110);
        break;
      default:
        v = static_cast<float>(rng.normal() * 4);
        break;
    }
  }
  return x;
}

class Elementwise : public IsaTest {
 protected:
  // Calls op(fns, x, y, out) with the reference and the variant for every length and some misalignments.
  template <typename Op>
  void compare(uint64_t salt, Op op) {
    TestRng rng(salt);
    for (const uint64_t n : kLengths) {
      for (const uint64_t offset : {0, 1, 3}) {
        const std::vector<float> x = mixed(rng, n + offset);
        const std::vector<float> y = mixed(rng, n + offset);
        std::vector<float> want = mixed(rng, n + offset + 1);
        std::vector<float> got = want;
        op(kElementwiseRef, x.data() + offset, y.data() + offset, want.data() + offset, n);
        op(choose_elementwise(GetParam()), x.data() + offset, y.data() + offset, got.data() + offset, n);
        EXPECT_TRUE(same_bits(want, got)) << "n " << n << " offset " << offset;
      }
    }
  }
};

TEST_P(Elementwise, SwigluHasTheBitsOfTheReference) {
  compare(121, [](const ElementwiseFns& fns, const float* x, const float* y, float* out, uint64_t n) {
    fns.swiglu(x, y, out, n);
    fns.swiglu(out, y, out, n);  // in place over gate
    fns.swiglu(x, out, out, n);  // in place over up
  });
}

TEST_P(Elementwise, SiluHasTheBitsOfTheReference) {
  compare(122,
          [](const ElementwiseFns& fns, const float* x, const float*, float* out, uint64_t n) { fns.silu(x, out, n); });
}

TEST_P(Elementwise, AddHasTheBitsOfTheReference) {
  compare(123,
          [](const ElementwiseFns& fns, const float* x, const float*, float* out, uint64_t n) { fns.add(out, x, n); });
}

TEST_P(Elementwise, AddScaledHasTheBitsOfTheReference) {
  compare(124, [](const ElementwiseFns& fns, const float* x, const float*, float* out, uint64_t n) {
    fns.add_scaled(out, x, 0.3183F, n);
  });
}

TEST_P(Elementwise, SwigluClampedHasTheBitsOfTheReference) {
  compare(125, [](const ElementwiseFns& fns, const float* x, const float* y, float* out, uint64_t n) {
    fns.swiglu_clamped(x, y, 1.702F, 7.0F, out, n);
  });
}

TEST_P(Elementwise, AllFiniteSeesAFaultAtEveryPlace) {
  const ElementwiseFns& fns = choose_elementwise(GetParam());
  for (const uint64_t n : {1, 31, 70}) {
    std::vector<float> x(n + 1, std::numeric_limits<float>::max());
    x[n] = kNan;  // past the end
    EXPECT_TRUE(fns.all_finite(x.data(), n));
    for (uint64_t i = 0; i < n; ++i) {
      for (const float fault : {kNan, kInf, -kInf}) {
        std::vector<float> bad = x;
        bad[i] = fault;
        EXPECT_FALSE(fns.all_finite(bad.data(), n)) << i << " of " << n;
      }
    }
  }
  EXPECT_TRUE(fns.all_finite(nullptr, 0));
}

INSTANTIATE_TEST_SUITE_P(Isas, Elementwise, ::testing::ValuesIn(kAllIsas), isa_test_name);

// |got - want| in units of the last place of want.
double ulps(double want, float got) {
  const double magnitude = std::fabs(want);
  if (std::isinf(got) && magnitude >= 0x1.ffffffp+127) return 0;  // rounds to infinity
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const double ulp = magnitude < 0x1p-126 ? 0x1p-149 : std::ldexp(1.0, exponent - 24);
  return std::fabs(got - want) / ulp;
}

TEST(Functions, ErrorBoundsHold) {
  double worst[4] = {};
  for (uint64_t bits = 0; bits < (1ULL << 32); bits += 2003) {  // prime: about 2.1 million values of every exponent
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(std::fabs(x) < 200)) continue;
    const double d = x;
    const double sigmoid = 1 / (1 + std::exp(-d));
    worst[0] = std::max(worst[0], ulps(std::exp(d), exp_f32(x)));
    worst[3] = std::max(worst[3], ulps(std::max(d, 0.0) + std::log1p(std::exp(-std::fabs(d))), softplus_f32(x)));
    if (x >= kSigmoidLow) {
      worst[1] = std::max(worst[1], ulps(sigmoid, sigmoid_f32(x)));
      worst[2] = std::max(worst[2], ulps(d * sigmoid, silu_ref(x)));
    } else {
      ASSERT_LE(std::fabs(sigmoid_f32(x) - sigmoid), 0x1p-125) << x;
      ASSERT_LE(std::fabs(silu_ref(x) - d * sigmoid), 0x1p-118) << x;
    }
  }
  EXPECT_LE(worst[0], kExpMaxUlp);
  EXPECT_LE(worst[1], kSigmoidMaxUlp);
  EXPECT_LE(worst[2], kSiluMaxUlp);
  EXPECT_LE(worst[3], kSoftplusMaxUlp);
  // The bounds are the measured ones, not generous ones.
  EXPECT_GE(worst[0], kExpMaxUlp * 0.9);
  EXPECT_GE(worst[3], kSoftplusMaxUlp * 0.75);
}

TEST(Functions, EndsAndSpecialValues) {
  EXPECT_EQ(exp_f32(0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-kInf), 0.0F);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(kNan)));
  EXPECT_EQ(exp_f32(88.73F), kInf);
  EXPECT_LT(exp_f32(88.72F), kInf);
  EXPECT_EQ(exp_f32(-103.0F), 0x1p-149F);
  EXPECT_EQ(exp_f32(-104.0F), 0.0F);
  EXPECT_EQ(sigmoid_f32(0.0F), 0.5F);
  EXPECT_EQ(sigmoid_f32(-kInf), 0.0F);
  EXPECT_EQ(sigmoid_f32(kInf), 1.0F);
  EXPECT_TRUE(std::isnan(sigmoid_f32(kNan)));
  EXPECT_EQ(softplus_f32(kInf), kInf);
  EXPECT_EQ(softplus_f32(-kInf), 0.0F);
  EXPECT_TRUE(std::isnan(softplus_f32(kNan)));
}

TEST(Functions, ClampedSwigluOfTheSpecification) {  // ../shared/spec/architectures-core.md section 12
  const float gate[] = {20, -20, 1};
  const float up[] = {0, -20, -1};
  float out[3];
  kElementwiseRef.swiglu_clamped(gate, up, 1.702F, 7.0F, out, 3);
  EXPECT_NEAR(out[0], 7 / (1 + std::exp(-1.702 * 7)), 7 * 6 * kUnit);
  EXPECT_NEAR(out[1], 1.98e-13, 0.02e-13);
  EXPECT_EQ(out[2], 0.0F);
}

TEST(Argmax, LowestIndexOnTiesAndNanNeverWins) {
  const float ties[] = {1, 3, 3, 2};
  EXPECT_EQ(argmax(ties, 4), 1U);
  const float nans[] = {kNan, -kInf, kNan, -5, kNan};
  EXPECT_EQ(argmax(nans, 5), 3U);
  const float all_nan[] = {kNan, kNan};
  EXPECT_EQ(argmax(all_nan, 2), 2U);
  const float low[] = {kNan, -kInf};
  EXPECT_EQ(argmax(low, 2), 1U);
  EXPECT_EQ(argmax(nullptr, 0), 0U);
}

TEST(ElementwiseVariants, ForcedIsaIsTheOneChosen) {
  for (const ElementwiseVariant& variant : elementwise_variants())
    EXPECT_EQ(&choose_elementwise(variant.needs), variant.fns);
  EXPECT_EQ(&choose_elementwise(Isa::kScalar), &kElementwiseRef);
}

}  // namespace
}  // namespace outrider::kernels

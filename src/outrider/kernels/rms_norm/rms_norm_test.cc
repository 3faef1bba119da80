// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/kernels/isa_test.h"
#include "outrider/kernels/rms_norm/rms_norm_variants.h"

namespace outrider::kernels {
namespace {

std::vector<float> normals(Random& rng, uint64_t n, double magnitude = 1) {
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.normal() * magnitude);
  return x;
}

class RmsNorm : public IsaTest {};

TEST_P(RmsNorm, HasTheBitsOfTheReference) {
  TestRng rng(101);
  const RmsNormFn fn = choose_rms_norm(GetParam());
  for (const uint32_t n : {1U, 7U, 15U, 16U, 31U, 32U, 33U, 63U, 65U, 97U, 128U, 509U, 2048U, 2880U, 7168U}) {
    for (const uint32_t offset : {0U, 1U, 5U}) {
      const std::vector<float> x = normals(rng, n + offset, 3);
      const std::vector<float> w = normals(rng, n + offset);
      std::vector<float> want(n + 1, 77), got(n + 1, 77);
      rms_norm_ref(x.data() + offset, w.data() + offset, 1e-5F, n, want.data());
      fn(x.data() + offset, w.data() + offset, 1e-5F, n, got.data());
      EXPECT_TRUE(same_bits(want, got)) << "n " << n << " offset " << offset;
      rms_norm_ref(x.data() + offset, nullptr, 1e-6F, n, want.data());
      std::copy_n(x.data() + offset, n, got.data());
      fn(got.data(), nullptr, 1e-6F, n, got.data());  // in place
      EXPECT_TRUE(same_bits(want, got)) << "n " << n << " in place";
    }
  }
}

TEST_P(RmsNorm, NanReachesEveryElement) {
  std::vector<float> x(100, 1.0F), y(100);
  x[37] = std::nanf("");
  choose_rms_norm(GetParam())(x.data(), nullptr, 1e-5F, 100, y.data());
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

INSTANTIATE_TEST_SUITE_P(Isas, RmsNorm, ::testing::ValuesIn(kAllIsas), isa_test_name);

// Each lane rounds n/32 times, the folds 5 times; then division and + eps; the root halves that and rounds; 1/s and the
// two products round.
TEST(RmsNormReference, LiesWithinTheDerivedBoundOfDoubleMath) {
  TestRng rng(102);
  for (const uint32_t n : {1U, 31U, 509U, 7168U}) {
    const std::vector<float> x = normals(rng, n, 20);
    const std::vector<float> w = normals(rng, n);
    std::vector<float> y(n);
    rms_norm_ref(x.data(), w.data(), 1e-5F, n, y.data());
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double r = 1 / std::sqrt(squares / n + static_cast<double>(1e-5F));
    const double relative = ((n / 32 + 1 + 5 + 2) / 2.0 + 4) * kUnit * 1.001;
    for (uint32_t i = 0; i < n; ++i) {
      const double want = w[i] * (x[i] * r);
      EXPECT_LE(std::fabs(y[i] - want), relative * std::fabs(want)) << "n " << n << " index " << i << " want " << want;
    }
  }
}

TEST(RmsNormReference, ZerosStayZeros) {
  std::vector<float> x(64, 0.0F);
  rms_norm_ref(x.data(), nullptr, 1e-6F, 64, x.data());
  for (const float v : x) EXPECT_EQ(v, 0.0F);
}

TEST(RmsNormVariants, ForcedIsaIsTheOneChosen) {
  for (const RmsNormVariant& variant : rms_norm_variants()) EXPECT_EQ(choose_rms_norm(variant.needs), variant.fn);
  EXPECT_EQ(choose_rms_norm(Isa::kScalar), &rms_norm_ref);
}

}  // namespace
}  // namespace outrider::kernels

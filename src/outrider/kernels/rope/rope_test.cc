// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/kernels/isa_test.h"
#include "outrider/kernels/rope/rope_variants.h"

namespace outrider::kernels {
namespace {

struct Case {
  Case(Random& rng, uint32_t n_rot, uint32_t n_more) : x(n_rot + n_more), cos_sin(n_rot), angle(n_rot / 2) {
    for (float& v : x) v = static_cast<float>(rng.normal());
    for (uint32_t i = 0; i < n_rot / 2; ++i) {
      angle[i] = rng.uniform() * 1000;
      cos_sin[2 * i] = static_cast<float>(std::cos(angle[i]));
      cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle[i]));
    }
  }
  std::vector<float> x, cos_sin;
  std::vector<double> angle;
};

class Rope : public IsaTest {};

TEST_P(Rope, HasTheBitsOfTheReference) {
  TestRng rng(111);
  const RopeFn fn = choose_rope(GetParam());
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
    for (const uint32_t n_rot : {0U, 2U, 6U, 8U, 14U, 16U, 18U, 30U, 32U, 34U, 62U, 64U, 66U, 96U, 128U, 256U}) {
      for (const uint32_t offset : {0U, 1U, 3U}) {
        const Case c(rng, n_rot, 19 + offset);
        std::vector<float> want = c.x;
        std::vector<float> got = c.x;
        rope_ref(want.data() + offset, c.cos_sin.data(), n_rot, pairing);
        fn(got.data() + offset, c.cos_sin.data(), n_rot, pairing);
        EXPECT_TRUE(same_bits(want, got)) << "n_rot " << n_rot << " offset " << offset;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Rope, ::testing::ValuesIn(kAllIsas), isa_test_name);

// Cosine and sine are rounded once, b s once, the fma once: 3 roundings of no more than |a c| + |b s|.
TEST(RopeReference, RotatesThePairsThatThePairingNames) {
  TestRng rng(112);
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
    const uint32_t n_rot = 64;
    const Case c(rng, n_rot, 16);
    std::vector<float> y = c.x;
    rope_ref(y.data(), c.cos_sin.data(), n_rot, pairing);
    for (uint32_t i = 0; i < n_rot / 2; ++i) {
      const uint32_t first = pairing == RopePairing::kInterleaved ? 2 * i : i;
      const uint32_t second = pairing == RopePairing::kInterleaved ? 2 * i + 1 : i + n_rot / 2;
      const double a = c.x[first], b = c.x[second], cosine = std::cos(c.angle[i]), sine = std::sin(c.angle[i]);
      const double bound = 3.001 * kUnit * (std::fabs(a) + std::fabs(b));
      EXPECT_NEAR(y[first], a * cosine - b * sine, bound) << i;
      EXPECT_NEAR(y[second], a * sine + b * cosine, bound) << i;
    }
    for (uint32_t i = n_rot; i < n_rot + 16; ++i) EXPECT_EQ(y[i], c.x[i]);
  }
}

TEST(RopeVariants, ForcedIsaIsTheOneChosen) {
  for (const RopeVariant& variant : rope_variants()) EXPECT_EQ(choose_rope(variant.needs), variant.fn);
  EXPECT_EQ(choose_rope(Isa::kScalar), &rope_ref);
}

}  // namespace
}  // namespace outrider::kernels

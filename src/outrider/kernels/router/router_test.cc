// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/router/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/kernels/isa_test.h"
#include "outrider/kernels/router/router_variants.h"

namespace outrider::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  bool is_number = false;
  std::vector<uint32_t> ids;
  std::vector<float> weights;
};

// Of the reference; every variant that the processor has must give the same bits.
Routed run(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
  Routed want;
  for (const RouteVariant& variant : route_variants()) {
    if (!isa_supported(variant.needs)) continue;
    Routed r{false, std::vector<uint32_t>(spec.n_used, 99999), std::vector<float>(spec.n_used, -1)};
    std::vector<float> scratch(3 * spec.n_experts);
    r.is_number = variant.fn(spec, logits.data(), bias.empty() ? nullptr : bias.data(), scratch.data(), r.ids.data(),
                             r.weights.data());
    if (variant.needs == Isa::kScalar) want = r;
    EXPECT_EQ(want.is_number, r.is_number) << isa_name(variant.needs);
    EXPECT_EQ(want.ids, r.ids) << isa_name(variant.needs);
    EXPECT_TRUE(same_bits(want.weights, r.weights)) << isa_name(variant.needs);
  }
  return want;
}

std::vector<double> scores_in_double(RouterScore score, const std::vector<float>& logits) {
  std::vector<double> s(logits.begin(), logits.end());
  double sum = 0;
  for (double& v : s) {
    if (score == RouterScore::kSoftmax) sum += (v = std::exp(v));
    if (score == RouterScore::kSigmoid) v = 1 / (1 + std::exp(-v));
    if (score == RouterScore::kSqrtSoftplus) v = std::sqrt(std::log1p(std::exp(v)));
  }
  if (score == RouterScore::kSoftmax) {
    for (double& v : s) v /= sum;
  }
  return s;
}

// What the specification says, in double, by a plain stable sort.
Routed plain(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias,
             std::vector<double>* weights) {
  const std::vector<double> scores = scores_in_double(spec.score, logits);
  std::vector<double> selection = scores;
  for (size_t e = 0; e < bias.size(); ++e) selection[e] += bias[e];
  if (spec.n_groups > 1) {
    const uint32_t size = spec.n_experts / spec.n_groups;
    std::vector<double> value(spec.n_groups);
    std::vector<uint32_t> order(spec.n_groups);
    std::iota(order.begin(), order.end(), 0U);
    for (uint32_t g = 0; g < spec.n_groups; ++g) {
      std::vector<double> sorted(selection.begin() + g * size, selection.begin() + (g + 1) * size);
      std::sort(sorted.rbegin(), sorted.rend());
      value[g] = sorted[0] + sorted[1];
    }
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return value[a] > value[b]; });
    for (uint32_t i = spec.n_groups_used; i < spec.n_groups; ++i) {
      std::fill_n(selection.begin() + order[i] * size, size, -HUGE_VAL);
    }
  }
  Routed r;
  r.ids.resize(spec.n_experts);
  std::iota(r.ids.begin(), r.ids.end(), 0U);
  std::stable_sort(r.ids.begin(), r.ids.end(), [&](uint32_t a, uint32_t b) { return selection[a] > selection[b]; });
  r.ids.resize(spec.n_used);
  weights->clear();
  double sum = 0;
  for (const uint32_t e : r.ids) {
    weights->push_back(spec.score == RouterScore::kSoftmaxOfChosen ? std::exp(scores[e]) : scores[e]);
    sum += weights->back();
  }
  for (double& w : *weights) {
    if (spec.score == RouterScore::kSoftmaxOfChosen) w /= sum;
    if (spec.normalize) w /= std::max(sum, 0x1p-14);
    if (spec.weight_scale != 0) w *= spec.weight_scale;
  }
  return r;
}

// Logits are multiples of 1/64 from a small range and well apart or equal, so that f32 and double agree on every order.
std::vector<float> grid_logits(Random& rng, uint32_t n) {
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(static_cast<int>(rng.below(257)) - 128) / 32.0F;
  return x;
}

TEST(Router, ManyExpertsFavouringTheHighestNumbersEqualAPlainSort) {  // MOE-1
  TestRng rng(131);
  for (const uint32_t n : {1U, 7U, 60U, 129U, 257U, 512U, 1025U}) {
    for (const RouterScore score :
         {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSoftmaxOfChosen, RouterScore::kSqrtSoftplus}) {
      RouterSpec spec{.score = score, .n_experts = n, .n_used = std::min(n, 8U), .normalize = rng.below(2) != 0};
      std::vector<float> logits = grid_logits(rng, n);
      for (uint32_t e = n - spec.n_used; e < n; ++e) logits[e] += 8.0F;
      std::vector<double> weights;
      const Routed want = plain(spec, logits, {}, &weights);
      const Routed got = run(spec, logits);
      ASSERT_TRUE(got.is_number);
      EXPECT_EQ(want.ids, got.ids) << "n " << n;
      EXPECT_GE(*std::min_element(got.ids.begin(), got.ids.end()), n - spec.n_used);
    }
  }
}

// A softmax weight: e_i within 1 ulp after a rounded subtraction (|l| <= 16, so 2^-20 absolute), the sum's lanes and
// folds, one division; normalising adds another sum and division. 2^-19 relative covers all with n <= 1,025.
TEST(Router, WeightsFollowTheSpecification) {
  TestRng rng(132);
  constexpr double kRelative = 0x1p-19;
  int n_near_ties = 0;
  for (int round = 0; round < 300; ++round) {
    const uint32_t n_groups = rng.below(2) != 0 ? 8U : 0U;
    RouterSpec spec;
    spec.score = static_cast<RouterScore>(rng.below(4));
    spec.n_experts = 64;
    spec.n_used = 1 + static_cast<uint32_t>(rng.below(8));
    spec.n_groups = n_groups;
    spec.n_groups_used = 3;
    spec.normalize = spec.score != RouterScore::kSoftmaxOfChosen && rng.below(2) != 0;
    spec.weight_scale = rng.below(2) != 0 ? 2.5F : 0.0F;
    const std::vector<float> logits = grid_logits(rng, spec.n_experts);
    std::vector<float> bias;
    if (rng.below(2) != 0) bias = grid_logits(rng, spec.n_experts);
    std::vector<double> weights;
    const Routed want = plain(spec, logits, bias, &weights);
    const Routed got = run(spec, logits, bias);
    ASSERT_TRUE(got.is_number);
    // Biased scores closer than an f32 rounding may be ordered differently; the exact orders are tested elsewhere.
    if (want.ids != got.ids) {
      ++n_near_ties;
      continue;
    }
    for (uint32_t i = 0; i < spec.n_used; ++i) {
      EXPECT_NEAR(got.weights[i], weights[i], kRelative * weights[i]) << "round " << round << " rank " << i;
    }
  }
  EXPECT_LE(n_near_ties, 6);
}

TEST(Router, TiesGoToTheLowerExpert) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSoftmaxOfChosen}) {
    const Routed all_equal = run({.score = score, .n_experts = 300, .n_used = 4}, std::vector<float>(300, 0.25F));
    EXPECT_EQ(all_equal.ids, (std::vector<uint32_t>{0, 1, 2, 3}));
    const Routed mixed = run({.score = score, .n_experts = 6, .n_used = 4}, {1, 2, 1, 3, 2, 1});
    EXPECT_EQ(mixed.ids, (std::vector<uint32_t>{3, 1, 4, 0}));
  }
}

TEST(Router, AllExpertsCanBeUsed) {
  const Routed got = run({.n_experts = 3, .n_used = 3}, {0, 2, 1});
  EXPECT_EQ(got.ids, (std::vector<uint32_t>{1, 2, 0}));
  const Routed one = run({.n_experts = 1, .n_used = 1, .normalize = true}, {-3});
  EXPECT_EQ(one.ids, (std::vector<uint32_t>{0}));
  EXPECT_EQ(one.weights[0], 1.0F);
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  const Routed got = run({.score = RouterScore::kSigmoid, .n_experts = 4, .n_used = 2}, {0, 0, 0, 0}, {0, 1, 0, 2});
  EXPECT_EQ(got.ids, (std::vector<uint32_t>{3, 1}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.5F, 0.5F}));
}

TEST(Router, GroupsOutsideTheBestAreNeverChosenWhileOthersRemain) {
  // Group 0 holds the single best expert, groups 1 and 2 the best pairs.
  const RouterSpec spec{
      .score = RouterScore::kSoftmaxOfChosen, .n_experts = 9, .n_used = 4, .n_groups = 3, .n_groups_used = 2};
  const Routed got = run(spec, {9, -9, -9, 5, 4, 0, 3, 6, 1});
  EXPECT_EQ(got.ids, (std::vector<uint32_t>{7, 3, 4, 6}));
}

TEST(Router, TinySumsAreClampedBeforeNormalising) {
  RouterSpec spec{.score = RouterScore::kSigmoid, .n_experts = 4, .n_used = 2, .normalize = true, .weight_scale = 2};
  const Routed got = run(spec, {-20, -20, -20, -20});
  const double want = 2 * (1 / (1 + std::exp(20.0))) / 0x1p-14;
  EXPECT_NEAR(got.weights[0], want, want * 6 * kUnit);
}

TEST(Router, NanIsReportedAndNeverIndexesMemory) {  // MOE-3
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSoftmaxOfChosen, RouterScore::kSqrtSoftplus}) {
    for (const uint32_t at : {0U, 5U, 15U}) {
      const RouterSpec spec{
          .score = score, .n_experts = 16, .n_used = 3, .n_groups = 4, .n_groups_used = 2, .normalize = true};
      std::vector<float> logits(16, 1.0F);
      logits[at] = kNan;
      const Routed got = run(spec, logits);
      EXPECT_FALSE(got.is_number);
      EXPECT_EQ(got.ids, (std::vector<uint32_t>{0, 1, 2}));
      EXPECT_EQ(got.weights, (std::vector<float>{0, 0, 0}));
      std::vector<float> bias(16, 0.0F);
      bias[at] = kNan;
      EXPECT_FALSE(run(spec, std::vector<float>(16, 1.0F), bias).is_number);
    }
    const std::vector<float> infinite(16, std::numeric_limits<float>::infinity());
    const Routed got = run({.score = score, .n_experts = 16, .n_used = 2}, infinite);
    EXPECT_EQ(got.is_number, score == RouterScore::kSigmoid);
    EXPECT_EQ(got.ids, (std::vector<uint32_t>{0, 1}));
  }
  EXPECT_FALSE(
      run({.n_experts = 4, .n_used = 2}, std::vector<float>(4, -std::numeric_limits<float>::infinity())).is_number);
}

class RouterOnIsa : public IsaTest {};

TEST_P(RouterOnIsa, RandomLogitsHaveTheBitsOfTheReference) {
  TestRng rng(133);
  for (int round = 0; round < 200; ++round) {
    RouterSpec spec{.score = static_cast<RouterScore>(rng.below(4)),
                    .n_experts = 1 + static_cast<uint32_t>(rng.below(600))};
    spec.n_used = 1 + static_cast<uint32_t>(rng.below(std::min(spec.n_experts, 16U)));
    spec.normalize = rng.below(2) != 0;
    std::vector<float> logits(spec.n_experts);
    for (float& l : logits) l = static_cast<float>(rng.normal() * 5);
    std::vector<float> scratch(3 * spec.n_experts), want(spec.n_used), got(spec.n_used);
    std::vector<uint32_t> want_ids(spec.n_used), ids(spec.n_used);
    EXPECT_TRUE(route_ref(spec, logits.data(), nullptr, scratch.data(), want_ids.data(), want.data()));
    EXPECT_TRUE(choose_route(GetParam())(spec, logits.data(), nullptr, scratch.data(), ids.data(), got.data()));
    EXPECT_EQ(want_ids, ids);
    EXPECT_TRUE(same_bits(want, got));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RouterOnIsa, ::testing::ValuesIn(kAllIsas), isa_test_name);

TEST(RouterVariants, ForcedIsaIsTheOneChosen) {
  for (const RouteVariant& variant : route_variants()) EXPECT_EQ(choose_route(variant.needs), variant.fn);
  EXPECT_EQ(choose_route(Isa::kScalar), &route_ref);
}

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
// lfu: the expert with the smallest decayed count of uses leaves. A use counts 1 when it happens and half of that
// `half_life` tokens later. Instead of shrinking every count as tokens pass, new uses weigh 2^(tokens / half_life); all
// counts of one moment compare the same either way. Ties: the older demand, then the lowest id.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "outrider/base/error.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

// Weights are brought back by this factor before they overflow; a power of two, so that comparisons keep their result.
constexpr int kRescaleExponent = 512;

class LfuPolicy final : public Policy {
 public:
  LfuPolicy(std::span<const uint32_t> n_experts, double half_life_tokens)
      : counts_(n_experts), half_life_tokens_(half_life_tokens) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++now_;
    for (size_t i = 0; i < experts.size(); ++i) {
      Count& count = counts_.at(layer, experts[i]);
      count.weight += weight_ * uses[i];
      count.demand = now_;
    }
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    uint32_t best = 0;
    for (uint32_t i = 1; i < candidates.size(); ++i) {
      if (key(layer, candidates[i]) < key(layer, candidates[best])) best = i;
    }
    return best;
  }

  bool admit(uint32_t layer, uint32_t predicted, uint32_t victim) const noexcept override {
    return counts_.at(layer, predicted).weight >= counts_.at(layer, victim).weight;
  }

  void end_step(uint32_t n_tokens) noexcept override {
    half_lives_ += n_tokens / half_life_tokens_;
    if (half_lives_ > kRescaleExponent) {
      const double n_rescales = std::floor(half_lives_ / kRescaleExponent);
      half_lives_ -= n_rescales * kRescaleExponent;
      // Four of them turn any count into 0.
      const int exponent = kRescaleExponent * static_cast<int>(std::min(n_rescales, 4.0));
      for (Count& count : counts_.all()) count.weight = std::ldexp(count.weight, -exponent);
    }
    weight_ = std::exp2(half_lives_);
  }

 private:
  struct Count {
    double weight = 0;
    uint64_t demand = 0;  // counts observe() calls; 0 = never
  };
  std::tuple<double, uint64_t, uint32_t> key(uint32_t layer, uint32_t expert) const noexcept {
    const Count& count = counts_.at(layer, expert);
    return {count.weight, count.demand, expert};
  }

  LayerTable<Count> counts_;
  const double half_life_tokens_;
  double half_lives_ = 0;  // since the last rescale
  double weight_ = 1;      // of a use now
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_lfu_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options) {
  if (!(options.lfu_half_life_tokens >= 1)) {
    fail(ErrorKind::kBadArgument, "lfu half-life: {} tokens, wanted at least 1", options.lfu_half_life_tokens);
  }
  return std::make_unique<LfuPolicy>(n_experts, options.lfu_half_life_tokens);
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// lfu: the expert with the smallest decayed count of uses leaves. Ties: the older demand, then the lowest id.
#include <cmath>
#include <tuple>

#include "outrider/residency/decay_clock.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

class LfuPolicy final : public Policy {
 public:
  LfuPolicy(std::span<const uint32_t> n_experts, double half_life_tokens)
      : counts_(n_experts), clock_(half_life_tokens) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++now_;
    for (size_t i = 0; i < experts.size(); ++i) {
      Count& count = counts_.at(layer, experts[i]);
      count.weight += clock_.weight() * uses[i];
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
    clock_.advance(n_tokens, [this](int exponent) {
      for (Count& count : counts_.all()) count.weight = std::ldexp(count.weight, exponent);
    });
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
  DecayClock clock_;
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_lfu_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options) {
  return std::make_unique<LfuPolicy>(n_experts, options.lfu_half_life_tokens);
}

}  // namespace outrider::residency

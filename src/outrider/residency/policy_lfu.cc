// SPDX-License-Identifier: Apache-2.0
// Two policies on one decayed count of uses of an expert:
// lfu: the expert with the smallest count leaves. Ties: the older demand, then the lowest id.
// class-lru: experts fall into classes by the power of two in their count; of the lowest class, the one whose last
// demand lies furthest back leaves. Frequency decides in steps of two, recency inside a step. Ties: lowest id.
#include <cmath>
#include <tuple>

#include "outrider/residency/coldest.h"
#include "outrider/residency/decay_clock.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

class LfuPolicy : public Policy {
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
    return coldest(candidates, [&](uint32_t expert) {
      const Count& count = counts_.at(layer, expert);
      return std::tuple(count.weight, count.demand, expert);
    });
  }

  // A guess says that its expert is wanted next, which the counts cannot know: the guard judges alone.
  bool admit(uint32_t /*layer*/, uint32_t /*predicted*/, uint32_t /*victim*/) const noexcept override { return true; }

  void end_step(uint32_t n_tokens) noexcept override {
    clock_.advance(n_tokens, [this](int exponent) {
      for (Count& count : counts_.all()) count.weight = std::ldexp(count.weight, exponent);
    });
  }

 protected:
  struct Count {
    double weight = 0;
    uint64_t demand = 0;  // counts observe() calls; 0 = never
  };
  LayerTable<Count> counts_;
  DecayClock clock_;
  uint64_t now_ = 0;
};

class ClassLruPolicy final : public LfuPolicy {
 public:
  using LfuPolicy::LfuPolicy;

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    return coldest(candidates, [&](uint32_t expert) {
      return std::tuple(class_of(layer, expert), counts_.at(layer, expert).demand, expert);
    });
  }

  // One class of doubt is the prediction's.
  bool admit(uint32_t layer, uint32_t predicted, uint32_t victim) const noexcept override {
    return class_of(layer, victim) <= class_of(layer, predicted) + 1;
  }

 private:
  int class_of(uint32_t layer, uint32_t expert) const noexcept {
    return std::ilogb(1 + clock_.now(counts_.at(layer, expert).weight));
  }
};

}  // namespace

std::unique_ptr<Policy> make_lfu_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options) {
  return std::make_unique<LfuPolicy>(n_experts, options.lfu_half_life_tokens);
}

std::unique_ptr<Policy> make_class_lru_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options) {
  return std::make_unique<ClassLruPolicy>(n_experts, options.lfu_half_life_tokens);
}

}  // namespace outrider::residency

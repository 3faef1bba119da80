// SPDX-License-Identifier: Apache-2.0
// guarded: the expert with the least heat leaves, where heat is frequency plus recency: a count that halves every
// `half_life` tokens, and one that halves every few. What a prediction may push out is the guard's business, which the
// placer asks beside every policy (guard.h). Ties: the older demand, then the lowest id.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "outrider/residency/coldest.h"
#include "outrider/residency/decay_clock.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

// Chosen from traces: docs/policies.md, "The two memories of guarded".
constexpr double kRecentHalfLifeTokens = 8;
constexpr double kRecentShare = 8;  // a use weighs this much more while it is recent

class GuardedPolicy final : public Policy {
 public:
  GuardedPolicy(std::span<const uint32_t> n_experts, double half_life_tokens)
      : counts_(n_experts), lasting_(half_life_tokens), recent_(kRecentHalfLifeTokens) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++now_;
    // The tokens of the pass are not told; the most used expert has nearly as many uses.
    const uint32_t n_tokens = uses.empty() ? 0 : *std::ranges::max_element(uses);
    const double lasting = lasting_.weight_in(n_tokens), recent = recent_.weight_in(n_tokens);
    for (size_t i = 0; i < experts.size(); ++i) {
      Count& count = counts_.at(layer, experts[i]);
      count.lasting += lasting * uses[i];
      count.recent += recent * uses[i];
      count.demand = now_;
    }
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    return coldest(candidates, [&](uint32_t expert) { return key(layer, expert); });
  }

  bool admit(uint32_t /*layer*/, uint32_t /*predicted*/, uint32_t /*victim*/) const noexcept override { return true; }

  void end_step(uint32_t n_tokens) noexcept override {
    lasting_.advance(n_tokens, [this](int exponent) {
      for (Count& count : counts_.all()) count.lasting = std::ldexp(count.lasting, exponent);
    });
    recent_.advance(n_tokens, [this](int exponent) {
      for (Count& count : counts_.all()) count.recent = std::ldexp(count.recent, exponent);
    });
  }

 private:
  struct Count {
    double lasting = 0, recent = 0;
    uint64_t demand = 0;  // counts observe() calls; 0 = never
  };
  // In uses of this moment.
  double heat(const Count& count) const noexcept {
    return lasting_.now(count.lasting) + kRecentShare * recent_.now(count.recent);
  }
  std::tuple<double, uint64_t, uint32_t> key(uint32_t layer, uint32_t expert) const noexcept {
    const Count& count = counts_.at(layer, expert);
    return {heat(count), count.demand, expert};
  }

  LayerTable<Count> counts_;
  DecayClock lasting_, recent_;
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_guarded_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options) {
  return std::make_unique<GuardedPolicy>(n_experts, options.lfu_half_life_tokens);
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// lru: the expert whose last demand lies furthest back leaves. Among those of one demand, the one that fewest of its
// tokens chose: a chunk of a prompt demands most experts at once, and those it hardly used are worth least afterwards.
#include <tuple>

#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

class LruPolicy final : public Policy {
 public:
  explicit LruPolicy(std::span<const uint32_t> n_experts) : last_(n_experts) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++now_;
    for (size_t i = 0; i < experts.size(); ++i) last_.at(layer, experts[i]) = {now_, uses[i]};
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    uint32_t best = 0;
    for (uint32_t i = 1; i < candidates.size(); ++i) {
      if (key(layer, candidates[i]) < key(layer, candidates[best])) best = i;
    }
    return best;
  }

  // What is predicted is wanted next, which is more recent than any demand of the past.
  bool admit(uint32_t /*layer*/, uint32_t /*predicted*/, uint32_t /*victim*/) const noexcept override { return true; }

 private:
  struct Last {
    uint64_t demand = 0;  // counts observe() calls; 0 = never
    uint32_t uses = 0;
  };
  std::tuple<uint64_t, uint32_t, uint32_t> key(uint32_t layer, uint32_t expert) const noexcept {
    const Last& last = last_.at(layer, expert);
    return {last.demand, last.uses, expert};
  }

  LayerTable<Last> last_;
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_lru_policy(std::span<const uint32_t> n_experts, const PolicyOptions& /*options*/) {
  return std::make_unique<LruPolicy>(n_experts);
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// lru: the expert whose last demand lies furthest back leaves. Among those of one demand, the one that fewest of its
// tokens chose: a chunk of a prompt demands most experts at once, and those it hardly used are worth least afterwards.
// protect: the same, but what the predictor names for the layer's next demand leaves only when nothing else can.
#include <tuple>
#include <utility>
#include <vector>

#include "outrider/residency/coldest.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

class LruPolicy : public Policy {
 public:
  explicit LruPolicy(std::span<const uint32_t> n_experts) : last_(n_experts) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++now_;
    for (size_t i = 0; i < experts.size(); ++i) last_.at(layer, experts[i]) = {now_, uses[i]};
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    return coldest(candidates, [&](uint32_t expert) { return key(layer, expert); });
  }

  // What is predicted is wanted next, which is more recent than any demand of the past.
  bool admit(uint32_t /*layer*/, uint32_t /*predicted*/, uint32_t /*victim*/) const noexcept override { return true; }

 protected:
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

class ProtectPolicy final : public LruPolicy {
 public:
  explicit ProtectPolicy(std::span<const uint32_t> n_experts)
      : LruPolicy(n_experts), expected_at_(n_experts), round_(n_experts.size(), 1) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    ++round_[layer];
    LruPolicy::observe(layer, experts, uses);
  }

  void expect(uint32_t layer, std::span<const uint32_t> experts) noexcept override {
    ++round_[layer];
    for (const uint32_t expert : experts) expected_at_.at(layer, expert) = round_[layer];
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    return coldest(candidates,
                   [&](uint32_t expert) { return std::pair(is_expected(layer, expert), key(layer, expert)); });
  }

  bool admit(uint32_t layer, uint32_t /*predicted*/, uint32_t victim) const noexcept override {
    return !is_expected(layer, victim);
  }

 private:
  bool is_expected(uint32_t layer, uint32_t expert) const noexcept {
    return expected_at_.at(layer, expert) == round_[layer];
  }

  LayerTable<uint64_t> expected_at_;  // the round in which it was last named
  std::vector<uint64_t> round_;       // by layer: new with every demand and every naming
};

}  // namespace

std::unique_ptr<Policy> make_lru_policy(std::span<const uint32_t> n_experts, const PolicyOptions& /*options*/) {
  return std::make_unique<LruPolicy>(n_experts);
}

std::unique_ptr<Policy> make_protect_policy(std::span<const uint32_t> n_experts, const PolicyOptions& /*options*/) {
  return std::make_unique<ProtectPolicy>(n_experts);
}

}  // namespace outrider::residency

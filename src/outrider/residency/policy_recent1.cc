// SPDX-License-Identifier: Apache-2.0
// recent1: what the layer's last demand used stays; of the rest, the expert with the fewest uses since the start
// leaves. Ties: the older demand, then the lowest id. A memory of one step and one of the whole run, nothing between.
#include <tuple>
#include <vector>

#include "outrider/residency/coldest.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

class Recent1Policy final : public Policy {
 public:
  explicit Recent1Policy(std::span<const uint32_t> n_experts) : seen_(n_experts), last_demand_(n_experts.size(), 0) {}

  void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept override {
    last_demand_[layer] = ++now_;
    for (size_t i = 0; i < experts.size(); ++i) {
      Seen& seen = seen_.at(layer, experts[i]);
      seen.uses += uses[i];
      seen.demand = now_;
    }
  }

  uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept override {
    return coldest(candidates, [&](uint32_t expert) { return key(layer, expert); });
  }

  bool admit(uint32_t layer, uint32_t /*predicted*/, uint32_t victim) const noexcept override {
    return !is_recent(layer, victim);
  }

 private:
  struct Seen {
    uint64_t uses = 0;
    uint64_t demand = 0;  // counts observe() calls; 0 = never
  };
  bool is_recent(uint32_t layer, uint32_t expert) const noexcept {
    const uint64_t demand = seen_.at(layer, expert).demand;
    return demand != 0 && demand == last_demand_[layer];
  }
  std::tuple<bool, uint64_t, uint64_t, uint32_t> key(uint32_t layer, uint32_t expert) const noexcept {
    const Seen& seen = seen_.at(layer, expert);
    return {is_recent(layer, expert), seen.uses, seen.demand, expert};
  }

  LayerTable<Seen> seen_;
  std::vector<uint64_t> last_demand_;  // by layer
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_recent1_policy(std::span<const uint32_t> n_experts, const PolicyOptions& /*options*/) {
  return std::make_unique<Recent1Policy>(n_experts);
}

}  // namespace outrider::residency

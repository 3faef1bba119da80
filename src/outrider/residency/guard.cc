// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/guard.h"

#include <cmath>

namespace outrider::residency {

namespace {
constexpr uint32_t kFewDemands = 2;
constexpr double kHotterBy = 1.25;
constexpr double kHotterAnd = 4;
constexpr double kMaxHalfLives = 64;  // weights are brought back before they lose digits
}  // namespace

EvictionGuard::EvictionGuard(std::span<const uint32_t> n_experts, double half_life_tokens)
    : heat_(n_experts), half_life_tokens_(half_life_tokens) {}

void EvictionGuard::observe(uint32_t layer, std::span<const uint32_t> experts,
                            std::span<const uint32_t> uses) noexcept {
  for (size_t i = 0; i < experts.size(); ++i) {
    Heat& heat = heat_.at(layer, experts[i]);
    heat.weight += weight_ * uses[i];
    if (heat.n_demands < UINT32_MAX) ++heat.n_demands;
  }
}

void EvictionGuard::end_step(uint32_t n_tokens) noexcept {
  half_lives_ += n_tokens / half_life_tokens_;
  if (half_lives_ > kMaxHalfLives) {
    const double factor = std::exp2(-half_lives_);
    for (Heat& heat : heat_.all()) heat.weight *= factor;
    half_lives_ = 0;
  }
  weight_ = std::exp2(half_lives_);
}

bool EvictionGuard::admits(uint32_t layer, uint32_t predicted, uint32_t victim) const noexcept {
  const Heat& old = heat_.at(layer, victim);
  if (old.n_demands < kFewDemands) return true;
  return old.weight <= kHotterBy * heat_.at(layer, predicted).weight + kHotterAnd * weight_;
}

}  // namespace outrider::residency

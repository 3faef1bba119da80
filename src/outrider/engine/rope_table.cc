// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace outrider::engine {

RopeTable::RopeTable(const model::RopeSpec& spec, std::span<const float> divisors)
    : frequencies_(spec.n_rot / 2), magnitude_(spec.attn_factor) {
  const bool yarn = spec.scaling == model::RopeScaling::kYarn;
  const double interpolation = spec.scaling == model::RopeScaling::kNone ? 1 : 1 / spec.factor;
  const double n_rot = spec.n_rot;
  // The pair index that turns `rotations` times over the trained length.
  const auto bound = [&](double rotations) {
    return n_rot * std::log(spec.original_context / (2 * std::numbers::pi * rotations)) / (2 * std::log(spec.base));
  };
  const double low = yarn ? std::max(0.0, std::floor(bound(spec.beta_fast))) : 0;
  const double high = yarn ? std::min(n_rot - 1, std::ceil(bound(spec.beta_slow))) : 0;
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const double divisor = divisors.empty() ? 1 : static_cast<double>(divisors[i]);
    const double trained = std::pow(spec.base, -2.0 * static_cast<double>(i) / n_rot) / divisor;
    const double trained_share =
        yarn ? 1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0) : 0;
    frequencies_[i] = interpolation * trained * (1 - trained_share) + trained * trained_share;
  }
  if (yarn) magnitude_ *= 1 + 0.1 * std::log(spec.factor);
}

void RopeTable::fill(uint32_t position, float* cos_sin) const noexcept {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = position * frequencies_[i];
    cos_sin[2 * i] = static_cast<float>(std::cos(angle) * magnitude_);
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace outrider::engine

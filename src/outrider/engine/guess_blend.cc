// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/guess_blend.h"

#include <algorithm>
#include <cmath>

namespace outrider::engine {

namespace {

constexpr float kStep = 0.1F;
constexpr float kNewShare = 1.0F / 64;  // of the newest demand in a running mean
constexpr float kMostWeight = 1024;
constexpr float kPrior = 0.1F;     // a share of which nothing is known ...
constexpr float kPriorWeight = 2;  // ... as if so many had been seen
constexpr float kSureEnough = 0.005F;

float logit(float chance) noexcept {
  const float clamped = std::clamp(chance, kSureEnough, 1 - kSureEnough);
  return std::log(clamped / (1 - clamped));
}

}  // namespace

GuessBlend::Terms GuessBlend::terms(const BlendRanks& ranks) const noexcept {
  Terms terms = {1};
  for (uint32_t i = 0; i < kBlendVoices; ++i) {
    if (ranks[i] == kSilent) continue;
    const Share& share = shares_[i][ranks[i]];
    terms[i + 1] = logit((share.value * share.weight + kPrior * kPriorWeight) / (share.weight + kPriorWeight));
  }
  return terms;
}

float GuessBlend::chance_of(const Terms& said) const noexcept {
  float sum = 0;
  for (uint32_t i = 0; i <= kBlendVoices; ++i) sum += weights_[i] * said[i];
  return 1 / (1 + std::exp(-sum));
}

float GuessBlend::chance(const BlendRanks& ranks) const noexcept { return chance_of(terms(ranks)); }

void GuessBlend::learn(const BlendRanks& ranks, uint32_t n_experts, uint32_t n_demanded) noexcept {
  if (n_experts == 0) return;
  const Terms said = terms(ranks);
  const auto n = static_cast<float>(n_experts), n_right = static_cast<float>(n_demanded);
  const float error = n * chance_of(said) - n_right;
  for (uint32_t i = 0; i <= kBlendVoices; ++i) gradient_[i] += error * said[i];
  for (uint32_t i = 0; i < kBlendVoices; ++i) {
    if (ranks[i] == kSilent) continue;
    Share& share = shares_[i][ranks[i]];
    share.weight = std::min(share.weight + n, kMostWeight);
    share.value += std::max(n / share.weight, kNewShare) * (n_right / n - share.value);
  }
}

void GuessBlend::step() noexcept {
  for (uint32_t i = 0; i <= kBlendVoices; ++i) {
    squares_[i] += gradient_[i] * gradient_[i];
    weights_[i] -= kStep * gradient_[i] / std::sqrt(squares_[i]);
  }
  gradient_ = {};
}

}  // namespace outrider::engine

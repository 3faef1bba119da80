// SPDX-License-Identifier: Apache-2.0
// What several predictors say together: the chance that an expert is demanded, given the rank that each of them gave
// it.
//
// chance = 1 / (1 + exp(-(w_0 + sum over predictors i of w_i logit(s_i[rank_i])))), where s_i[r] is the share in which
// experts that predictor i put at rank r (or did not name) were demanded, a running mean, and the weights w are learned
// while running, by AdaGrad on the log loss of each guess. The form is stacked generalisation (Wolpert 1992) of
// predictors by logistic regression, the steps are those of Duchi, Hazan and Singer 2011. Ranks rather than scores,
// because those of a router are of no common scale. A predictor that says nothing leaves its term out.
// One GuessBlend is for one layer and one kind of expert: those that are there are demanded more often than those that
// are not. Pure. Threads: thread-compatible.
#pragma once

#include <array>
#include <cstdint>

#include "outrider/engine/engine.h"

namespace outrider::engine {

inline constexpr uint32_t kBlendVoices = 3;
inline constexpr uint8_t kUnnamed = kMaxLookAhead;     // beyond a predictor's guesses
inline constexpr uint8_t kSilent = kMaxLookAhead + 1;  // the predictor has not guessed

// The ranks that the predictors gave an expert: 0.., kUnnamed or kSilent.
using BlendRanks = std::array<uint8_t, kBlendVoices>;

class GuessBlend {
 public:
  float chance(const BlendRanks& ranks) const noexcept;
  // Of n_experts experts with these ranks n_demanded were demanded. Takes effect with the next step().
  void learn(const BlendRanks& ranks, uint32_t n_experts, uint32_t n_demanded) noexcept;
  // The end of a demand.
  void step() noexcept;

 private:
  using Terms = std::array<float, kBlendVoices + 1>;  // of the constant, then of the predictors
  struct Share {
    float value = 0;
    float weight = 0;  // of what it is the mean of
  };
  Terms terms(const BlendRanks& ranks) const noexcept;
  float chance_of(const Terms& said) const noexcept;

  std::array<std::array<Share, kUnnamed + 1>, kBlendVoices> shares_ = {};
  Terms weights_ = {0, 0.5F, 0.5F, 0.5F};
  Terms squares_ = {1, 1, 1, 1};  // of the gradients so far, summed
  Terms gradient_ = {};           // of the demand being learned
};

}  // namespace outrider::engine

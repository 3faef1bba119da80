// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "outrider/residency/predictor.h"

namespace outrider::residency {

namespace {

constexpr float kDecay = 0.25F;  // a token: the last three or four count

class RecentPredictor final : public Predictor {
 public:
  RecentPredictor(uint32_t n_layers, uint32_t n_experts)
      : n_experts_(n_experts), scores_(static_cast<size_t>(n_layers) * n_experts, 0) {}

  std::string_view name() const noexcept override { return "recent"; }

  void observe(uint32_t layer, std::span<const int32_t> tokens, std::span<const uint32_t> ids,
               uint32_t n_used) noexcept override {
    float* scores = scores_.data() + static_cast<size_t>(layer) * n_experts_;
    for (size_t row = 0; row < tokens.size(); ++row) {
      for (uint32_t e = 0; e < n_experts_; ++e) scores[e] -= kDecay * scores[e];
      for (const uint32_t expert : ids.subspan(row * n_used, n_used)) scores[expert] += kDecay;
    }
  }

  uint32_t predict(uint32_t layer, int32_t /*token*/, std::span<uint32_t> out) noexcept override {
    return top_scores(std::span(scores_).subspan(static_cast<size_t>(layer) * n_experts_, n_experts_), out);
  }

 private:
  uint32_t n_experts_;
  std::vector<float> scores_;  // (layer, expert)
};

}  // namespace

std::unique_ptr<Predictor> make_recent_predictor(uint32_t n_layers, uint32_t n_experts) {
  return std::make_unique<RecentPredictor>(n_layers, n_experts);
}

}  // namespace outrider::residency

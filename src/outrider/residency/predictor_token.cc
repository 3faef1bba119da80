// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "outrider/residency/predictor.h"

namespace outrider::residency {

namespace {

constexpr float kLayerDecay = 1.0F / 64;  // of the layer's frequencies, a token
constexpr uint8_t kMaxLife = 8;

struct Count {
  uint16_t expert = 0;
  uint16_t count = 0;  // decays by 1/8 with each sight of the token, a choice adds 512: at most 4096
};
constexpr uint32_t kDecayShift = 3;
constexpr uint32_t kChosen = 512;
constexpr float kFullCount = kChosen << kDecayShift;
// A seen token's counts outweigh any frequency of the layer; the frequencies order what it leaves open.
constexpr float kTokenWeight = 8;

uint64_t place_bytes(uint32_t n_layers) noexcept { return sizeof(Count) * kTokenExperts * n_layers + sizeof(int32_t) + 1; }

uint64_t n_places(uint32_t n_layers, uint32_t n_vocab, uint64_t max_bytes) noexcept {
  return std::clamp<uint64_t>(max_bytes / place_bytes(n_layers), 1, std::max(n_vocab, 1U));
}

class TokenPredictor final : public Predictor {
 public:
  TokenPredictor(uint32_t n_layers, uint32_t n_experts, uint64_t n_places)
      : n_layers_(n_layers), n_experts_(n_experts), tokens_(n_places, -1), lives_(n_places, 0),
        counts_(n_places * n_layers * kTokenExperts), frequency_(static_cast<size_t>(n_layers) * n_experts, 0),
        scores_(n_experts, 0) {}

  std::string_view name() const noexcept override { return "token"; }

  void observe(uint32_t layer, std::span<const int32_t> tokens, std::span<const uint32_t> ids, uint32_t n_used) noexcept override {
    for (size_t row = 0; row < tokens.size(); ++row) {
      const std::span<const uint32_t> chosen = ids.subspan(row * n_used, n_used);
      float* frequency = frequency_.data() + static_cast<size_t>(layer) * n_experts_;
      for (uint32_t e = 0; e < n_experts_; ++e) frequency[e] -= kLayerDecay * frequency[e];
      for (const uint32_t expert : chosen) frequency[expert] += kLayerDecay;
      const size_t place = static_cast<size_t>(tokens[row]) % tokens_.size();
      if (!take_place(place, tokens[row], layer)) continue;
      learn(counts_of(place, layer), chosen);
    }
  }

  uint32_t predict(uint32_t layer, int32_t token, std::span<uint32_t> out) noexcept override {
    const float* frequency = frequency_.data() + static_cast<size_t>(layer) * n_experts_;
    std::copy(frequency, frequency + n_experts_, scores_.begin());
    const size_t place = static_cast<size_t>(token) % tokens_.size();
    if (tokens_[place] == token) {
      for (const Count& count : counts_of(place, layer)) {
        if (count.count > 0) scores_[count.expert] += kTokenWeight * static_cast<float>(count.count) / kFullCount;
      }
    }
    return top_scores(scores_, out);
  }

 private:
  std::span<Count> counts_of(size_t place, uint32_t layer) noexcept {
    return std::span(counts_).subspan((place * n_layers_ + layer) * kTokenExperts, kTokenExperts);
  }

  // False when another token keeps the place.
  bool take_place(size_t place, int32_t token, uint32_t layer) noexcept {
    if (tokens_[place] == token) {
      if (lives_[place] < kMaxLife) ++lives_[place];
      return true;
    }
    if (lives_[place] > 0) {
      if (layer == 0) --lives_[place];
      return false;
    }
    tokens_[place] = token;
    lives_[place] = 1;
    const auto begin = counts_.begin() + static_cast<std::ptrdiff_t>(place * n_layers_ * kTokenExperts);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(n_layers_ * kTokenExperts), Count());
    return true;
  }

  static void learn(std::span<Count> counts, std::span<const uint32_t> chosen) noexcept {
    for (Count& count : counts) count.count = static_cast<uint16_t>(count.count - (count.count >> kDecayShift));
    for (const uint32_t expert : chosen) {
      Count* at = &counts[0];
      for (Count& count : counts) {
        if (count.count > 0 && count.expert == expert) {
          at = &count;
          break;
        }
        if (count.count < at->count) at = &count;
      }
      if (at->count > 0 && at->expert == expert) {
        at->count = static_cast<uint16_t>(at->count + kChosen);
      } else if (at->count < kChosen) {
        *at = {.expert = static_cast<uint16_t>(expert), .count = kChosen};
      }
    }
  }

  uint32_t n_layers_, n_experts_;
  std::vector<int32_t> tokens_;  // by place
  std::vector<uint8_t> lives_;
  std::vector<Count> counts_;     // (place, layer, kTokenExperts)
  std::vector<float> frequency_;  // (layer, expert)
  std::vector<float> scores_;     // scratch
};

}  // namespace

uint64_t token_predictor_bytes(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab, uint64_t max_bytes) noexcept {
  return n_places(n_layers, n_vocab, max_bytes) * place_bytes(n_layers) + sizeof(float) * n_experts * (uint64_t{n_layers} + 1);
}

std::unique_ptr<Predictor> make_token_predictor(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab, uint64_t max_bytes) {
  return std::make_unique<TokenPredictor>(n_layers, n_experts, n_places(n_layers, n_vocab, max_bytes));
}

uint32_t top_scores(std::span<const float> scores, std::span<uint32_t> out) noexcept {
  uint32_t n_out = 0;
  for (uint32_t e = 0; e < scores.size(); ++e) {
    if (scores[e] <= 0 || (n_out == out.size() && (n_out == 0 || scores[e] <= scores[out[n_out - 1]]))) continue;
    uint32_t at = n_out < out.size() ? n_out++ : n_out - 1;
    for (; at > 0 && scores[out[at - 1]] < scores[e]; --at) out[at] = out[at - 1];
    out[at] = e;
  }
  return n_out;
}

}  // namespace outrider::residency

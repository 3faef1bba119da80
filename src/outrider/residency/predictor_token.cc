// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
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

uint64_t place_bytes(uint32_t n_layers) noexcept {
  return sizeof(Count) * kTokenExperts * n_layers + sizeof(int32_t) + 1;
}

uint64_t frequency_bytes(uint32_t n_layers, uint32_t n_experts) noexcept {
  return sizeof(float) * n_experts * (uint64_t{n_layers} + 1);
}

uint64_t n_places(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab, uint64_t max_bytes) noexcept {
  const uint64_t for_places = max_bytes - std::min(max_bytes, frequency_bytes(n_layers, n_experts));
  return std::clamp<uint64_t>(for_places / place_bytes(n_layers), 1, std::max(n_vocab, 1U));
}

class TokenPredictor final : public Predictor {
 public:
  TokenPredictor(uint32_t n_layers, uint32_t n_experts, uint64_t n_places)
      : n_layers_(n_layers),
        n_experts_(n_experts),
        tokens_(n_places, -1),
        lives_(n_places, 0),
        counts_(n_places * n_layers * kTokenExperts),
        frequency_(static_cast<size_t>(n_layers) * n_experts, 0),
        scores_(n_experts, 0) {}

  std::string_view name() const noexcept override { return "token"; }

  void observe(uint32_t layer, std::span<const int32_t> tokens, std::span<const uint32_t> ids,
               uint32_t n_used) noexcept override {
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

  std::vector<std::byte> state() const override;
  bool restore(std::span<const std::byte> state) noexcept override;

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

  // The layers' frequencies, then each place in use: its token, its life, its counts. Little-endian like everything
  // that Outrider writes; docs/lookahead.md, "The token table's file".
  static constexpr size_t kPlaceHead = sizeof(int32_t) + 1;
  size_t frequencies_bytes() const noexcept { return frequency_.size() * sizeof(float); }
  size_t counts_bytes() const noexcept { return sizeof(Count) * n_layers_ * kTokenExperts; }
  bool is_sound(std::span<const std::byte> state) const noexcept;

  uint32_t n_layers_, n_experts_;
  std::vector<int32_t> tokens_;  // by place
  std::vector<uint8_t> lives_;
  std::vector<Count> counts_;     // (place, layer, kTokenExperts)
  std::vector<float> frequency_;  // (layer, expert)
  std::vector<float> scores_;     // scratch
};

std::vector<std::byte> TokenPredictor::state() const {
  const auto n_used = static_cast<size_t>(std::ranges::count_if(tokens_, [](int32_t token) { return token >= 0; }));
  std::vector<std::byte> state(frequencies_bytes() + n_used * (kPlaceHead + counts_bytes()));
  std::byte* at = state.data();
  const auto put = [&at](const void* from, size_t n_bytes) {
    std::memcpy(at, from, n_bytes);
    at += n_bytes;
  };
  put(frequency_.data(), frequencies_bytes());
  for (size_t place = 0; place < tokens_.size(); ++place) {
    if (tokens_[place] < 0) continue;
    put(&tokens_[place], sizeof(int32_t));
    put(&lives_[place], 1);
    put(&counts_[place * n_layers_ * kTokenExperts], counts_bytes());
  }
  return state;
}

// Whatever the bytes are, nothing in them may lead out of the tables.
bool TokenPredictor::is_sound(std::span<const std::byte> state) const noexcept {
  const size_t place_bytes = kPlaceHead + counts_bytes();
  if (state.size() < frequencies_bytes() || (state.size() - frequencies_bytes()) % place_bytes != 0) return false;
  for (size_t i = 0; i < frequency_.size(); ++i) {
    float value = 0;
    std::memcpy(&value, state.data() + i * sizeof value, sizeof value);
    if (!(value >= 0 && value <= 2)) return false;
  }
  for (auto rest = state.subspan(frequencies_bytes()); !rest.empty(); rest = rest.subspan(place_bytes)) {
    int32_t token = 0;
    std::memcpy(&token, rest.data(), sizeof token);
    if (token < 0 || std::to_integer<uint8_t>(rest[sizeof token]) > kMaxLife) return false;
    for (size_t i = kPlaceHead; i < place_bytes; i += sizeof(Count)) {
      Count count;
      std::memcpy(&count, rest.data() + i, sizeof count);
      if (count.expert >= n_experts_ || count.count > kFullCount) return false;
    }
  }
  return true;
}

bool TokenPredictor::restore(std::span<const std::byte> state) noexcept {
  if (!is_sound(state)) return false;
  std::memcpy(frequency_.data(), state.data(), frequencies_bytes());
  std::ranges::fill(tokens_, -1);
  std::ranges::fill(lives_, uint8_t{0});
  for (auto rest = state.subspan(frequencies_bytes()); !rest.empty();
       rest = rest.subspan(kPlaceHead + counts_bytes())) {
    int32_t token = 0;
    std::memcpy(&token, rest.data(), sizeof token);
    const size_t place = static_cast<size_t>(token) % tokens_.size();
    tokens_[place] = token;
    lives_[place] = std::to_integer<uint8_t>(rest[sizeof token]);
    std::memcpy(&counts_[place * n_layers_ * kTokenExperts], rest.data() + kPlaceHead, counts_bytes());
  }
  return true;
}

}  // namespace

uint64_t token_predictor_bytes(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab, uint64_t max_bytes) noexcept {
  return n_places(n_layers, n_experts, n_vocab, max_bytes) * place_bytes(n_layers) +
         frequency_bytes(n_layers, n_experts);
}

std::unique_ptr<Predictor> make_token_predictor(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab,
                                                uint64_t max_bytes) {
  return std::make_unique<TokenPredictor>(n_layers, n_experts, n_places(n_layers, n_experts, n_vocab, max_bytes));
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

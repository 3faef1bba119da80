// SPDX-License-Identifier: Apache-2.0
// Guesses which experts a layer will be asked for, from what was chosen before. Pure, like a policy: the same code runs
// live and in a simulator. Memory is fixed at construction. Threads: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace outrider::residency {

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual std::string_view name() const noexcept = 0;
  // Row i of a pass, token tokens[i], chose the n_used experts ids[i * n_used ..] of the layer, best first.
  virtual void observe(uint32_t layer, std::span<const int32_t> tokens, std::span<const uint32_t> ids,
                       uint32_t n_used) noexcept = 0;
  // Writes distinct expert ids, best guess first; returns how many, at most out.size().
  virtual uint32_t predict(uint32_t layer, int32_t token, std::span<uint32_t> out) noexcept = 0;
  // What it has learned, for a later run of the same model; empty when that is not worth keeping.
  virtual std::vector<std::byte> state() const { return {}; }
  // Takes such a state in place of its own. False, and unchanged, when this is none of a predictor of its shape.
  virtual bool restore(std::span<const std::byte> state) noexcept {
    static_cast<void>(state);
    return false;
  }
};

// Which experts a token id used in each layer, as decayed counts of the likeliest kTokenExperts; what that leaves open
// is filled up by the layer's own frequencies. Tokens share places when n_vocab of them do not fit max_bytes: a place
// goes to another token when it has not been of use for a while. Its state() is no longer than token_predictor_bytes().
inline constexpr uint32_t kTokenExperts = 12;
std::unique_ptr<Predictor> make_token_predictor(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab,
                                                uint64_t max_bytes);
uint64_t token_predictor_bytes(uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab, uint64_t max_bytes) noexcept;

// The experts chosen lately, whatever the token.
std::unique_ptr<Predictor> make_recent_predictor(uint32_t n_layers, uint32_t n_experts);

// Ids of the largest scores above 0, largest first (ties: lower id). Returns how many.
uint32_t top_scores(std::span<const float> scores, std::span<uint32_t> out) noexcept;

}  // namespace outrider::residency

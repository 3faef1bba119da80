// SPDX-License-Identifier: Apache-2.0
// Rides ahead: guesses the experts of the next MoE layer while this one is computed, has them read in the drive's idle
// time, keeps score, and decides by the score. docs/lookahead.md tells why and what was measured.
//
// Predictors: `router` (the next layer's router on this layer's post-attention state, which the layer code supplies),
// `token` and `recent` (residency/predictor.h). Each is scored against what was chosen, per layer and rank, whether or
// not anything is read for it. An arbiter takes the one that has been most precise in the layer lately, or none.
// Guesses never change a result. Memory is fixed at construction. Threads: owned by the engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outrider/engine/engine.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/predictor.h"

namespace outrider::engine {

inline constexpr uint32_t kMaxAheadRows = 8;  // of a pass with many rows, that many are guessed for

class LookAhead {
 public:
  // `width`: ids guessed for each row, or kLookAheadAuto. `store` outlives it.
  LookAhead(const model::ModelSpec& spec, uint32_t n_moe_layers, uint32_t width, residency::ExpertStore& store);
  static uint64_t n_bytes(const model::ModelSpec& spec, uint32_t n_moe_layers) noexcept;
  // Ids that the router of a guess is asked for.
  static uint32_t router_width(const model::ModelSpec& spec) noexcept;

  // A pass over these tokens begins.
  void begin_pass(std::span<const int32_t> tokens) noexcept;
  // Rows of the pass that are guessed for.
  std::span<const uint32_t> rows() const noexcept { return {rows_.data(), n_rows_}; }
  // Whether guess() wants the router's ids for this layer.
  bool wants_router(uint32_t moe_layer) noexcept;
  // router_ids: (rows(), router_width()), best first; or empty. The layer's demand comes next.
  void guess(uint32_t moe_layer, std::span<const uint32_t> router_ids) noexcept;
  // After the store's begin(): what the rows of the pass chose. ids: (rows of the pass, experts per token).
  void demand(uint32_t moe_layer, std::span<const uint32_t> ids, uint32_t n_distinct) noexcept;

  // Precision, coverage and in-time share of the guesses so far, per width.
  std::vector<LookAheadScore> scores() const;
  // The width in use: the fixed one, or the mean of those that were chosen.
  uint32_t width() const noexcept;
  // One line: what was decided and from which measurements.
  std::string report() const;
  // What the token predictor has learned, and the same taken over from an earlier run; see residency/predictor.h.
  std::vector<std::byte> token_table() const { return token_->state(); }
  bool restore_token_table(std::span<const std::byte> state) noexcept { return token_->restore(state); }

 private:
  static constexpr uint32_t kKinds = 3;
  enum Kind : uint8_t { kRouter, kToken, kRecent, kNothing };
  // A running share of `hits`, at first a plain mean.
  struct Share {
    float value = 0;
    uint32_t n = 0;
    void add(bool hit) noexcept;
  };
  struct KindState {
    std::array<Share, kMaxLookAhead> right;   // by rank: the guess was chosen
    std::array<Share, kMaxLookAhead> needed;  // likewise, of guesses that were not resident when made
    // The pending guess, by row of rows().
    std::array<uint8_t, kMaxAheadRows> n_ids = {};
    std::array<std::array<uint32_t, kMaxLookAhead>, kMaxAheadRows> ids = {};
    std::array<std::array<bool, kMaxLookAhead>, kMaxAheadRows> absent = {};
  };
  struct LayerState {
    std::array<KindState, kKinds> kinds;
    Kind chosen = kNothing;  // of the pending guess
    Kind best = kNothing;
    uint32_t n_quiet = 0;    // decisions in a row for nothing
  };
  struct RankScore {
    uint64_t guessed = 0, right = 0, in_time = 0;
  };

  void set_guess(KindState& kind, uint32_t moe_layer, uint32_t row, std::span<const uint32_t> ids) noexcept;
  float precision(const KindState& kind, uint32_t width) const noexcept;
  Kind most_precise(const LayerState& layer) const noexcept;
  uint32_t fixed_width(const KindState& kind) const noexcept;
  uint32_t worthwhile_width(const KindState& kind, uint32_t moe_layer) const noexcept;
  void predict(uint32_t moe_layer, const KindState& kind, uint32_t width) noexcept;
  bool is_probing() const noexcept;
  void score(const LayerState& layer, uint32_t row, std::span<const uint32_t> chosen) noexcept;

  const uint32_t n_experts_, n_used_, width_, max_width_;
  residency::ExpertStore& store_;
  std::unique_ptr<residency::Predictor> token_, recent_;
  std::vector<LayerState> layers_;
  std::span<const int32_t> tokens_;
  std::array<uint32_t, kMaxAheadRows> rows_ = {};
  uint32_t n_rows_ = 0;
  bool asleep_ = false;         // everything demanded is resident
  uint32_t n_passes_ = 0;
  uint32_t last_miss_pass_ = 0;
  uint64_t last_misses_ = 0;
  bool fits_ = true;            // the last demand of this pass fitted its layer's slots
  std::vector<uint32_t> n_votes_;  // by expert: scratch of predict()
  std::vector<uint32_t> union_;    // likewise
  std::array<RankScore, kMaxLookAhead> ranks_;
  uint64_t n_scored_rows_ = 0;
  uint64_t n_guesses_ = 0, n_guessed_ids_ = 0;
};

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// Rides ahead: guesses the experts of the next MoE layers while this one is computed, has them read in the drive's idle
// time, keeps score, and decides by the score. docs/lookahead.md tells why and what was measured.
//
// Predictors: `router` (a later layer's router on this layer's output as far as it is computed, which the layer code
// supplies), `token` and `recent` (residency/predictor.h). A layer is guessed from one layer before it, and from
// further away when asked; each guess is scored against what was chosen, per layer, distance and rank, whether or not
// anything is read for it. An arbiter takes the predictor that has been most precise there lately, or none. Guesses
// never change a result. Memory is fixed at construction. Threads: owned by the engine's thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outrider/engine/engine.h"
#include "outrider/engine/guess_blend.h"
#include "outrider/engine/guess_value.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/predictor.h"

namespace outrider::engine {

inline constexpr uint32_t kMaxAheadRows = 8;  // of a pass with many rows, that many are guessed for

struct LookAheadOptions {
  uint32_t width = 0;                    // ids guessed for each row, or kLookAheadAuto
  uint32_t distance = 1;                 // layers ahead at most, 1..kMaxAheadDistance
  uint32_t n_busy_cores = 1;             // that the time of reading is taken from; 0: there are others for it
  residency::Predictor* only = nullptr;  // tests and measurements: in place of all predictors
};

class LookAhead {
 public:
  // `store` outlives it.
  LookAhead(const model::ModelSpec& spec, uint32_t n_moe_layers, const LookAheadOptions& options,
            residency::ExpertStore& store);
  static uint64_t n_bytes(const model::ModelSpec& spec, uint32_t n_moe_layers) noexcept;
  // Ids that the router of a guess is asked for.
  static uint32_t router_width(const model::ModelSpec& spec) noexcept;

  // A pass over these tokens begins: what their ids alone tell of the first layers is guessed.
  void begin_pass(std::span<const int32_t> tokens) noexcept;
  // The same for a pass that will probably be the next. If it is: guessed_right(); if not, begin_pass() with what is.
  void begin_guessed_pass(std::span<const int32_t> tokens) noexcept;
  void guessed_right() noexcept { is_guessed_pass_ = false; }
  // Everything that was demanded lately is resident: nothing is guessed until something is missing.
  bool is_asleep() const noexcept { return asleep_; }
  // Rows of the pass that are guessed for.
  std::span<const uint32_t> rows() const noexcept { return {rows_.data(), n_rows_}; }
  // Whether guess() is wanted for this layer from so many layers away, and with the router's ids.
  bool wants_guess(uint32_t moe_layer, uint32_t distance) const noexcept;
  bool wants_router(uint32_t moe_layer, uint32_t distance) const noexcept;
  // router_ids: (rows(), router_width()), best first; or empty. `distance` demands later the layer's own comes.
  void guess(uint32_t moe_layer, uint32_t distance, std::span<const uint32_t> router_ids) noexcept;
  // What guesses of one layer have taken of the processor, the router's product included; nothing while it waits
  // anyway.
  void note_guess_time(std::chrono::nanoseconds taken) noexcept;
  // After the store's begin(): what the rows of the pass chose. ids: (rows of the pass, experts per token).
  void demand(uint32_t moe_layer, std::span<const uint32_t> ids, uint32_t n_distinct) noexcept;

  // Precision, coverage and in-time share of the guesses so far, per distance and width.
  std::vector<LookAheadScore> scores() const;
  // The width in use: the fixed one, or the mean of those that were chosen.
  uint32_t width() const noexcept;
  // One line: what was decided and from which measurements.
  std::string report() const;
  // What the token predictor has learned, and the same taken over from an earlier run; see residency/predictor.h.
  std::vector<std::byte> token_table() const { return token_->state(); }
  bool restore_token_table(std::span<const std::byte> state) noexcept { return token_->restore(state); }

 private:
  static constexpr uint32_t kKinds = 4;
  enum Kind : uint8_t { kRouter, kToken, kRecent, kBlend, kNothing };
  // A running share of `hits`, at first a plain mean.
  struct Share {
    float value = 0;
    uint32_t n = 0;
    void add(bool hit, float newest = 1.0F / 32) noexcept;
  };
  struct KindState {
    std::array<Share, kMaxLookAhead> right;   // by rank: the guess was chosen
    std::array<Share, kMaxLookAhead> needed;  // likewise, of guesses that were absent when made
    Share first_needed;                       // of the first kFirst such guesses of each row
    // The pending guess, by row of rows().
    std::array<uint8_t, kMaxAheadRows> n_ids = {};
    std::array<std::array<uint32_t, kMaxLookAhead>, kMaxAheadRows> ids = {};
    std::array<std::array<bool, kMaxLookAhead>, kMaxAheadRows> absent = {};
  };
  // A layer seen from one distance.
  struct View {
    std::array<KindState, kKinds> kinds;
    std::array<GuessBlend, 2> blends;               // of experts that are there, of those that are not
    std::array<float, kMaxLookAhead> chances = {};  // of the pending blend's guesses for the first row
    Kind chosen = kNothing;                         // of the pending guess
    Kind best = kNothing;
    uint32_t n_decisions = 0;
    double gain_ns = 0;  // of a decision: a running mean
    float n_others = 0;  // chosen experts of a row that were absent and not guessed: a running mean
    bool has_others = false;
  };
  struct RankScore {
    uint64_t guessed = 0, right = 0, in_time = 0;
  };
  struct DistanceScore {
    std::array<RankScore, kMaxLookAhead> ranks;
    uint64_t n_rows = 0;
  };

  View& view(uint32_t moe_layer, uint32_t distance) noexcept {
    return views_[size_t{moe_layer} * kMaxAheadDistance + distance - 1];
  }
  const View& view(uint32_t moe_layer, uint32_t distance) const noexcept {
    return views_[size_t{moe_layer} * kMaxAheadDistance + distance - 1];
  }
  std::span<uint8_t> absent(uint32_t moe_layer, uint32_t distance) noexcept {
    return std::span(absent_).subspan((size_t{moe_layer} * kMaxAheadDistance + distance - 1) * n_experts_, n_experts_);
  }
  void count_pass() noexcept;
  void look_around(uint32_t moe_layer, uint32_t distance) noexcept;
  void set_guess(KindState& kind, uint32_t row, std::span<const uint32_t> ids,
                 std::span<const uint8_t> absent) noexcept;
  void rank(const View& view, uint32_t row) noexcept;
  uint32_t blend(const View& view, uint32_t row, std::span<const uint8_t> absent, std::span<uint32_t> out) noexcept;
  void learn_blend(View& view, uint32_t row, std::span<const uint32_t> chosen,
                   std::span<const uint8_t> absent) noexcept;
  static bool has_absent(const KindState& kind) noexcept;
  float precision(const KindState& kind, uint32_t width) const noexcept;
  Kind most_precise(const View& view) const noexcept;
  uint32_t fixed_width(const KindState& kind) const noexcept;
  uint32_t auto_width(View& view, const KindState& kind, uint32_t moe_layer, uint32_t distance) noexcept;
  void predict(uint32_t moe_layer, const KindState& kind, uint32_t width) noexcept;
  bool is_probing() const noexcept;
  bool is_quiet(const View& view) const noexcept;
  void learn(View& view, uint32_t row, std::span<const uint32_t> chosen, std::span<const uint8_t> absent) noexcept;
  void score(const View& view, DistanceScore& score, uint32_t row, std::span<const uint32_t> chosen) noexcept;

  const uint32_t n_layers_, n_experts_, n_used_, max_width_;
  const LookAheadOptions options_;
  residency::ExpertStore& store_;
  std::unique_ptr<residency::Predictor> token_, recent_;
  std::vector<View> views_;      // (layer, distance)
  std::vector<uint8_t> absent_;  // (layer, distance, expert): neither there nor on its way at the guess
  std::span<const int32_t> tokens_;
  std::array<uint32_t, kMaxAheadRows> rows_ = {};
  uint32_t n_rows_ = 0;
  bool asleep_ = false;           // everything demanded is resident
  bool is_guessed_pass_ = false;  // the last pass to begin is a guess of the next
  uint32_t n_passes_ = 0;
  uint32_t last_miss_pass_ = 0;
  uint64_t last_misses_ = 0;
  bool fits_ = true;               // the last demand of this pass fitted its layer's slots
  double guess_ns_ = 0;            // of the processor, for the guesses of a layer: a running mean
  double spare_ns_ = 0;            // idle time before the next demand that the guesses for it leave
  std::vector<float> chances_;     // by expert: scratch of blend()
  std::vector<BlendRanks> ranks_;  // by expert: scratch of rank()
  std::vector<uint32_t> named_;    // experts that a predictor named: likewise
  std::vector<uint32_t> n_votes_;  // by expert: scratch of predict()
  std::vector<uint32_t> union_;    // likewise
  std::array<DistanceScore, kMaxAheadDistance> scores_;
  uint64_t n_guesses_ = 0, n_guessed_ids_ = 0;
};

}  // namespace outrider::engine

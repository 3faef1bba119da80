// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/lookahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "outrider/base/check.h"

namespace outrider::engine {

namespace {

constexpr float kNewShare = 1.0F / 32;
constexpr uint32_t kFewSamples = 4;       // of a predictor in a layer, before anything is read for it
constexpr float kBetterThanChance = 2;    // a fixed width is not followed where guesses are less right than that
constexpr float kGoodEnough = 0.25F;      // ... or than this, when chance is high
constexpr uint32_t kQuietAfter = 8;       // decisions for nothing, until a layer is only probed
constexpr uint32_t kProbeEvery = 16;      // passes
constexpr uint32_t kSleepAfter = 64;      // passes without a miss
constexpr double kDisplacement = 0.05;    // of a slab's time: what a guess costs by what it pushed out

}  // namespace

void LookAhead::Share::add(bool hit) noexcept {
  if (n < UINT32_MAX) ++n;
  value += std::max(kNewShare, 1.0F / static_cast<float>(n)) * ((hit ? 1.0F : 0.0F) - value);
}

LookAhead::LookAhead(const model::ModelSpec& spec, uint32_t n_moe_layers, uint32_t width, residency::ExpertStore& store)
    : n_experts_(spec.router.n_experts),
      n_used_(spec.router.n_used),
      width_(width),
      max_width_(router_width(spec)),
      store_(store),
      token_(residency::make_token_predictor(n_moe_layers, n_experts_, spec.n_vocab, kTokenTableBytes)),
      recent_(residency::make_recent_predictor(n_moe_layers, n_experts_)),
      layers_(n_moe_layers),
      n_votes_(n_experts_, 0) {
  union_.reserve(kMaxAheadRows * kMaxLookAhead);
}

uint64_t LookAhead::n_bytes(const model::ModelSpec& spec, uint32_t n_moe_layers) noexcept {
  const uint32_t n_experts = spec.router.n_experts;
  return residency::token_predictor_bytes(n_moe_layers, n_experts, spec.n_vocab, kTokenTableBytes) +
         uint64_t{n_moe_layers} * (sizeof(LayerState) + n_experts * sizeof(float));
}

uint32_t LookAhead::router_width(const model::ModelSpec& spec) noexcept {
  return std::min(kMaxLookAhead, spec.router.n_experts);
}

void LookAhead::begin_pass(std::span<const int32_t> tokens) noexcept {
  tokens_ = tokens;
  fits_ = true;
  ++n_passes_;
  const uint64_t misses = store_.counters().misses;
  if (misses != last_misses_) last_miss_pass_ = n_passes_;
  last_misses_ = misses;
  asleep_ = width_ == kLookAheadAuto && n_passes_ - last_miss_pass_ > kSleepAfter;
  n_rows_ = static_cast<uint32_t>(std::min<size_t>(tokens.size(), kMaxAheadRows));
  for (uint32_t i = 0; i < n_rows_; ++i) rows_[i] = static_cast<uint32_t>(i * tokens.size() / n_rows_);
  for (LayerState& layer : layers_) {
    layer.chosen = kNothing;
    for (KindState& kind : layer.kinds) kind.n_ids = {};
  }
  if (!layers_.empty()) guess(0, {});
}

bool LookAhead::is_probing() const noexcept { return n_passes_ % kProbeEvery == 0; }

bool LookAhead::wants_router(uint32_t moe_layer) noexcept {
  if (asleep_ || !fits_) return false;
  return layers_[moe_layer].n_quiet < kQuietAfter || is_probing();
}

void LookAhead::set_guess(KindState& kind, uint32_t moe_layer, uint32_t row, std::span<const uint32_t> ids) noexcept {
  kind.n_ids[row] = static_cast<uint8_t>(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    kind.ids[row][i] = ids[i];
    kind.absent[row][i] = !store_.is_resident(moe_layer, ids[i]);
  }
}

void LookAhead::guess(uint32_t moe_layer, std::span<const uint32_t> router_ids) noexcept {
  if (asleep_ || !fits_) return;
  LayerState& layer = layers_[moe_layer];
  const bool is_quiet = layer.n_quiet >= kQuietAfter && !is_probing();
  store_.predict(moe_layer, {});  // the idle clock runs whether or not anything is predicted
  if (is_quiet) return;
  std::array<uint32_t, kMaxLookAhead> ids;
  for (uint32_t row = 0; row < n_rows_; ++row) {
    if (!router_ids.empty()) set_guess(layer.kinds[kRouter], moe_layer, row, router_ids.subspan(size_t{row} * max_width_, max_width_));
    const int32_t token = tokens_[rows_[row]];
    const std::span out = std::span(ids).first(max_width_);
    set_guess(layer.kinds[kToken], moe_layer, row, out.first(token_->predict(moe_layer, token, out)));
    set_guess(layer.kinds[kRecent], moe_layer, row, out.first(recent_->predict(moe_layer, token, out)));
  }
  layer.chosen = layer.best = most_precise(layer);
  if (layer.chosen == kNothing) return;  // nothing is known yet
  const KindState& kind = layer.kinds[layer.chosen];
  const uint32_t width = width_ == kLookAheadAuto ? worthwhile_width(kind, moe_layer) : fixed_width(kind);
  if (width == 0) {
    ++layer.n_quiet;
    return;
  }
  layer.n_quiet = 0;
  predict(moe_layer, kind, width);
}

float LookAhead::precision(const KindState& kind, uint32_t width) const noexcept {
  float sum = 0;
  for (uint32_t rank = 0; rank < width; ++rank) sum += kind.right[rank].value;
  return sum / static_cast<float>(width);
}

// Of those that have guessed for this demand and have been scored a few times.
LookAhead::Kind LookAhead::most_precise(const LayerState& layer) const noexcept {
  const uint32_t width = std::min(width_ == kLookAheadAuto ? n_used_ : width_, max_width_);
  Kind best = kNothing;
  float best_precision = 0;
  for (const Kind kind : {kRouter, kToken, kRecent}) {
    const KindState& state = layer.kinds[kind];
    if (state.n_ids[0] == 0 || state.right[0].n < kFewSamples) continue;
    const float value = precision(state, width);
    if (best == kNothing || value > best_precision) {
      best = kind;
      best_precision = value;
    }
  }
  return best;
}

// The width that was asked for, unless guesses that had to be read were about as right as chance.
uint32_t LookAhead::fixed_width(const KindState& kind) const noexcept {
  const uint32_t width = std::min(width_, max_width_);
  float sum = 0;
  uint32_t n_known = 0;
  for (uint32_t rank = 0; rank < width; ++rank) {
    if (kind.needed[rank].n < kFewSamples) continue;
    sum += kind.needed[rank].value;
    ++n_known;
  }
  const float chance = static_cast<float>(n_used_) / static_cast<float>(n_experts_);
  const float wanted = std::min(kBetterThanChance * chance, kGoodEnough);
  return n_known > 0 && sum < wanted * static_cast<float>(n_known) ? 0 : width;
}

// Rank by rank: a guess that is right saves what the drive's idle time holds of its read; one that is wrong costs what
// is left of it when the demand comes, since link and drive are serial.
uint32_t LookAhead::worthwhile_width(const KindState& kind, uint32_t moe_layer) const noexcept {
  const residency::AheadTimes times = store_.ahead_times(moe_layer);
  if (times.slab_ns <= 0) return 0;  // no demand has waited yet
  double idle_ns = times.idle_ns;
  uint32_t width = 0;
  bool has_gain = false;
  for (uint32_t rank = 0; rank < kind.n_ids[0]; ++rank) {
    if (!kind.absent[0][rank] && n_rows_ == 1) {
      width = rank + 1;  // costs nothing: it is spared while the others come
      continue;
    }
    const Share& share = kind.needed[rank];
    if (share.n < kFewSamples) {
      if (kind.right[rank].n < kFewSamples) break;
    }
    const double right = share.n < kFewSamples ? kind.right[rank].value / 2 : share.value;
    const double hidden_ns = std::clamp(idle_ns, 0.0, times.slab_ns);
    const double gain = right * hidden_ns - (1 - right) * (times.slab_ns - hidden_ns) - kDisplacement * times.slab_ns;
    if (gain <= 0) break;
    has_gain = true;
    width = rank + 1;
    idle_ns -= times.slab_ns;
  }
  return has_gain ? width : 0;
}

// The guesses of all rows together, those first that most rows share.
void LookAhead::predict(uint32_t moe_layer, const KindState& kind, uint32_t width) noexcept {
  union_.clear();
  for (uint32_t rank = 0; rank < width; ++rank) {
    for (uint32_t row = 0; row < n_rows_; ++row) {
      if (rank >= kind.n_ids[row]) continue;
      if (n_votes_[kind.ids[row][rank]]++ == 0) union_.push_back(kind.ids[row][rank]);
    }
  }
  if (n_rows_ > 1) {
    std::sort(union_.begin(), union_.end(), [this](uint32_t a, uint32_t b) {
      return n_votes_[a] != n_votes_[b] ? n_votes_[a] > n_votes_[b] : a < b;
    });
  }
  for (const uint32_t expert : union_) n_votes_[expert] = 0;
  store_.predict(moe_layer, union_);
  ++n_guesses_;
  n_guessed_ids_ += width;
}

void LookAhead::demand(uint32_t moe_layer, std::span<const uint32_t> ids, uint32_t n_distinct) noexcept {
  if (asleep_) return;
  LayerState& layer = layers_[moe_layer];
  for (uint32_t row = 0; row < n_rows_; ++row) {
    const std::span<const uint32_t> chosen = ids.subspan(size_t{rows_[row]} * n_used_, n_used_);
    for (KindState& kind : layer.kinds) {
      for (uint32_t rank = 0; rank < kind.n_ids[row]; ++rank) {
        const bool hit = std::find(chosen.begin(), chosen.end(), kind.ids[row][rank]) != chosen.end();
        kind.right[rank].add(hit);
        if (kind.absent[row][rank]) kind.needed[rank].add(hit);
      }
    }
    score(layer, row, chosen);
  }
  token_->observe(moe_layer, tokens_, ids, n_used_);
  recent_->observe(moe_layer, tokens_, ids, n_used_);
  // Guesses for a demand that does not fit would push out what it needs, too.
  if (n_distinct > store_.slots_per_layer()) fits_ = false;
}

void LookAhead::score(const LayerState& layer, uint32_t row, std::span<const uint32_t> chosen) noexcept {
  if (layer.chosen == kNothing) return;
  const KindState& kind = layer.kinds[layer.chosen];
  ++n_scored_rows_;
  for (uint32_t rank = 0; rank < kind.n_ids[row]; ++rank) {
    const uint32_t expert = kind.ids[row][rank];
    RankScore& score = ranks_[rank];
    ++score.guessed;
    if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) continue;
    ++score.right;
    score.in_time += store_.was_resident(expert) ? 1 : 0;
  }
}

std::vector<LookAheadScore> LookAhead::scores() const {
  std::vector<LookAheadScore> out;
  RankScore sum;
  for (uint32_t width = 1; width <= max_width_; ++width) {
    const RankScore& rank = ranks_[width - 1];
    sum.guessed += rank.guessed;
    sum.right += rank.right;
    sum.in_time += rank.in_time;
    const auto share = [](uint64_t part, uint64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; };
    out.push_back({.width = width,
                   .precision = share(sum.right, sum.guessed),
                   .coverage = share(sum.right, n_scored_rows_ * n_used_),
                   .in_time = share(sum.in_time, sum.right)});
  }
  return out;
}

uint32_t LookAhead::width() const noexcept {
  if (width_ != kLookAheadAuto) return width_;
  return n_guesses_ == 0 ? 0 : static_cast<uint32_t>((n_guessed_ids_ + n_guesses_ / 2) / n_guesses_);
}

std::string LookAhead::report() const {
  std::array<uint32_t, kKinds + 1> n_layers = {};
  double idle_ns = 0;
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    const LayerState& layer = layers_[i];
    ++n_layers[layer.n_quiet >= kQuietAfter ? kNothing : layer.best];
    idle_ns += store_.ahead_times(i).idle_ns / static_cast<double>(layers_.size());
  }
  const double slab_ns = layers_.empty() ? 0 : store_.ahead_times(0).slab_ns;
  return fmt::format("look-ahead {}: layers by router {}, token {}, recent {}, off {}; mean width {}; drive idle {:.3f} ms a layer, {:.3f} ms a slab{}",
                     width_ == kLookAheadAuto ? "auto" : fmt::format("{}", width_), n_layers[kRouter], n_layers[kToken],
                     n_layers[kRecent], n_layers[kNothing], width(), idle_ns / 1e6, slab_ns / 1e6,
                     asleep_ ? "; asleep: all that is demanded is resident" : "");
}

}  // namespace outrider::engine

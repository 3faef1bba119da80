// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/lookahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "outrider/base/check.h"

namespace outrider::engine {

namespace {

constexpr float kNewShare = 1.0F / 32;
constexpr uint32_t kFewSamples = 4;     // of a predictor in a layer, before anything is read for it
constexpr float kBetterThanChance = 2;  // a fixed width is not followed where guesses are less right than that
constexpr float kGoodEnough = 0.25F;    // ... or than this, when chance is high
constexpr uint32_t kQuietAfter = 16;    // decisions at least, until a layer is only probed
constexpr double kNewGain = 1.0 / 16;   // of the newest decision in a running mean
constexpr double kProbeGain = 1.0 / 4;  // likewise, of a probe
constexpr uint32_t kProbeEvery = 16;    // passes
constexpr uint32_t kSleepAfter = 64;    // passes without a miss
constexpr double kHiccup = 3;           // times its mean: beyond that it was the machine's
constexpr uint32_t kFirst = 2;          // absent guesses of a row by which predictors are compared
constexpr float kFirstShare = 1.0F / 128;
constexpr float kBlendBonus = 0.03F;  // the blend is hardly ever the wrong choice; its rivals need more than luck

}  // namespace

void LookAhead::Share::add(bool hit, float newest) noexcept {
  if (n < UINT32_MAX) ++n;
  value += std::max(newest, 1.0F / static_cast<float>(n)) * ((hit ? 1.0F : 0.0F) - value);
}

LookAhead::LookAhead(const model::ModelSpec& spec, uint32_t n_moe_layers, const LookAheadOptions& options,
                     residency::ExpertStore& store)
    : n_layers_(n_moe_layers),
      n_experts_(spec.router.n_experts),
      n_used_(spec.router.n_used),
      max_width_(router_width(spec)),
      options_(options),
      store_(store),
      token_(residency::make_token_predictor(n_moe_layers, n_experts_, spec.n_vocab, kTokenTableBytes)),
      recent_(residency::make_recent_predictor(n_moe_layers, n_experts_)),
      views_(size_t{n_moe_layers} * kMaxAheadDistance),
      absent_(size_t{n_moe_layers} * kMaxAheadDistance * n_experts_, 0),
      n_votes_(n_experts_, 0) {
  OUTRIDER_CHECK(options.distance >= 1 && options.distance <= kMaxAheadDistance, "distance {}", options.distance);
  chances_.assign(n_experts_, 0);
  ranks_.resize(n_experts_);
  named_.reserve(size_t{kBlendVoices} * kMaxLookAhead);
  union_.reserve(kMaxAheadRows * kMaxLookAhead);
}

uint64_t LookAhead::n_bytes(const model::ModelSpec& spec, uint32_t n_moe_layers) noexcept {
  const uint32_t n_experts = spec.router.n_experts;
  return residency::token_predictor_bytes(n_moe_layers, n_experts, spec.n_vocab, kTokenTableBytes) +
         uint64_t{n_moe_layers} * (kMaxAheadDistance * (sizeof(View) + n_experts) + n_experts * sizeof(float));
}

uint32_t LookAhead::router_width(const model::ModelSpec& spec) noexcept {
  return std::min(kMaxLookAhead, spec.router.n_experts);
}

void LookAhead::count_pass() noexcept {
  ++n_passes_;
  const uint64_t misses = store_.counters().misses;
  if (misses != last_misses_) last_miss_pass_ = n_passes_;
  last_misses_ = misses;
  asleep_ = options_.width == kLookAheadAuto && n_passes_ - last_miss_pass_ > kSleepAfter;
}

void LookAhead::begin_guessed_pass(std::span<const int32_t> tokens) noexcept {
  is_guessed_pass_ = false;
  begin_pass(tokens);
  is_guessed_pass_ = true;
}

void LookAhead::begin_pass(std::span<const int32_t> tokens) noexcept {
  if (!is_guessed_pass_) count_pass();
  is_guessed_pass_ = false;
  tokens_ = tokens;
  fits_ = true;
  n_rows_ = static_cast<uint32_t>(std::min<size_t>(tokens.size(), kMaxAheadRows));
  for (uint32_t i = 0; i < n_rows_; ++i) rows_[i] = static_cast<uint32_t>(i * tokens.size() / n_rows_);
  for (View& each : views_) {
    each.chosen = kNothing;
    for (KindState& kind : each.kinds) kind.n_ids = {};
  }
  for (uint32_t distance = 1; distance <= options_.distance; ++distance) {
    if (wants_guess(distance - 1, distance)) guess(distance - 1, distance, {});
  }
}

bool LookAhead::is_probing() const noexcept { return n_passes_ % kProbeEvery == 0; }

// Guessing there costs more than it saves.
bool LookAhead::is_quiet(const View& view) const noexcept {
  return options_.width == kLookAheadAuto && view.n_decisions >= kQuietAfter && view.gain_ns <= guess_ns_;
}

// A pass of many rows demands so much that one layer ahead is plenty.
bool LookAhead::wants_guess(uint32_t moe_layer, uint32_t distance) const noexcept {
  return moe_layer < n_layers_ && distance <= options_.distance && !asleep_ && fits_ && (distance == 1 || n_rows_ == 1);
}

bool LookAhead::wants_router(uint32_t moe_layer, uint32_t distance) const noexcept {
  if (!wants_guess(moe_layer, distance) || options_.only != nullptr) return false;
  return !is_quiet(view(moe_layer, distance)) || is_probing();
}

void LookAhead::note_guess_time(std::chrono::nanoseconds taken) noexcept {
  const auto ns = static_cast<double>(taken.count());
  guess_ns_ += guess_ns_ == 0 ? ns : kNewShare * (std::min(ns, kHiccup * guess_ns_) - guess_ns_);
}

// Which experts of the layer are absent, neither there nor on their way.
void LookAhead::look_around(uint32_t moe_layer, uint32_t distance) noexcept {
  const std::span<uint8_t> is_absent = absent(moe_layer, distance);
  for (uint32_t expert = 0; expert < n_experts_; ++expert)
    is_absent[expert] = store_.has_place(moe_layer, expert) ? 0 : 1;
}

void LookAhead::set_guess(KindState& kind, uint32_t row, std::span<const uint32_t> ids,
                          std::span<const uint8_t> absent) noexcept {
  kind.n_ids[row] = static_cast<uint8_t>(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    kind.ids[row][i] = ids[i];
    kind.absent[row][i] = absent[ids[i]] != 0;
  }
}

void LookAhead::guess(uint32_t moe_layer, uint32_t distance, std::span<const uint32_t> router_ids) noexcept {
  View& from = view(moe_layer, distance);
  if (distance == 1) spare_ns_ = 0;
  if (is_quiet(from) && !is_probing()) {
    if (distance == 1) spare_ns_ = store_.ahead_times(moe_layer).idle_ns;
    return;
  }
  store_.predict(moe_layer, {});  // what has landed shows
  look_around(moe_layer, distance);
  const std::span<const uint8_t> is_absent = absent(moe_layer, distance);
  std::array<uint32_t, kMaxLookAhead> ids;
  const std::span out = std::span(ids).first(max_width_);
  for (uint32_t row = 0; row < n_rows_; ++row) {
    const int32_t token = tokens_[rows_[row]];
    if (options_.only != nullptr) {
      set_guess(from.kinds[kToken], row, out.first(options_.only->predict(moe_layer, token, out)), is_absent);
      continue;
    }
    if (!router_ids.empty())
      set_guess(from.kinds[kRouter], row, router_ids.subspan(size_t{row} * max_width_, max_width_), is_absent);
    set_guess(from.kinds[kToken], row, out.first(token_->predict(moe_layer, token, out)), is_absent);
    set_guess(from.kinds[kRecent], row, out.first(recent_->predict(moe_layer, token, out)), is_absent);
    set_guess(from.kinds[kBlend], row, out.first(blend(from, row, is_absent, out)), is_absent);
    if (row > 0) continue;
    for (uint32_t rank = 0; rank < from.kinds[kBlend].n_ids[0]; ++rank) from.chances[rank] = chances_[ids[rank]];
  }
  from.chosen = from.best = most_precise(from);
  if (from.chosen == kNothing) return;  // nothing is known yet
  const KindState& kind = from.kinds[from.chosen];
  const uint32_t width =
      options_.width == kLookAheadAuto ? auto_width(from, kind, moe_layer, distance) : fixed_width(kind);
  if (width > 0) predict(moe_layer, kind, width);
}

// The ranks that the predictors gave each expert for this row, and whom they named.
void LookAhead::rank(const View& view, uint32_t row) noexcept {
  BlendRanks unnamed;
  for (uint32_t voice = 0; voice < kBlendVoices; ++voice)
    unnamed[voice] = view.kinds[voice].n_ids[row] == 0 ? kSilent : kUnnamed;
  std::ranges::fill(ranks_, unnamed);
  named_.clear();
  for (uint32_t voice = 0; voice < kBlendVoices; ++voice) {
    const KindState& state = view.kinds[voice];
    for (uint32_t rank = 0; rank < state.n_ids[row]; ++rank) {
      const uint32_t expert = state.ids[row][rank];
      if (ranks_[expert] == unnamed) named_.push_back(expert);
      ranks_[expert][voice] = static_cast<uint8_t>(rank);
    }
  }
}

// What all predictors say together. Those that nobody named are all alike, and not worth naming.
uint32_t LookAhead::blend(const View& view, uint32_t row, std::span<const uint8_t> absent,
                          std::span<uint32_t> out) noexcept {
  rank(view, row);
  std::ranges::fill(chances_, 0.0F);
  for (const uint32_t expert : named_) chances_[expert] = view.blends[absent[expert]].chance(ranks_[expert]);
  return residency::top_scores(chances_, out);
}

void LookAhead::learn_blend(View& view, uint32_t row, std::span<const uint32_t> chosen,
                            std::span<const uint8_t> absent) noexcept {
  if (view.kinds[kBlend].n_ids[row] == 0) return;
  rank(view, row);
  std::array<uint32_t, 2> n_unnamed = {}, n_surprises = {};  // of those there, of those not
  for (const uint8_t is_absent : absent) ++n_unnamed[is_absent];
  for (const uint32_t expert : chosen) ++n_surprises[absent[expert]];
  for (const uint32_t expert : named_) {
    const bool is_right = std::ranges::find(chosen, expert) != chosen.end();
    view.blends[absent[expert]].learn(ranks_[expert], 1, is_right ? 1 : 0);
    --n_unnamed[absent[expert]];
    n_surprises[absent[expert]] -= is_right ? 1 : 0;
  }
  BlendRanks unnamed;
  for (uint32_t voice = 0; voice < kBlendVoices; ++voice)
    unnamed[voice] = view.kinds[voice].n_ids[row] == 0 ? kSilent : kUnnamed;
  for (const uint32_t is_absent : {0U, 1U}) {
    view.blends[is_absent].learn(unnamed, n_unnamed[is_absent], n_surprises[is_absent]);
    view.blends[is_absent].step();
  }
}

bool LookAhead::has_absent(const KindState& kind) noexcept {
  return std::any_of(kind.absent[0].begin(), kind.absent[0].begin() + kind.n_ids[0],
                     [](bool absent) { return absent; });
}

float LookAhead::precision(const KindState& kind, uint32_t width) const noexcept {
  float sum = 0;
  for (uint32_t rank = 0; rank < width; ++rank) sum += kind.right[rank].value;
  return sum / static_cast<float>(width);
}

// Of those that have guessed for this demand and have been scored a few times.
LookAhead::Kind LookAhead::most_precise(const View& view) const noexcept {
  const uint32_t width = std::min(options_.width == kLookAheadAuto ? n_used_ : options_.width, max_width_);
  // What counts is how right they are about experts that are not there. Where that is not known yet, or all are there
  // so that nothing hangs on it: about all.
  const bool all_there = std::none_of(view.kinds.begin(), view.kinds.end(), has_absent);
  Kind best = kNothing;
  float best_precision = 0;
  for (const Kind kind : {kBlend, kRouter, kToken, kRecent}) {
    const KindState& state = view.kinds[kind];
    if (state.n_ids[0] == 0 || state.right[0].n < kFewSamples) continue;
    const bool is_known = !all_there && state.first_needed.n >= kFirst * kFewSamples;
    const float value =
        (is_known ? state.first_needed.value : precision(state, width)) + (kind == kBlend ? kBlendBonus : 0);
    if (best == kNothing || value > best_precision) {
      best = kind;
      best_precision = value;
    }
  }
  return best;
}

// The width that was asked for, unless guesses that had to be read were about as right as chance.
uint32_t LookAhead::fixed_width(const KindState& kind) const noexcept {
  const uint32_t width = std::min(options_.width, max_width_);
  float sum = 0;
  uint32_t n_known = 0;
  for (uint32_t rank = 0; rank < width; ++rank) {
    // Before one knows how right they are about absent experts: how right they are about all.
    const Share& share = kind.needed[rank].n < kFewSamples ? kind.right[rank] : kind.needed[rank];
    if (share.n < kFewSamples) continue;
    sum += share.value;
    ++n_known;
  }
  const float chance = static_cast<float>(n_used_) / static_cast<float>(n_experts_);
  const float wanted = std::min(kBetterThanChance * chance, kGoodEnough);
  return n_known > 0 && sum < wanted * static_cast<float>(n_known) ? 0 : width;
}

// guess_value.h, with what was measured. From further away only the idle time that is left over now is to be had: in
// what follows the layer is guessed once more, and better.
uint32_t LookAhead::auto_width(View& view, const KindState& kind, uint32_t moe_layer, uint32_t distance) noexcept {
  const residency::AheadTimes measured = store_.ahead_times(moe_layer);
  const GuessTimes times = {.idle_ns = distance == 1 ? measured.idle_ns : spare_ns_,
                            .start_ns = measured.start_ns,
                            .slab_ns = measured.slab_ns,
                            .cover_ns = measured.cover_ns,
                            .stalled = measured.stalled,
                            .piece_ns = measured.piece_ns,
                            .copy_ns = options_.n_busy_cores > 0 ? measured.copy_ns / options_.n_busy_cores : 0};
  if (distance == 1) spare_ns_ = times.idle_ns;
  std::array<RankedGuess, kMaxLookAhead> guesses;
  uint32_t n_guesses = 0;
  const bool is_blend =
      &kind == &view.kinds[kBlend] && n_rows_ == 1;  // which knows the chance of each guess, not only of its rank
  for (uint32_t rank = 0; rank < kind.n_ids[0]; ++rank) {
    const Share& share = kind.needed[rank];
    if (share.n < kFewSamples && kind.right[rank].n < kFewSamples) break;
    const float by_rank = share.n < kFewSamples ? kind.right[rank].value / 2 : share.value;
    guesses[n_guesses++] = {.is_free = !kind.absent[0][rank] && n_rows_ == 1,
                            .right = is_blend ? view.chances[rank] : by_rank};
  }
  const GuessChoice choice = worthwhile_guesses({guesses.data(), n_guesses}, view.n_others, times);
  spare_ns_ = std::max(0.0, spare_ns_ - choice.read_ns);
  if (times.start_ns + times.slab_ns == 0) return choice.width;  // nothing is measured yet
  const double newest = is_quiet(view) ? kProbeGain : kNewGain;
  ++view.n_decisions;
  view.gain_ns += std::max(newest, 1.0 / view.n_decisions) * (choice.gain_ns - view.gain_ns);
  return choice.width;
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
  for (uint32_t distance = 1; distance <= options_.distance; ++distance) {
    View& from = view(moe_layer, distance);
    for (uint32_t row = 0; row < n_rows_; ++row) {
      const std::span<const uint32_t> chosen = ids.subspan(size_t{rows_[row]} * n_used_, n_used_);
      learn(from, row, chosen, absent(moe_layer, distance));
      score(from, scores_[distance - 1], row, chosen);
    }
  }
  if (options_.only != nullptr) {
    options_.only->observe(moe_layer, tokens_, ids, n_used_);
  } else {
    token_->observe(moe_layer, tokens_, ids, n_used_);
    recent_->observe(moe_layer, tokens_, ids, n_used_);
  }
  // Guesses for a demand that does not fit would push out what it needs, too.
  if (n_distinct > store_.slots_per_layer()) fits_ = false;
}

void LookAhead::learn(View& view, uint32_t row, std::span<const uint32_t> chosen,
                      std::span<const uint8_t> absent) noexcept {
  learn_blend(view, row, chosen, absent);
  for (KindState& kind : view.kinds) {
    uint32_t n_absent = 0;
    for (uint32_t rank = 0; rank < kind.n_ids[row]; ++rank) {
      const bool hit = std::find(chosen.begin(), chosen.end(), kind.ids[row][rank]) != chosen.end();
      kind.right[rank].add(hit);
      if (!kind.absent[row][rank]) continue;
      kind.needed[rank].add(hit);
      if (n_absent++ < kFirst) kind.first_needed.add(hit, kFirstShare);
    }
  }
  if (view.chosen == kNothing) return;
  const KindState& kind = view.kinds[view.chosen];
  const std::span<const uint32_t> named(kind.ids[row].data(), kind.n_ids[row]);
  float n_others = 0;
  for (const uint32_t expert : chosen) {
    if (absent[expert] != 0 && std::find(named.begin(), named.end(), expert) == named.end()) ++n_others;
  }
  view.n_others = view.has_others ? view.n_others + kNewShare * (n_others - view.n_others) : n_others;
  view.has_others = true;
}

void LookAhead::score(const View& view, DistanceScore& score, uint32_t row, std::span<const uint32_t> chosen) noexcept {
  if (view.chosen == kNothing) return;
  const KindState& kind = view.kinds[view.chosen];
  ++score.n_rows;
  for (uint32_t rank = 0; rank < kind.n_ids[row]; ++rank) {
    const uint32_t expert = kind.ids[row][rank];
    RankScore& at = score.ranks[rank];
    ++at.guessed;
    if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) continue;
    ++at.right;
    at.in_time += store_.was_resident(expert) ? 1 : 0;
  }
}

std::vector<LookAheadScore> LookAhead::scores() const {
  std::vector<LookAheadScore> out;
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  for (uint32_t distance = 1; distance <= options_.distance; ++distance) {
    const DistanceScore& score = scores_[distance - 1];
    RankScore sum;
    for (uint32_t width = 1; width <= max_width_; ++width) {
      const RankScore& rank = score.ranks[width - 1];
      sum.guessed += rank.guessed;
      sum.right += rank.right;
      sum.in_time += rank.in_time;
      out.push_back({.width = width,
                     .distance = distance,
                     .precision = share(sum.right, sum.guessed),
                     .coverage = share(sum.right, score.n_rows * n_used_),
                     .in_time = share(sum.in_time, sum.right)});
    }
  }
  return out;
}

uint32_t LookAhead::width() const noexcept {
  if (options_.width != kLookAheadAuto) return options_.width;
  return n_guesses_ == 0 ? 0 : static_cast<uint32_t>((n_guessed_ids_ + n_guesses_ / 2) / n_guesses_);
}

std::string LookAhead::report() const {
  std::array<uint32_t, kKinds + 1> n_views = {};
  double idle_ns = 0;
  for (uint32_t i = 0; i < n_layers_; ++i) {
    const View& near = view(i, 1);
    ++n_views[is_quiet(near) ? kNothing : near.best];
    idle_ns += store_.ahead_times(i).idle_ns / n_layers_;
  }
  const residency::AheadTimes times = n_layers_ == 0 ? residency::AheadTimes() : store_.ahead_times(0);
  return fmt::format(
      "look-ahead {}: layers by router {}, token {}, recent {}, blend {}, off {}; mean width {}; drive idle {:.3f} ms "
      "a layer, a demand takes {:.3f} ms + {:.3f} ms a slab, {:.3f} ms covered, {:.2f} of the rest waited for; copying "
      "{:.3f} ms a slab, guessing {:.3f} ms a layer{}",
      options_.width == kLookAheadAuto ? "auto" : fmt::format("{}", options_.width), n_views[kRouter], n_views[kToken],
      n_views[kRecent], n_views[kBlend], n_views[kNothing], width(), idle_ns / 1e6, times.start_ns / 1e6,
      times.slab_ns / 1e6, times.cover_ns / 1e6, times.stalled, times.copy_ns / 1e6, guess_ns_ / 1e6,
      asleep_ ? "; asleep: all that is demanded is resident" : "");
}

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/token_ahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "outrider/base/checked.h"

namespace outrider::engine {

namespace {

constexpr uint32_t kFewCandidates = 64, kManyCandidates = 1024;
constexpr uint32_t kCandidateShare = 128;  // one in so many, between those two
constexpr uint32_t kFewGuesses = 8;        // before it is judged
constexpr uint32_t kProbeEvery = 16;       // passes, where it does not pay
constexpr double kNewShare = 1.0 / 16;     // of the newest value in a running mean
constexpr double kProbeShare = 1.0 / 4;    // likewise, of a probe
constexpr double kHiccup = 4;              // times the mean

uint32_t n_candidates(uint32_t n_vocab) noexcept {
  return std::min(n_vocab, std::clamp(n_vocab / kCandidateShare, kFewCandidates, kManyCandidates));
}

double ns_of(std::chrono::nanoseconds time) noexcept { return static_cast<double>(time.count()); }

uint64_t sketch_part(const model::ModelSpec& spec) noexcept {
  return align_up(kernels::sketch_bytes(spec.n_vocab, spec.d_model), 64);
}

}  // namespace

bool TokenAhead::is_of_use(const model::ModelSpec& spec, const EngineOptions& options) noexcept {
  return options.token_ahead != TokenAheadMode::kOff && options.lookahead != 0 &&
         options.slots_per_layer < spec.router.n_experts && spec.d_model % 32 == 0;
}

uint64_t TokenAhead::n_bytes(const model::ModelSpec& spec) noexcept {
  const uint64_t n = n_candidates(spec.n_vocab);
  return sketch_part(spec) + kernels::sketch_table_bytes(spec.d_model) + n * (sizeof(uint32_t) + sizeof(Candidate)) +
         kernels::largest_scores_scratch(spec.n_vocab, n) * sizeof(uint64_t);
}

TokenAhead::TokenAhead(const DeviceLinear& head, Device& device, bool is_always)
    : head_(head), device_(device), is_always_(is_always) {
  const uint32_t n_rows = head.w.n_rows, k = head.w.k;
  std::byte* memory = device.allocate(align_up(kernels::sketch_bytes(n_rows, k), 64) + kernels::sketch_table_bytes(k),
                                      "look-ahead's sketch of the head");
  sketch_ = kernels::lay_out_sketch(memory, n_rows, k);
  tables_ = memory + align_up(kernels::sketch_bytes(n_rows, k), 64);
  device.make_sketch(head, sketch_);
  ids_.resize(n_candidates(n_rows));
  scratch_.resize(kernels::largest_scores_scratch(n_rows, ids_.size()));
  candidates_.reserve(ids_.size());
}

void TokenAhead::Mean::add(double newest, double share) noexcept {
  value += std::max(share, 1.0 / static_cast<double>(++n)) * (newest - value);
}

double TokenAhead::newest_share() const noexcept { return pays() ? kNewShare : kProbeShare; }

bool TokenAhead::wants_guess() noexcept {
  ++n_passes_;
  n_ids_ = 0;
  early_ns_ = {};
  return is_always_ || search_ns_.n < kFewGuesses || pays() || n_passes_ % kProbeEvery == 0;
}

void TokenAhead::search(const Rows& x, float* logits, const NextTokenChooser& next) {
  device_.sketch_scores(sketch_, x.f32, tables_, logits);
  next.shape({logits, sketch_.n_rows});
  n_ids_ = kernels::largest_scores({logits, sketch_.n_rows}, ids_, scratch_);
  std::sort(ids_.begin(), ids_.begin() + n_ids_);  // in the order in which they lie in memory
}

void TokenAhead::search_early(const Rows& x, float* logits, const NextTokenChooser& next) {
  search(x, logits, next);
  ++n_early_;
}

std::span<const Candidate> TokenAhead::likeliest(const Rows& x, float* logits, const NextTokenChooser& next) {
  if (n_ids_ == 0) search(x, logits, next);
  const std::span ids = std::span(ids_).first(n_ids_);
  device_.linear_some({&head_, logits}, x, ids);
  candidates_.clear();
  for (const uint32_t id : ids) candidates_.push_back({static_cast<int32_t>(id), logits[id]});
  return candidates_;
}

void TokenAhead::note_search(Nanoseconds taken) noexcept {
  taken += early_ns_;
  const bool is_known = search_ns_.n >= kFewGuesses;
  const double most = is_known ? kHiccup * search_ns_.value : ns_of(taken);  // beyond that it was the machine's
  search_ns_.add(std::min(ns_of(taken), most), newest_share());
}

void TokenAhead::note_guess(Nanoseconds layers, Nanoseconds hidden) noexcept {
  layers_ns_.add(ns_of(layers), newest_share());
  hidden_ns_.add(ns_of(hidden), newest_share());
}

void TokenAhead::note_outcome(bool is_right) noexcept {
  ++n_guessed_;
  n_right_ += is_right ? 1 : 0;
  right_.add(is_right ? 1 : 0, newest_share());
}

std::string TokenAhead::report() const {
  if (n_guessed_ == 0) return "";
  return fmt::format(
      "; next token guessed {} times, right {}: search {:.3f} ms beside waits ({} in one), {:.3f} ms of the head done "
      "in waits of its first layers, which took {:.3f} ms beside{}",
      n_guessed_, n_right_, search_ns_.value / 1e6, n_early_, hidden_ns_.value / 1e6, layers_ns_.value / 1e6,
      pays() ? "" : "; does not pay");
}

}  // namespace outrider::engine

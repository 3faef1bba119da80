// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/base/random.h"

namespace outrider::engine {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr int32_t kMaxLastN = 1 << 20;

bool comes_first(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// e^x for x <= 0, plain products and sums only: libm's differ between machines, and a draw must not. x = n ln2 + r,
// then the Taylor sum to r^13 (|r| <= 0.3466: the rest is below 2^-56 of the value). 0 below e^-700.
double exp_of(double x) noexcept {
  constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: n * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRoundShift = 0x1.8p+52;  // adding it rounds to an integer
  constexpr auto kInverseFactorials = [] {
    std::array<double, 14> inverse{1};
    double factorial = 1;
    for (int k = 1; k < 14; ++k) inverse[static_cast<size_t>(k)] = 1 / (factorial *= k);
    return inverse;
  }();
  if (x < -700) return 0;
  const double shifted = x * 1.4426950408889634 + kRoundShift;
  const double n = shifted - kRoundShift;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double square = r * r;
  double even = kInverseFactorials[12];
  double odd = kInverseFactorials[13];
  for (size_t k = 12; k >= 2; k -= 2) {
    even = even * square + kInverseFactorials[k - 2];
    odd = odd * square + kInverseFactorials[k - 1];
  }
  const double sum = even + r * odd;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

void check_range(const char* field, float value, float low, float high, const char* wanted) {
  if (!(value >= low && value <= high)) fail(ErrorKind::kBadArgument, "{} {}: wanted {}", field, value, wanted);
}

void check_id(const char* field, int32_t id, uint32_t n_vocab) {
  if (id < 0 || static_cast<uint32_t>(id) >= n_vocab) {
    fail(ErrorKind::kBadArgument, "{} names token {}: wanted an id from 0 to {}", field, id, n_vocab - 1);
  }
}

}  // namespace

void validate(const SamplerOptions& options) {
  constexpr float kMost = std::numeric_limits<float>::max();
  check_range("temperature", options.temperature, 0, kMost, "0 (greedy) or more");
  check_range("top_p", options.top_p, 0, kMost, "0 or more (1 is off)");
  check_range("min_p", options.min_p, 0, 1, "0 (off) to 1");
  check_range("typical_p", options.typical_p, 0, kMost, "0 or more (1 is off)");
  check_range("repeat_penalty", options.repeat_penalty, 0.001F, 1000, "0.001 to 1000 (1 is off)");
  check_range("presence_penalty", options.presence_penalty, -1000, 1000, "-1000 to 1000 (0 is off)");
  check_range("frequency_penalty", options.frequency_penalty, -1000, 1000, "-1000 to 1000 (0 is off)");
  if (options.repeat_last_n < -1 || options.repeat_last_n > kMaxLastN) {
    fail(ErrorKind::kBadArgument, "repeat_last_n {}: wanted -1 (all) to {}", options.repeat_last_n, kMaxLastN);
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (!(bias == kImpossible || std::fabs(bias) <= 1e30F)) {
      fail(ErrorKind::kBadArgument, "logit_bias of token {} is {}: wanted -1e30 to 1e30, or -infinity", id, bias);
    }
  }
}

Sampler::Sampler(const SamplerOptions& options, uint32_t n_vocab) : options_(options), n_vocab_(n_vocab) {
  OUTRIDER_CHECK(n_vocab > 0);
  validate(options_);
  for (const auto& [id, bias] : options_.logit_bias) check_id("logit_bias", id, n_vocab);
  for (const int32_t id : options_.suppressed) check_id("suppressed", id, n_vocab);
  seed_ = options_.seed ? *options_.seed : std::random_device{}();
  stream_ = Random(seed_).next_u64();
  logits_.resize(n_vocab);
  list_.reserve(n_vocab);
  if (penalises()) {
    counts_.resize(n_vocab);
    recent_.resize(static_cast<size_t>(std::max(options_.repeat_last_n, 0)));
  }
}

bool Sampler::penalises() const noexcept {
  return options_.repeat_last_n != 0 &&
         (options_.repeat_penalty != 1.0F || options_.presence_penalty != 0.0F || options_.frequency_penalty != 0.0F);
}

void Sampler::accept(int32_t token) {
  OUTRIDER_CHECK(token >= 0 && static_cast<uint32_t>(token) < n_vocab_, "token {}", token);
  if (counts_.empty()) return;
  ++counts_[static_cast<size_t>(token)];
  if (!recent_.empty()) {
    int32_t& oldest = recent_[n_accepted_ % recent_.size()];
    if (n_accepted_ >= recent_.size()) --counts_[static_cast<size_t>(oldest)];
    oldest = token;
  }
  ++n_accepted_;
}

// Steps 1 to 3.
void Sampler::adjust(std::span<const float> logits) {
  OUTRIDER_CHECK(logits.size() == n_vocab_, "{} logits for a vocabulary of {}", logits.size(), n_vocab_);
  const auto is_usable = [](float logit) { return logit <= std::numeric_limits<float>::max(); };
  uint32_t n_usable = 0;  // counted without a branch: this loop runs over the whole vocabulary for every token
  for (size_t id = 0; id < logits.size(); ++id) {
    n_usable += is_usable(logits[id]) ? 1U : 0U;
    logits_[id] = logits[id];
  }
  if (n_usable != n_vocab_) {
    const auto id = std::find_if_not(logits.begin(), logits.end(), is_usable) - logits.begin();
    fail(ErrorKind::kNumeric, "the logit of token {} is {}: wanted a number; the model's output cannot be used", id,
         logits[static_cast<size_t>(id)]);
  }
  shape(logits_);
}

// Step 3.
float Sampler::penalised(float logit, uint32_t count) const noexcept {
  logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
  logit = std::min(logit, std::numeric_limits<float>::max());
  return logit - (static_cast<float>(count) * options_.frequency_penalty + options_.presence_penalty);
}

// Step 4, and the list for the steps after it.
void Sampler::collect() {
  list_.clear();
  n_sorted_ = 0;
  if (options_.top_k > 0 && static_cast<uint32_t>(options_.top_k) < n_vocab_) {
    collect_top_k(static_cast<uint32_t>(options_.top_k));
  } else {
    for (size_t id = 0; id < logits_.size(); ++id) {
      if (logits_[id] > kImpossible) list_.push_back({static_cast<int32_t>(id), logits_[id]});
    }
  }
  if (list_.empty()) {
    fail(ErrorKind::kNumeric, "no token can be chosen: all {} logits are -infinity after suppression and bias",
         n_vocab_);
  }
  top_ = std::min_element(list_.begin(), list_.end(), comes_first)->logit;
}

// Holds up to about twice k candidates and drops the worse half when full: one pass, few comparisons.
void Sampler::collect_top_k(uint32_t k) {
  const size_t full = std::min<size_t>(n_vocab_, 2 * static_cast<size_t>(k) + 64);
  float floor = kImpossible;  // ids rise, so an equal logit comes after what is held
  for (size_t id = 0; id < logits_.size(); ++id) {
    if (!(logits_[id] > floor)) continue;
    list_.push_back({static_cast<int32_t>(id), logits_[id]});
    if (list_.size() == full) {
      std::nth_element(list_.begin(), list_.begin() + k - 1, list_.end(), comes_first);
      list_.resize(k);
      floor = list_.back().logit;
    }
  }
  std::sort(list_.begin(), list_.end(), comes_first);
  list_.resize(std::min<size_t>(list_.size(), k));
  n_sorted_ = list_.size();
}

// Orders at least the first n, in growing steps: a vocabulary is rarely needed to its end.
void Sampler::sort_prefix(size_t n) {
  while (n_sorted_ < n) {
    const size_t goal = std::min(list_.size(), std::max<size_t>(256, 4 * n_sorted_));
    const auto begin = list_.begin() + static_cast<ptrdiff_t>(n_sorted_);
    const auto end = list_.begin() + static_cast<ptrdiff_t>(goal);
    if (goal < list_.size()) std::nth_element(begin, end, list_.end(), comes_first);
    std::sort(begin, end, comes_first);
    n_sorted_ = goal;
  }
}

double Sampler::sum_weights(double inverse_temperature) const noexcept {
  double sum = 0;
  for (const Candidate& c : list_) sum += exp_of((static_cast<double>(c.logit) - top_) * inverse_temperature);
  return sum;
}

void Sampler::keep_typical() {
  if (options_.typical_p >= 1.0F) return;
  const double total = sum_weights(1);
  const double log_total = std::log(total);
  double entropy = 0;
  for (const Candidate& c : list_) {
    const double below_top = static_cast<double>(c.logit) - top_;
    entropy -= exp_of(below_top) / total * (below_top - log_total);
  }
  const auto surprise = [&](const Candidate& c) {
    return std::fabs(log_total - (static_cast<double>(c.logit) - top_) - entropy);
  };
  std::sort(list_.begin(), list_.end(), [&](const Candidate& a, const Candidate& b) {
    const double of_a = surprise(a);
    const double of_b = surprise(b);
    return of_a != of_b ? of_a < of_b : comes_first(a, b);
  });
  size_t n_kept = 0;
  for (double sum = 0; n_kept < list_.size() && sum <= options_.typical_p * total; ++n_kept) {
    sum += exp_of(static_cast<double>(list_[n_kept].logit) - top_);
  }
  list_.resize(n_kept);
  std::sort(list_.begin(), list_.end(), comes_first);
  n_sorted_ = n_kept;
  top_ = list_.front().logit;
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0F) return;
  const double wanted = options_.top_p * sum_weights(1);
  size_t n_kept = 0;
  for (double sum = 0; n_kept < list_.size() && (n_kept == 0 || sum < wanted); ++n_kept) {
    sort_prefix(n_kept + 1);
    sum += exp_of(static_cast<double>(list_[n_kept].logit) - top_);
  }
  list_.resize(n_kept);
  n_sorted_ = n_kept;
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0.0F) return;
  const bool sorted = n_sorted_ == list_.size();
  std::erase_if(list_,
                [&](const Candidate& c) { return exp_of(static_cast<double>(c.logit) - top_) < options_.min_p; });
  n_sorted_ = sorted ? list_.size() : 0;
}

void Sampler::filter(std::span<const float> logits) {
  adjust(logits);
  collect();
  keep_typical();
  keep_top_p();
  keep_min_p();
}

void Sampler::shape(std::span<float> scores) const noexcept {
  for (const int32_t id : options_.suppressed) scores[static_cast<size_t>(id)] = kImpossible;
  for (const auto& [id, bias] : options_.logit_bias) scores[static_cast<size_t>(id)] += bias;
  for (size_t id = 0; id < counts_.size(); ++id) {
    if (counts_[id] > 0) scores[id] = penalised(scores[id], counts_[id]);
  }
}

int32_t Sampler::choose(std::span<const Candidate> likeliest) noexcept {
  // logits_ is scratch that the next sample() fills anew: here only the entries of `likeliest` mean anything.
  for (const Candidate& c : likeliest) logits_[static_cast<size_t>(c.id)] = c.logit;
  shape(logits_);
  list_.clear();
  n_sorted_ = 0;
  for (const Candidate& c : likeliest) {
    const float logit = logits_[static_cast<size_t>(c.id)];
    if (logit > kImpossible && logit <= std::numeric_limits<float>::max()) list_.push_back({c.id, logit});
  }
  if (list_.empty()) return -1;
  const auto best = std::min_element(list_.begin(), list_.end(), comes_first);
  if (options_.temperature == 0.0F) return best->id;
  top_ = best->logit;
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) <= list_.size()) {
    sort_prefix(static_cast<size_t>(options_.top_k));
    list_.resize(static_cast<size_t>(options_.top_k));
    n_sorted_ = list_.size();
  }
  keep_typical();
  keep_top_p();
  keep_min_p();
  return draw();
}

std::span<const Candidate> Sampler::candidates(std::span<const float> logits) {
  filter(logits);
  sort_prefix(list_.size());
  return list_;
}

// Step 8, with draw number n_draws_.
int32_t Sampler::draw() noexcept {
  const double inverse_temperature = 1 / static_cast<double>(options_.temperature);
  const double total = sum_weights(inverse_temperature);
  const double target = Random(stream_ + n_draws_ * 0x9E3779B97F4A7C15ULL).uniform() * total;
  double sum = 0;
  size_t i = 0;
  for (;; ++i) {
    sort_prefix(i + 1);
    sum += exp_of((static_cast<double>(list_[i].logit) - top_) * inverse_temperature);
    if (sum > target || i + 1 == list_.size()) return list_[i].id;
  }
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (options_.temperature > 0.0F) {
    filter(logits);
    const int32_t token = draw();
    ++n_draws_;
    return token;
  }
  adjust(logits);
  float best = kImpossible;
  for (const float logit : logits_) best = logit > best ? logit : best;
  if (best == kImpossible) {
    fail(ErrorKind::kNumeric, "no token can be chosen: all {} logits are -infinity after suppression and bias",
         n_vocab_);
  }
  ++n_draws_;
  return static_cast<int32_t>(std::find(logits_.begin(), logits_.end(), best) -
                              logits_.begin());  // the first of equals
}

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// Counts that halve every so many tokens, without touching them as tokens pass: a use weighs 2^(tokens / half-life)
// when it happens, so all counts of one moment compare as if each had been halved since. now() turns a count into what
// it is worth today. Threads: thread-compatible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace outrider::residency {

class DecayClock {
 public:
  explicit DecayClock(double half_life_tokens) : half_life_tokens_(half_life_tokens) {}

  // What one use adds to a count.
  double weight() const noexcept { return weight_; }
  // What a use weighs on average when `n_tokens` tokens of one pass brought it: all but the last are past already.
  double weight_in(uint32_t n_tokens) const noexcept {
    if (n_tokens <= 1) return weight_;
    const double per_token = std::exp2(-1 / half_life_tokens_);
    return weight_ * (1 - std::exp2(-(n_tokens / half_life_tokens_))) / (n_tokens * (1 - per_token));
  }
  // A count in uses of this moment.
  double now(double count) const noexcept { return count / weight_; }

  // `n_tokens` have passed. Calls scale(exponent) when every count must be multiplied by 2^exponent, so that none
  // overflows: a power of two, so that comparisons keep their result.
  template <typename Scale>
  void advance(uint32_t n_tokens, Scale&& scale) noexcept {
    half_lives_ += n_tokens / half_life_tokens_;
    if (half_lives_ > kRescaleExponent) {
      const double n_rescales = std::floor(half_lives_ / kRescaleExponent);
      half_lives_ -= n_rescales * kRescaleExponent;
      // Four of them turn any count into 0.
      scale(-kRescaleExponent * static_cast<int>(std::min(n_rescales, 4.0)));
    }
    weight_ = std::exp2(half_lives_);
  }

 private:
  static constexpr int kRescaleExponent = 512;
  double half_life_tokens_;
  double half_lives_ = 0;  // since the last rescale
  double weight_ = 1;
};

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits. The steps, always in this order (that of llama.cpp's default chain):
//   1 suppressed ids become impossible            2 logit bias is added
//   3 penalties over the last repeat_last_n accepted tokens: a token seen c > 0 times has its logit divided by
//     repeat_penalty if positive, else multiplied by it; then less c * frequency_penalty + presence_penalty
//   temperature 0: the largest logit, the lowest id on ties, and nothing else
//   4 top-k: the k largest logits
//   5 typical (Meister et al. 2022): those whose -ln p lies nearest to the entropy, until their p sum exceeds typical_p
//   6 top-p: the likeliest, until their p sum reaches top_p
//   7 min-p: those with p >= min_p * the largest p
//   8 temperature, then one draw
// Steps 5 to 7 see probabilities renormalised over what the step before kept; at least one token always remains.
// Candidates are ordered by falling logit, then rising id; probabilities are doubles, summed in list order (by id until
// a step has ordered the list). Draw number i depends on (seed, i) and the logits only, so neither other requests nor
// drafting can change it. sample() allocates nothing.
// Threads: owned by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "outrider/engine/candidate.h"

namespace outrider::engine {

struct SamplerOptions {
  float temperature = 0.8F;     // 0: greedy
  int32_t top_k = 40;           // <= 0 or >= the vocabulary: off
  float top_p = 0.95F;          // >= 1: off; 0 keeps one
  float min_p = 0.05F;          // 0: off; 1 keeps the ties of the largest
  float typical_p = 1.0F;       // >= 1: off; 0 keeps one
  float repeat_penalty = 1.0F;  // 1: off
  int32_t repeat_last_n = 64;   // tokens the penalties look back; 0: none, -1: all
  float presence_penalty = 0;   // 0: off; negative rewards repetition
  float frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // (id, bias); -infinity bans; entries of one id add up
  std::optional<uint64_t> seed;                       // none: a random one, see Sampler::seed()
  std::vector<int32_t> suppressed;                    // ids never to be chosen
};

// Throws Error(kBadArgument) naming the first field out of range, its value and what was wanted.
void validate(const SamplerOptions& options);

class Sampler final : public NextTokenChooser {
 public:
  // Validates; also throws Error(kBadArgument) for an id of logit_bias or suppressed outside [0, n_vocab). n_vocab > 0.
  Sampler(const SamplerOptions& options, uint32_t n_vocab);

  // Tells the penalties of a token of the text: of the prompt, or one that sample() gave.
  void accept(int32_t token);

  // The next token. logits: (n_vocab). Throws Error(kNumeric) when one is NaN or +infinity or when no token is
  // possible; that uses no draw.
  int32_t sample(std::span<const float> logits);

  // What sample() would give if every other token were impossible. Uses no draw and leaves the next sample() as it is.
  // Allocates nothing.
  int32_t choose(std::span<const Candidate> likeliest) noexcept override;
  // Steps 1 to 3.
  void shape(std::span<float> scores) const noexcept override;

  // What sample() would draw from: steps 1 to 7, ordered; logits are those after steps 1 to 3. Valid until the next
  // call. Throws as sample() does.
  std::span<const Candidate> candidates(std::span<const float> logits);

  // The seed in use, also when it was picked at random (then below 2^32, so that it is easily passed on).
  uint64_t seed() const noexcept { return seed_; }
  // Draws made so far.
  uint64_t n_draws() const noexcept { return n_draws_; }

 private:
  bool penalises() const noexcept;
  void adjust(std::span<const float> logits);
  void collect();
  void collect_top_k(uint32_t k);
  void keep_typical();
  void keep_top_p();
  void keep_min_p();
  void filter(std::span<const float> logits);
  void sort_prefix(size_t n);
  double sum_weights(double inverse_temperature) const noexcept;
  float penalised(float logit, uint32_t count) const noexcept;
  int32_t draw() noexcept;

  SamplerOptions options_;
  uint32_t n_vocab_;
  uint64_t seed_;
  uint64_t stream_;  // seed_, mixed once
  uint64_t n_draws_ = 0;
  std::vector<float> logits_;     // (n_vocab) after steps 1 to 3
  std::vector<uint32_t> counts_;  // (n_vocab) occurrences among the recent tokens; empty when nothing penalises
  std::vector<int32_t> recent_;   // ring of repeat_last_n tokens
  uint64_t n_accepted_ = 0;
  // Candidates: the first n_sorted_ are ordered, the rest come after those (all by id when n_sorted_ is 0).
  std::vector<Candidate> list_;  // capacity n_vocab
  size_t n_sorted_ = 0;
  float top_ = 0;  // the largest logit in list_
};

}  // namespace outrider::engine

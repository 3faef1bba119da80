// SPDX-License-Identifier: Apache-2.0
// Tokens that may come next, and who would choose among them.
#pragma once

#include <cstdint>
#include <span>

namespace outrider::engine {

struct Candidate {
  int32_t id;
  float logit;
};

// Says which token will be chosen, before all logits are known. Neither call may throw.
class NextTokenChooser {
 public:
  virtual ~NextTokenChooser() = default;
  // scores (n_vocab): logits, roughly; made into what the choice goes by. -infinity for tokens that are never chosen.
  virtual void shape(std::span<float> scores) const noexcept = 0;
  // Which of these (any order, no id twice, exact logits) would be chosen if all others were impossible? -1: none.
  virtual int32_t choose(std::span<const Candidate> likeliest) noexcept = 0;
};

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// The next token before the head knows it. While the head runs, a drive that streams experts has nothing to do, since
// nobody knows what the next token will demand. A coarse copy of the head, one bit a weight (kernels/sketch), names the
// rows that may win in a fraction of the head's time; the exact logits of those give the token that will probably be
// chosen. Its pass begins at once, and the head is done while that waits for its experts. A guess never changes a
// result: the head says what is chosen, and a pass of another token begins anew. docs/lookahead.md has what it is
// worth.
//
// A pass: wants_guess(); search_early() where its last layer waits for experts; likeliest(); note_search(),
// note_guess(), and note_outcome() when the next pass comes.
//
// Memory is fixed at construction. Threads: owned by the engine's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "outrider/engine/candidate.h"
#include "outrider/engine/device.h"
#include "outrider/engine/engine.h"
#include "outrider/kernels/sketch/largest_scores.h"
#include "outrider/kernels/sketch/sketch.h"

namespace outrider::engine {

class TokenAhead {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // Where experts stream with look-ahead and the head's rows can be sketched. `options` are resolved.
  static bool is_of_use(const model::ModelSpec& spec, const EngineOptions& options) noexcept;
  static uint64_t n_bytes(const model::ModelSpec& spec) noexcept;

  // Reads the head once. Both outlive it. Throws Error(kOutOfMemory).
  TokenAhead(const DeviceLinear& head, Device& device, bool is_always);

  // Whether to guess after this pass: where that has cost more than it saved it is only tried now and then.
  bool wants_guess() noexcept;
  // Looks for the tokens that may be chosen before the head's input is known: x is one row, nearly that. logits
  // (n_vocab): scratch.
  void search_early(const Rows& x, float* logits, const NextTokenChooser& next);
  // The tokens that may be chosen, with their exact logits, rising by id. x: one row, the head's input. logits
  // (n_vocab): scratch. Valid until the next call.
  std::span<const Candidate> likeliest(const Rows& x, float* logits, const NextTokenChooser& next);

  // What a guess took: an early search that outlasted its wait; likeliest(); the first layers of the token, without the
  // head's part; and what it was good for: the head's part that was done while their experts were waited for.
  void note_early_search(Nanoseconds taken) noexcept { early_ns_ = taken; }
  void note_search(Nanoseconds taken) noexcept;
  void note_guess(Nanoseconds layers, Nanoseconds hidden) noexcept;
  void note_outcome(bool is_right) noexcept;

  uint64_t n_guessed() const noexcept { return n_guessed_; }  // of those with an outcome
  uint64_t n_right() const noexcept { return n_right_; }
  uint64_t n_early() const noexcept { return n_early_; }  // searches
  std::string report() const;                             // one line

 private:
  // A running mean, at first a plain one.
  struct Mean {
    double value = 0;
    uint64_t n = 0;
    void add(double newest, double share) noexcept;
  };
  double gain_ns() const noexcept { return right_.value * hidden_ns_.value; }
  // The first layers of a token that does come are not run again.
  double cost_ns() const noexcept { return search_ns_.value + (1 - right_.value) * layers_ns_.value; }
  bool pays() const noexcept { return gain_ns() > cost_ns(); }
  double newest_share() const noexcept;
  void search(const Rows& x, float* logits, const NextTokenChooser& next);

  const DeviceLinear& head_;
  Device& device_;
  const bool is_always_;
  kernels::Sketch sketch_;
  std::byte* tables_ = nullptr;
  std::vector<uint32_t> ids_;
  uint32_t n_ids_ = 0;         // that were found for this pass
  Nanoseconds early_ns_ = {};  // for this pass
  std::vector<uint64_t> scratch_;
  std::vector<Candidate> candidates_;
  Mean search_ns_, layers_ns_, hidden_ns_, right_;
  uint64_t n_guessed_ = 0, n_right_ = 0, n_early_ = 0, n_passes_ = 0;
};

}  // namespace outrider::engine

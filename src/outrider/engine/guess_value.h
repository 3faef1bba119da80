// SPDX-License-Identifier: Apache-2.0
// What it is worth to read for the first w guesses of a layer, and the w that is worth most. Pure: docs/lookahead.md
// has the formula and its reasons.
#pragma once

#include <cstdint>
#include <span>

namespace outrider::engine {

// The drive and the layer, as measured.
struct GuessTimes {
  double idle_ns = 0;   // that the drive has for these guesses
  double start_ns = 0;  // a demand for n slabs has its last byte after start_ns + n slab_ns
  double slab_ns = 0;
  double cover_ns = 0;  // of that, what passes while the layer computes what is there: only the rest is stall
  double stalled = 1;   // of that rest, the share that really was waited for
  double piece_ns = 0;  // what is in flight when the demand comes and cannot be taken back
  double copy_ns = 0;   // of the processor, taken from the layers, for one slab
};

struct RankedGuess {
  bool is_free = false;  // resident or on its way: costs nothing
  double right = 0;      // the chance that it is demanded
};

struct GuessChoice {
  uint32_t width = 0;  // 0: none is worth it
  double read_ns = 0;  // what they take of the drive
  double gain_ns = 0;  // what they save
};

// How many of the guesses (at most kMaxLookAhead), best first, to read for. `n_others`: experts beside those of the
// list that the demand is expected to find absent.
GuessChoice worthwhile_guesses(std::span<const RankedGuess> guesses, double n_others, const GuessTimes& times) noexcept;

// Expected stall of a demand for experts that are absent with these chances, and for n_others more on average.
double expected_stall_ns(std::span<const double> chances, double n_others, const GuessTimes& times) noexcept;

}  // namespace outrider::engine

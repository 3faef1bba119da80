// SPDX-License-Identifier: Apache-2.0
// Gives the time since the last mark to a phase: one clock read a mark, so that it can always be on.
// Threads: owned by one thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "outrider/engine/engine.h"

namespace outrider::engine {

class PhaseClock {
 public:
  void start() noexcept { last_ = Clock::now(); }

  // Adds the time since the last mark (or start) to `phase`, a field of PhaseTimes.
  void mark(uint64_t PhaseTimes::*phase) noexcept {
    const Clock::time_point now = Clock::now();
    times_.*phase += static_cast<uint64_t>(std::chrono::nanoseconds(now - last_).count());
    last_ = now;
  }

  // Moves time that was given to `from` to the stall field.
  void move_to_stall(uint64_t PhaseTimes::*from, uint64_t ns) noexcept {
    ns = ns < times_.*from ? ns : times_.*from;
    times_.*from -= ns;
    times_.stall += ns;
  }

  const PhaseTimes& times() const noexcept { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  PhaseTimes times_;
};

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/guess_value.h"

#include <algorithm>
#include <cmath>

namespace outrider::engine {

namespace {

constexpr double kDisplacement = 0.05;  // of a miss's wait: what a guess costs by what it pushes out
constexpr double kMinGain = 0.02;       // of the expected stall: less is within what the estimates are worth
constexpr uint32_t kMaxAbsent = 16;     // beyond which the sum over absent experts is cut off

// Of a guess that the drive comes to after begin_ns: the chances that it is begun, and that the demand cuts it off, and
// how much of it is done on average. Idle times differ: half, all and one and a half of the mean stand for them.
struct Share {
  double begun = 0, cut = 0, done = 0;
};
Share read_share(double begin_ns, double wait_ns, double mean_idle_ns) noexcept {
  Share share;
  for (const double part : {0.5, 1.0, 1.5}) {
    const double left_ns = part * mean_idle_ns - begin_ns;
    if (left_ns <= 0) continue;
    share.begun += 1.0 / 3;
    share.done += std::min(1.0, left_ns / wait_ns) / 3;
    if (left_ns < wait_ns) share.cut += 1.0 / 3;
  }
  return share;
}

}  // namespace

// The number of absent experts is taken to be Poisson's: many candidates, each rarely absent.
double expected_stall_ns(double n_absent, const GuessTimes& times) noexcept {
  double chance = std::exp(-n_absent), sum = 0;
  for (uint32_t n = 1; n <= kMaxAbsent; ++n) {
    chance *= n_absent / n;
    sum += chance * std::max(0.0, times.start_ns + n * times.slab_ns - times.cover_ns);
  }
  return sum;
}

GuessChoice worthwhile_guesses(std::span<const RankedGuess> guesses, double n_others, const GuessTimes& times) noexcept {
  const double wait_ns = times.start_ns + times.slab_ns;  // of a single miss
  if (wait_ns <= 0) return {};
  double n_absent = n_others;
  for (const RankedGuess& guess : guesses) n_absent += guess.is_free ? 0 : guess.right;
  const double stall_ns = expected_stall_ns(n_absent, times);
  double best_gain = kMinGain * stall_ns, cost_ns = 0, begin_ns = 0;
  GuessChoice best;
  for (uint32_t i = 0; i < guesses.size(); ++i) {
    const RankedGuess& guess = guesses[i];
    if (guess.is_free) {
      if (best.width == i && i > 0) best.width = i + 1;
      continue;
    }
    const Share share = read_share(begin_ns, wait_ns, times.idle_ns);
    if (share.begun == 0) break;
    n_absent -= guess.right * share.done;
    // A right one would have been copied for the demand, too. On average half of what is in flight is still to come when
    // the demand cuts a wrong one off.
    const double in_flight_ns = std::min(times.piece_ns, times.slab_ns);
    cost_ns += share.begun * (kDisplacement * wait_ns + (1 - guess.right) * times.copy_ns) + share.cut * (1 - guess.right) * in_flight_ns / 2;
    begin_ns += times.slab_ns;
    const double gain = stall_ns - expected_stall_ns(std::max(n_absent, 0.0), times) - cost_ns;
    if (gain > best_gain) {
      best_gain = gain;
      best = {.width = i + 1, .read_ns = begin_ns};
    }
  }
  return best;
}

}  // namespace outrider::engine

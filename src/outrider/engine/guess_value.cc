// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/guess_value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "outrider/engine/engine.h"

namespace outrider::engine {

namespace {

// Of a miss's wait: what a wrong guess costs by what it pushes out. Little, since what a router nearly chose is often
// chosen soon.
constexpr double kDisplacement = 0.02;
constexpr double kCopyHeldUp = 0.5;    // of the processor's time for reading a wrong guess: as much falls into waiting
constexpr double kMinGain = 0.02;      // of the expected stall: less is within what the estimates are worth
constexpr uint32_t kMostMissing = 12;  // beyond which the sum over missing experts is cut off
constexpr double kNegligible = 1e-4;
constexpr std::array kIdleParts = {0.5, 1.0, 1.5};  // idle times differ: of the mean, these stand for them

// How many experts the demand must begin to read: by number, the last of them "so many or more".
using Missing = std::array<double, kMostMissing + 1>;

// Many that nobody guesses, each rarely absent: Poisson's.
Missing missing_others(double mean) noexcept {
  Missing of_n = {std::exp(-mean)};
  for (uint32_t n = 1; n <= kMostMissing; ++n) of_n[n] = of_n[n - 1] * mean / n;
  return of_n;
}

// One more that is missing with this chance.
void add_missing(Missing& of_n, double chance) noexcept {
  of_n[kMostMissing] += of_n[kMostMissing - 1] * chance;
  for (uint32_t n = kMostMissing - 1; n > 0; --n) of_n[n] += (of_n[n - 1] - of_n[n]) * chance;
  of_n[0] *= 1 - chance;
}

// How many to look at: more are hardly ever missing.
uint32_t most_missing(const Missing& of_n) noexcept {
  double rest = 1;
  uint32_t n = 0;
  while (n < kMostMissing && (rest -= of_n[n]) > kNegligible) ++n;
  return n;
}

// What is left of a guess that the drive came to as the nth, when the demand comes.
double left_ns(uint32_t n, double idle_ns, const GuessTimes& times) noexcept {
  return std::clamp(n * times.slab_ns + times.start_ns + times.slab_ns - idle_ns, 0.0, times.start_ns + times.slab_ns);
}

// `started`: the chances of the guesses that the drive has come to. The demand waits for the last of those that are
// right, and for what it must begin itself; the drive has work for both.
double stall_with(std::span<const double> started, const Missing& missing, double idle_ns,
                  const GuessTimes& times) noexcept {
  const uint32_t n_most = most_missing(missing);
  // Of the time that a slab takes by itself, the drive's work; what is half done leaves half of it.
  const double slab_share = times.slab_ns / (times.start_ns + times.slab_ns);
  double sum = 0, of_last = 1;                                 // of_last: no guess after this one is right
  for (size_t n_right = started.size() + 1; n_right-- > 0;) {  // the last right one's place from 1; 0: none is
    const double chance = of_last * (n_right == 0 ? 1 : started[n_right - 1]);
    if (n_right > 0) of_last *= 1 - started[n_right - 1];
    const double last_ns = n_right == 0 ? 0 : left_ns(static_cast<uint32_t>(n_right) - 1, idle_ns, times);
    double open_ns = last_ns;
    for (size_t i = 0; i + 1 < n_right; ++i) open_ns += started[i] * left_ns(static_cast<uint32_t>(i), idle_ns, times);
    const double work_ns = open_ns * slab_share;
    sum += chance * missing[0] * std::max(0.0, std::max(last_ns, work_ns) - times.cover_ns);
    for (uint32_t n = 1; n <= n_most; ++n) {
      sum += chance * missing[n] *
             std::max(0.0, std::max(last_ns, times.start_ns + n * times.slab_ns + work_ns) - times.cover_ns);
    }
  }
  return sum;
}

}  // namespace

double expected_stall_ns(std::span<const double> chances, double n_others, const GuessTimes& times) noexcept {
  Missing missing = missing_others(n_others);
  for (const double chance : chances) add_missing(missing, chance);
  return times.stalled * stall_with({}, missing, 0, times);
}

GuessChoice worthwhile_guesses(std::span<const RankedGuess> guesses, double n_others,
                               const GuessTimes& times) noexcept {
  const double wait_ns = times.start_ns + times.slab_ns;  // of a single miss
  if (wait_ns <= 0) return {};
  std::array<double, kMaxLookAhead> chances;   // of those that are absent
  std::array<uint32_t, kMaxLookAhead> widths;  // of the list, up to and with each of them
  uint32_t n_absent = 0;
  for (uint32_t i = 0; i < guesses.size(); ++i) {
    if (guesses[i].is_free) continue;
    const double chance = std::clamp(guesses[i].right, 0.0, 1.0);
    // A guess saves a miss's wait at most; one that is too rarely right for that is one of the others.
    if (chance <= kDisplacement * (1 - chance)) {
      n_others += chance;
      continue;
    }
    widths[n_absent] = i + 1;
    chances[n_absent++] = chance;
  }
  const Missing others = missing_others(n_others);
  std::array<double, kMaxLookAhead + 1> stall_ns = {}, cost_ns = {};  // when the first n of them are read for
  for (const double part : kIdleParts) {
    const double idle_ns = part * times.idle_ns, share = 1.0 / kIdleParts.size();
    uint32_t n_begun = 0;  // by the drive, before the demand comes
    while (n_begun < n_absent && n_begun * times.slab_ns < idle_ns) ++n_begun;
    Missing missing = others;
    for (uint32_t i = n_begun; i < n_absent; ++i) add_missing(missing, chances[i]);
    for (uint32_t n = n_begun + 1; n-- > 0;) {
      const double stall = share * stall_with({chances.data(), n}, missing, idle_ns, times);
      for (uint32_t width = n; width <= (n == n_begun ? n_absent : n); ++width) stall_ns[width] += stall;
      if (n > 0) add_missing(missing, chances[n - 1]);
    }
    double cost = 0;
    for (uint32_t n = 0; n < n_absent; ++n) {
      if (n < n_begun) {
        // A right one would have been copied for the demand, too. A wrong one is cut off by the demand, but for what is
        // in flight, of which half is still to come on average.
        const double cut_ns = std::min(left_ns(n, idle_ns, times), std::min(times.piece_ns, times.slab_ns) / 2);
        const double wrong_ns =
            kDisplacement * wait_ns + kCopyHeldUp * times.copy_ns + cut_ns * times.slab_ns / wait_ns;
        cost += (1 - chances[n]) * wrong_ns;
      }
      cost_ns[n + 1] += share * cost;
    }
  }
  double best_gain = kMinGain * times.stalled * stall_ns[0];
  GuessChoice best;
  for (uint32_t n = 1; n <= n_absent; ++n) {
    const double gain = times.stalled * (stall_ns[0] - stall_ns[n]) - cost_ns[n];
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = {.width = widths[n - 1], .read_ns = n * times.slab_ns, .gain_ns = gain};
  }
  // Those behind the last one that are there stay there.
  while (best.width > 0 && best.width < guesses.size() && guesses[best.width].is_free) ++best.width;
  return best;
}

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// Fits the cost model to a recorded ledger: ms = floor + bytes / rate, by least squares.
// Threads: pure function.
#pragma once

#include <cstdint>
#include <span>

namespace outrider::whatif {

struct StepPoint {
  double bytes = 0, ms = 0;
};

struct CostFit {
  double floor_ms = 0;
  double ms_per_byte = 0;
  double r2 = 0;  // share of the variance of ms that the line explains
  uint64_t n_steps = 0;
  // 0 when time does not rise with bytes.
  double bytes_per_s() const noexcept { return ms_per_byte > 0 ? 1e3 / ms_per_byte : 0; }
};

// Throws Error(kBadArgument) for fewer than three points, or when all read the same number of bytes.
CostFit fit_cost(std::span<const StepPoint> steps);

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/fit.h"

#include "outrider/base/error.h"

namespace outrider::whatif {

CostFit fit_cost(std::span<const StepPoint> steps) {
  if (steps.size() < 3) fail(ErrorKind::kBadArgument, "{} steps: wanted at least 3 to fit a line to", steps.size());
  const auto n = static_cast<double>(steps.size());
  double mean_bytes = 0, mean_ms = 0;
  for (const StepPoint& step : steps) {
    mean_bytes += step.bytes / n;
    mean_ms += step.ms / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const StepPoint& step : steps) {
    const double dx = step.bytes - mean_bytes, dy = step.ms - mean_ms;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  if (xx == 0)
    fail(ErrorKind::kBadArgument, "all {} steps read {:.0f} bytes: wanted steps that differ", steps.size(), mean_bytes);
  CostFit fit;
  fit.n_steps = steps.size();
  fit.ms_per_byte = xy / xx;
  fit.floor_ms = mean_ms - fit.ms_per_byte * mean_bytes;
  fit.r2 = yy > 0 ? xy * xy / (xx * yy) : 1;
  return fit;
}

}  // namespace outrider::whatif

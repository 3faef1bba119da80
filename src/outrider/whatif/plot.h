// SPDX-License-Identifier: Apache-2.0
// Plots as SVG text, without a library: miss curves, a heat map, a scatter with its line. Colours tell policies apart
// and the line styles do too, for print; every axis is named with its unit. Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "outrider/whatif/fit.h"
#include "outrider/whatif/replay.h"
#include "outrider/whatif/trace_summary.h"

namespace outrider::whatif {

// Drawing elements in a box of width x height.
struct Plot {
  double width = 0, height = 0;
  std::string svg;
};

// Share of demands that missed, against slots a layer: one line for each policy, the bound dashed.
Plot plot_miss_curves(std::span<const Replay> replays);
// How often each layer used each expert, by rank within the layer.
Plot plot_heat_map(const TraceSummary& summary);
// Distinct experts against the window in tokens.
Plot plot_working_set(const TraceSummary& summary);
// Steps, and the fitted line.
Plot plot_fit(std::span<const StepPoint> steps, const CostFit& fit);

// A whole SVG file, the plots one below the other; a whole page.
std::string svg_file(std::span<const Plot> plots);
std::string html_page(const std::string& title, std::span<const Plot> plots);

}  // namespace outrider::whatif

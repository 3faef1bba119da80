// SPDX-License-Identifier: Apache-2.0
// Plots into files: the options and the writing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "outrider/whatif/plot.h"

namespace outrider::apps {

void add_plot_flags(CLI::App& command, std::string& svg, std::string& html);

// All plots, one below the other, in one SVG file and in one page; an empty name writes nothing. Throws Error(kIo).
void write_plots(const std::string& svg, const std::string& html, const std::string& title,
                 const std::vector<whatif::Plot>& plots);

}  // namespace outrider::apps

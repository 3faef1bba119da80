// SPDX-License-Identifier: Apache-2.0
// A command of the program is one file, cmd_NAME.cc, with one function that adds a CLI11 subcommand whose callback does
// the work. main.cc lists them. A callback throws outrider::Error for bad input; main prints it in one line, exit
// code 1. Every option `--foo-bar` also reads OUTRIDER_FOO_BAR from the environment: main sets that for all of them.
#pragma once

#include <CLI/CLI.hpp>

namespace outrider::apps {

void add_bench(CLI::App& app);
void add_fit(CLI::App& app);
void add_inspect(CLI::App& app);
void add_logits(CLI::App& app);
void add_pack(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_plan(CLI::App& app);
void add_probe(CLI::App& app);
void add_run(CLI::App& app);
void add_quantize(CLI::App& app);
void add_simulate(CLI::App& app);
void add_synth(CLI::App& app);
void add_synth_trace(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_trace(CLI::App& app);
void add_trace_info(CLI::App& app);

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// The speed part of `outrider plan`: what the kept probe says a plan will give, and what twice the RAM or a drive twice
// as fast would.
#pragma once

#include <string>
#include <vector>

#include "engine_flags.h"
#include "generate.h"
#include "outrider/whatif/predict.h"

namespace outrider::apps {

// {probe{...}, miss_rate, miss_rate_from, decode[], prefill{...}, first_prefill{...} (with an empty expert cache),
// twice_ram{...}, twice_drive{...}}; null with a line in `note` when no probe of this machine is kept. `trace_path`: a
// demand trace whose replay gives the miss rate, or empty.
Json plan_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                const std::string& trace_path, std::string& note);

// For people.
std::string format_speed(const Json& speed);

// What was measured of passes of one kind.
struct MeasuredPasses {
  bool is_prefill = false;
  bool is_first = false;  // met an empty expert cache
  uint64_t n_tokens = 0;
  uint64_t context = 0;  // before the first of them
  double seconds = 0;
  double miss_rate = 0;   // share of the demanded experts
  double read_bytes = 0;  // a token; when not 0, instead of a share
  bool is_given = false;  // the text was given: no next token could be guessed
};
using MeasuredRun = std::vector<MeasuredPasses>;

// From a ledger of `run --stats` (passes of one token are decode), or what `run --json` or `bench --json` printed.
// Throws Error(kBadFile) naming the line that is none.
MeasuredRun read_measured(const std::string& path);

// Rows of {kind, tokens, context, tokens_per_s, miss_rate, expected_tokens_per_s (with the plan's share of misses;
// every expert of a run's first prefill), expected_with_misses_tokens_per_s (with those that came), bound_tokens_per_s,
// bound_by (likewise), error (measured / expected with misses - 1)}; null when no probe is kept.
Json measured_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                    const MeasuredRun& run, const std::string& trace_path, std::string& note);

// For people.
std::string format_measured(const Json& measured);

// measured_speed() of what `run` has just done.
std::string plan_against_run(const LoadedModel& loaded, const EngineFlags& flags, const GenerateResult& result,
                             const residency::StoreCounters& experts);

}  // namespace outrider::apps

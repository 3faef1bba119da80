// SPDX-License-Identifier: Apache-2.0
// The speed part of `outrider plan`: what the kept probe says a plan will give, and what twice the RAM or a drive twice
// as fast would.
#pragma once

#include <string>

#include "engine_flags.h"
#include "generate.h"
#include "outrider/whatif/predict.h"

namespace outrider::apps {

// {probe{...}, miss_rate, miss_rate_from, decode[], prefill[], twice_ram{...}, twice_drive{...}}; null with a line in
// `note` when no probe of this machine is kept. `trace_path`: a demand trace whose replay gives the miss rate, or empty.
Json plan_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan, const std::string& trace_path, std::string& note);

// For people.
std::string format_speed(const Json& speed);

// What the plan expected beside what a run gave; with the misses that it assumed and with those that came. A line saying
// why when no probe is kept.
std::string plan_against_run(const LoadedModel& loaded, const EngineFlags& flags, const GenerateResult& result,
                             const residency::StoreCounters& experts);

}  // namespace outrider::apps

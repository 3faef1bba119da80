// SPDX-License-Identifier: Apache-2.0
// Sampling options of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "outrider/engine/sampler.h"

namespace outrider::apps {

struct SamplerFlags {
  engine::SamplerOptions options;
  int64_t seed = -1;                    // -1: a random one, which the output tells
  std::vector<std::string> logit_bias;  // ID=BIAS or ID+BIAS or ID-BIAS
};

void add_sampler_flags(CLI::App& command, SamplerFlags& flags);

// Throws Error(kBadArgument) naming option and value.
engine::SamplerOptions sampler_options(const SamplerFlags& flags);

}  // namespace outrider::apps

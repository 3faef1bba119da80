// SPDX-License-Identifier: Apache-2.0
// outrider synth-trace: a demand trace of a geometry that cannot be run here.
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/observe/trace_file.h"
#include "outrider/whatif/synthetic_trace.h"

namespace outrider::apps {

namespace {

struct SynthTraceFlags {
  std::string out, like, slab;
  whatif::SyntheticSpec spec;
};

// The habits of the fitted spec; what was given on the command line keeps its value.
void take_habits(const CLI::App& command, const whatif::SyntheticSpec& fitted, whatif::SyntheticSpec& spec) {
  const auto take = [&](const char* option, auto whatif::SyntheticSpec::*field) {
    if (command.count(option) == 0) spec.*field = fitted.*field;
  };
  take("--zipf", &whatif::SyntheticSpec::zipf);
  take("--recency", &whatif::SyntheticSpec::recency);
  take("--topic-share", &whatif::SyntheticSpec::topic_share);
  take("--topic-tokens", &whatif::SyntheticSpec::topic_tokens);
  take("--layers", &whatif::SyntheticSpec::n_layers);
  take("--experts", &whatif::SyntheticSpec::n_experts);
  take("--used", &whatif::SyntheticSpec::n_used);
  take("--tokens", &whatif::SyntheticSpec::n_tokens);
  take("--slab", &whatif::SyntheticSpec::slab_bytes);
}

void synth_trace(const CLI::App& command, const SynthTraceFlags& flags) {
  whatif::SyntheticSpec spec = flags.spec;
  if (!flags.slab.empty()) {
    const auto bytes = parse_bytes(flags.slab);
    if (!bytes) fail(ErrorKind::kBadArgument, "--slab {}: wanted a size such as 9MiB", printable(flags.slab));
    spec.slab_bytes = *bytes;
  }
  if (!flags.like.empty())
    take_habits(command, whatif::fit_synthetic(observe::read_trace(flags.like), spec.seed), spec);
  const observe::Trace trace = whatif::make_synthetic_trace(spec);
  observe::write_trace(flags.out, trace);
  std::printf(
      "--layers %u --experts %u --used %u --prompt %u --tokens %u --slab %llu --zipf %.4g --recency %.4g --topic-share "
      "%.4g --topic-tokens %.4g --seed %llu\n",
      spec.n_layers, spec.n_experts, spec.n_used, spec.n_prompt, spec.n_tokens,
      static_cast<unsigned long long>(spec.slab_bytes), spec.zipf, spec.recency, spec.topic_share, spec.topic_tokens,
      static_cast<unsigned long long>(spec.seed));
}

}  // namespace

void add_synth_trace(CLI::App& app) {
  CLI::App* command = app.add_subcommand("synth-trace", "Write a demand trace of a made-up router, for simulate");
  auto flags = std::make_shared<SynthTraceFlags>();
  whatif::SyntheticSpec& spec = flags->spec;
  command->add_option("OUT", flags->out, "Trace file to write")->required();
  command->add_option("--like", flags->like, "Take geometry and habits from this trace, where they are not given");
  command->add_option("--layers", spec.n_layers, "MoE layers")->capture_default_str();
  command->add_option("--experts", spec.n_experts, "Experts of a layer")->capture_default_str();
  command->add_option("--used", spec.n_used, "Experts a token")->capture_default_str();
  command->add_option("--prompt", spec.n_prompt, "Tokens of a first pass")->capture_default_str();
  command->add_option("--tokens,--steps", spec.n_tokens, "Single tokens after it")->capture_default_str();
  command->add_option("--slab", flags->slab, "Bytes of one expert (default 1MiB)");
  command->add_option("--zipf", spec.zipf, "Skew of the experts of a layer: exponent of their weights")
      ->capture_default_str();
  command->add_option("--recency", spec.recency, "Probability that a token keeps an expert of the one before")
      ->capture_default_str();
  command->add_option("--topic-share", spec.topic_share, "Share of the draws that follow the topic of the moment")
      ->capture_default_str();
  command->add_option("--topic-tokens", spec.topic_tokens, "Mean length of a topic")->capture_default_str();
  command->add_option("--seed", spec.seed, "Seed")->capture_default_str();
  command->callback([command, flags] { synth_trace(*command, *flags); });
}

}  // namespace outrider::apps

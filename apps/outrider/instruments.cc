// SPDX-License-Identifier: Apache-2.0
#include "instruments.h"

#include "outrider/base/error.h"
#include "outrider/model/fingerprint.h"

namespace outrider::apps {

namespace {

observe::TraceHeader trace_header(const EngineFlags& flags, const LoadedModel& loaded) {
  const engine::EngineOptions& options = loaded.engine->options();
  observe::TraceHeader header;
  header.fingerprint = model::fingerprint(loaded.model);
  header.model = loaded.model.spec.name.empty() ? loaded.model.spec.arch : loaded.model.spec.name;
  header.source = "run";
  header.policy = options.evict;
  header.lfu_half_life_tokens = options.lfu_half_life_tokens;
  header.slots_per_layer = options.slots_per_layer;
  header.lookahead = (flags.lookahead != "off" && flags.lookahead != "0") || !flags.no_warm;
  header.n_used = loaded.model.spec.router.n_used;
  const auto sources = engine::expert_sources(loaded.model);
  for (uint32_t i = 0; i < sources.size(); ++i) {
    header.layers.push_back({.n_experts = sources[i].n_experts, .slab_bytes = loaded.model.slab_bytes(i)});
  }
  return header;
}

}  // namespace

void add_instrument_flags(CLI::App& command, InstrumentFlags& flags) {
  command.add_option("--trace", flags.trace, "Record every demand for experts (docs/trace-format.md), for outrider simulate");
}

Instruments::Instruments(const InstrumentFlags& flags, const EngineFlags& engine_flags, LoadedModel& loaded) {
  if (!flags.trace.empty()) {
    if (!loaded.model.spec.is_moe()) fail(ErrorKind::kBadArgument, "--trace: {} has no routed experts", loaded.model.file.metadata.source());
    trace_ = std::make_unique<observe::TraceRecorder>(flags.trace, trace_header(engine_flags, loaded), loaded.engine->options().chunk);
    loaded.engine->add_pass_observer(*trace_);
  }
}

void Instruments::finish() {
  if (trace_) trace_->finish();
}

}  // namespace outrider::apps

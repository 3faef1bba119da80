// SPDX-License-Identifier: Apache-2.0
#include "instruments.h"

#include <algorithm>
#include <utility>

#include "outrider/base/error.h"
#include "outrider/base/units.h"
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
  command.add_option("--trace", flags.trace,
                     "Record every demand for experts (docs/trace-format.md), for outrider simulate");
  command.add_option("--stats", flags.stats,
                     "Write the step ledger: one JSON object a pass (docs/ledger.md), for outrider fit");
  command.add_flag("--stats-layers", flags.stats_layers, "With --stats, also a row for each MoE layer");
}

Instruments::Instruments(const InstrumentFlags& flags, const EngineFlags& engine_flags, LoadedModel& loaded) {
  if (!flags.trace.empty()) {
    if (!loaded.model.spec.is_moe())
      fail(ErrorKind::kBadArgument, "--trace: {} has no routed experts", loaded.model.file.metadata.source());
    trace_ = std::make_unique<observe::TraceRecorder>(flags.trace, trace_header(engine_flags, loaded),
                                                      loaded.engine->options().chunk);
    loaded.engine->add_pass_observer(*trace_);
  }
  if (flags.stats_layers && flags.stats.empty())
    fail(ErrorKind::kBadArgument, "--stats-layers: wanted with --stats FILE");
  if (!flags.stats.empty()) {
    ledger_ = std::make_unique<observe::StepLedger>(flags.stats, *loaded.engine, flags.stats_layers);
    loaded.engine->add_pass_observer(*ledger_);
  }
}

Json latency_json(const io::ReadLatency& latency) {
  Json out = {
      {"p50", latency.percentile_us(0.5)}, {"p95", latency.percentile_us(0.95)}, {"p99", latency.percentile_us(0.99)}};
  out["buckets"] = Json::array();
  for (uint32_t i = 0; i < io::kLatencyBuckets; ++i) {
    if (latency.counts[i] > 0)
      out["buckets"].push_back({{"below_us", io::ReadLatency::below_us(i)}, {"reads", latency.counts[i]}});
  }
  return out;
}

std::string closing_table(const engine::Engine& engine, const engine::PhaseTimes& before, const GenerateResult& result,
                          const residency::StoreCounters& experts) {
  const engine::PhaseTimes phases = engine.phase_times();
  const double in_engine_s = static_cast<double>(phases.total() - before.total()) / 1e9;
  const double total_s = result.prefill_s + result.decode_s;
  const auto seconds = [](uint64_t now, uint64_t then) { return static_cast<double>(now - then) / 1e9; };
  const std::pair<const char*, double> rows[] = {
      {"attention", seconds(phases.attention, before.attention)},
      {"router", seconds(phases.router, before.router)},
      {"experts", seconds(phases.experts, before.experts)},
      {"dense", seconds(phases.dense, before.dense)},
      {"head", seconds(phases.head, before.head)},
      {"sampling", result.sampling_s},
      {"stall", seconds(phases.stall, before.stall)},
      {"other", seconds(phases.other, before.other) + std::max(0.0, total_s - in_engine_s - result.sampling_s)}};
  std::string names = "  time  ", values = "    ms  ", shares = "     %  ";
  for (const auto& [name, value] : rows) {
    names += fmt::format("{:>10}", name);
    values += fmt::format("{:>10.1f}", value * 1e3);
    shares += fmt::format("{:>10.1f}", total_s > 0 ? 100 * value / total_s : 0.0);
  }
  std::string bytes = fmt::format("  read  demand {}", format_bytes(experts.bytes_demand));
  for (const auto& [name, n] : {std::pair{"predictions used", experts.bytes_predicted_used},
                                {"wasted", experts.bytes_predicted_wasted},
                                {"pending", experts.bytes_predicted_pending},
                                {"background", experts.bytes_background}}) {
    if (n > 0) bytes += fmt::format(", {} {}", name, format_bytes(n));
  }
  const io::ReadLatency latency = engine.read_latency();
  return fmt::format("{}\n{}\n{}\n{}; {} evicted; a read: half below {} us, 99 % below {} us\n", names, values, shares,
                     bytes, experts.evicted, latency.percentile_us(0.5), latency.percentile_us(0.99));
}

void Instruments::finish() {
  if (trace_) trace_->finish();
  if (ledger_) ledger_->finish();
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "plan_speed.h"

#include <fmt/format.h>

#include <algorithm>

#include "outrider/base/error.h"
#include "outrider/model/fingerprint.h"
#include "outrider/observe/trace_file.h"
#include "outrider/whatif/probe.h"
#include "outrider/whatif/replay.h"

namespace outrider::apps {
namespace {

// The share of demanded experts that miss with so many slots.
class MissRate {
 public:
  MissRate(const model::Model& model, const EngineFlags& flags, const whatif::ModelWork& work, const std::string& trace_path)
      : flags_(flags), work_(work) {
    if (trace_path.empty() || work.n_experts == 0) return;
    trace_ = observe::read_trace(trace_path);
    if (trace_->header().fingerprint != model::fingerprint(model)) {
      fail(ErrorKind::kBadArgument, "{}: is a trace of another model than {}", printable(trace_path), model.file.metadata.source());
    }
  }
  double at(uint32_t slots) const {
    if (!trace_) return whatif::uniform_miss_rate(work_, slots);
    if (slots >= work_.n_experts) return 0;
    const whatif::Replay replay = whatif::replay_policy(*trace_, flags_.evict, slots, flags_.lfu_half_life);
    return replay.demanded == 0 ? 0 : static_cast<double>(replay.misses) / static_cast<double>(replay.demanded);
  }
  const char* from() const { return trace_ ? "trace" : "uniform routing"; }

 private:
  const EngineFlags& flags_;
  const whatif::ModelWork& work_;
  std::optional<observe::Trace> trace_;
};

Json to_json(const whatif::Speed& speed) {
  return {{"tokens_per_s", speed.expected_tps}, {"bound_tokens_per_s", speed.bound_tps}, {"bound_by", whatif::bound_name(speed.by)}};
}

// Slots per layer with a budget twice as large. When a size was asked for, twice those slots.
uint32_t slots_with_twice_ram(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan) {
  const whatif::CacheRequest request = whatif::parse_cache_request(flags.expert_cache);
  if (request.kind != whatif::CacheRequest::Kind::kAuto) return std::min(2 * plan.slots_per_layer, plan.all_slots);
  MemoryBudget twice = plan.budget;
  twice.available_bytes *= 2;
  return plan_of(model, flags, engine_options(flags), twice).slots_per_layer;
}

}  // namespace

Json plan_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan, const std::string& trace_path, std::string& note) {
  const auto probe = whatif::load_probe(whatif::probe_path(), note);
  if (!probe) {
    note += (note.empty() ? "" : "; ") + std::string("run `outrider probe` for the speed to expect");
    return nullptr;
  }
  const engine::EngineOptions options = engine::resolve(model, whatif::planned(engine_options(flags), plan));
  const whatif::ModelWork empty = whatif::model_work(model);
  whatif::ModelWork full = empty;
  for (const engine::PlanLine& line : plan.lines) {
    if (line.name == "KV cache") full.kv_bytes = static_cast<double>(line.bytes);
  }
  const whatif::MachineRates rates = whatif::rates_of(*probe, model, options);
  const MissRate miss_rate(model, flags, empty, trace_path);
  const auto speeds = [&](uint32_t slots, const whatif::MachineRates& machine) {
    const double rate = miss_rate.at(slots);
    const whatif::Prediction now = whatif::predict(empty, machine, rate, options.chunk);
    Json out = {{"slots_per_layer", slots}, {"miss_rate", rate}, {"missed_bytes_per_token", now.missed_bytes}};
    out["decode"] = {to_json(now.decode), to_json(whatif::predict(full, machine, rate, options.chunk).decode)};
    out["decode"][0]["context"] = 0;
    out["decode"][1]["context"] = options.context;
    out["prefill"] = to_json(now.prefill);
    out["prefill"]["chunk"] = options.chunk;
    return out;
  };
  Json out = speeds(plan.slots_per_layer, rates);
  out["miss_rate_from"] = miss_rate.from();
  out["probe"] = {{"date", probe->date}, {"load", probe->load}, {"threads", options.n_threads}, {"dram_gbps", rates.dram_gbps}, {"disk_gbps", rates.drive_gbps},
                  {"int8_gmacs", rates.int8_gmacs}};
  if (plan.all_slots > 0) out["twice_ram"] = speeds(slots_with_twice_ram(model, flags, plan), rates);
  whatif::MachineRates twice = rates;
  twice.drive_gbps *= 2;
  if (plan.all_slots > 0) out["twice_drive"] = speeds(plan.slots_per_layer, twice);
  return out;
}

std::string plan_against_run(const LoadedModel& loaded, const EngineFlags& flags, const GenerateResult& result,
                             const residency::StoreCounters& experts) {
  std::string note;
  const Json planned = plan_speed(loaded.model, flags, loaded.plan, "", note);
  if (planned.is_null()) return "note: " + note + "\n";
  const auto probe = whatif::load_probe(whatif::probe_path(), note);
  const engine::EngineOptions& options = loaded.engine->options();
  const double assumed = planned["miss_rate"];
  const double missed = experts.demanded > 0 ? static_cast<double>(experts.misses) / static_cast<double>(experts.demanded) : 0;
  const uint32_t chunk = std::min<uint32_t>(options.chunk, static_cast<uint32_t>(std::max<uint64_t>(result.prefill_tokens, 1)));
  const whatif::ModelWork work = whatif::model_work(loaded.model);
  const whatif::MachineRates rates = whatif::rates_of(*probe, loaded.model, options);
  const whatif::Prediction before = whatif::predict(work, rates, assumed, chunk), after = whatif::predict(work, rates, missed, chunk);
  std::string out = fmt::format("  plan against run: {:.1f}% of demands missed, {:.1f}% assumed\n", 100 * missed, 100 * assumed);
  const auto line = [&](const char* what, uint64_t n_tokens, double seconds, const whatif::Speed& expected, const whatif::Speed& with_misses) {
    if (n_tokens == 0 || seconds <= 0) return;
    const double measured = static_cast<double>(n_tokens) / seconds;
    out += fmt::format("  {:<8} expected {:>8.2f} t/s, with the run's misses {:>8.2f} (at most {:.2f}, {}); measured {:>8.2f}, {:.0f}% of that\n",
                       what, expected.expected_tps, with_misses.expected_tps, with_misses.bound_tps, whatif::bound_name(with_misses.by),
                       measured, with_misses.expected_tps > 0 ? 100 * measured / with_misses.expected_tps : 0);
  };
  line("prefill", result.prefill_tokens, result.prefill_s, before.prefill, after.prefill);
  line("decode", result.decode_tokens, result.decode_s, before.decode, after.decode);
  return out;
}

std::string format_speed(const Json& speed) {
  const Json& probe = speed["probe"];
  std::string out = fmt::format("speed, from the probe of {} (load {:.1f}): DRAM {:.1f} GB/s, drive {:.2f} GB/s, int8 {:.0f} GMAC/s, {} threads\n",
                                probe["date"].get<std::string>(), probe["load"].get<double>(), probe["dram_gbps"].get<double>(),
                                probe["disk_gbps"].get<double>(), probe["int8_gmacs"].get<double>(), probe["threads"].get<uint32_t>());
  const auto line = [](const std::string& what, const Json& row) {
    return fmt::format("  {:<20} {:>9.2f} t/s expected, at most {:.2f} ({})\n", what, row["tokens_per_s"].get<double>(),
                       row["bound_tokens_per_s"].get<double>(), row["bound_by"].get<std::string>());
  };
  for (const Json& row : speed["decode"]) out += line(fmt::format("decode at {}", row["context"].get<uint32_t>()), row);
  out += line(fmt::format("prefill by {}", speed["prefill"]["chunk"].get<uint32_t>()), speed["prefill"]);
  for (const auto& [key, what] : {std::pair("twice_ram", "2x RAM"), std::pair("twice_drive", "2x drive")}) {
    if (!speed.contains(key)) continue;
    out += line(fmt::format("decode, {}", what), speed[key]["decode"][0]);
    out += line(fmt::format("prefill, {}", what), speed[key]["prefill"]);
  }
  out += fmt::format("  {:.1f}% of demanded experts miss ({}); {:.1f} MB a token from the drive\n", 100 * speed["miss_rate"].get<double>(),
                     speed["miss_rate_from"] == "trace" ? "replay of the trace" : "uniform routing, the worst case; --trace gives the measured share",
                     speed["missed_bytes_per_token"].get<double>() / 1e6);
  return out;
}

}  // namespace outrider::apps

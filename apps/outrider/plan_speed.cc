// SPDX-License-Identifier: Apache-2.0
#include "plan_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

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
  MissRate(const model::Model& model, const EngineFlags& flags, const whatif::ModelWork& work,
           const std::string& trace_path)
      : flags_(flags), work_(work) {
    if (trace_path.empty() || work.n_experts == 0) return;
    trace_ = observe::read_trace(trace_path);
    if (trace_->header().fingerprint != model::fingerprint(model)) {
      fail(ErrorKind::kBadArgument, "{}: is a trace of another model than {}", printable(trace_path),
           model.file.metadata.source());
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
  return {{"tokens_per_s", speed.expected_tps},
          {"bound_tokens_per_s", speed.bound_tps},
          {"bound_by", whatif::bound_name(speed.by)}};
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

Json plan_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                const std::string& trace_path, std::string& note) {
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
  out["probe"] = {{"date", probe->date},          {"load", probe->load},           {"threads", options.n_threads},
                  {"dram_gbps", rates.dram_gbps}, {"disk_gbps", rates.drive_gbps}, {"int8_gmacs", rates.int8_gmacs}};
  if (plan.all_slots > 0) out["twice_ram"] = speeds(slots_with_twice_ram(model, flags, plan), rates);
  whatif::MachineRates twice = rates;
  twice.drive_gbps *= 2;
  if (plan.all_slots > 0) out["twice_drive"] = speeds(plan.slots_per_layer, twice);
  return out;
}

MeasuredRun read_measured(const std::string& stats_path) {
  std::ifstream in(stats_path);
  if (!in) fail(ErrorKind::kIo, "{}: cannot be opened for reading", printable(stats_path));
  MeasuredRun run;
  size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty()) continue;
    const Json step = Json::parse(line, nullptr, false);
    for (const char* key : {"tokens", "ms", "demanded", "misses"}) {
      if (!step.is_object() || !step.contains(key) || !step[key].is_number() || step[key].get<double>() < 0) {
        fail(ErrorKind::kBadFile, "{}: line {}: has no number '{}': wanted a step of run --stats",
             printable(stats_path), line_number, key);
      }
    }
    const auto n_tokens = step["tokens"].get<uint64_t>();
    MeasuredPasses& passes = n_tokens == 1 ? run.decode : run.prefill;
    passes.n_tokens += n_tokens;
    passes.demanded += step["demanded"].get<uint64_t>();
    passes.misses += step["misses"].get<uint64_t>();
    passes.seconds += step["ms"].get<double>() / 1e3;
  }
  if (run.prefill.n_tokens + run.decode.n_tokens == 0)
    fail(ErrorKind::kBadFile, "{}: has no step, wanted a ledger of run --stats", printable(stats_path));
  return run;
}

Json measured_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                    const MeasuredRun& run, const std::string& trace_path, std::string& note) {
  const auto probe = whatif::load_probe(whatif::probe_path(), note);
  if (!probe) {
    note += (note.empty() ? "" : "; ") + std::string("run `outrider probe` for the speed to expect");
    return nullptr;
  }
  const engine::EngineOptions options = engine::resolve(model, whatif::planned(engine_options(flags), plan));
  const whatif::ModelWork work = whatif::model_work(model);
  const whatif::MachineRates rates = whatif::rates_of(*probe, model, options);
  const double assumed = MissRate(model, flags, work, trace_path).at(plan.slots_per_layer);
  const auto n_prefill = static_cast<uint32_t>(std::clamp<uint64_t>(run.prefill.n_tokens, 1, options.chunk));
  const auto row = [&](const MeasuredPasses& passes, whatif::Speed whatif::Prediction::*speed) -> Json {
    if (passes.n_tokens == 0 || passes.seconds <= 0) return nullptr;
    const double missed =
        passes.demanded > 0 ? static_cast<double>(passes.misses) / static_cast<double>(passes.demanded) : 0;
    const whatif::Speed planned = whatif::predict(work, rates, assumed, n_prefill).*speed,
                        with_misses = whatif::predict(work, rates, missed, n_prefill).*speed;
    const double tps = static_cast<double>(passes.n_tokens) / passes.seconds;
    return {{"tokens", passes.n_tokens},
            {"tokens_per_s", tps},
            {"miss_rate", missed},
            {"expected_tokens_per_s", planned.expected_tps},
            {"expected_with_misses_tokens_per_s", with_misses.expected_tps},
            {"bound_tokens_per_s", with_misses.bound_tps},
            {"bound_by", whatif::bound_name(with_misses.by)},
            {"error", with_misses.expected_tps > 0 ? tps / with_misses.expected_tps - 1 : 0}};
  };
  return {{"assumed_miss_rate", assumed},
          {"prefill", row(run.prefill, &whatif::Prediction::prefill)},
          {"decode", row(run.decode, &whatif::Prediction::decode)}};
}

std::string format_measured(const Json& measured) {
  std::string out = fmt::format("plan against run: {:.1f}% of demands were assumed to miss\n",
                                100 * measured["assumed_miss_rate"].get<double>());
  for (const char* kind : {"prefill", "decode"}) {
    const Json& row = measured[kind];
    if (row.is_null()) continue;
    out += fmt::format(
        "  {:<8} measured {:>8.2f} t/s; expected {:>8.2f}, with the run's {:.1f}% of misses {:>8.2f} ({:+.0f}%), at "
        "most {:.2f} ({})\n",
        kind, row["tokens_per_s"].get<double>(), row["expected_tokens_per_s"].get<double>(),
        100 * row["miss_rate"].get<double>(), row["expected_with_misses_tokens_per_s"].get<double>(),
        100 * row["error"].get<double>(), row["bound_tokens_per_s"].get<double>(), row["bound_by"].get<std::string>());
  }
  return out;
}

std::string plan_against_run(const LoadedModel& loaded, const EngineFlags& flags, const GenerateResult& result,
                             const residency::StoreCounters& experts) {
  std::string note;
  const auto passes = [&](uint64_t n_tokens, double seconds) {
    return MeasuredPasses{
        .n_tokens = n_tokens, .demanded = experts.demanded, .misses = experts.misses, .seconds = seconds};
  };
  const MeasuredRun run = {.prefill = passes(result.prefill_tokens, result.prefill_s),
                           .decode = passes(result.decode_tokens, result.decode_s)};
  const Json measured = measured_speed(loaded.model, flags, loaded.plan, run, "", note);
  return measured.is_null() ? "note: " + note + "\n" : format_measured(measured);
}

std::string format_speed(const Json& speed) {
  const Json& probe = speed["probe"];
  std::string out = fmt::format(
      "speed, from the probe of {} (load {:.1f}): DRAM {:.1f} GB/s, drive {:.2f} GB/s, int8 {:.0f} GMAC/s, {} "
      "threads\n",
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
  out += fmt::format("  {:.1f}% of demanded experts miss ({}); {:.1f} MB a token from the drive\n",
                     100 * speed["miss_rate"].get<double>(),
                     speed["miss_rate_from"] == "trace"
                         ? "replay of the trace"
                         : "uniform routing, the worst case; --trace gives the measured share",
                     speed["missed_bytes_per_token"].get<double>() / 1e6);
  return out;
}

}  // namespace outrider::apps

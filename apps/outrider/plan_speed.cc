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

double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

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

whatif::ReadsAhead reads_ahead(const engine::EngineOptions& options) {
  if (options.lookahead == 0) return whatif::ReadsAhead::kNothing;
  return options.token_ahead == engine::TokenAheadMode::kOff ? whatif::ReadsAhead::kLayers
                                                             : whatif::ReadsAhead::kNextToken;
}

// What a prediction is made from: the model's work, the machine's rates, the share of misses.
struct Basis {
  Basis(const whatif::Probe& probe, const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
        const std::string& trace_path)
      : options(engine::resolve(model, whatif::planned(engine_options(flags), plan))),
        work(whatif::model_work(model, options.kv_type)),
        rates(whatif::rates_of(probe, model, options)),
        ahead(reads_ahead(options)),
        miss_rate(model, flags, work, trace_path) {}

  const engine::EngineOptions options;
  const whatif::ModelWork work;
  const whatif::MachineRates rates;
  const whatif::ReadsAhead ahead;
  const MissRate miss_rate;
};

std::optional<whatif::Probe> kept_probe(std::string& note) {
  auto probe = whatif::load_probe(whatif::probe_path(), note);
  if (!probe) note += (note.empty() ? "" : ": ") + std::string("run `outrider probe` for the speed to expect");
  return probe;
}

Json speeds(const Basis& basis, uint32_t slots, const whatif::MachineRates& rates) {
  const double rate = basis.miss_rate.at(slots);
  const uint32_t chunk = basis.options.chunk, context = basis.options.context;
  const auto after = [&](uint32_t n) {
    return whatif::predict(basis.work, rates, {.miss_rate = rate, .chunk = chunk, .context = n, .ahead = basis.ahead});
  };
  const whatif::Prediction now = after(0);
  Json out = {{"slots_per_layer", slots}, {"miss_rate", rate}, {"missed_bytes_per_token", now.missed_bytes}};
  out["decode"] = {to_json(now.decode), to_json(after(context - 1).decode)};
  out["decode"][0]["context"] = 0;
  out["decode"][1]["context"] = context;
  out["prefill"] = to_json(now.prefill);
  out["prefill"]["chunk"] = chunk;
  if (basis.work.n_experts == 0) return out;
  out["first_prefill"] = to_json(whatif::predict(basis.work, rates, {.miss_rate = 1, .chunk = chunk}).prefill);
  out["first_prefill"]["chunk"] = chunk;
  return out;
}

}  // namespace

Json plan_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                const std::string& trace_path, std::string& note) {
  const auto probe = kept_probe(note);
  if (!probe) return nullptr;
  const Basis basis(*probe, model, flags, plan, trace_path);
  Json out = speeds(basis, plan.slots_per_layer, basis.rates);
  out["miss_rate_from"] = basis.miss_rate.from();
  out["probe"] = {{"date", probe->date},
                  {"load", probe->load},
                  {"threads", basis.options.n_threads},
                  {"dram_gbps", basis.rates.dram_gbps},
                  {"disk_gbps", basis.rates.drive_gbps},
                  {"int8_gmacs", basis.rates.int8_gmacs}};
  if (plan.all_slots == 0) return out;
  out["twice_ram"] = speeds(basis, slots_with_twice_ram(model, flags, plan), basis.rates);
  whatif::MachineRates twice = basis.rates;
  twice.drive_gbps *= 2;
  out["twice_drive"] = speeds(basis, plan.slots_per_layer, twice);
  return out;
}

Json measured_speed(const model::Model& model, const EngineFlags& flags, const whatif::Plan& plan,
                    const MeasuredRun& run, const std::string& trace_path, std::string& note) {
  const auto probe = kept_probe(note);
  if (!probe) return nullptr;
  const Basis basis(*probe, model, flags, plan, trace_path);
  Json rows = Json::array();
  for (const MeasuredPasses& passes : run) {
    if (passes.n_tokens == 0 || passes.seconds <= 0) continue;
    const auto n_tokens = static_cast<uint32_t>(std::min<uint64_t>(passes.n_tokens, UINT32_MAX));
    const uint32_t chunk = passes.is_prefill ? std::min(n_tokens, basis.options.chunk) : 1;
    const bool knows_less = passes.is_given && basis.ahead == whatif::ReadsAhead::kNextToken;
    const whatif::ReadsAhead ahead = knows_less ? whatif::ReadsAhead::kLayers : basis.ahead;
    const auto speed = [&](double rate) {
      const auto context = static_cast<uint32_t>(passes.context + (n_tokens - chunk) / 2);  // in the middle
      const whatif::Prediction now = whatif::predict(
          basis.work, basis.rates, {.miss_rate = rate, .chunk = chunk, .context = context, .ahead = ahead});
      return passes.is_prefill ? now.prefill : now.decode;
    };
    const double demanded_bytes = whatif::touched_expert_bytes(basis.work, chunk) / chunk;  // a token
    const double missed = passes.read_bytes > 0 && demanded_bytes > 0
                              ? std::min(1.0, passes.read_bytes / demanded_bytes)
                              : passes.miss_rate;
    const double assumed =
        passes.is_prefill && passes.is_first && basis.work.n_experts > 0 ? 1 : basis.miss_rate.at(plan.slots_per_layer);
    const whatif::Speed with_misses = speed(missed);
    const double tps = static_cast<double>(passes.n_tokens) / passes.seconds;
    rows.push_back({{"kind", passes.is_prefill ? "prefill" : "decode"},
                    {"tokens", passes.n_tokens},
                    {"context", passes.context},
                    {"tokens_per_s", tps},
                    {"miss_rate", missed},
                    {"assumed_miss_rate", assumed},
                    {"expected_tokens_per_s", speed(assumed).expected_tps},
                    {"expected_with_misses_tokens_per_s", with_misses.expected_tps},
                    {"bound_tokens_per_s", with_misses.bound_tps},
                    {"bound_by", whatif::bound_name(with_misses.by)},
                    {"error", with_misses.expected_tps > 0 ? tps / with_misses.expected_tps - 1 : 0}});
  }
  return rows;
}

std::string format_measured(const Json& rows) {
  std::string out = "plan against run\n";
  for (const Json& row : rows) {
    out += fmt::format(
        "  {:<8} {:>5} at {:<5} {:>9.2f} t/s; expected {:.2f} ({:+.0f}%) with {:.1f}% of misses, {:.2f} with the "
        "{:.1f}% "
        "assumed, at most {:.2f} ({})\n",
        row["kind"].get<std::string>(), row["tokens"].get<uint64_t>(), row["context"].get<uint64_t>(),
        row["tokens_per_s"].get<double>(), row["expected_with_misses_tokens_per_s"].get<double>(),
        100 * row["error"].get<double>(), 100 * row["miss_rate"].get<double>(),
        row["expected_tokens_per_s"].get<double>(), 100 * row["assumed_miss_rate"].get<double>(),
        row["bound_tokens_per_s"].get<double>(), row["bound_by"].get<std::string>());
  }
  return out;
}

std::string plan_against_run(const LoadedModel& loaded, const EngineFlags& flags, const GenerateResult& result,
                             const residency::StoreCounters& experts) {
  std::string note;
  const auto passes = [](bool is_prefill, uint64_t n_tokens, double seconds, uint64_t demanded, uint64_t misses) {
    return MeasuredPasses{.is_prefill = is_prefill,
                          .is_first = is_prefill,
                          .n_tokens = n_tokens,
                          .seconds = seconds,
                          .miss_rate = share(misses, demanded)};
  };
  MeasuredRun run = {
      passes(true, result.prefill_tokens, result.prefill_s, result.prefill_demanded, result.prefill_misses),
      passes(false, result.decode_tokens, result.decode_s, experts.demanded - result.prefill_demanded,
             experts.misses - result.prefill_misses)};
  run[1].context = result.prefill_tokens;
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
  if (speed.contains("first_prefill")) out += line("first prefill", speed["first_prefill"]);
  for (const auto& [key, what] : {std::pair("twice_ram", "2x RAM"), std::pair("twice_drive", "2x drive")}) {
    if (!speed.contains(key)) continue;
    const Json& changed = speed[key];
    const auto gain = [&](const char* kind, const Json& before, const Json& after) {
      const double was = before["tokens_per_s"].get<double>(), is = after["tokens_per_s"].get<double>();
      return fmt::format("{} {:.2f} ({:+.0f}%)", kind, is, was > 0 ? 100 * (is / was - 1) : 0);
    };
    out += fmt::format("  {:<20} {}, {}, {} t/s\n", what, gain("decode", speed["decode"][0], changed["decode"][0]),
                       gain("prefill", speed["prefill"], changed["prefill"]),
                       gain("first prefill", speed["first_prefill"], changed["first_prefill"]));
  }
  if (!speed.contains("first_prefill")) return out;
  out += fmt::format("  {:.1f}% of demanded experts miss ({}); {:.1f} MB a token from the drive\n",
                     100 * speed["miss_rate"].get<double>(),
                     speed["miss_rate_from"] == "trace"
                         ? "replay of the trace"
                         : "uniform routing, the worst case; --trace gives the measured share",
                     speed["missed_bytes_per_token"].get<double>() / 1e6);
  return out;
}

}  // namespace outrider::apps

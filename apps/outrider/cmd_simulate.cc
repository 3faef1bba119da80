// SPDX-License-Identifier: Apache-2.0
// outrider simulate: what another cache size or policy would give, from one recorded trace.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "number_in.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/observe/trace_file.h"
#include "outrider/residency/policy.h"
#include "outrider/whatif/cost_model.h"
#include "outrider/whatif/replay.h"
#include "plots.h"

namespace outrider::apps {

namespace {

struct SimulateFlags {
  std::string trace;
  std::vector<std::string> caches = {"12.5%", "25%", "50%", "75%"};
  std::vector<std::string> policies = {"all"};
  uint32_t horizon = 0;
  double lfu_half_life = 0;
  std::string drive = "3GB/s", link, lookahead;
  double floor_ms = 0, overlap = 0;
  std::string pool = "layer", svg, html;
  bool json = false;
};

// "3GB/s" or "3GB".
double parse_rate(const char* option, std::string_view text) {
  std::string_view bytes = text;
  if (bytes.ends_with("/s")) bytes.remove_suffix(2);
  const auto rate = parse_bytes(bytes);
  if (!rate || *rate == 0) fail(ErrorKind::kBadArgument, "{} {}: wanted a rate such as 3GB/s", option, printable(text));
  return static_cast<double>(*rate);
}

double parse_number(const char* option, std::string_view field, std::string_view text, double high) {
  const auto value = parse_double(text);
  if (!value || !(*value >= 0) || *value > high) {
    fail(ErrorKind::kBadArgument, "{} {}={}: wanted 0..{}", option, printable(field), printable(text), high);
  }
  return *value;
}

// "width=4,precision=0.7"
void parse_lookahead(std::string_view text, whatif::CostModel& model) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    if (key == "width") {
      model.lookahead_width = static_cast<uint32_t>(parse_number("--lookahead", key, value, 1024));
    } else if (key == "precision") {
      model.lookahead_precision = parse_number("--lookahead", key, value, 1);
    } else {
      fail(ErrorKind::kBadArgument, "--lookahead {}: wanted width=N,precision=P", printable(item));
    }
  }
}

uint32_t slots_of(const std::string& text, const observe::TraceHeader& header) {
  const whatif::CacheRequest request = whatif::parse_cache_request(text, "--cache");
  uint32_t n_experts = 0;
  uint64_t bytes_per_slot = 0;
  for (const observe::TraceLayer& layer : header.layers) {
    n_experts = std::max(n_experts, layer.n_experts);
    bytes_per_slot += layer.slab_bytes;
  }
  double slots = n_experts;
  using Kind = whatif::CacheRequest::Kind;
  if (request.kind == Kind::kSlots) slots = request.value;
  if (request.kind == Kind::kShare) slots = std::floor(request.value / 100 * n_experts);
  if (request.kind == Kind::kBytes)
    slots = std::floor(request.value / static_cast<double>(std::max<uint64_t>(bytes_per_slot, 1)));
  if (slots < 1) fail(ErrorKind::kBadArgument, "--cache {}: less than one slot a layer", printable(text));
  return static_cast<uint32_t>(std::min<double>(slots, n_experts));
}

std::vector<std::string> policies_of(const SimulateFlags& flags) {
  std::vector<std::string> known;
  for (const std::string_view name : residency::policy_names()) known.emplace_back(name);
  known.emplace_back("belady");
  std::vector<std::string> names;
  for (const std::string& name : flags.policies) {
    if (name == "all") {
      names.insert(names.end(), known.begin(), known.end());
    } else if (std::ranges::find(known, name) != known.end()) {
      names.push_back(name);
    } else {
      fail(ErrorKind::kBadArgument, "--policy {}: unknown; valid: all, {}", printable(name), fmt::join(known, ", "));
    }
  }
  if (flags.horizon > 0) names.push_back("horizon");
  return names;
}

struct Result {
  whatif::Replay replay;
  whatif::Cost cost;
};

whatif::Replay replay_one(const observe::Trace& trace, const std::string& policy, uint32_t slots,
                          const SimulateFlags& flags) {
  const double half_life = flags.lfu_half_life > 0 ? flags.lfu_half_life : trace.header().lfu_half_life_tokens;
  if (policy == "belady") return whatif::replay_belady(trace, slots);
  if (policy == "horizon") return whatif::replay_horizon(trace, slots, flags.horizon, half_life);
  return whatif::replay_policy(trace, policy, slots, half_life);
}

double tokens_per_s(const whatif::Cost& cost) { return cost.ms_per_token > 0 ? 1e3 / cost.ms_per_token : 0; }

Json results_json(const observe::Trace& trace, const whatif::CostModel& model, const std::vector<Result>& results) {
  Json out;
  out["trace"] = {{"model", trace.header().model},
                  {"source", trace.header().source},
                  {"steps", trace.n_steps()},
                  {"tokens", trace.n_tokens()},
                  {"layers", trace.header().layers.size()}};
  out["cost_model"] = {{"drive_bytes_per_s", model.drive_bytes_per_s},
                       {"link_bytes_per_s", model.link_bytes_per_s},
                       {"floor_ms", model.floor_ms},
                       {"overlap", model.overlap},
                       {"lookahead", {{"width", model.lookahead_width}, {"precision", model.lookahead_precision}}}};
  out["results"] = Json::array();
  for (const auto& [replay, cost] : results) {
    out["results"].push_back({{"policy", replay.policy},
                              {"slots_per_layer", replay.slots_per_layer},
                              {"demanded", replay.demanded},
                              {"hits", replay.hits},
                              {"misses", replay.misses},
                              {"bytes", replay.bytes},
                              {"ms_per_token", cost.ms_per_token},
                              {"tokens_per_s", tokens_per_s(cost)},
                              {"wasted_bytes", cost.wasted_bytes}});
  }
  return out;
}

void print_table(const observe::Trace& trace, const whatif::CostModel& model, const std::vector<Result>& results) {
  std::printf("%s: %zu passes, %llu tokens, %zu MoE layers, %llu demands\n", trace.header().model.c_str(),
              trace.n_steps(), static_cast<unsigned long long>(trace.n_tokens()), trace.header().layers.size(),
              static_cast<unsigned long long>(results.empty() ? 0 : results[0].replay.demanded));
  std::printf(
      "cost model: %.4g ms a token + misses at %s/s, overlap %.3g%s\n", model.floor_ms,
      format_bytes(static_cast<uint64_t>(model.drive_bytes_per_s)).c_str(), model.overlap,
      model.lookahead_width > 0
          ? fmt::format(", look-ahead of {} at precision {}", model.lookahead_width, model.lookahead_precision).c_str()
          : "");
  if (model.floor_ms == 0) {
    std::printf(
        "so the times are the drive's alone; `outrider fit` finds --compute-floor and --drive from a run --stats\n");
  }
  std::printf("%6s  %-12s %8s %10s %12s %10s %10s\n", "slots", "policy", "hits", "misses", "read", "ms/token",
              "tokens/s");
  for (const auto& [replay, cost] : results) {
    std::printf(
        "%6u  %-12s %7.2f%% %10llu %12s %10.3f %10.1f\n", replay.slots_per_layer, replay.policy.c_str(),
        replay.demanded > 0 ? 100.0 * static_cast<double>(replay.hits) / static_cast<double>(replay.demanded) : 0.0,
        static_cast<unsigned long long>(replay.misses), format_bytes(replay.bytes).c_str(), cost.ms_per_token,
        tokens_per_s(cost));
  }
}

void simulate(const SimulateFlags& flags) {
  const std::vector<std::string> policies = policies_of(flags);
  whatif::CostModel model;
  model.drive_bytes_per_s = parse_rate("--drive", flags.drive);
  if (!flags.link.empty()) model.link_bytes_per_s = parse_rate("--link", flags.link);
  model.floor_ms = flags.floor_ms;
  model.overlap = flags.overlap;
  parse_lookahead(flags.lookahead, model);
  const observe::Trace trace = observe::read_trace(flags.trace);
  const bool is_pooled = flags.pool == "global";
  const observe::Trace replayed = is_pooled ? whatif::pool_layers(trace) : trace;
  const auto n_pooled = static_cast<uint32_t>(is_pooled ? trace.header().layers.size() : 1);
  std::vector<Result> results;
  for (const std::string& cache : flags.caches) {
    const uint32_t slots = slots_of(cache, trace.header());
    for (const std::string& policy : policies) {
      whatif::Replay replay = replay_one(replayed, policy, slots * n_pooled, flags);
      replay.slots_per_layer = slots;
      const whatif::Cost cost = whatif::predict_cost(trace, replay, model);
      results.push_back({std::move(replay), cost});
    }
  }
  if (flags.json) {
    std::printf("%s\n",
                results_json(trace, model, results).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    print_table(trace, model, results);
  }
  if (flags.svg.empty() && flags.html.empty()) return;
  std::vector<whatif::Replay> replays;
  for (Result& result : results) replays.push_back(std::move(result.replay));
  write_plots(flags.svg, flags.html, "Cache of " + trace.header().model,
              {whatif::plot_miss_curves(replays), whatif::plot_heat_map(whatif::summarize(trace))});
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("simulate", "Replay a recorded trace with other cache sizes and policies");
  auto flags = std::make_shared<SimulateFlags>();
  command->add_option("TRACE", flags->trace, "File of run --trace, or of synth-trace")->required();
  command->add_option("--cache", flags->caches, "Cache sizes: slots per layer (8s), shares (25%) or bytes (2GiB)")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--policy", flags->policies, "Policies, belady for the bound, or all")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--pool", flags->pool,
                   "Slots of each layer, or one pool of as many for all (the engine has the former)")
      ->check(CLI::IsMember({"layer", "global"}))
      ->capture_default_str();
  command->add_option("--horizon", flags->horizon, "Also what a policy could do that knows this many passes to come");
  command->add_option("--lfu-half-life", flags->lfu_half_life, "Tokens in which counts halve (default: the trace's)")
      ->check(number_in(1, 1e12));
  command->add_option("--drive", flags->drive, "Rate of the drive")->capture_default_str();
  command->add_option("--link", flags->link, "Rate of the link to the device, when there is one");
  command->add_option("--compute-floor", flags->floor_ms, "Milliseconds a token with everything resident")
      ->check(number_in(0, 1e9))
      ->capture_default_str();
  command->add_option("--overlap", flags->overlap, "Share of a layer's computation during which its misses load")
      ->check(number_in(0, 1))
      ->capture_default_str();
  command->add_option("--lookahead", flags->lookahead, "Price look-ahead: width=N,precision=P");
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_plot_flags(*command, flags->svg, flags->html);
  command->callback([flags] { simulate(*flags); });
}

}  // namespace outrider::apps

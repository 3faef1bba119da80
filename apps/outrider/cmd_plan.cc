// SPDX-License-Identifier: Apache-2.0
// outrider plan: the memory plan that every start makes, without starting.
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/units.h"
#include "plan_speed.h"

namespace outrider::apps {

namespace {

struct PlanFlags {
  EngineFlags engine;
  std::string trace, measured;
  bool json = false;
};

void plan(const PlanFlags& flags) {
  static_cast<void>(whatif::parse_cache_request(flags.engine.expert_cache));
  model::LoadOptions load_options;
  load_options.experts_used = flags.engine.experts_used;
  const model::Model model = model::open(flags.engine.model_path, load_options);
  const whatif::Plan result = plan_of(model, flags.engine, engine_options(flags.engine), flags_budget(flags.engine));
  std::string note;
  const Json speed = plan_speed(model, flags.engine, result, flags.trace, note);
  Json measured;
  if (!flags.measured.empty()) {
    std::string same_note;
    measured = measured_speed(model, flags.engine, result, read_measured(flags.measured), flags.trace, same_note);
  }
  if (!flags.json) {
    std::fputs(whatif::format_plan(result).c_str(), stdout);
    if (result.all_slots > 0) {
      std::printf("smallest plan %s (%u slots per layer); everything resident %s (%u)\n",
                  format_bytes(result.minimum_bytes).c_str(), result.minimum_slots,
                  format_bytes(result.everything_bytes).c_str(), result.all_slots);
    }
    if (speed.is_null()) {
      std::printf("note: %s\n", note.c_str());
    } else {
      std::fputs(format_speed(speed).c_str(), stdout);
      if (!measured.is_null()) std::fputs(format_measured(measured).c_str(), stdout);
    }
    return;
  }
  Json out;
  out["plan_bytes"] = result.total_bytes;
  for (const engine::PlanLine& line : result.lines)
    out["lines"].push_back({{"name", line.name}, {"bytes", line.bytes}});
  out["slots_per_layer"] = result.slots_per_layer;
  out["chunk"] = result.chunk;
  out["embedding"] = result.embedding_on_drive ? "drive" : "ram";
  out["minimum_slots"] = result.minimum_slots;
  out["all_slots"] = result.all_slots;
  out["minimum_bytes"] = result.minimum_bytes;
  out["everything_bytes"] = result.everything_bytes;
  out["available_bytes"] = result.budget.available_bytes;
  out["margin_bytes"] = result.margin_bytes;
  out["ruled_by"] = result.budget.ruled_by;
  out["notes"] = result.notes;
  if (speed.is_null()) out["notes"].push_back(note);
  out["speed"] = speed;
  if (!flags.measured.empty()) out["measured"] = measured;
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "Show who would live where in memory and the speed to expect, without reading a weight");
  auto flags = std::make_shared<PlanFlags>();
  flags->engine.generates = true;
  add_engine_flags(*command, flags->engine);
  command->add_option("--trace", flags->trace,
                      "Demand trace of this model (run --trace): its replay gives the share of misses");
  command->add_option(
      "--measured", flags->measured,
      "What run --stats, run --json or bench --json wrote with these options: what was expected beside what came");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { plan(*flags); });
}

}  // namespace outrider::apps

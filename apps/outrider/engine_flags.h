// SPDX-License-Identifier: Apache-2.0
// The options that every command with an engine shares, and the way from them to a loaded model: open and check the
// file, plan the memory, print the plan, read the dense weights.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "outrider/engine/engine.h"
#include "outrider/model/model.h"
#include "outrider/text/tokenizer.h"
#include "outrider/whatif/plan.h"
#include "text_input.h"

namespace outrider::apps {

using Json = nlohmann::ordered_json;

struct EngineFlags {
  std::string model_path;
  uint32_t context = 0;
  uint32_t n_threads = 0;
  std::string expert_cache = "auto";
  std::string memory;
  std::string slot_pool = "layer";
  std::string evict = "guarded";
  double lfu_half_life = 256;
  std::string lookahead = "auto";
  uint32_t lookahead_distance = 1;
  std::string token_ahead = "auto";
  bool generates = false;  // what is decoded is chosen by a sampler: set by the command
  std::string io = "auto";
  std::string direct = "auto";
  uint32_t queue_depth = 0;  // what the kept probe says, else 16
  std::vector<std::string> mirrors;
  std::string isa = "auto";
  std::string chunk = "auto";
  std::string embedding = "auto";
  std::string kv_type = "f16";
  std::optional<int64_t> experts_used;
  bool no_warm = false;
  bool quiet = false;
  bool verbose = false;
  bool no_progress = false;
};

// Adds MODEL and the shared options to a command.
void add_engine_flags(CLI::App& command, EngineFlags& flags);

// Everything a command needs, in the order it was made; destroyed in reverse.
struct LoadedModel {
  model::Model model;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null when the file has none
  whatif::Plan plan;
  std::unique_ptr<engine::Engine> engine;
  double load_s = 0;
  size_t n_warnings_told = 0;  // of the engine's
};

// Prints the engine's warnings that have not been told yet.
void tell_warnings(LoadedModel& loaded);

// The engine options of the flags, every name resolved, but for what the plan settles (cache, chunk, embedding). Throws
// Error(kBadArgument) for a set this processor lacks.
engine::EngineOptions engine_options(const EngineFlags& flags);

// The plan that the flags ask for, with what the kept probe of this machine says, if there is one.
whatif::Plan plan_of(const model::Model& model, const EngineFlags& flags, const engine::EngineOptions& options,
                     const MemoryBudget& budget);

// The budget the plan is made in: the machine's, or --memory when that is less.
MemoryBudget flags_budget(const EngineFlags& flags);

using ConfigureEngine = std::function<void(const model::Model&, engine::EngineOptions&)>;

// Opens, plans, prints the plan to stderr (unless --quiet) and loads. `configure` may change the options before the
// plan.
std::unique_ptr<LoadedModel> load_model(const EngineFlags& flags, const std::atomic<bool>* cancel = nullptr,
                                        const ConfigureEngine& configure = {});

// Throws Error(kBadArgument) saying why when the model has no tokenizer.
const text::Tokenizer& require_tokenizer(const LoadedModel& loaded);

// The `experts` object of design.md section 8, from counters (or their difference over a measurement).
Json experts_json(const LoadedModel& loaded, const residency::StoreCounters& counters);
residency::StoreCounters operator-(const residency::StoreCounters& a, const residency::StoreCounters& b);

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "engine_flags.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "number_in.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/model/mirror.h"
#include "outrider/residency/policy.h"
#include "outrider/whatif/probe.h"
#include "progress.h"

namespace outrider::apps {

namespace {

template <typename Enum>
Enum choose(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> choices) {
  for (const auto& [known, value] : choices) {
    if (name == known) return value;
  }
  fail(ErrorKind::kBadArgument, "{}: not a choice", printable(name));  // the command line was checked before
}

Isa resolve_isa(const std::string& name) {
  if (name == "auto") return best_isa();
  const auto isa = parse_isa(name);
  if (!isa || !isa_supported(*isa)) {
    std::string has;
    for (const Isa known : kAllIsas) {
      if (isa_supported(known)) has += (has.empty() ? "" : ", ") + std::string(isa_name(known));
    }
    fail(ErrorKind::kBadArgument, "--isa {}: this processor has {}", printable(name), has);
  }
  return *isa;
}

// nullopt: not a width.
std::optional<uint32_t> parse_lookahead(const std::string& text) {
  if (text == "auto") return engine::kLookAheadAuto;
  if (text == "off") return 0;
  uint32_t width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  if (error != std::errc() || end != text.data() + text.size() || width > engine::kMaxLookAhead) return std::nullopt;
  return width;
}

std::string check_lookahead(const std::string& text) {
  if (parse_lookahead(text)) return "";
  return printable(text) + " is not auto, off or 0.." + std::to_string(engine::kMaxLookAhead);
}

// 0: auto. nullopt: not a chunk.
std::optional<uint32_t> parse_chunk(const std::string& text) {
  if (text == "auto") return 0;
  uint32_t chunk = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chunk);
  if (error != std::errc() || end != text.data() + text.size() || chunk < 1 || chunk > 65536) return std::nullopt;
  return chunk;
}

std::string check_chunk(const std::string& text) {
  return parse_chunk(text) ? "" : printable(text) + " is not auto or 1..65536";
}

}  // namespace

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  command.add_option("MODEL", flags.model_path, "GGUF file, any part of a split set, or the folder that holds it")
      ->required();
  command.add_option("-c,--ctx", flags.context, "Context in tokens (default: the model's, at most 4096)");
  command.add_option("-t,--threads", flags.n_threads, "Threads (default: physical cores within affinity and quota)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--expert-cache", flags.expert_cache,
                  "Memory for routed experts: auto, a size (2GiB), slots per layer (48s) or a share (25%)")
      ->capture_default_str();
  command.add_option("--memory", flags.memory,
                     "Plan within this much memory, when it is less than what is free (8GiB)");
  command
      .add_option("--slot-pool", flags.slot_pool, "Whether each layer has expert slots of its own or all share theirs")
      ->check(CLI::IsMember({"layer", "global"}))
      ->capture_default_str();
  std::vector<std::string> policies;
  for (const auto name : residency::policy_names()) policies.emplace_back(name);
  command.add_option("--evict", flags.evict, "Which expert leaves a full cache")
      ->check(CLI::IsMember(policies))
      ->capture_default_str();
  command.add_option("--lfu-half-life", flags.lfu_half_life, "Tokens in which the counts of --evict lfu halve")
      ->check(number_in(1, 1e9))
      ->capture_default_str();
  command
      .add_option("--lookahead", flags.lookahead,
                  "Experts guessed ahead for each token: a number, auto (what pays) or off")
      ->check(check_lookahead)
      ->capture_default_str();
  command.add_option("--lookahead-distance", flags.lookahead_distance, "MoE layers ahead at most; 2 is an experiment")
      ->check(CLI::Range(1U, engine::kMaxAheadDistance))
      ->capture_default_str();
  command
      .add_option(
          "--token-ahead", flags.token_ahead,
          "Guess the next token and read for it while the head runs, in run and bench --generate: auto (where it "
          "pays), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command.add_option("--io", flags.io, "How experts are read")
      ->check(CLI::IsMember({"auto", "uring", "threads"}))
      ->capture_default_str();
  command.add_option("--direct", flags.direct, "Reads past the page cache")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command
      .add_option("--queue-depth", flags.queue_depth,
                  "Reads in flight (default: what the kept probe found to be enough, else 16)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--mirror", flags.mirrors,
          "A copy of MODEL on another drive: experts are read from both, split by measured rate (may be repeated)")
      ->allow_extra_args(false);
  command.add_option("--isa", flags.isa, "Instruction set; the bits are the same")
      ->check(CLI::IsMember({"auto", "scalar", "avx2", "avx512"}))
      ->capture_default_str();
  command
      .add_option("--chunk,--ubatch-size", flags.chunk,
                  "Tokens of a prefill pass: a number, or auto (from memory and routing)")
      ->check(check_chunk)
      ->capture_default_str();
  command
      .add_option("--embedding", flags.embedding,
                  "Where the token embedding is: ram, drive (its rows are read as they are needed), or auto")
      ->check(CLI::IsMember({"auto", "ram", "drive"}))
      ->capture_default_str();
  command.add_option("--kv-type", flags.kv_type, "Storage of keys and values; changes the bits")
      ->check(CLI::IsMember({"f16", "f32", "q8_0"}))
      ->capture_default_str();
  command.add_option("--experts-used", flags.experts_used,
                     "Experts per token instead of the file's number; changes the text");
  command.add_flag("--no-warm", flags.no_warm,
                   "run: neither fill the expert cache with what earlier runs demanded, nor remember this one");
  command.add_flag("-q,--quiet", flags.quiet, "No plan, no notes, no closing line");
  command.add_flag("-v,--verbose", flags.verbose, "More notes");
  command.add_flag("--no-progress", flags.no_progress, "No progress bars");
}

engine::EngineOptions engine_options(const EngineFlags& flags) {
  engine::EngineOptions options;
  options.context = flags.context;
  options.n_threads = flags.n_threads != 0 ? flags.n_threads : core_budget().default_threads;
  options.isa = resolve_isa(flags.isa);
  options.chunk = *parse_chunk(flags.chunk);
  using kernels::KvType;
  options.kv_type =
      choose<KvType>(flags.kv_type, {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8_0", KvType::kQ8_0}});
  using residency::SlotPool;
  options.slot_pool = choose<SlotPool>(flags.slot_pool, {{"layer", SlotPool::kLayer}, {"global", SlotPool::kGlobal}});
  options.evict = flags.evict;
  options.lfu_half_life_tokens = flags.lfu_half_life;
  using residency::DirectMode;
  using residency::IoMode;
  options.io =
      choose<IoMode>(flags.io, {{"auto", IoMode::kAuto}, {"uring", IoMode::kUring}, {"threads", IoMode::kThreads}});
  options.direct = choose<DirectMode>(
      flags.direct, {{"auto", DirectMode::kAuto}, {"on", DirectMode::kOn}, {"off", DirectMode::kOff}});
  if (flags.queue_depth != 0) options.queue_depth = flags.queue_depth;
  options.lookahead = *parse_lookahead(flags.lookahead);
  options.lookahead_distance = flags.lookahead_distance;
  if (flags.generates && flags.token_ahead != "off") {
    options.token_ahead = flags.token_ahead == "on" ? engine::TokenAheadMode::kAlways : engine::TokenAheadMode::kAuto;
  }
  return options;
}

MemoryBudget flags_budget(const EngineFlags& flags) {
  MemoryBudget budget = memory_budget();
  if (flags.memory.empty()) return budget;
  const auto bytes = parse_bytes(flags.memory);
  if (!bytes || *bytes == 0)
    fail(ErrorKind::kBadArgument, "--memory {}: wanted a size such as 8GiB", printable(flags.memory));
  if (*bytes < budget.available_bytes) {
    budget.available_bytes = budget.limit_bytes = *bytes;
    budget.ruled_by = "--memory";
  }
  return budget;
}

whatif::Plan plan_of(const model::Model& model, const EngineFlags& flags, const engine::EngineOptions& options,
                     const MemoryBudget& budget) {
  using whatif::EmbeddingPlace;
  const auto place = choose<EmbeddingPlace>(
      flags.embedding,
      {{"auto", EmbeddingPlace::kAuto}, {"ram", EmbeddingPlace::kRam}, {"drive", EmbeddingPlace::kDrive}});
  std::string ignored;
  const auto probe = whatif::load_probe(whatif::probe_path(), ignored);
  return whatif::make_plan(model, options, whatif::parse_cache_request(flags.expert_cache), budget, place,
                           probe ? whatif::rates_of(*probe, model, options) : whatif::MachineRates{});
}

namespace {

// The depth from which on the drive gets no faster, as the kept probe says, unless one was asked for. Never below 4:
// with less, the next read starts only after somebody has noticed the end of the last.
void choose_depth(const model::Model& model, const EngineFlags& flags, engine::EngineOptions& options) {
  std::string ignored;
  const auto probe = flags.queue_depth == 0 && model.n_moe_layers() > 0
                         ? whatif::load_probe(whatif::probe_path(), ignored)
                         : std::nullopt;
  const uint32_t depth = probe ? probe->drive_depth(whatif::read_bytes_of(model)) : 0;
  if (depth != 0) options.queue_depth = std::max(depth, 4U);
}

}  // namespace

std::unique_ptr<LoadedModel> load_model(const EngineFlags& flags, const std::atomic<bool>* cancel,
                                        const ConfigureEngine& configure) {
  const auto start = std::chrono::steady_clock::now();
  auto loaded = std::make_unique<LoadedModel>();
  static_cast<void>(whatif::parse_cache_request(flags.expert_cache));  // what is wrong is told before a file is opened
  engine::EngineOptions options = engine_options(flags);
  options.cancel = cancel;
  model::LoadOptions load_options;
  load_options.experts_used = flags.experts_used;
  loaded->model = model::open(flags.model_path, load_options);
  if (text::Tokenizer::present(loaded->model.file.metadata)) {
    loaded->tokenizer = text::Tokenizer::load(loaded->model.file.metadata);
  }
  for (const std::string& mirror : flags.mirrors)
    options.mirrors.push_back(model::files_of_copy(loaded->model, mirror));
  if (configure) configure(loaded->model, options);
  choose_depth(loaded->model, flags, options);
  loaded->plan = plan_of(loaded->model, flags, options, flags_budget(flags));
  options = whatif::planned(options, loaded->plan);
  if (!flags.quiet) {
    std::fputs(whatif::format_plan(loaded->plan).c_str(), stderr);
    for (const std::string& note : loaded->model.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  Progress progress("loading dense weights", flags.no_progress || flags.quiet);
  loaded->engine = std::make_unique<engine::Engine>(
      loaded->model, options, [&](uint64_t done, uint64_t total) { progress.update(done, total); });
  progress.finish();
  tell_warnings(*loaded);
  loaded->load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

void tell_warnings(LoadedModel& loaded) {
  const std::vector<std::string>& warnings = loaded.engine->warnings();
  for (; loaded.n_warnings_told < warnings.size(); ++loaded.n_warnings_told) {
    std::fprintf(stderr, "warning: %s\n", warnings[loaded.n_warnings_told].c_str());
  }
}

const text::Tokenizer& require_tokenizer(const LoadedModel& loaded) {
  if (!loaded.tokenizer) {
    fail(ErrorKind::kBadArgument,
         "{}: the file has no tokenizer (tokenizer.ggml.model), so text cannot be used: give token ids",
         loaded.model.file.metadata.source());
  }
  return *loaded.tokenizer;
}

residency::StoreCounters operator-(const residency::StoreCounters& a, const residency::StoreCounters& b) {
  residency::StoreCounters out = a;
  out.demanded -= b.demanded;
  out.hits -= b.hits;
  out.misses -= b.misses;
  out.bytes_read -= b.bytes_read;
  out.bytes_demand -= b.bytes_demand;
  out.bytes_predicted_used -= b.bytes_predicted_used;
  out.bytes_predicted_wasted -= b.bytes_predicted_wasted;
  out.bytes_background -= b.bytes_background;
  out.predicted -= b.predicted;
  out.predicted_used -= b.predicted_used;
  out.predicted_in_time -= b.predicted_in_time;
  out.admitted -= b.admitted;
  out.dropped -= b.dropped;
  out.evicted -= b.evicted;
  out.evicted_unused -= b.evicted_unused;
  out.reads -= b.reads;
  out.read_retries -= b.read_retries;
  out.stall_ns -= b.stall_ns;
  out.idle_ns -= b.idle_ns;
  out.hideable_ns -= b.hideable_ns;
  return out;
}

Json experts_json(const LoadedModel& loaded, const residency::StoreCounters& counters) {
  Json out;
  out["slots_per_layer"] = loaded.plan.slots_per_layer;
  out["demanded"] = counters.demanded;
  out["hits"] = counters.hits;
  out["misses"] = counters.misses;
  out["bytes_read"] = counters.bytes_read;
  out["stall_ms"] = static_cast<double>(counters.stall_ns) / 1e6;
  out["hideable_ms"] = static_cast<double>(counters.hideable_ns) / 1e6;
  out["lookahead"] = {{"width", loaded.engine->lookahead_width()},
                      {"predicted", counters.predicted},
                      {"used", counters.predicted_used},
                      {"in_time", counters.predicted_in_time},
                      {"wasted_bytes", counters.bytes_predicted_wasted},
                      {"dropped", counters.dropped}};
  const engine::NextTokenScore next = loaded.engine->next_token_score();
  out["lookahead"]["next_token"] = {
      {"guessed", next.guessed}, {"right", next.right}, {"searched_early", next.searched_early}};
  const std::vector<io::CopyReads> copies = loaded.engine->copy_reads();
  if (copies.size() > 1) {
    for (const io::CopyReads& copy : copies) {
      out["copies"].push_back(
          {{"path", copy.path}, {"bytes", copy.n_bytes}, {"gbps", copy.gbps}, {"lost", copy.is_lost}});
    }
  }
  return out;
}

}  // namespace outrider::apps

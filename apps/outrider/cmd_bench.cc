// SPDX-License-Identifier: Apache-2.0
// outrider bench: prefill and decode speed at context frontiers, with the bounds of this machine beside them; --vs
// interleaves a second configuration and gives the ratio pair by pair.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/random.h"
#include "outrider/base/units.h"
#include "outrider/whatif/machine.h"
#include "outrider/whatif/predict.h"
#include "outrider/whatif/probe.h"

namespace outrider::apps {

namespace {

struct BenchFlags {
  EngineFlags engine;
  std::vector<uint32_t> prefill = {512}, decode = {64}, context = {0};
  uint32_t repeat = 5;
  std::string versus;
  bool json = false;
};

struct Spread {
  double median = 0, min = 0, max = 0;
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values.front(), values.back()};
}

Json to_json(const Spread& s) { return {{"median", s.median}, {"min", s.min}, {"max", s.max}}; }

struct Case {
  bool is_prefill;
  uint32_t tokens, context;
};

// One engine under test; tokens are drawn from a seed, the same for every engine and repetition.
struct Subject {
  std::unique_ptr<LoadedModel> loaded;
  std::vector<std::vector<double>> rates;  // per case, tokens per second
  std::vector<double> read_bytes;          // per case, of the drive, a token
  residency::StoreCounters decode_experts;

  std::vector<int32_t> tokens(uint32_t n, uint64_t seed) const {
    Random random(seed);
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(loaded->model.spec.n_vocab));
    return ids;
  }

  // An unmeasured run counts for nothing: it meets cold caches.
  void run(const Case& test, size_t case_idx, bool is_measured) {
    engine::Engine& engine = *loaded->engine;
    if (engine.n_tokens(0) < test.context) {
      engine.keep(0, 0);
      engine.prefill(0, tokens(test.context, 1));
    }
    engine.keep(0, test.context);
    const std::vector<int32_t> ids = tokens(test.tokens, 2);
    const residency::StoreCounters before = engine.counters().experts;
    const auto start = std::chrono::steady_clock::now();
    if (test.is_prefill) {
      engine.prefill(0, ids);
    } else {
      for (uint32_t i = 0; i < test.tokens; ++i) {
        const engine::PassRow row{0, test.context + i, ids[i], true};
        engine.pass({&row, 1});
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!is_measured) return;
    rates[case_idx].push_back(test.tokens / seconds);
    const residency::StoreCounters spent = engine.counters().experts - before;
    const auto n_runs = static_cast<double>(rates[case_idx].size());
    read_bytes[case_idx] += (static_cast<double>(spent.bytes_read) / test.tokens - read_bytes[case_idx]) / n_runs;
    if (!test.is_prefill) {
      decode_experts.demanded += spent.demanded;
      decode_experts.hits += spent.hits;
      decode_experts.misses += spent.misses;
      decode_experts.bytes_read += spent.bytes_read;
      decode_experts.stall_ns += spent.stall_ns;
    }
  }
};

// The flags of --vs: the first configuration's with these options changed.
EngineFlags versus_flags(const BenchFlags& flags) {
  EngineFlags other = flags.engine;
  CLI::App app("--vs");
  app.set_help_flag();
  add_engine_flags(app, other);
  std::vector<std::string> arguments = CLI::detail::split_up(flags.versus);
  arguments.insert(arguments.begin(), flags.engine.model_path);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kBadArgument, "--vs \"{}\": {}", printable(flags.versus), error.what());
  }
  return other;
}

Subject load_subject(const EngineFlags& flags, uint32_t context, size_t n_cases) {
  Subject subject;
  subject.loaded = load_model(flags, nullptr, [&](const model::Model&, engine::EngineOptions& options) {
    if (options.context == 0) options.context = context;
  });
  subject.rates.resize(n_cases);
  subject.read_bytes.resize(n_cases);
  return subject;
}

// Bytes of resident weights that one decoded token reads.
uint64_t bytes_per_token(const LoadedModel& loaded) {
  const model::Model& model = loaded.model;
  uint64_t bytes = loaded.plan.lines[0].bytes;  // dense weights
  if (!model.tied_head && !loaded.plan.embedding_on_drive) bytes -= model.embedding->n_bytes;
  for (uint32_t layer = 0; layer < model.n_moe_layers(); ++layer)
    bytes += model.spec.router.n_used * model.slab_bytes(layer);
  return bytes;
}

// First before anything is loaded, then between the cases with memory that is free: on a machine whose rate comes and goes,
// only the best of readings all along is a bound. Under --memory only the first: the plan may have taken all there is.
double probe_dram(const EngineFlags& flags) {
  ThreadPool pool(engine_options(flags).n_threads);
  return whatif::dram_read_gbps(pool, flags_budget(flags).available_bytes / 2);
}

whatif::DriveReadings drive_readings(const LoadedModel& loaded) {
  const format::ModelFile& file = loaded.model.file;
  const auto largest = std::max_element(file.files.begin(), file.files.end(),
                                        [](const auto& a, const auto& b) { return a.n_bytes < b.n_bytes; });
  return {largest->path, whatif::read_bytes_of(loaded.model)};
}

Json machine_json(const LoadedModel& loaded, double dram_gbps, const whatif::DriveReadings& drive) {
  Json out = {{"cpu", cpu_name()},
              {"threads", loaded.engine->options().n_threads},
              {"isa", isa_name(loaded.engine->options().isa)},
              {"dram_gbps", dram_gbps},
              {"disk_gbps", drive.best_gbps()},
              {"disk_gbps_least", drive.least_gbps()},
              {"disk_readings", drive.n_readings()}};
  std::string ignored;
  if (const auto probe = whatif::load_probe(whatif::probe_path(), ignored)) {
    const std::string isa(isa_name(loaded.engine->options().isa));
    out["int8_gmacs"] = probe->gmacs("int8", isa) * std::min(loaded.engine->options().n_threads, probe->cores);
    out["probe_date"] = probe->date;
  }
  return out;
}

// Tokens per second at which the drive alone could have served a case; infinite when nothing was read.
double drive_bound(const Subject& subject, size_t case_idx, const Json& machine) {
  const double disk = machine["disk_gbps"], bytes = subject.read_bytes[case_idx];
  return disk > 0 && bytes > 0 ? 1e9 * disk / bytes : std::numeric_limits<double>::infinity();
}

// Prefill bound: the arithmetic of a chunk at the kept probe's int8 rate (if there is one), its bytes at the DRAM rate, or
// what was read at the drive's.
double prefill_bound(const Subject& subject, size_t case_idx, const Json& machine, uint32_t n_tokens) {
  const whatif::MachineRates rates = {
      .dram_gbps = machine["dram_gbps"], .drive_gbps = 0, .int8_gmacs = machine.value("int8_gmacs", 0.0)};
  const uint32_t chunk = std::min(n_tokens, subject.loaded->engine->options().chunk);
  return std::min(whatif::predict(whatif::model_work(subject.loaded->model), rates, 0, chunk).prefill.bound_tps,
                  drive_bound(subject, case_idx, machine));
}

// Decode bound, tokens per second: max(resident bytes / DRAM rate, missed bytes / drive rate) a token (design.md 9).
double decode_bound(const Subject& subject, size_t case_idx, const Json& machine) {
  const double ns = static_cast<double>(bytes_per_token(*subject.loaded)) / std::max(machine["dram_gbps"].get<double>(), 1e-9);
  return std::min(1e9 / ns, drive_bound(subject, case_idx, machine));
}

Json report(const Subject& subject, const std::vector<Case>& cases, const Json& machine) {
  Json out;
  out["prefill"] = Json::array();
  out["decode"] = Json::array();
  for (size_t i = 0; i < cases.size(); ++i) {
    Json row = {{"tokens", cases[i].tokens},
                {"context", cases[i].context},
                {"tokens_per_s", to_json(spread(subject.rates[i]))}};
    const bool has_prefill_bound = machine.contains("int8_gmacs") || subject.read_bytes[i] > 0;
    if (cases[i].is_prefill && has_prefill_bound) row["bound_tokens_per_s"] = prefill_bound(subject, i, machine, cases[i].tokens);
    if (!cases[i].is_prefill) row["bound_tokens_per_s"] = decode_bound(subject, i, machine);
    row["read_bytes_per_token"] = subject.read_bytes[i];
    if (subject.read_bytes[i] > 0) row["drive_bound_tokens_per_s"] = drive_bound(subject, i, machine);
    out[cases[i].is_prefill ? "prefill" : "decode"].push_back(row);
  }
  out["experts"] = experts_json(*subject.loaded, subject.decode_experts);
  out["kernel_class"] = subject.loaded->engine->kernel_class();
  return out;
}

void print_table(const Json& result) {
  for (const char* kind : {"prefill", "decode"}) {
    for (const Json& row : result[kind]) {
      const Json& rate = row["tokens_per_s"];
      std::printf("%-8s %6u at %6u  %9.2f t/s  [%.2f - %.2f]", kind, row["tokens"].get<uint32_t>(),
                  row["context"].get<uint32_t>(), rate["median"].get<double>(), rate["min"].get<double>(),
                  rate["max"].get<double>());
      if (row.contains("bound_tokens_per_s")) {
        const double bound = row["bound_tokens_per_s"];
        std::printf("  bound %.2f (%.0f%%)", bound, 100 * rate["median"].get<double>() / bound);
      }
      std::printf("\n");
    }
  }
}

void bench(const BenchFlags& flags) {
  std::vector<Case> cases;
  uint32_t longest = 0;
  for (const uint32_t context : flags.context) {
    for (const uint32_t n : flags.prefill) cases.push_back({true, n, context});
    for (const uint32_t n : flags.decode) cases.push_back({false, n, context});
    for (const Case& test : cases) longest = std::max(longest, test.context + test.tokens);
  }
  if (cases.empty()) fail(ErrorKind::kBadArgument, "--prefill and --decode: wanted at least one size");
  double dram_gbps = probe_dram(flags.engine);
  std::vector<Subject> subjects;
  subjects.push_back(load_subject(flags.engine, longest, cases.size()));
  if (!flags.versus.empty()) subjects.push_back(load_subject(versus_flags(flags), longest, cases.size()));
  whatif::DriveReadings drive = drive_readings(*subjects[0].loaded);
  drive.take();
  for (size_t i = 0; i < cases.size(); ++i) {
    for (Subject& subject : subjects) subject.run(cases[i], i, false);
    for (uint32_t round = 0; round < flags.repeat; ++round) {
      for (Subject& subject : subjects) subject.run(cases[i], i, true);
    }
    drive.take();
    if (flags.engine.memory.empty()) dram_gbps = std::max(dram_gbps, probe_dram(flags.engine));
  }
  const Json machine = machine_json(*subjects[0].loaded, dram_gbps, drive);
  Json out = report(subjects[0], cases, machine);
  out["machine"] = machine;
  if (subjects.size() == 2) {
    out["vs"] = report(subjects[1], cases, machine);
    out["vs"]["options"] = flags.versus;
    for (size_t i = 0; i < cases.size(); ++i) {
      std::vector<double> ratios;
      for (uint32_t round = 0; round < flags.repeat; ++round)
        ratios.push_back(subjects[1].rates[i][round] / subjects[0].rates[i][round]);
      out["vs"]["ratios"].push_back({{"kind", cases[i].is_prefill ? "prefill" : "decode"},
                                     {"tokens", cases[i].tokens},
                                     {"context", cases[i].context},
                                     {"pairs", ratios},
                                     {"ratio", to_json(spread(ratios))}});
    }
  }
  if (flags.json) {
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  std::printf("%s, %u threads, %s; DRAM %.1f GB/s, drive %.2f GB/s (best of %u readings, the least %.2f)\n", machine["cpu"].get<std::string>().c_str(),
              machine["threads"].get<uint32_t>(), machine["isa"].get<std::string>().c_str(),
              machine["dram_gbps"].get<double>(), machine["disk_gbps"].get<double>(), machine["disk_readings"].get<uint32_t>(),
              machine["disk_gbps_least"].get<double>());
  print_table(out);
  if (!flags.versus.empty()) {
    std::printf("vs %s\n", flags.versus.c_str());
    print_table(out["vs"]);
    for (const Json& row : out["vs"]["ratios"]) {
      std::printf("ratio    %s %u at %u: %.3f [%.3f - %.3f]\n", row["kind"].get<std::string>().c_str(),
                  row["tokens"].get<uint32_t>(), row["context"].get<uint32_t>(), row["ratio"]["median"].get<double>(),
                  row["ratio"]["min"].get<double>(), row["ratio"]["max"].get<double>());
    }
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure prefill and decode speed");
  auto flags = std::make_shared<BenchFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--prefill", flags->prefill, "Prefill sizes, a list: 128,512")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--decode", flags->decode, "Decode lengths, a list")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--context", flags->context, "Tokens already in the context, a list")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "Measured repetitions")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--vs", flags->versus, "Options of a second configuration to interleave, e.g. \"--evict lfu\"");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { bench(*flags); });
}

}  // namespace outrider::apps

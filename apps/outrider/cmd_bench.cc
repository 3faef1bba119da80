// SPDX-License-Identifier: Apache-2.0
// outrider bench: prefill and decode speed at context frontiers, with the bounds of this machine beside them; --vs
// interleaves a second configuration and gives the ratio pair by pair.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/random.h"
#include "outrider/base/units.h"
#include "outrider/engine/sampler.h"
#include "outrider/whatif/machine.h"
#include "outrider/whatif/predict.h"
#include "outrider/whatif/probe.h"

namespace outrider::apps {

namespace {

struct BenchFlags {
  EngineFlags engine;
  std::vector<uint32_t> prefill = {512}, decode = {64}, context = {0};
  uint32_t repeat = 5;
  std::string versus, csv;
  bool json = false, cold = false, generate = false;
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

// One measured run. Rates of the drive and of memory are means of readings right before and after it; 0 when nothing
// was read of the drive, in prefill, and under --memory.
struct Round {
  double tps = 0, read_bytes = 0;    // of the drive, a token
  double stall_ms = 0, idle_ms = 0;  // a token: compute waited for the drive; the drive for demands
  double drive_gbps = 0, dram_gbps = 0;

  double drive_bound_tps() const {
    return drive_gbps > 0 && read_bytes > 0 ? 1e9 * drive_gbps / read_bytes : std::numeric_limits<double>::infinity();
  }
};

template <typename Of>
Spread spread_of(const std::vector<Round>& rounds, const Of& of) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(of(round));
  return spread(std::move(values));
}

// One engine under test; tokens are drawn from a seed, the same for every engine and repetition.
struct Subject {
  EngineFlags flags;
  uint32_t longest = 0;
  std::unique_ptr<LoadedModel> loaded;
  std::vector<std::vector<Round>> rounds;  // per case
  residency::StoreCounters decode_experts;

  Subject(EngineFlags engine_flags, uint32_t longest_context, size_t n_cases)
      : flags(std::move(engine_flags)), longest(longest_context), rounds(n_cases) {
    load();
  }

  // With an empty expert cache.
  void load() {
    if (loaded) flags.quiet = true;  // the plan has been told
    loaded.reset();                  // two at once would not fit
    loaded = load_model(flags, nullptr, [this](const model::Model&, engine::EngineOptions& options) {
      if (options.context == 0) options.context = longest;
    });
  }

  std::vector<int32_t> tokens(uint32_t n, uint64_t seed) const {
    Random random(seed);
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(loaded->model.spec.n_vocab));
    return ids;
  }

  // As `run` does it, with its defaults and one seed: the same text in every repetition.
  void generate(const Case& test, int32_t token) {
    engine::SamplerOptions options;
    options.seed = 1;
    if (loaded->tokenizer) {
      const auto ids = loaded->tokenizer->suppressed();
      options.suppressed.assign(ids.begin(), ids.end());
    }
    engine::Sampler sampler(options, loaded->model.spec.n_vocab);
    for (uint32_t i = 0; i < test.tokens; ++i) {
      const engine::PassRow row{0, test.context + i, token, true};
      token = sampler.sample(loaded->engine->pass({&row, 1}, i + 1 < test.tokens ? &sampler : nullptr));
    }
  }

  // Returns whether anything was read of the drive. An unmeasured run counts for nothing: it meets cold caches.
  bool run(const Case& test, size_t case_idx, bool is_measured, bool generates) {
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
    } else if (generates) {
      generate(test, ids[0]);
    } else {
      for (uint32_t i = 0; i < test.tokens; ++i) {
        const engine::PassRow row{0, test.context + i, ids[i], true};
        engine.pass({&row, 1});
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const residency::StoreCounters spent = engine.counters().experts - before;
    if (!is_measured) return spent.bytes_read > 0;
    rounds[case_idx].push_back({.tps = test.tokens / seconds,
                                .read_bytes = static_cast<double>(spent.bytes_read) / test.tokens,
                                .stall_ms = static_cast<double>(spent.stall_ns) / 1e6 / test.tokens,
                                .idle_ms = static_cast<double>(spent.idle_ns) / 1e6 / test.tokens});
    if (!test.is_prefill) {
      decode_experts.demanded += spent.demanded;
      decode_experts.hits += spent.hits;
      decode_experts.misses += spent.misses;
      decode_experts.bytes_read += spent.bytes_read;
      decode_experts.stall_ns += spent.stall_ns;
    }
    return spent.bytes_read > 0;
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

// Bytes of resident weights that one decoded token reads.
uint64_t bytes_per_token(const LoadedModel& loaded) {
  const model::Model& model = loaded.model;
  uint64_t bytes = loaded.plan.lines[0].bytes;  // dense weights
  if (!model.tied_head && !loaded.plan.embedding_on_drive) bytes -= model.embedding->n_bytes;
  for (uint32_t layer = 0; layer < model.n_moe_layers(); ++layer)
    bytes += model.spec.router.n_used * model.slab_bytes(layer);
  return bytes;
}

// First before anything is loaded, then around each run of decode with memory that is free. Under --memory only the
// first: the plan may have taken all there is.
double probe_dram(const EngineFlags& flags) {
  ThreadPool pool(engine_options(flags).n_threads);
  return whatif::dram_read_gbps(pool, flags_budget(flags).available_bytes / 2);
}

std::string largest_file(const LoadedModel& loaded) {
  const format::ModelFile& file = loaded.model.file;
  return std::max_element(file.files.begin(), file.files.end(),
                          [](const auto& a, const auto& b) { return a.n_bytes < b.n_bytes; })
      ->path;
}

// Of the budget, beside what all plans will take in the end; perhaps little.
uint64_t left_beside(const std::deque<Subject>& subjects) {
  uint64_t left = subjects.front().loaded->plan.budget.available_bytes;
  for (const Subject& subject : subjects) left -= std::min(left, subject.loaded->plan.total_bytes);
  return left;
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

// What resident bytes (and in prefill arithmetic, if a probe is kept) would have allowed in a run; infinite when not
// known.
double compute_bound(const Subject& subject, const Case& test, const Json& machine, const Round& round) {
  const double dram_gbps = round.dram_gbps > 0 ? round.dram_gbps : machine["dram_gbps"].get<double>();
  if (!test.is_prefill) return 1e9 * dram_gbps / static_cast<double>(bytes_per_token(*subject.loaded));
  if (!machine.contains("int8_gmacs")) return std::numeric_limits<double>::infinity();
  const whatif::MachineRates rates = {.dram_gbps = dram_gbps, .drive_gbps = 0, .int8_gmacs = machine["int8_gmacs"]};
  const uint32_t chunk = std::min(test.tokens, subject.loaded->engine->options().chunk);
  return whatif::predict(whatif::model_work(subject.loaded->model), rates, {.chunk = chunk}).prefill.bound_tps;
}

// A bound is min(compute bound, bytes read / rate of the drive), run by run: design.md section 9.
Json report(const Subject& subject, const std::vector<Case>& cases, const Json& machine) {
  Json out;
  out["prefill"] = Json::array();
  out["decode"] = Json::array();
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<Round>& rounds = subject.rounds[i];
    Json row = {{"tokens", cases[i].tokens},
                {"context", cases[i].context},
                {"tokens_per_s", to_json(spread_of(rounds, [](const Round& r) { return r.tps; }))},
                {"read_bytes_per_token", spread_of(rounds, [](const Round& r) { return r.read_bytes; }).median},
                {"stall_ms_per_token", spread_of(rounds, [](const Round& r) { return r.stall_ms; }).median},
                {"idle_ms_per_token", spread_of(rounds, [](const Round& r) { return r.idle_ms; }).median}};
    const auto computing_in = [&](const Round& r) { return compute_bound(subject, cases[i], machine, r); };
    const double computing = spread_of(rounds, computing_in).median;
    const Spread drive = spread_of(rounds, [](const Round& r) { return r.drive_bound_tps(); });
    const double bound = std::min(computing, drive.median);
    if (std::isfinite(bound)) {
      row["bound_tokens_per_s"] = bound;
      row["bound_by"] = drive.median < computing ? "drive" : "compute";
      row["bound_share"] = to_json(
          spread_of(rounds, [&](const Round& r) { return r.tps / std::min(computing_in(r), r.drive_bound_tps()); }));
    }
    if (std::isfinite(drive.median)) row["drive_bound_tokens_per_s"] = drive.median;
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
        const Json& share = row["bound_share"];
        std::printf("  bound %.2f (%s): %.0f%% [%.0f - %.0f]", row["bound_tokens_per_s"].get<double>(),
                    row["bound_by"].get<std::string>().c_str(), 100 * share["median"].get<double>(),
                    100 * share["min"].get<double>(), 100 * share["max"].get<double>());
      }
      std::printf("\n");
    }
  }
}

std::vector<Case> cases_of(const BenchFlags& flags) {
  std::vector<Case> cases;
  for (const uint32_t context : flags.context) {
    for (const uint32_t n : flags.prefill) cases.push_back({true, n, context});
    for (const uint32_t n : flags.decode) cases.push_back({false, n, context});
  }
  if (cases.empty()) fail(ErrorKind::kBadArgument, "--prefill and --decode: wanted at least one size");
  return cases;
}

// Runs a case; what bounds it, a drive that is read or in decode the memory, is measured between any two runs, for each
// run meets another rate. Returns the best reading of the memory.
double measure(std::deque<Subject>& subjects, const Case& test, size_t case_idx, const BenchFlags& flags,
               whatif::DriveReadings& drive) {
  bool reads = flags.cold;
  for (Subject& subject : subjects) {
    if (!flags.cold && subject.run(test, case_idx, false, flags.generate)) reads = true;
  }
  const bool reads_dram = !test.is_prefill && flags.engine.memory.empty();
  double before_gbps = reads ? drive.take() : 0;
  double dram_before_gbps = reads_dram ? probe_dram(flags.engine) : 0;
  double best_dram_gbps = dram_before_gbps;
  for (uint32_t round = 0; round < flags.repeat; ++round) {
    for (Subject& subject : subjects) {
      if (flags.cold) subject.load();
      subject.run(test, case_idx, true, flags.generate);
      const double after_gbps = reads ? drive.take() : 0;
      const double dram_after_gbps = reads_dram ? probe_dram(flags.engine) : 0;
      Round& last = subject.rounds[case_idx].back();
      last.drive_gbps = (before_gbps + after_gbps) / 2;
      last.dram_gbps = (dram_before_gbps + dram_after_gbps) / 2;
      before_gbps = after_gbps;
      dram_before_gbps = dram_after_gbps;
      best_dram_gbps = std::max(best_dram_gbps, dram_after_gbps);
    }
  }
  return best_dram_gbps;
}

Json ratios_of(const std::deque<Subject>& subjects, const std::vector<Case>& cases) {
  Json out = Json::array();
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<double> ratios;
    for (size_t round = 0; round < subjects[0].rounds[i].size(); ++round)
      ratios.push_back(subjects[1].rounds[i][round].tps / subjects[0].rounds[i][round].tps);
    out.push_back({{"kind", cases[i].is_prefill ? "prefill" : "decode"},
                   {"tokens", cases[i].tokens},
                   {"context", cases[i].context},
                   {"pairs", ratios},
                   {"ratio", to_json(spread(ratios))}});
  }
  return out;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using CsvFile = std::unique_ptr<std::FILE, CloseFile>;

// Before anything is measured: what cannot be written should not be measured for nothing. Null when none is wanted.
CsvFile open_csv(const BenchFlags& flags) {
  if (flags.csv.empty()) return nullptr;
  CsvFile file(std::fopen(flags.csv.c_str(), "w"));
  if (!file) fail(ErrorKind::kIo, "--csv {}: {}", printable(flags.csv), std::strerror(errno));
  return file;
}

void write_csv(CsvFile csv, const BenchFlags& flags, const std::deque<Subject>& subjects,
               const std::vector<Case>& cases, const Json& machine) {
  std::FILE* file = csv.get();
  std::fprintf(file,
               "kind,tokens,context,caches,options,round,tokens_per_s,read_bytes_per_token,stall_ms_per_token,idle_ms_"
               "per_token,drive_gbps,drive_bound,dram_gbps,compute_bound\n");
  for (size_t i = 0; i < cases.size(); ++i) {
    for (size_t which = 0; which < subjects.size(); ++which) {
      const std::vector<Round>& rounds = subjects[which].rounds[i];
      for (size_t round = 0; round < rounds.size(); ++round) {
        const Round& r = rounds[round];
        std::fprintf(file, "%s,%u,%u,%s,\"%s\",%zu,%.4f,%.0f,%.3f,%.3f,%.3f,%.4f,%.3f,%.4f\n",
                     cases[i].is_prefill ? "prefill" : "decode", cases[i].tokens, cases[i].context,
                     flags.cold ? "cold" : "warm", which == 0 ? "" : flags.versus.c_str(), round, r.tps, r.read_bytes,
                     r.stall_ms, r.idle_ms, r.drive_gbps, r.drive_bound_tps(), r.dram_gbps,
                     compute_bound(subjects[which], cases[i], machine, r));
      }
    }
  }
  if (std::fclose(csv.release()) != 0) fail(ErrorKind::kIo, "--csv {}: {}", printable(flags.csv), std::strerror(errno));
}

void print_report(const Json& out, const BenchFlags& flags) {
  const Json& machine = out["machine"];
  std::printf("%s, %u threads, %s; DRAM %.1f GB/s", machine["cpu"].get<std::string>().c_str(),
              machine["threads"].get<uint32_t>(), machine["isa"].get<std::string>().c_str(),
              machine["dram_gbps"].get<double>());
  if (machine["disk_readings"] != 0) {
    std::printf(", drive %.2f to %.2f GB/s in %u readings", machine["disk_gbps_least"].get<double>(),
                machine["disk_gbps"].get<double>(), machine["disk_readings"].get<uint32_t>());
  }
  std::printf("\n");
  print_table(out);
  if (flags.versus.empty()) return;
  std::printf("vs %s\n", flags.versus.c_str());
  print_table(out["vs"]);
  for (const Json& row : out["vs"]["ratios"]) {
    std::printf("ratio    %s %u at %u: %.3f [%.3f - %.3f]\n", row["kind"].get<std::string>().c_str(),
                row["tokens"].get<uint32_t>(), row["context"].get<uint32_t>(), row["ratio"]["median"].get<double>(),
                row["ratio"]["min"].get<double>(), row["ratio"]["max"].get<double>());
  }
}

void bench(const BenchFlags& flags) {
  const std::vector<Case> cases = cases_of(flags);
  CsvFile csv = open_csv(flags);
  uint32_t longest = 0;
  for (const Case& test : cases) longest = std::max(longest, test.context + test.tokens);
  double dram_gbps = probe_dram(flags.engine);
  std::deque<Subject> subjects;
  subjects.emplace_back(flags.engine, longest, cases.size());
  if (!flags.versus.empty()) subjects.emplace_back(versus_flags(flags), longest, cases.size());
  whatif::DriveReadings drive(largest_file(*subjects[0].loaded), whatif::read_bytes_of(subjects[0].loaded->model),
                              subjects[0].loaded->engine->options().queue_depth, left_beside(subjects) / 2);
  drive.take();
  for (size_t i = 0; i < cases.size(); ++i) {
    dram_gbps = std::max(dram_gbps, measure(subjects, cases[i], i, flags, drive));
  }
  const Json machine = machine_json(*subjects[0].loaded, dram_gbps, drive);
  Json out = report(subjects[0], cases, machine);
  out["machine"] = machine;
  out["caches"] = flags.cold ? "cold" : "warm";
  out["generated"] = flags.generate;
  if (subjects.size() == 2) {
    out["vs"] = report(subjects[1], cases, machine);
    out["vs"]["options"] = flags.versus;
    out["vs"]["ratios"] = ratios_of(subjects, cases);
  }
  if (csv) write_csv(std::move(csv), flags, subjects, cases, machine);
  if (flags.json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    print_report(out, flags);
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
  command->add_flag("--generate", flags->generate,
                    "Decode what the model chooses, sampled as `run` does, instead of random tokens");
  command->add_option("--repeat", flags->repeat, "Measured repetitions")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--vs", flags->versus, "Options of a second configuration to interleave, e.g. \"--evict lfu\"");
  command->add_flag(
      "--cold", flags->cold,
      "Load the model anew for each run, so that its expert cache is empty, instead of running once before");
  command->add_option("--csv", flags->csv, "File for one row a run");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] {
    flags->engine.generates = flags->generate;
    bench(*flags);
  });
}

}  // namespace outrider::apps

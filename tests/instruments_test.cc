// SPDX-License-Identifier: Apache-2.0
// The instruments as a program: run --trace and --stats, simulate, trace-info, fit, synth-trace; and on broken input.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "outrider/base/cpu.h"
#include "outrider/format/test_files.h"
#include "outrider/whatif/probe.h"
#include "program.h"

namespace outrider {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_program;

const std::string kDemo = std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf";

class Instruments : public ::testing::Test {
 protected:
  Instruments() { std::filesystem::create_directories(folder_); }
  ~Instruments() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  static std::string output(const std::string& arguments) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.err;
    return outcome.out;
  }
  static json parsed(const std::string& arguments) {
    return json::parse(output(arguments + " --json"), nullptr, false);
  }
  static std::string refusal(const std::string& arguments) {
    const Outcome outcome = run_program(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments << ": " << outcome.out;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  }
  json run(const std::string& options) const {
    return parsed("run " + kDemo +
                  " -p 'The mount system call attaches the filesystem' -n 24 --temp 0 -q --lookahead off --no-warm " +
                  options);
  }
  std::string text_of(const std::string& name) const {
    std::ifstream in(file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string folder_ = ::testing::TempDir() + "outrider_instruments_" + std::to_string(::getpid());
};

TEST_F(Instruments, PlanIsShownAgainstALedger) {
  run("--expert-cache 12s --stats " + file("stats"));
  const std::string command = "plan " + kDemo + " --expert-cache 12s --measured ";
  // Without a kept probe there is nothing to compare with.
  const std::string home = "XDG_CACHE_HOME=" + file("nowhere") + ";export XDG_CACHE_HOME;";
  const Outcome none = run_program(command + file("stats") + " --json", home);
  ASSERT_EQ(none.exit_code, 0) << none.err;
  EXPECT_TRUE(json::parse(none.out)["measured"].is_null()) << none.out;
  std::ofstream(file("bad")) << "{\"tokens\":1}\n";
  EXPECT_NE(refusal(command + file("bad")).find("line 1: has no number 'ms'"), std::string::npos);
  std::ofstream(file("empty"));
  EXPECT_NE(refusal(command + file("empty")).find("has no step"), std::string::npos);
}

TEST_F(Instruments, PlanReadsWhatRunAndBenchPrinted) {
  // A kept probe with made-up rates.
  whatif::Probe probe;
  probe.cpu = cpu_name();
  probe.cores = core_budget().default_threads;
  probe.date = "2026-11-30T00:00:00Z";
  probe.drive = {{65536, 4, 2}};
  probe.memory = {{1, 20}, {2, 40}};
  probe.arithmetic = {{"int8", "avx2", 200}, {"int8", "avx512", 200}};
  whatif::store_probe(file("cache/outrider/probe.json"), probe);
  const std::string home = "XDG_CACHE_HOME=" + file("cache") + ";export XDG_CACHE_HOME;";
  const auto rows_of = [&](const std::string& name) {
    const Outcome got = run_program("plan " + kDemo + " --expert-cache 12s --json --measured " + file(name), home);
    EXPECT_EQ(got.exit_code, 0) << got.err;
    return json::parse(got.out)["measured"];
  };
  std::ofstream(file("run.json")) << run("--expert-cache 12s --stats " + file("stats")).dump();
  const json from_run = rows_of("run.json"), from_ledger = rows_of("stats");
  ASSERT_EQ(from_run.size(), 2U) << from_run;
  for (size_t i = 0; i < 2; ++i) {
    for (const char* key : {"kind", "tokens", "context", "miss_rate", "assumed_miss_rate", "expected_tokens_per_s"})
      EXPECT_EQ(from_run[i][key], from_ledger[i][key]) << key;
    EXPECT_GT(from_run[i]["expected_with_misses_tokens_per_s"], 0);
  }
  EXPECT_EQ(from_run[0]["kind"], "prefill");
  EXPECT_EQ(from_run[0]["miss_rate"], 1.0);  // of an empty cache
  EXPECT_EQ(from_run[1]["context"], from_run[0]["tokens"]);
  std::ofstream(file("bench.json")) << R"({"machine": {}, "caches": "warm", "prefill": [],
    "decode": [{"tokens": 8, "context": 100, "tokens_per_s": {"median": 4}, "read_bytes_per_token": 1000}]})";
  const json from_bench = rows_of("bench.json");
  ASSERT_EQ(from_bench.size(), 1U) << from_bench;
  EXPECT_EQ(from_bench[0]["context"], 100);
  EXPECT_EQ(from_bench[0]["tokens_per_s"], 4);
  EXPECT_GT(from_bench[0]["miss_rate"], 0);
  const json speed = json::parse(run_program("plan " + kDemo + " --expert-cache 12s --json", home).out)["speed"];
  EXPECT_LT(speed["first_prefill"]["tokens_per_s"], speed["prefill"]["tokens_per_s"]);
  EXPECT_GT(speed["twice_drive"]["prefill"]["tokens_per_s"], speed["prefill"]["tokens_per_s"]);
  EXPECT_GE(speed["twice_ram"]["slots_per_layer"], 24);
  // A probe of an older version is told of in one line, and nothing fails.
  std::ofstream(file("cache/outrider/probe.json")) << R"({"version": 2})";
  const Outcome old = run_program("plan " + kDemo, home);
  EXPECT_EQ(old.exit_code, 0);
  EXPECT_NE(
      old.out.find(
          "note: the kept probe is of another version of outrider: run `outrider probe` for the speed to expect\n"),
      std::string::npos)
      << old.out;
}

TEST_F(Instruments, SimulateSaysWhatTheRunSaid) {
  const json live = run("--expert-cache 12s --evict lfu --lfu-half-life 50 --trace " + file("t"));
  const json out =
      parsed("simulate " + file("t") + " --cache 12s,25% --policy lfu,belady --compute-floor 2 --drive 1GB/s --svg " +
             file("s.svg") + " --html " + file("s.html"));
  ASSERT_EQ(out["results"].size(), 4U) << out;
  EXPECT_EQ(out["results"][0]["hits"], live["experts"]["hits"]);
  EXPECT_EQ(out["results"][0]["bytes"], live["experts"]["bytes_read"]);
  EXPECT_EQ(out["results"][0]["slots_per_layer"], 12);
  EXPECT_EQ(out["results"][2]["slots_per_layer"], 16);
  EXPECT_GE(out["results"][1]["hits"], out["results"][0]["hits"]);
  EXPECT_GT(out["results"][0]["ms_per_token"].get<double>(), 2);
  EXPECT_NE(text_of("s.svg").find("<svg"), std::string::npos);
  EXPECT_NE(text_of("s.html").find("<svg"), std::string::npos);
  const std::string table = output("simulate " + file("t") + " --cache 12s --policy all --horizon 4");
  EXPECT_NE(table.find("horizon-4"), std::string::npos);
  EXPECT_NE(table.find("the times are the drive's alone"), std::string::npos);
  EXPECT_EQ(parsed("trace-info " + file("t"))["layers"].size(), 8U);
  EXPECT_NE(output("trace-info " + file("t")).find("working set"), std::string::npos);
  EXPECT_NE(output("trace-info --csv " + file("t")).find("step,tokens,layer"), std::string::npos);
}

// Whether everything is resident or little: a guess is scored all the same, and so is the choice between predictors.
TEST_F(Instruments, TraceScoresGuessesByWidthAndDistance) {
  std::ofstream(file("f"))
      << "The mount system call attaches the filesystem specified by source to the location (a directory or file) "
         "specified by the pathname in target. The umount system call removes the attachment of the filesystem.";
  for (const char* options : {"", " --expert-cache 25%", " --lookahead-distance 2"}) {
    const json widths = parsed("trace " + kDemo + " -f " + file("f") + " --widths 2,4,6,8" + options)["widths"];
    const bool is_two = std::string(options).find("distance") != std::string::npos;
    ASSERT_EQ(widths.size(), is_two ? 8U : 4U) << options;
    for (size_t i = 0; i < widths.size(); ++i) {
      EXPECT_EQ(widths[i]["width"], 2 + 2 * (i % 4));
      EXPECT_EQ(widths[i]["distance"], 1 + i / 4);
      if (i % 4 == 0) continue;
      EXPECT_LE(widths[i]["precision"], widths[i - 1]["precision"]) << options;
      EXPECT_GE(widths[i]["coverage"], widths[i - 1]["coverage"]) << options;
    }
    EXPECT_GT(widths[0]["precision"].get<double>(), 0.7) << options;  // chance is 0.09
  }
}

TEST_F(Instruments, LedgerFits) {
  const json live = run("--expert-cache 12s --stats-layers --stats " + file("l"));
  std::ifstream in(file("l"));
  uint64_t demanded = 0, n_lines = 0;
  for (std::string line; std::getline(in, line); ++n_lines) demanded += json::parse(line)["demanded"].get<uint64_t>();
  EXPECT_EQ(n_lines, 24U);  // one pass of the prompt, 23 tokens; the last one is not run
  EXPECT_EQ(demanded, live["experts"]["demanded"]);
  const json& latency = live["experts"]["read_latency_us"];
  EXPECT_GT(latency["p50"].get<uint64_t>(), 0U);
  EXPECT_GE(latency["p99"], latency["p50"]);
  uint64_t n_reads = 0;
  for (const json& bucket : latency["buckets"]) n_reads += bucket["reads"].get<uint64_t>();
  EXPECT_GE(n_reads, live["experts"]["misses"].get<uint64_t>());  // a slab is one read or several
  const json fit = parsed("fit " + file("l") + " --svg " + file("f.svg"));
  EXPECT_EQ(fit["steps"], 23);
  EXPECT_GE(fit["r2"].get<double>(), 0);
  EXPECT_LE(fit["r2"].get<double>(), 1);
  EXPECT_NE(text_of("f.svg").find("<svg"), std::string::npos);
}

TEST_F(Instruments, SyntheticTracesLikeARealOne) {
  run("--expert-cache 100% --trace " + file("t"));
  output("synth-trace " + file("s") + " --like " + file("t") + " --tokens 300 --seed 4");
  const json info = parsed("trace-info " + file("s"));
  EXPECT_EQ(info["tokens"], 300);
  EXPECT_EQ(info["layers"].size(), 8U);
  EXPECT_NEAR(info["overlap"].get<double>(), parsed("trace-info " + file("t"))["overlap"].get<double>(), 0.1);
  EXPECT_NE(refusal("synth-trace " + file("s") + " --used 80 --experts 64").find("experts used is 80, wanted 1..64"),
            std::string::npos);
}

TEST_F(Instruments, RefusesInOneLine) {
  std::ofstream(file("bad")) << "{\"step\":0}\nnonsense\n";
  EXPECT_NE(refusal("simulate " + file("bad")).find("is not a trace"), std::string::npos);
  EXPECT_NE(refusal("simulate " + file("none")).find("cannot be opened"), std::string::npos);
  EXPECT_NE(refusal("fit " + file("bad")).find("line 1: has no number 'tokens'"), std::string::npos);
  EXPECT_NE(refusal("trace-info " + kDemo).find("is not a trace"), std::string::npos);
  output("synth-trace " + file("s") + " --tokens 20");
  EXPECT_NE(refusal("simulate " + file("s") + " --policy best").find("valid: all, lru, lfu"), std::string::npos);
  EXPECT_NE(refusal("simulate " + file("s") + " --cache 0s").find("less than one slot"), std::string::npos);
  EXPECT_NE(refusal("simulate " + file("s") + " --cache 16").find("--cache 16: wanted a unit: 16s (slots per layer)"),
            std::string::npos);
  for (const char* option : {"--compute-floor", "--overlap", "--lfu-half-life"}) {
    const test::Outcome got = test::run_program("simulate " + file("s") + " " + option + " nan");
    EXPECT_EQ(got.exit_code, 2) << option;
    EXPECT_NE(got.err.find(std::string(option) + ": nan: wanted a number in "), std::string::npos) << got.err;
  }
  EXPECT_NE(refusal("simulate " + file("s") + " --drive fast").find("wanted a rate"), std::string::npos);
  EXPECT_NE(refusal("simulate " + file("s") + " --lookahead width=4,precise=1").find("wanted width=N,precision=P"),
            std::string::npos);
  EXPECT_NE(refusal("simulate " + file("s") + " --svg /nowhere/x.svg").find("cannot be written"), std::string::npos);
  EXPECT_NE(refusal("run " + kDemo + " -p x -q --trace /nowhere/x").find("cannot be opened for writing"),
            std::string::npos);
  EXPECT_NE(refusal("run " + kDemo + " -p x -q --stats-layers").find("wanted with --stats"), std::string::npos);
}

}  // namespace
}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// What `outrider run` leaves for the next run of the same model: the demand counts (FINGERPRINT.warm) and the token
// table (FINGERPRINT.tokens), in the user's cache folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "outrider/base/test_rng.h"
#include "program.h"
#include "temp_model.h"

namespace outrider {
namespace {

using nlohmann::json;
using test::Outcome;

test::TinyModel tiny(uint64_t seed) {
  test::TinyModel tiny;
  tiny.n_layers = 4;
  tiny.n_experts = 16;
  tiny.n_used = 3;
  tiny.qk_norm = true;
  tiny.seed = seed;
  return tiny;
}

class WarmStart : public ::testing::Test {
 protected:
  WarmStart() : folder_(::testing::TempDir() + "outrider_warm_" + std::to_string(::getpid())), model_(tiny(1)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~WarmStart() override { std::filesystem::remove_all(folder_); }

  Outcome run_outcome(const std::string& options, const std::string& model, const std::string& cache) const {
    return test::run_program("run " + model +
                                 " --prompt-ids 5,17,33,60,2,9 -n 10 --temp 0 --ignore-eos --json --digest "
                                 "--no-progress --expert-cache 6s " +
                                 options,
                             "XDG_CACHE_HOME=" + cache);
  }
  // One that has nothing to say but its result.
  json run(const std::string& options = "", const std::string& model = "") const {
    const Outcome outcome = run_outcome(options, model.empty() ? model_.path() : model, folder_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("warm start"), std::string::npos) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  // One that notes these things, a line each.
  json run_noting(const std::vector<std::string>& notes) const {
    const Outcome outcome = run_outcome("", model_.path(), folder_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    size_t n = 0;
    for (size_t at = outcome.err.find("note: "); at != std::string::npos; at = outcome.err.find("note: ", at + 1)) ++n;
    EXPECT_EQ(n, notes.size()) << outcome.err;
    for (const std::string& note : notes)
      EXPECT_NE(outcome.err.find("note: " + note + "\n"), std::string::npos) << note << "\n" << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  std::set<std::string> files() const {
    std::set<std::string> out;
    if (!std::filesystem::exists(folder_ + "/outrider/warm")) return out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/outrider/warm"))
      out.insert(entry.path().string());
    return out;
  }
  std::string file(const std::string& kind) const {
    for (const std::string& path : files()) {
      if (path.ends_with("." + kind)) return path;
    }
    ADD_FAILURE() << "no ." << kind << " file";
    return "";
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

  std::string folder_;
  test::TempModel model_;
};

// The lines of a ledger, summed by class.
struct Lines {
  uint64_t demand = 0, background = 0, background_of_prompt = 0;
};
Lines ledger(const std::string& path) {
  Lines out;
  std::ifstream in(path);
  bool is_first = true;
  for (std::string text; std::getline(in, text); is_first = false) {
    const json line = json::parse(text);
    out.demand += line["bytes"]["demand"].get<uint64_t>();
    out.background += line["bytes"]["background"].get<uint64_t>();
    if (is_first) out.background_of_prompt = out.background;
  }
  return out;
}

TEST_F(WarmStart, TheSecondRunReadsInTheBackgroundWhatTheFirstDemanded) {
  const std::string stats = folder_ + "/ledger";
  const json first = run("--lookahead off --stats " + stats);
  const Lines cold = ledger(stats);
  EXPECT_EQ(cold.background, 0U);
  EXPECT_GT(cold.demand, 0U);
  EXPECT_EQ(files().size(), 1U);
  const std::string before = content(file("warm"));

  // A busy machine may start the reader after the first demands, which take over what they find queued: then once more.
  json second = run("--lookahead off --stats " + stats);
  for (int i = 0; i < 20 && ledger(stats).background_of_prompt == 0; ++i)
    second = run("--lookahead off --stats " + stats);
  const Lines warm = ledger(stats);
  EXPECT_GT(warm.background_of_prompt, 0U);
  EXPECT_LT(warm.demand, cold.demand);
  EXPECT_EQ(warm.demand + warm.background, second["experts"]["bytes_read"].get<uint64_t>());
  EXPECT_EQ(second["digest"], first["digest"]);
  EXPECT_EQ(second["ids"], first["ids"]);
  EXPECT_NE(content(file("warm")), before);  // counted further
}

TEST_F(WarmStart, KeepsTheTokenTableWhenLookAheadIsOn) {
  run("--lookahead 4");
  EXPECT_EQ(files().size(), 2U);
  const std::string table = content(file("tokens"));
  EXPECT_LT(table.size(), 8U << 20);
  EXPECT_EQ(table.rfind("outrider-tokens 1 ", 0), 0U);
  const json off = run("--lookahead off");
  EXPECT_EQ(content(file("tokens")), table);  // not this run's business
  const json on = run("--lookahead 4");
  EXPECT_NE(content(file("tokens")), table);
  EXPECT_EQ(on["digest"], off["digest"]);
}

TEST_F(WarmStart, NoWarmLeavesBothAlone) {
  run("--no-warm");
  EXPECT_TRUE(files().empty());
  run("--lookahead 4");
  const std::string heat = content(file("warm")), table = content(file("tokens"));
  const std::string stats = folder_ + "/ledger";
  const json cold = run("--lookahead off --no-warm --stats " + stats);
  EXPECT_EQ(ledger(stats).background, 0U);
  EXPECT_EQ(ledger(stats).demand, cold["experts"]["bytes_read"].get<uint64_t>());
  EXPECT_EQ(content(file("warm")), heat);
  EXPECT_EQ(content(file("tokens")), table);
  EXPECT_EQ(files().size(), 2U);
}

TEST_F(WarmStart, WhatIsNoSuchFileIsIgnoredWithANoteAndReplaced) {
  const json want = run("--lookahead 4");
  const std::string heat_path = file("warm"), table_path = file("tokens");
  const std::string heat = content(heat_path), table = content(table_path);
  const test::TempModel other(tiny(2));
  run("--lookahead 4", other.path());
  ASSERT_EQ(files().size(), 4U);
  std::string foreign_heat, foreign_table;
  for (const std::string& path : files()) {
    if (path == heat_path || path == table_path) continue;
    (path.ends_with(".warm") ? foreign_heat : foreign_table) = content(path);
  }
  const auto flipped = [](std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  const std::string damaged = "damaged, or of another model or version", none = "not such a file";
  struct Case {
    std::string heat, table, why;
  };
  std::string newer_heat = heat, newer_table = table;
  newer_heat[std::string("outrider-warm ").size()] = '9';
  newer_table[std::string("outrider-tokens ").size()] = '9';
  for (const Case& bad : {Case{flipped(heat, heat.size() / 2), flipped(table, table.size() / 2), damaged},
                          Case{flipped(heat, 20), flipped(table, 20), damaged},
                          Case{heat.substr(0, heat.size() - 1), table.substr(0, table.size() - 1), damaged},
                          Case{heat + "x", table + "x", damaged}, Case{foreign_heat, foreign_table, damaged},
                          Case{newer_heat, newer_table, damaged}, Case{"", "", none},
                          Case{std::string(9000, 'x'), std::string(9000, 'x') + "\n", none}}) {
    put(heat_path, bad.heat);
    put(table_path, bad.table);
    const std::string start = "warm start: ";
    const json got =
        run_noting({start + heat_path + " is ignored: " + bad.why, start + table_path + " is ignored: " + bad.why});
    EXPECT_EQ(got["digest"], want["digest"]);
    EXPECT_EQ(content(heat_path).rfind(heat.substr(0, 40), 0), 0U);  // replaced
    EXPECT_EQ(content(table_path).rfind(table.substr(0, 40), 0), 0U);
    run();  // and good again
  }
  EXPECT_EQ(files().size(), 4U);
}

TEST_F(WarmStart, FoldersAreMadeAndOneThatCannotBeIsToldOnce) {
  const std::string deep = folder_ + "/not/there/yet";
  const Outcome made = run_outcome("", model_.path(), deep);
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(deep + "/outrider/warm"));
  const std::string blocked = folder_ + "/a_file";
  put(blocked, "");
  const Outcome refused = run_outcome("", model_.path(), blocked);
  EXPECT_EQ(refused.exit_code, 0);
  EXPECT_FALSE(json::parse(refused.out, nullptr, false)["ids"].empty());
  const size_t at = refused.err.find("note: warm start: " + blocked + "/outrider/warm/");
  ASSERT_NE(at, std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find(" cannot be written\n", at), std::string::npos);
  EXPECT_EQ(refused.err.find("note: ", at + 1), std::string::npos) << refused.err;
  EXPECT_EQ(run_outcome("-q", model_.path(), blocked).err, "");
  EXPECT_EQ(content(blocked), "");
  // Without XDG_CACHE_HOME it is ~/.cache; without either there is no warm start and no note.
  const std::string at_home = folder_ + "/home";
  EXPECT_EQ(run_outcome("-q", model_.path(), "relative HOME=" + at_home).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(at_home + "/.cache/outrider/warm"));
  EXPECT_EQ(run_outcome("-q", model_.path(), "'' HOME=''").err, "");
}

TEST_F(WarmStart, RunsAtOnceLeaveAWholeFile) {
  const std::string one = std::string(OUTRIDER_PROGRAM) + " run " + model_.path() +
                          " --prompt-ids 5,17,33 -n 4 --temp 0 -q --ids --expert-cache 6s >/dev/null";
  std::string all = "XDG_CACHE_HOME=" + folder_ + "; export XDG_CACHE_HOME; ";
  for (int i = 0; i < 6; ++i) all += one + " & ";
  ASSERT_EQ(std::system((all + "wait").c_str()), 0);
  EXPECT_EQ(files().size(), 2U);  // nothing half-made stays
  run("--lookahead 4");           // without a note
}

}  // namespace
}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/ledger.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"

namespace outrider::observe {
namespace {

using nlohmann::json;

const model::Model& demo() {
  static const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  return model;
}

engine::EngineOptions options() {
  engine::EngineOptions options;
  options.context = 128;
  options.isa = best_isa();
  options.chunk = 16;
  options.slots_per_layer = 10;
  return options;
}

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

// 40 tokens of prompt in three passes, then 20 single ones.
std::vector<json> record(engine::Engine& engine, bool with_layers) {
  const std::string path = ::testing::TempDir() + "outrider_ledger_" + std::to_string(::getpid());
  StepLedger ledger(path, engine, with_layers);
  engine.add_pass_observer(ledger);
  std::vector<int32_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 97 % engine.model().spec.n_vocab);
  engine.prefill(0, ids);
  for (int32_t token = 0; token < 20; ++token) {
    ledger.begin_sampling();
    ledger.end_sampling();
    engine.prefill(0, {&token, 1});
  }
  ledger.close_step();
  ledger.finish();
  std::vector<json> lines = lines_of(path);
  ::unlink(path.c_str());
  return lines;
}

// Names the token that comes, or one that does not, in turn.
class EveryOther final : public engine::NextTokenChooser {
 public:
  void shape(std::span<float> /*scores*/) const noexcept override {}
  int32_t choose(std::span<const engine::Candidate> /*likeliest*/) noexcept override {
    ++n_;
    return static_cast<int32_t>(n_ % 2 == 0 ? n_ : 100 + n_);  // after token n comes n + 1
  }

 private:
  uint32_t n_ = 0;
};

// A pass that is guessed has its line from there, and one line whether it comes or another.
TEST(Ledger, APassThatIsGuessedHasOneLine) {
  engine::EngineOptions with_guesses = options();
  with_guesses.lookahead = engine::kLookAheadAuto;
  with_guesses.token_ahead = engine::TokenAheadMode::kAlways;
  engine::Engine engine(demo(), with_guesses);
  const std::string path = ::testing::TempDir() + "outrider_ledger_guess_" + std::to_string(::getpid());
  StepLedger ledger(path, engine, true);
  engine.add_pass_observer(ledger);
  const std::vector<int32_t> ids(16, 5);
  engine.prefill(0, ids);
  EveryOther next;
  constexpr int32_t kTokens = 30;
  for (int32_t token = 0; token < kTokens; ++token) {
    ledger.begin_sampling();
    ledger.end_sampling();
    const engine::PassRow row = {0, engine.n_tokens(0), token, true};
    engine.pass({&row, 1}, token + 1 < kTokens ? &next : nullptr);
  }
  ledger.close_step();
  ledger.finish();
  const std::vector<json> lines = lines_of(path);
  ::unlink(path.c_str());
  EXPECT_EQ(engine.next_token_score().guessed, kTokens - 1U);
  EXPECT_NEAR(static_cast<double>(engine.next_token_score().right), kTokens / 2.0, 1);
  ASSERT_EQ(lines.size(), kTokens + 1U);
  const residency::StoreCounters counters = engine.counters().experts;
  uint64_t demanded = 0, layer_demanded = 0;
  uint32_t n_off = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["tokens"], i == 0 ? 16U : 1U);
    demanded += lines[i]["demanded"].get<uint64_t>();
    for (const json& layer : lines[i]["layers"]) layer_demanded += layer["demanded"].get<uint64_t>();
    double phases = 0;
    for (const auto& ms : lines[i]["phase_ms"]) phases += ms.get<double>();
    n_off += std::abs(phases - lines[i]["ms"].get<double>()) > 0.02 * lines[i]["ms"].get<double>() + 0.05 ? 1 : 0;
  }
  EXPECT_EQ(demanded, counters.demanded);
  EXPECT_EQ(layer_demanded, counters.demanded);
  EXPECT_LE(n_off, lines.size() / 10);
}

TEST(Ledger, LinesSumToTheCounters) {
  engine::Engine engine(demo(), options());
  const std::vector<json> lines = record(engine, true);
  ASSERT_EQ(lines.size(), 23U);
  const residency::StoreCounters counters = engine.counters().experts;
  uint64_t tokens = 0, demanded = 0, hits = 0, misses = 0, evicted = 0, layer_misses = 0;
  int64_t bytes = 0, layer_bytes = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const json& line = lines[i];
    EXPECT_EQ(line["step"], i);
    tokens += line["tokens"].get<uint64_t>();
    demanded += line["demanded"].get<uint64_t>();
    hits += line["hits"].get<uint64_t>();
    misses += line["misses"].get<uint64_t>();
    evicted += line["evicted"].get<uint64_t>();
    for (const auto& n : line["bytes"]) bytes += n.get<int64_t>();
    ASSERT_EQ(line["layers"].size(), demo().n_moe_layers());
    for (const json& layer : line["layers"]) {
      layer_misses += layer["misses"].get<uint64_t>();
      layer_bytes += layer["bytes"].get<int64_t>();
    }
  }
  EXPECT_EQ(tokens, 60U);
  EXPECT_EQ(demanded, counters.demanded);
  EXPECT_EQ(hits, counters.hits);
  EXPECT_EQ(misses, counters.misses);
  EXPECT_EQ(layer_misses, counters.misses);
  EXPECT_EQ(evicted, counters.evicted);
  EXPECT_EQ(static_cast<uint64_t>(bytes), counters.bytes_read);
  EXPECT_EQ(static_cast<uint64_t>(layer_bytes), counters.bytes_read);
}

// Timing: a step in which the machine was taken away between two clock reads may miss the bound; most may not.
TEST(Ledger, PhasesSumToTheStep) {
  engine::Engine engine(demo(), options());
  const std::vector<json> lines = record(engine, false);
  size_t n_off = 0;
  for (const json& line : lines) {
    EXPECT_FALSE(line.contains("layers"));
    EXPECT_LE(line["hideable_ms"].get<double>(), line["phase_ms"]["stall"].get<double>() + 1e-5);
    double sum = 0;
    ASSERT_EQ(line["phase_ms"].size(), 8U);
    for (const auto& ms : line["phase_ms"]) sum += ms.get<double>();
    n_off += std::abs(sum - line["ms"].get<double>()) > 0.02 * line["ms"].get<double>() + 0.01;
  }
  EXPECT_LE(n_off, lines.size() / 5);
}

TEST(Ledger, TellsWhatCannotBeWritten) {
  const engine::Engine engine(demo(), options());
  EXPECT_THROW(StepLedger("/nowhere/at/all", engine, false), Error);
  StepLedger full("/dev/full", engine, false);
  full.begin_pass({});
  EXPECT_THROW(full.finish(), Error);
}

}  // namespace
}  // namespace outrider::observe

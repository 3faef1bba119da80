// SPDX-License-Identifier: Apache-2.0
// The token predictor's table, kept between runs: what the first tokens of a second run gain by it, on the demo model.
// The first run reads the first 7,000 bytes of the licence; the second goes on from there, or reads something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/residency/predictor.h"
#include "outrider/text/tokenizer.h"

namespace outrider {
namespace {

constexpr uint32_t kWidth = 6;
constexpr size_t kFirstBytes = 7000;

const model::Model& demo() {
  static const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  return model;
}

std::vector<int32_t> tokens_of(const std::string& file, size_t begin, size_t n_bytes) {
  std::ifstream in(std::string(OUTRIDER_SOURCE_DIR) + file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return text::Tokenizer::load(demo().file.metadata)->encode(std::string_view(text).substr(begin, n_bytes), {});
}

engine::EngineOptions options() {
  engine::EngineOptions options;
  options.context = 2048;
  options.isa = best_isa();
  options.lookahead = kWidth;
  return options;
}

// Share of the chosen experts that were among the predictor's first kWidth, of the first MoE layer and of the others.
struct Coverage {
  std::unique_ptr<residency::Predictor> predictor;
  std::array<double, 2> right = {}, chosen = {};

  void see(const engine::Routing& routing, int32_t token) {
    std::array<uint32_t, kWidth> guess;
    const uint32_t n = predictor->predict(routing.moe_layer, token, guess);
    const size_t where = routing.moe_layer == 0 ? 0 : 1;
    chosen[where] += static_cast<double>(routing.ids.size());
    for (const uint32_t expert : routing.ids)
      right[where] += std::count(guess.begin(), guess.begin() + n, expert) > 0 ? 1 : 0;
    predictor->observe(routing.moe_layer, {&token, 1}, routing.ids, static_cast<uint32_t>(routing.ids.size()));
  }
  double share(size_t where) const { return right[where] / chosen[where]; }
};

Coverage fresh_coverage() {
  const model::ModelSpec& spec = demo().spec;
  return {.predictor = residency::make_token_predictor(demo().n_moe_layers(), spec.router.n_experts, spec.n_vocab,
                                                       engine::kTokenTableBytes)};
}

// What the first run learned.
const std::vector<std::byte>& table() {
  static const std::vector<std::byte> table = [] {
    engine::Engine first(demo(), options());
    EXPECT_EQ(first.token_table().size(), 8U * 64 * 4);  // the frequencies
    first.prefill(0, tokens_of("/LICENSE", 0, kFirstBytes));
    return first.token_table();
  }();
  return table;
}

struct Coverages {
  Coverage fresh, kept;
};

// Over the first tokens of a text.
Coverages coverages(const std::string& file, size_t begin, uint32_t n_tokens) {
  engine::Engine second(demo(), options());
  EXPECT_TRUE(second.restore_token_table(table()));
  EXPECT_EQ(second.token_table(), table());
  Coverages out = {.fresh = fresh_coverage(), .kept = fresh_coverage()};
  EXPECT_TRUE(out.kept.predictor->restore(table()));
  int32_t token = 0;
  second.set_routing_observer([&](const engine::Routing& routing) {
    out.fresh.see(routing, token);
    out.kept.see(routing, token);
  });
  std::vector<int32_t> ids = tokens_of(file, begin, 1000);
  ids.resize(n_tokens);
  for (const int32_t id : ids) {
    token = id;
    second.prefill(0, {&token, 1});
  }
  std::printf("%s, first %u tokens, width %u: first layer %.3f without the table, %.3f with; others %.3f, %.3f\n",
              file.c_str(), n_tokens, kWidth, out.fresh.share(0), out.kept.share(0), out.fresh.share(1),
              out.kept.share(1));
  return out;
}

TEST(TokenTable, FirstTokensOfASecondRunAreCoveredByWhatTheFirstLearned) {
  std::printf("%zu bytes\n", table().size());
  EXPECT_LE(table().size(), engine::kTokenTableBytes);
  for (const uint32_t n_tokens : {16U, 64U}) {
    const Coverages same = coverages("/LICENSE", kFirstBytes, n_tokens);
    EXPECT_GT(same.kept.share(0), same.fresh.share(0) + 0.2);
    EXPECT_GT(same.kept.share(1), same.fresh.share(1) + 0.1);
    const Coverages other = coverages("/docs/architecture.md", 0, n_tokens);
    EXPECT_GT(other.kept.share(0), other.fresh.share(0));
    EXPECT_GT(other.kept.share(1), other.fresh.share(1));
  }
}

TEST(TokenTable, IsNotThereWithoutLookAheadAndRefusesOtherBytes) {
  engine::EngineOptions off = options();
  off.lookahead = 0;
  engine::Engine without(demo(), off);
  EXPECT_TRUE(without.token_table().empty());
  EXPECT_FALSE(without.restore_token_table({}));
  engine::Engine with(demo(), options());
  EXPECT_FALSE(with.restore_token_table(std::vector<std::byte>(100)));
}

}  // namespace
}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// The engine on tiny models: faults of a pass, limits, plan, cancellation, routing of any number of experts.
#include "outrider/engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "temp_model.h"

namespace outrider {
namespace {

using engine::EngineOptions;
using test::error_of;
using test::some_ids;
using test::tiny_moe;
using test::tiny_options;
using test::TinyModel;

using TinyFile = test::TempModel;

TEST(Engine, EmptyPassDoesNothing) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  engine::Engine engine(model, tiny_options());
  EXPECT_TRUE(engine.pass({}).empty());
  EXPECT_TRUE(engine.prefill(0, {}).empty());
  EXPECT_EQ(engine.counters().passes, 0U);
  EXPECT_EQ(engine.n_tokens(0), 0U);
}

TEST(Engine, RefusesBadRowsBeforeAnythingRuns) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.n_sequences = 2;
  options.chunk = 4;
  options.logit_rows = 2;
  engine::Engine engine(model, options);
  const auto pass = [&](std::vector<engine::PassRow> rows) { return error_of([&] { engine.pass(rows); }); };
  EXPECT_EQ(pass({{.sequence = 2, .position = 0, .token = 1}}), "sequence is 2, wanted 0..1");
  EXPECT_EQ(pass({{.sequence = 0, .position = 0, .token = 96}}), "token is 96, wanted 0..95");
  EXPECT_EQ(pass({{.sequence = 0, .position = 0, .token = -1}}), "token is -1, wanted 0..95");
  EXPECT_EQ(pass({{.sequence = 0, .position = 0, .token = 1}, {.sequence = 0, .position = 2, .token = 1}}),
            "row 1: position is 2, wanted 1: the next of sequence 0");
  EXPECT_EQ(pass(std::vector<engine::PassRow>(5)), "a pass of 5 rows was given, wanted at most 4 (the chunk)");
  std::vector<engine::PassRow> wanting;
  for (uint32_t i = 0; i < 3; ++i) wanting.push_back({.sequence = 1, .position = i, .token = 1, .wants_logits = true});
  EXPECT_EQ(pass(wanting), "logits of 3 rows were asked for, wanted at most 2");
  EXPECT_EQ(error_of([&] { engine.keep(1, 1); }), "cannot keep 1 tokens of sequence 1, which has 0");
  EXPECT_EQ(engine.n_tokens(0), 0U);
  EXPECT_EQ(engine.n_tokens(1), 0U);
  EXPECT_EQ(engine.counters().passes, 0U);
}

TEST(Engine, TellsTheContextLimitWithCounts) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.context = 10;
  engine::Engine engine(model, options);
  const std::vector<int32_t> ids = some_ids(11, 96);
  EXPECT_EQ(error_of([&] { engine.prefill(0, ids); }),
            "context of 10 positions is too small: sequence 0 holds 0 tokens and 11 more were given");
  EXPECT_EQ(engine.n_tokens(0), 0U);
  engine.prefill(0, std::span(ids).first(10));
  EXPECT_EQ(engine.n_tokens(0), 10U);
  const engine::PassRow row = {.sequence = 0, .position = 10, .token = 1};
  EXPECT_EQ(error_of([&] {
              engine.pass({&row, 1});
            }),
            "context of 10 positions is too small: sequence 0 holds 10 tokens and 1 more were given");
}

// MOE-3: a NaN in the router fails the pass, naming the layer; the others go on with the bits of their run alone.
TEST(Engine, NanInARouterFailsTheRowsThatMeetItAndNoOther) {
  TinyModel tiny = tiny_moe();
  constexpr int32_t kPoison = 7;
  // Token 7's embedding is not a number; nothing else is.
  tiny.edit = [](const std::string& name, std::vector<float>& values) {
    if (name == "token_embd.weight") values[7 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  const TinyFile file(tiny);
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.n_sequences = 2;
  std::vector<int32_t> ids = some_ids(6, 96);
  std::replace(ids.begin(), ids.end(), kPoison, 8);
  const std::string alone = test::run_digest(model, options, ids, 4);

  engine::Engine engine(model, options);
  const std::vector<engine::PassRow> rows = {{.sequence = 0, .position = 0, .token = 1},
                                             {.sequence = 1, .position = 0, .token = kPoison}};
  try {
    engine.pass(rows);
    FAIL() << "no error";
  } catch (const engine::RowError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_EQ(error.row(), 1U);
    EXPECT_STREQ(
        error.what(),
        "layer 0: the router's scores for token 7 at position 0 of sequence 1 are not numbers (NaN, from damaged "
        "weights?)");
  }
  EXPECT_EQ(engine.n_tokens(0), 0U);
  EXPECT_EQ(engine.n_tokens(1), 0U);
  EXPECT_EQ(test::run_digest(engine, ids, 4), alone);
}

// MOE-3, second half: NaN from one expert reaches the next router or the logits; nothing crashes, others stay right.
TEST(Engine, NanInAnExpertNeverCrashes) {
  for (const auto type : {format::TensorType::kF32, format::TensorType::kQ8_0}) {
    TinyModel tiny = tiny_moe();
    tiny.expert_type = type;
    TinyModel damaged = tiny;
    const TinyFile clean_file(tiny);
    const TinyFile file(damaged);
    {  // the first block of expert 5's down matrix in layer 0: a NaN scale or value
      const model::Model model = model::open(file.path());
      const format::Tensor& down = model.file.require("blk.0.ffn_down_exps.weight");
      std::FILE* out = std::fopen(file.path().c_str(), "r+b");
      ASSERT_NE(out, nullptr);
      const uint32_t nan_bits = type == format::TensorType::kF32 ? 0x7FC00000U : 0x7E00U;
      std::fseek(out, static_cast<long>(down.offset + down.n_bytes / 8 * 5), SEEK_SET);
      std::fwrite(&nan_bits, type == format::TensorType::kF32 ? 4 : 2, 1, out);
      std::fclose(out);
    }
    const model::Model model = model::open(file.path());
    const model::Model clean = model::open(clean_file.path());
    engine::Engine damaged_engine(model, tiny_options());
    engine::Engine clean_engine(clean, tiny_options());
    uint32_t n_failed = 0;
    uint32_t n_same = 0;
    for (int32_t token = 0; token < 96; ++token) {
      bool hit = false;
      clean_engine.keep(0, 0);
      damaged_engine.keep(0, 0);
      clean_engine.set_routing_observer([&](const engine::Routing& r) {
        hit |= r.moe_layer == 0 && std::find(r.ids.begin(), r.ids.end(), 5U) != r.ids.end();
      });
      const std::span<const float> want = clean_engine.prefill(0, {&token, 1});
      const std::string error = error_of([&] {
        const std::span<const float> got = damaged_engine.prefill(0, {&token, 1});
        EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin(), got.end())) << token;
        ++n_same;
      });
      EXPECT_EQ(error.empty(), !hit) << token << ": " << error;
      if (!error.empty()) {
        ++n_failed;
        EXPECT_EQ(error.rfind("layer 1: the router's scores for token", 0), 0U) << error;
      }
    }
    EXPECT_GT(n_failed, 0U);
    EXPECT_GT(n_same, 0U);
  }
}

TEST(Engine, CancelStopsBetweenLayersAndLeavesTheSequence) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  std::atomic<bool> cancel{false};
  EngineOptions options = tiny_options();
  options.cancel = &cancel;
  const std::vector<int32_t> ids = some_ids(8, 96);
  const std::string want = test::run_digest(model, tiny_options(), ids, 4);
  engine::Engine engine(model, options);
  engine.set_routing_observer([&](const engine::Routing& routing) {
    if (routing.moe_layer == 0) cancel = true;
  });
  try {
    engine.prefill(0, ids);
    FAIL() << "not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
    EXPECT_STREQ(error.what(), "cancelled before layer 1 of 2");
  }
  EXPECT_EQ(engine.n_tokens(0), 0U);
  engine.set_routing_observer({});
  cancel = false;
  EXPECT_EQ(test::run_digest(engine, ids, 4), want);
}

// A file that loses its experts while the engine runs: the pass fails naming file and offset, the sequence stays, and
// once the bytes are back the engine goes on with the right bits.
TEST(Engine, FailedReadLeavesTheSequenceAndTheEngineUsable) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.slots_per_layer = 2;
  const std::vector<int32_t> ids = some_ids(20, 96);
  const std::string want = test::run_digest(model, options, ids, 4);

  std::ifstream in(file.path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  uint64_t first_expert_byte = UINT64_MAX;
  for (const residency::LayerSource& layer : engine::expert_sources(model)) {
    for (uint32_t i = 0; i < layer.n_parts; ++i) first_expert_byte = std::min(first_expert_byte, layer.parts[i].offset);
  }
  for (const auto io : {residency::IoMode::kUring, residency::IoMode::kThreads}) {
    options.io = io;
    engine::Engine engine(model, options);
    engine.prefill(0, std::span(ids).first(6));
    ASSERT_EQ(::truncate(file.path().c_str(), static_cast<off_t>(first_expert_byte)), 0);
    try {
      engine.prefill(0, std::span(ids).subspan(6));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind(file.path() + ": read at offset ", 0), 0U) << error.what();
    }
    EXPECT_EQ(engine.n_tokens(0), 6U);
    std::ofstream(file.path(), std::ios::binary | std::ios::in | std::ios::out) << bytes;
    engine.keep(0, 0);
    EXPECT_EQ(test::run_digest(engine, ids, 4), want);
  }
}

TEST(Engine, CacheLimits) {
  for (const uint32_t n_used : {1U, 2U, 6U, 8U, 16U}) {
    TinyModel tiny = tiny_moe();
    tiny.n_experts = 16;
    tiny.n_used = n_used;
    const TinyFile file(tiny);
    const model::Model model = model::open(file.path());
    EXPECT_EQ(engine::minimum_slots(model), n_used);
    const std::vector<int32_t> ids = some_ids(5, 96);
    const std::string want = test::run_digest(model, tiny_options(), ids, 2);
    EngineOptions options = tiny_options();
    options.slots_per_layer = n_used;
    EXPECT_EQ(test::run_digest(model, options, ids, 2), want);
    options.slots_per_layer = 160;
    EXPECT_EQ(engine::resolve(model, options).slots_per_layer, 16U);
    EXPECT_EQ(test::run_digest(model, options, ids, 2), want);
    if (n_used == 1) continue;
    options.slots_per_layer = n_used - 1;
    EXPECT_EQ(
        error_of([&] { engine::Engine refused(model, options); }),
        fmt::format(
            "expert cache of {} slots per layer is too small, wanted {}..16: a token uses {} experts in each layer",
            n_used - 1, n_used, n_used));
  }
}

TEST(Engine, PlanNamesItsLinesAndGrowsWithItsParts) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.slots_per_layer = 2;
  const std::vector<engine::PlanLine> plan = engine::memory_plan(model, options);
  ASSERT_EQ(plan.size(), 4U);
  EXPECT_EQ(plan[0].name, "dense weights");
  EXPECT_EQ(plan[1].name, "KV cache");
  EXPECT_EQ(plan[2].name, "work buffers");
  EXPECT_EQ(plan[3].name, "expert cache");
  // 2 layers, 2 kv heads, 64 positions, 16 + 16 values of 4 bytes.
  EXPECT_EQ(plan[1].bytes, 2U * 2 * 64 * 32 * 4);
  EXPECT_GE(plan[0].bytes, model.file.total_tensor_bytes() - model.expert_bytes());
  options.slots_per_layer = 4;
  options.context = 128;
  options.n_sequences = 3;
  const std::vector<engine::PlanLine> larger = engine::memory_plan(model, options);
  EXPECT_EQ(larger[0].bytes, plan[0].bytes);
  EXPECT_EQ(larger[1].bytes, 6 * plan[1].bytes);
  EXPECT_GT(larger[2].bytes, plan[2].bytes);
  EXPECT_GE(larger[3].bytes, plan[3].bytes + 2 * 2 * model.slab_bytes(0));

  TinyModel dense;
  dense.arch = "llama", dense.n_experts = 0, dense.n_used = 0;
  const TinyFile dense_file(dense);
  const model::Model dense_model = model::open(dense_file.path());
  EXPECT_EQ(engine::memory_plan(dense_model, tiny_options()).size(), 3U);
  EXPECT_EQ(engine::minimum_slots(dense_model), 0U);
}

TEST(Engine, PhasesAndCountersSumUp) {
  TinyModel tiny = tiny_moe();
  const TinyFile file(tiny);
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.slots_per_layer = 2;
  engine::Engine engine(model, options);
  uint64_t demanded = 0;
  engine.set_routing_observer([&](const engine::Routing& routing) { demanded += routing.ids.size(); });
  const std::vector<int32_t> ids = some_ids(20, 96);
  for (const int32_t id : ids) engine.prefill(0, {&id, 1});
  const engine::EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.passes, 20U);
  EXPECT_EQ(counters.rows, 20U);
  EXPECT_EQ(counters.experts.demanded, demanded);  // one row a pass: every chosen expert is one demand
  EXPECT_EQ(counters.experts.hits + counters.experts.misses, demanded);
  EXPECT_EQ(counters.experts.bytes_read, counters.experts.misses * model.slab_bytes(0));
  const engine::PhaseTimes times = engine.phase_times();
  EXPECT_GT(times.attention, 0U);
  EXPECT_GT(times.router, 0U);
  EXPECT_GT(times.head, 0U);
  EXPECT_LE(times.stall, counters.experts.stall_ns);
}

// MOE-1: experts of every number are found, the highest ones, too: chosen ids and weights equal a plain sort in double.
class ExpertCount : public ::testing::TestWithParam<uint32_t> {};

struct Choice {
  std::vector<uint32_t> ids;
  std::vector<double> weights;
  double margin = 1;  // smallest difference between neighbours of the sort that would change the choice
};

// What a qwen3moe router chooses for a token whose attention output is zero.
Choice plain_choice(std::span<const float> embedding, std::span<const float> norm, std::span<const float> router,
                    uint32_t n, uint32_t n_used) {
  const size_t d = norm.size();
  double square = 0;
  for (const float x : embedding) square += static_cast<double>(x) * x;
  const double scale = 1 / std::sqrt(square / static_cast<double>(d) + 1e-5);
  std::vector<std::pair<double, uint32_t>> scores(n);
  for (uint32_t e = 0; e < n; ++e) {
    double sum = 0;
    for (size_t i = 0; i < d; ++i) sum += static_cast<double>(router[e * d + i]) * norm[i] * embedding[i] * scale;
    scores[e] = {-sum, e};
  }
  std::sort(scores.begin(), scores.end());
  Choice choice;
  double total = 0;
  for (uint32_t i = 0; i < n_used; ++i) total += std::exp(scores[0].first - scores[i].first);
  for (uint32_t i = 0; i < n_used; ++i) {
    choice.ids.push_back(scores[i].second);
    choice.weights.push_back(std::exp(scores[0].first - scores[i].first) / total);
    if (i + 1 < n) choice.margin = std::min(choice.margin, scores[i + 1].first - scores[i].first);
  }
  return choice;
}

TEST_P(ExpertCount, ChosenExpertsEqualAPlainSort) {
  const uint32_t n = GetParam();
  TinyModel tiny = tiny_moe();
  tiny.n_layers = 1;
  tiny.n_experts = n;
  tiny.n_used = std::min(n, 8U);
  tiny.expert_ff = 4;
  std::vector<float> embedding;
  std::vector<float> norm;
  std::vector<float> router;
  tiny.edit = [&](const std::string& name, std::vector<float>& values) {
    if (name == "blk.0.attn_output.weight") std::fill(values.begin(), values.end(), 0.0F);
    if (name == "token_embd.weight" || name == "blk.0.ffn_norm.weight") {
      for (float& x : values) x = std::fabs(x) + 0.1F;
      (name == "token_embd.weight" ? embedding : norm) = values;
    }
    if (name == "blk.0.ffn_gate_inp.weight") {  // inputs are positive, so the highest numbers score best
      for (size_t i = 0; i < values.size(); ++i) values[i] += 0.004F * static_cast<float>(i / 64);
      router = values;
    }
  };
  const TinyFile file(tiny);
  const model::Model model = model::open(file.path());
  const std::vector<int32_t> ids = some_ids(30, 96);
  for (const uint32_t chunk : {1U, 64U}) {
    EngineOptions options = tiny_options();
    options.chunk = chunk;
    options.slots_per_layer = tiny.n_used;
    engine::Engine engine(model, options);
    bool highest = false;
    uint32_t n_compared = 0;
    size_t row = 0;
    engine.set_routing_observer([&](const engine::Routing& routing) {
      const auto token = static_cast<size_t>(ids[row++]);
      const Choice want = plain_choice(std::span(embedding).subspan(token * 64, 64), norm, router, n, tiny.n_used);
      if (want.margin < 1e-4) return;  // closer than the rounding of the scores
      ++n_compared;
      EXPECT_EQ(std::vector<uint32_t>(routing.ids.begin(), routing.ids.end()), want.ids);
      for (uint32_t i = 0; i < tiny.n_used; ++i) EXPECT_NEAR(routing.weights[i], want.weights[i], 1e-5);
      highest |= std::find(want.ids.begin(), want.ids.end(), n - 1) != want.ids.end();
    });
    engine.prefill(0, ids);
    EXPECT_GE(n_compared, 20U);
    EXPECT_TRUE(highest);
  }
  EngineOptions small = tiny_options();
  small.slots_per_layer = tiny.n_used;
  EXPECT_EQ(test::run_digest(model, small, ids, 4), test::run_digest(model, tiny_options(), ids, 4));
}

INSTANTIATE_TEST_SUITE_P(Counts, ExpertCount,
                         ::testing::Values(1, 2, 7, 60, 64, 129, 255, 256, 257, 512, 513, 1024, 1025));

}  // namespace
}  // namespace outrider

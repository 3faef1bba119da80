// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/engine/head_work.h"

namespace outrider::engine {
namespace {

std::vector<float> random_floats(Random& random, size_t n) {
  std::vector<float> values(n);
  for (float& x : values) x = random.uniform(-1.0F, 1.0F);
  return values;
}

kernels::Weights f32_weights(const std::vector<float>& values, uint32_t n_rows, uint32_t k) {
  return {.type = format::TensorType::kF32,
          .data = reinterpret_cast<const std::byte*>(values.data()),
          .row_bytes = k * sizeof(float),
          .n_rows = n_rows,
          .k = k};
}

TEST(CpuDevice, LinearAppliesScaleThenBiasAndNoSplitReachesABit) {
  TestRng random;
  constexpr uint32_t kWidth = 40;
  for (const uint32_t n_out : {1U, 7U, 130U}) {
    for (const uint32_t n_tokens : {1U, 5U}) {
      const auto w = random_floats(random, n_out * kWidth);
      const auto bias = random_floats(random, n_out);
      auto x = random_floats(random, n_tokens * kWidth);
      const DeviceLinear full{.w = f32_weights(w, n_out, kWidth), .bias = bias.data(), .scale = 1.7F};
      const DeviceLinear bare{.w = f32_weights(w, n_out, kWidth)};
      std::vector<float> want(n_out * n_tokens);
      std::vector<float> products(n_out * n_tokens);
      for (const uint32_t n_threads : {1U, 2U, 5U}) {
        CpuDevice device(best_isa(), n_threads, 1, 4);
        std::vector<float> got(want.size());
        std::vector<float> plain(want.size());
        const std::array<LinearOp, 2> ops = {{{&full, got.data()}, {&bare, plain.data()}}};
        device.linear(ops, {.f32 = x.data(), .k = kWidth}, n_tokens);
        if (n_threads == 1) {
          want = got;
          products = plain;
          for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], plain[i] * 1.7F + bias[i % n_out]);
        }
        EXPECT_EQ(got, want);
        EXPECT_EQ(plain, products);
      }
    }
  }
}

TEST(CpuDevice, SomeRowsAndTheHeadInPiecesAreTheBitsOfTheWhole) {
  TestRng random;
  constexpr uint32_t kWidth = 64, kOut = 300;
  const auto w = random_floats(random, kOut * kWidth), bias = random_floats(random, kOut);
  auto x = random_floats(random, kWidth);
  const Rows in = {.f32 = x.data(), .k = kWidth};
  const DeviceLinear linear{.w = f32_weights(w, kOut, kWidth), .bias = bias.data(), .scale = 0.7F};
  for (const uint32_t n_threads : {1U, 3U}) {
    CpuDevice device(best_isa(), n_threads, 1, 4);
    std::vector<float> want(kOut), some(kOut, -7), pieces(kOut);
    const LinearOp whole = {&linear, want.data()};
    device.linear({&whole, 1}, in, 1);
    const std::vector<uint32_t> rows = {0, 3, 4, 31, 32, 150, 299};
    device.linear_some({&linear, some.data()}, in, rows);
    for (uint32_t i = 0; i < kOut; ++i) {
      EXPECT_EQ(some[i], std::ranges::find(rows, i) != rows.end() ? want[i] : -7) << i;
    }
    HeadWork head(device, linear, in, pieces.data());
    EXPECT_FALSE(head.is_done());
    head.step();
    head.finish();
    EXPECT_TRUE(head.is_done());
    head.finish();
    EXPECT_EQ(pieces, want);
  }
}

TEST(CpuDevice, AHeadOfManyPiecesTakesSteps) {
  TestRng random;
  constexpr uint32_t kWidth = 1U << 16, kOut = 70;  // 256 KiB a row, 32 rows a piece
  const auto w = random_floats(random, size_t{kOut} * kWidth);
  auto x = random_floats(random, kWidth);
  const Rows in = {.f32 = x.data(), .k = kWidth};
  const DeviceLinear linear{.w = f32_weights(w, kOut, kWidth)};
  CpuDevice device(best_isa(), 2, 1, 4);
  std::vector<float> want(kOut), pieces(kOut);
  const LinearOp whole = {&linear, want.data()};
  device.linear({&whole, 1}, in, 1);
  HeadWork head(device, linear, in, pieces.data());
  uint32_t n_steps = 0;
  for (; !head.is_done(); ++n_steps) head.step();
  EXPECT_EQ(n_steps, 3U);
  EXPECT_EQ(pieces, want);
}

// The rows that are largest by the sketch hold the largest row, also where the last block is not full.
TEST(CpuDevice, ASketchNamesTheLargestRow) {
  TestRng random;
  constexpr uint32_t kWidth = 256, kOut = 1003;
  const auto w = random_floats(random, kOut * kWidth);
  const DeviceLinear linear{.w = f32_weights(w, kOut, kWidth)};
  std::vector<float> want(kOut), scores(kOut);
  for (const uint32_t n_threads : {1U, 3U}) {
    CpuDevice device(best_isa(), n_threads, 1, 4);
    const uint64_t n_bytes = kernels::sketch_bytes(kOut, kWidth);
    const kernels::Sketch sketch = kernels::lay_out_sketch(device.allocate(n_bytes, "sketch"), kOut, kWidth);
    std::byte* tables = device.allocate(kernels::sketch_table_bytes(kWidth), "tables");
    device.make_sketch(linear, sketch);
    for (int i = 0; i < 20; ++i) {
      auto x = random_floats(random, kWidth);
      const LinearOp whole = {&linear, want.data()};
      device.linear({&whole, 1}, {.f32 = x.data(), .k = kWidth}, 1);
      device.sketch_scores(sketch, x.data(), tables, scores.data());
      const auto best = static_cast<size_t>(std::ranges::max_element(want) - want.begin());
      const auto n_above = std::ranges::count_if(scores, [&](float s) { return s > scores[best]; });
      EXPECT_LT(n_above, 200) << i;
    }
  }
}

// A few experts of width (d, ff) as F32 slabs.
struct Slabs {
  static constexpr uint32_t kD = 12, kFf = 9, kExperts = 7;
  std::vector<std::vector<float>> gate, up, down;
  explicit Slabs(Random& random) {
    for (uint32_t e = 0; e < kExperts; ++e) {
      gate.push_back(random_floats(random, kFf * kD));
      up.push_back(random_floats(random, kFf * kD));
      down.push_back(random_floats(random, kD * kFf));
    }
  }
  ExpertShape shape() const {
    ExpertShape shape{.gate = f32_weights(gate[0], kFf, kD),
                      .up = f32_weights(up[0], kFf, kD),
                      .down = f32_weights(down[0], kD, kFf),
                      .up_part = 1,
                      .down_part = 2};
    shape.gate.data = shape.up.data = shape.down.data = nullptr;
    return shape;
  }
  residency::ReadySlab ready(uint32_t e) const {
    const auto bytes = [](const std::vector<float>& v) { return reinterpret_cast<const std::byte*>(v.data()); };
    return {.expert = e, .slot_idx = 0, .parts = {bytes(gate[e]), bytes(up[e]), bytes(down[e])}};
  }
  std::vector<double> run(uint32_t e, const float* x) const {
    std::vector<double> out(kD, 0.0);
    for (uint32_t f = 0; f < kFf; ++f) {
      double g = 0;
      double u = 0;
      for (uint32_t i = 0; i < kD; ++i) {
        g += static_cast<double>(gate[e][f * kD + i]) * x[i];
        u += static_cast<double>(up[e][f * kD + i]) * x[i];
      }
      for (uint32_t i = 0; i < kD; ++i) out[i] += down[e][i * kFf + f] * (g / (1 + std::exp(-g)) * u);
    }
    return out;
  }
};

// Runs the experts of `ids` (n_rows, n_used) in the given order of jobs, jobs_at_once at a time, and returns x + their
// sum. in_stages: the hidden rows of all jobs first, then their down.
std::vector<float> run_moe(CpuDevice& device, const Slabs& slabs, const std::vector<float>& x,
                           const std::vector<uint32_t>& ids, const std::vector<float>& weights, uint32_t n_used,
                           std::vector<uint32_t> order, size_t jobs_at_once, bool in_stages = false) {
  const auto n_pairs = static_cast<uint32_t>(ids.size());
  const uint32_t n_rows = n_pairs / n_used;
  std::vector<uint32_t> pair_row;
  std::vector<uint32_t> pair_of(n_pairs);
  std::vector<ExpertJob> jobs(Slabs::kExperts);
  for (uint32_t e = 0; e < Slabs::kExperts; ++e) {
    jobs[e] = {.slab = slabs.ready(e), .pair_begin = static_cast<uint32_t>(pair_row.size())};
    for (uint32_t i = 0; i < n_pairs; ++i) {
      if (ids[i] != e) continue;
      pair_of[i] = static_cast<uint32_t>(pair_row.size());
      pair_row.push_back(i / n_used);
      ++jobs[e].n_pairs;
    }
  }
  std::erase_if(order, [&](uint32_t e) { return jobs[e].n_pairs == 0; });
  std::vector<float> in = x;
  std::vector<float> hidden(n_pairs * Slabs::kFf);
  std::vector<float> up(hidden.size());
  std::vector<float> out(n_pairs * Slabs::kD);
  const ExpertShape shape = slabs.shape();
  const auto run_all = [&](ExpertStage stage) {
    for (size_t at = 0; at < order.size(); at += jobs_at_once) {
      std::vector<ExpertJob> some;
      uint32_t n_scratch = 0;
      for (size_t i = at; i < std::min(order.size(), at + jobs_at_once); ++i) {
        some.push_back(jobs[order[i]]);
        some.back().scratch_begin = in_stages ? some.back().pair_begin : n_scratch;
        n_scratch += some.back().n_pairs;
      }
      device.experts({.shape = &shape,
                      .stage = stage,
                      .jobs = some,
                      .x = {.f32 = in.data(), .k = Slabs::kD},
                      .pair_row = pair_row.data(),
                      .hidden = {.f32 = hidden.data(), .k = Slabs::kFf},
                      .up = up.data(),
                      .out = out.data()});
    }
  };
  if (in_stages) {
    run_all(ExpertStage::kHidden);
    std::reverse(order.begin(), order.end());
    run_all(ExpertStage::kDown);
  } else {
    run_all(ExpertStage::kAll);
  }
  std::vector<float> result = x;
  std::vector<float> sum(x.size());
  device.combine({.x = result.data(),
                  .expert_out = out.data(),
                  .pair_of = pair_of.data(),
                  .weights = weights.data(),
                  .sum = sum.data(),
                  .n_rows = n_rows,
                  .n_used = n_used,
                  .d_model = Slabs::kD});
  return result;
}

// Includes MOE-2: one expert in two ranks of a row (5,5,1,1,0,0); both weights count.
// Rows of several sequences, whose neighbours attend in one task: each has what it has alone.
TEST(CpuDevice, RowsTogetherAttendAsEachAlone) {
  constexpr AttentionShape kShape = {.n_heads = 8, .n_kv_heads = 2, .dk = 64, .dv = 64, .scale = 0.125F};
  constexpr uint32_t kPositions = 160;
  const std::vector<uint32_t> n_rows = {20, 5, 17, 100};  // by sequence
  TestRng random;
  const uint64_t row_bytes = kShape.dk * sizeof(float), head_bytes = kPositions * row_bytes;
  auto k = random_floats(random, n_rows.size() * kShape.n_kv_heads * kPositions * kShape.dk);
  auto v = random_floats(random, k.size());
  const KvLayer kv = {.k = reinterpret_cast<std::byte*>(k.data()),
                      .v = reinterpret_cast<std::byte*>(v.data()),
                      .k_head_stride = head_bytes,
                      .v_head_stride = head_bytes,
                      .k_row_bytes = row_bytes,
                      .v_row_bytes = row_bytes,
                      .type = kernels::KvType::kF32};
  std::vector<RowPlace> places;
  for (uint32_t s = 0; s < n_rows.size(); ++s) {
    for (uint32_t i = 0; i < n_rows[s]; ++i) places.push_back({s, 7 * s + i});
  }
  places.push_back({0, 3});  // goes back
  const uint64_t width = uint64_t{kShape.n_heads} * kShape.dk;
  const auto q = random_floats(random, places.size() * width);
  for (const uint32_t n_threads : {1U, 2U}) {
    CpuDevice device(best_isa(), n_threads, 1, kShape.dv);
    std::vector<float> together(q.size()), alone(q.size());
    device.attention(kShape, q.data(), kv, places, together.data());
    for (size_t row = 0; row < places.size(); ++row) {
      device.attention(kShape, q.data() + row * width, kv, {&places[row], 1}, alone.data() + row * width);
    }
    EXPECT_EQ(together, alone) << n_threads << " threads";
  }
}

TEST(CpuDevice, ExpertsEqualAPlainSumInAnyOrderOfArrival) {
  TestRng random;
  const Slabs slabs(random);
  for (const uint32_t n_rows : {1U, 9U, 64U}) {
    const uint32_t n_used = 6;
    std::vector<uint32_t> ids;
    for (uint32_t row = 0; row < n_rows; ++row) {
      const std::vector<uint32_t> twice = {5, 5, 1, 1, 0, 0};
      for (uint32_t rank = 0; rank < n_used; ++rank) {
        ids.push_back(row % 2 == 0 ? twice[rank] : static_cast<uint32_t>(random.below(Slabs::kExperts)));
      }
    }
    const auto x = random_floats(random, n_rows * Slabs::kD);
    const auto weights = random_floats(random, ids.size());
    std::vector<uint32_t> order(Slabs::kExperts);
    std::iota(order.begin(), order.end(), 0U);
    CpuDevice one(best_isa(), 1, Slabs::kExperts, 4);
    const std::vector<float> want = run_moe(one, slabs, x, ids, weights, n_used, order, 1);
    for (uint32_t row = 0; row < n_rows; ++row) {
      std::vector<double> sum(x.begin() + row * Slabs::kD, x.begin() + (row + 1) * Slabs::kD);
      for (uint32_t rank = 0; rank < n_used; ++rank) {
        const std::vector<double> out = slabs.run(ids[row * n_used + rank], x.data() + row * Slabs::kD);
        for (uint32_t i = 0; i < Slabs::kD; ++i) sum[i] += weights[row * n_used + rank] * out[i];
      }
      for (uint32_t i = 0; i < Slabs::kD; ++i) EXPECT_NEAR(want[row * Slabs::kD + i], sum[i], 1e-4);
    }
    CpuDevice three(best_isa(), 3, Slabs::kExperts, 4);
    for (int trial = 0; trial < 10; ++trial) {
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      EXPECT_EQ(run_moe(three, slabs, x, ids, weights, n_used, order, 1 + random.below(4), trial % 2 == 1), want);
    }
  }
}

// Look-ahead sums some rows of the state, elsewhere; the bits are those of the sum in place.
TEST(CpuDevice, CombineOfSomeRowsIsThatOfAllInPlace) {
  TestRng random;
  CpuDevice device(best_isa(), 2, 4, 4);
  constexpr uint32_t kRows = 5, kD = 64, kN = 2;
  const auto x = random_floats(random, kRows * kD), out = random_floats(random, kRows * kN * kD),
             shared = random_floats(random, kRows * kD);
  const auto gate = random_floats(random, kRows), weights = random_floats(random, kRows * kN);
  const std::vector<uint32_t> pair_of = {9, 0, 8, 1, 7, 2, 6, 3, 5, 4};
  std::vector<float> all = x, sum(kRows * kD);
  CombineArgs args = {.x = all.data(),
                      .expert_out = out.data(),
                      .pair_of = pair_of.data(),
                      .weights = weights.data(),
                      .shared = shared.data(),
                      .shared_gate = gate.data(),
                      .sum = sum.data(),
                      .n_rows = kRows,
                      .n_used = kN,
                      .d_model = kD};
  device.combine(args);
  const std::vector<uint32_t> rows = {4, 1};
  const std::vector<uint32_t> some_pairs = {5, 4, 8, 1};
  const std::vector<float> some_weights = {weights[8], weights[9], weights[2], weights[3]};
  std::vector<float> some(2 * kD);
  const std::vector<float> source = x;
  args.x = some.data(), args.from = source.data(), args.row_idx = rows.data(), args.pair_of = some_pairs.data();
  args.weights = some_weights.data(), args.n_rows = 2;
  device.combine(args);
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t k = 0; k < kD; ++k) ASSERT_EQ(some[i * kD + k], all[rows[i] * kD + k]) << i << ' ' << k;
  }
  EXPECT_EQ(source, x);
}

TEST(CpuDevice, RouteTellsTheFirstRowWithANaN) {
  TestRng random;
  CpuDevice device(best_isa(), 2, 16, 4);
  constexpr uint32_t kRows = 40;
  auto logits = random_floats(random, kRows * 16);
  std::vector<uint32_t> ids(kRows * 3);
  std::vector<float> weights(kRows * 3);
  const RouteArgs args{.spec = {.n_experts = 16, .n_used = 3},
                       .logits = logits.data(),
                       .n_rows = kRows,
                       .ids = ids.data(),
                       .weights = weights.data()};
  EXPECT_EQ(device.route(args), kRows);
  logits[31 * 16 + 2] = NAN;
  logits[17 * 16 + 15] = NAN;
  EXPECT_EQ(device.route(args), 17U);
}

}  // namespace
}  // namespace outrider::engine

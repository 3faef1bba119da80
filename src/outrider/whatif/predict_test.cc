// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/predict.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "tiny_model.h"

namespace outrider::whatif {
namespace {

// Made-up: 1 GB dense, 800 experts' worth 8 GB, a tenth of them used by a token.
// q8_0: 34 bytes for 32 weights.
constexpr double kWeights = 32e9 / 34;
const ModelWork kWork = {
    .dense_bytes = 1e9,
    .used_expert_bytes = 0.8e9,
    .all_expert_bytes = 8e9,
    .macs = 1.8 * kWeights,
    .expert_macs = 0.8 * kWeights,
    .n_experts = 100,
    .n_used = 10,
    .types = {{.type = format::TensorType::kQ8_0, .dense_macs = kWeights, .expert_macs = 0.8 * kWeights}}};
const MachineRates kRates = {.dram_gbps = 90, .drive_gbps = 2, .int8_gmacs = 500};

Prediction predict(const ModelWork& work, const MachineRates& rates, double miss_rate, uint32_t chunk) {
  return whatif::predict(work, rates, {.miss_rate = miss_rate, .chunk = chunk});
}

TEST(Predict, EverythingResidentIsBoundByMemory) {
  const Prediction got = predict(kWork, kRates, 0, 1);
  EXPECT_EQ(got.decode.by, BoundBy::kMemory);
  EXPECT_NEAR(got.decode.bound_tps, 90 / 1.8, 1e-9);
  EXPECT_NEAR(got.decode.expected_tps, 0.8 * 90 / 1.8, 1e-9);
}

TEST(Predict, MissesBoundByTheDriveAndADriveTwiceAsFastDoubles) {
  const Prediction got = predict(kWork, kRates, 0.5, 512);
  EXPECT_EQ(got.decode.by, BoundBy::kDrive);
  EXPECT_NEAR(got.missed_bytes, 0.4e9, 1);
  EXPECT_NEAR(got.decode.bound_tps, 5, 1e-9);
  MachineRates twice = kRates;
  twice.drive_gbps *= 2;
  EXPECT_NEAR(predict(kWork, twice, 0.5, 512).decode.bound_tps, 10, 1e-9);
  twice.drive_gbps = 1000;  // then memory binds
  EXPECT_EQ(predict(kWork, twice, 0.5, 512).decode.by, BoundBy::kMemory);
}

TEST(Predict, DensePartsComeOnTopOfReading) {
  // 1 GB at 80 % of 90 GB/s, then 0.4 GB at 90 % of 2 GB/s, which covers the 0.8 GB of experts at DRAM's rate.
  EXPECT_NEAR(predict(kWork, kRates, 0.5, 1).decode.expected_tps, 1 / (1 / 72.0 + 0.4 / 1.8), 1e-9);
  // 1,000 tokens: the dense ones at 60 % of 500 a nanosecond, then 8 GB at 75 % of 2 GB/s.
  EXPECT_NEAR(predict(kWork, kRates, 1, 1000).prefill.expected_tps, 1000 / (kWeights / 3e8 + 8 / 1.5), 1e-6);
}

TEST(Predict, WhatIsReadAheadFallsIntoComputing) {
  ModelWork work = kWork;  // of the 1 GB dense, half is the head
  work.types[0].dense_macs = work.types[0].head_macs = kWeights / 2;
  const auto seconds = [&](double miss_rate, ReadsAhead ahead) {
    return 1 / whatif::predict(work, kRates, {.miss_rate = miss_rate, .ahead = ahead}).decode.expected_tps;
  };
  const double computing = 1.8 / 72, head = 0.5 / 72, reading = 0.4 / 2;
  EXPECT_NEAR(seconds(0.5, ReadsAhead::kLayers), head + reading + 0.15 * (computing - head), 1e-9);
  EXPECT_NEAR(seconds(0.5, ReadsAhead::kNextToken), head + reading + 0.15 * (computing - head), 1e-9);  // no sketch
  work.sketch_bytes = 0.072e9;
  EXPECT_NEAR(seconds(0.5, ReadsAhead::kNextToken), reading + 0.15 * (computing + 1e-3), 1e-9);
  EXPECT_NEAR(seconds(0.05, ReadsAhead::kNextToken), computing + 1e-3 + 0.15 * 0.02, 1e-9);
  // Where next to nothing is read it costs nothing.
  EXPECT_NEAR(seconds(1e-4, ReadsAhead::kNextToken), seconds(1e-4, ReadsAhead::kNothing), 1e-6);
  EXPECT_EQ(seconds(0, ReadsAhead::kNextToken), seconds(0, ReadsAhead::kNothing));
}

TEST(Predict, WhatTheProbeTimedReplacesSharesOfPeaks) {
  MachineRates rates = kRates;
  rates.n_threads = 2;
  rates.operations.products = {{format::TensorType::kQ8_0, 50, {100, 200, 400}, 300}};
  EXPECT_NEAR(predict(kWork, rates, 0, 1).decode.expected_tps, 50 / 1.8, 1e-6);
  // 640 tokens, 64 for each expert: half of the way from 200 to 400.
  const double seconds = 640 * (kWeights / 300e9 + 0.8 * kWeights / 300e9);
  EXPECT_NEAR(predict(kWork, rates, 0, 640).prefill.expected_tps, 640 / seconds, 1e-6);
  // The drive hides behind the experts or they behind it; dense parts come on top.
  const double reading = 640 * kWeights / 300e9 + 8 / 1.5;
  EXPECT_NEAR(predict(kWork, rates, 1, 640).prefill.expected_tps, 640 / reading, 1e-6);
}

TEST(Predict, WhatIsNoProductCountsByThreadsAndContext) {
  ModelWork work;
  work.norm_elems = 1000, work.combined_elems = 100, work.routed_experts = 10, work.n_logits = 7, work.n_forks = 5;
  work.attention_macs = 64;
  work.kv_bytes = 8;
  MachineRates rates = {.dram_gbps = 1e-6, .n_threads = 2};  // a bound far below
  rates.operations.attention = {{kernels::KvType::kF16, 2, 4}};
  rates.operations.fork_ns = 3, rates.operations.norm_ns = 0.5, rates.operations.combine_ns = 0.25,
  rates.operations.route_ns = 2;
  rates.operations.sample_ns = 1;
  const auto ns = [&](uint32_t chunk, uint32_t context) {
    const Prediction got = whatif::predict(work, rates, {.chunk = chunk, .context = context});
    return 1e9 / (chunk > 1 ? got.prefill.expected_tps / chunk : got.decode.expected_tps);
  };
  EXPECT_NEAR(ns(1, 0), 500 + 25 + 20 + 5 * 3 + 7 + 64 / 2.0, 1e-9);
  EXPECT_NEAR(ns(1, 99), 500 + 25 + 20 + 5 * 3 + 7 + 100 * 64 / 2.0, 1e-9);
  // Ten rows on two threads; they see 21 to 30 positions.
  EXPECT_NEAR(ns(10, 20), 10 * 545 / 2.0 + 5 * 3 + 7 + 255 * 64 / 4.0, 1e-9);
}

TEST(Predict, PrefillReadsEachTouchedExpertOnceAChunk) {
  // One token touches a tenth of the experts, a large chunk all of them.
  const Prediction one = predict(kWork, kRates, 1, 1);
  EXPECT_NEAR(one.prefill.bound_tps, 2 / 0.8, 1e-9);
  const Prediction many = predict(kWork, kRates, 1, 2000);
  EXPECT_EQ(many.prefill.by, BoundBy::kArithmetic);
  EXPECT_NEAR(many.prefill.bound_tps, 500e9 / (1.8 * kWeights), 1e-6);
  const Prediction some = predict(kWork, kRates, 1, 100);
  EXPECT_EQ(some.prefill.by, BoundBy::kDrive);
  EXPECT_NEAR(some.prefill.bound_tps, 100 / (8 * (1 - std::pow(0.9, 100)) / 2), 1e-6);
}

TEST(Predict, AnUnknownRateNeverBounds) {
  MachineRates rates = kRates;
  rates.drive_gbps = 0;
  EXPECT_EQ(predict(kWork, rates, 1, 64).decode.by, BoundBy::kMemory);
  EXPECT_EQ(predict(kWork, {}, 1, 64).decode.bound_tps, 0);
}

TEST(Predict, WorkIsCountedFromTheDirectory) {
  test::TinyModel tiny;  // f32: 4 bytes an element
  tiny.qk_norm = true;
  const std::string path = ::testing::TempDir() + "predict_test_" + std::to_string(::getpid()) + ".gguf";
  test::write_tiny_model(tiny, path);
  const model::Model model = model::open(path);
  std::remove(path.c_str());
  const ModelWork work = model_work(model);
  const double attention = 64.0 * (64 + 32 + 32) + 64.0 * 64, router = 8 * 64.0, expert = 3 * 64.0 * 32;
  EXPECT_EQ(work.macs, 2 * (attention + router + 2 * expert));
  EXPECT_EQ(work.all_expert_bytes, 2 * 8 * expert * 4);
  EXPECT_EQ(work.used_expert_bytes, 2 * 2 * expert * 4);
  EXPECT_EQ(work.dense_bytes, 4 * (2 * (attention + router) + 96.0 * 64));
  ASSERT_EQ(work.types.size(), 1U);
  EXPECT_EQ(work.types[0].type, format::TensorType::kF32);
  EXPECT_EQ(work.types[0].dense_macs, 2 * (attention + router));
  EXPECT_EQ(work.types[0].expert_macs, 2 * 2 * expert);
  EXPECT_EQ(work.types[0].head_macs, 96 * 64);
  EXPECT_EQ(work.types[0].bytes(10), 40);
  EXPECT_EQ(work.n_logits, 96);
  EXPECT_EQ(work.routed_experts, 2 * 8);
  EXPECT_EQ(work.n_forks, 2 * 3);
  EXPECT_EQ(work.kv_bytes, 2 * 2 * 32 * 2);  // layers, keys and values, width, f16
  EXPECT_EQ(touched_expert_bytes(work, 1), work.used_expert_bytes);
  EXPECT_EQ(uniform_miss_rate(work, 2), 0.75);
  EXPECT_EQ(uniform_miss_rate(work, 100), 0);
}

}  // namespace
}  // namespace outrider::whatif

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
constexpr ModelWork kWork = {.dense_bytes = 1e9, .used_expert_bytes = 0.8e9, .all_expert_bytes = 8e9, .macs = 3e9, .expert_macs = 2e9, .n_experts = 100, .n_used = 10};
constexpr MachineRates kRates = {.dram_gbps = 90, .drive_gbps = 2, .int8_gmacs = 500};

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
  // 1,000 tokens: 1e12 dense multiply-adds at 60 % of 500e9, 2e12 of experts against 8 GB at 1.8 GB/s.
  EXPECT_NEAR(predict(kWork, kRates, 1, 1000).prefill.expected_tps, 1000 / (1000 / 300.0 + 2000 / 300.0), 1e-6);
}

TEST(Predict, PrefillReadsEachTouchedExpertOnceAChunk) {
  // One token touches a tenth of the experts, a large chunk all of them.
  const Prediction one = predict(kWork, kRates, 1, 1);
  EXPECT_NEAR(one.prefill.bound_tps, 2 / 0.8, 1e-9);
  const Prediction many = predict(kWork, kRates, 1, 1000);
  EXPECT_EQ(many.prefill.by, BoundBy::kArithmetic);
  EXPECT_NEAR(many.prefill.bound_tps, 500 / 3.0, 1e-6);
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
  EXPECT_EQ(uniform_miss_rate(work, 2), 0.75);
  EXPECT_EQ(uniform_miss_rate(work, 100), 0);
}

}  // namespace
}  // namespace outrider::whatif

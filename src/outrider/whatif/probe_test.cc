// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "tiny_model.h"

namespace outrider::whatif {
namespace {

Probe made_up() {
  Probe probe;
  probe.cpu = cpu_name();
  probe.cores = core_budget().default_threads;
  probe.drive_folder = "/data";
  probe.drive_device = 77;
  probe.drive_direct = true;
  probe.date = "2026-11-29T18:00:00Z";
  probe.load = 0.25;
  probe.drive = {{65536, 1, 0.5}, {65536, 4, 1.2}, {65536, 16, 1.21}, {1048576, 1, 1.5}, {1048576, 4, 1.9}};
  probe.memory = {{1, 35}, {2, 66}, {4, 80}};
  probe.arithmetic = {{"int8", "avx2", 60}, {"int8", "avx512", 140}, {"f32", "avx2", 20}};
  probe.operations = {.products = {{format::TensorType::kQ4_0, 40, {50, 100, 150}, 200}},
                      .attention = {{kernels::KvType::kF16, 12, 30}, {kernels::KvType::kQ8_0, 11, 25}},
                      .fork_ns = 3000,
                      .norm_ns = 0.5,
                      .combine_ns = 0.25,
                      .route_ns = 10,
                      .sample_ns = 3};
  return probe;
}

class ProbeFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "outrider_probe_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/outrider/probe.json";
  std::string note_;
};

TEST(Probe, RatesAreLookedUpAtTheNearestReading) {
  const Probe probe = made_up();
  EXPECT_EQ(probe.drive_gbps(100'000), 1.21);
  EXPECT_EQ(probe.drive_gbps(2'000'000), 1.9);
  EXPECT_EQ(probe.drive_depth(65536), 4U);  // 16 gains nothing
  EXPECT_EQ(probe.drive_depth(1048576), 4U);
  EXPECT_EQ(probe.memory_gbps(2), 66);
  EXPECT_EQ(probe.memory_gbps(3), 66);
  EXPECT_EQ(probe.memory_gbps(64), 80);
  EXPECT_EQ(probe.memory_gbps(0), 35);
  EXPECT_EQ(probe.gmacs("int8"), 140);
  EXPECT_EQ(probe.gmacs("int8", "avx2"), 60);
  EXPECT_EQ(probe.gmacs("int8", "scalar"), 0);
  EXPECT_EQ(Probe().drive_gbps(4096), 0);
  EXPECT_EQ(Probe().drive_depth(4096), 0U);
  EXPECT_EQ(Probe().memory_gbps(2), 0);
}

TEST_F(ProbeFile, WhatIsStoredIsLoaded) {
  EXPECT_FALSE(load_probe(path_, note_));
  EXPECT_EQ(note_, "");
  store_probe(path_, made_up());
  const auto back = load_probe(path_, note_);
  ASSERT_TRUE(back) << note_;
  EXPECT_EQ(probe_json(*back), probe_json(made_up()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/outrider"), {}),
            1);  // nothing left beside it
}

TEST_F(ProbeFile, DamagedForeignAndOlderFilesCountAsNone) {
  const std::string text = probe_json(made_up());
  for (size_t n_bytes = 0; n_bytes < text.size() - 2; n_bytes += 37) {
    EXPECT_FALSE(parse_probe(text.substr(0, n_bytes), note_)) << n_bytes;
    EXPECT_TRUE(note_.starts_with("the kept probe is damaged (")) << note_;
  }
  std::string other = text;
  other.replace(other.find("\"version\": 3"), 12, "\"version\": 9");
  EXPECT_FALSE(parse_probe(other, note_));
  EXPECT_EQ(note_, "the kept probe is of another version of outrider");
  other = text;
  other.replace(other.find("1.21"), 4, "-1.2");
  EXPECT_FALSE(parse_probe(other, note_));
  Probe foreign = made_up();
  foreign.cpu = "Abacus 3";
  store_probe(path_, foreign);
  EXPECT_FALSE(load_probe(path_, note_));
  EXPECT_TRUE(note_.starts_with("the kept probe is of another machine (Abacus 3, ")) << note_;
}

TEST_F(ProbeFile, ARunReadsEverySizeAndDepthAndLeavesNothing) {
  std::filesystem::create_directories(folder_);
  uint64_t last = 0, all = 0;
  const Probe probe = run_probe(
      {.folder = folder_, .seconds_each = 0.001, .file_bytes = 8ULL << 20, .types = {format::TensorType::kQ4_0}},
      [&](uint64_t done, uint64_t total) {
        EXPECT_EQ(done, last + 1);
        last = done;
        all = total;
      });
  EXPECT_EQ(last, all);
  EXPECT_EQ(probe.drive.size(), 20U);
  for (const DriveReading& reading : probe.drive)
    EXPECT_GT(reading.gbps, 0) << reading.read_bytes << " at " << reading.depth;
  for (const MemoryReading& reading : probe.memory) EXPECT_GT(reading.gbps, 0);
  for (const ArithmeticReading& reading : probe.arithmetic)
    EXPECT_GT(reading.gmacs, 0.1) << reading.kind << " " << reading.isa;
  EXPECT_EQ(probe.arithmetic.size(), 2U * static_cast<uint32_t>(best_isa()));
  ASSERT_EQ(probe.operations.products.size(), 1U);
  const ProductRates& product = probe.operations.products[0];
  EXPECT_EQ(product.type, format::TensorType::kQ4_0);
  for (const double rate : {product.row_gbps, product.expert_gmacs[0], product.expert_gmacs[2], product.dense_gmacs})
    EXPECT_GT(rate, 0.01);
  EXPECT_EQ(probe.operations.attention.size(), 3U);
  EXPECT_GT(
      probe.operations.norm_ns * probe.operations.combine_ns * probe.operations.route_ns * probe.operations.sample_ns,
      0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_THROW(run_probe({.folder = folder_ + "/nowhere"}, [](uint64_t, uint64_t) {}), Error);
}

TEST(Probe, ProductsGoByTokensBetweenTheSizesTimed) {
  const ProductRates rates = made_up().operations.products[0];
  const double row = 40.0 * 32 / 18;
  EXPECT_DOUBLE_EQ(rates.gmacs(1, false), row);
  EXPECT_DOUBLE_EQ(rates.gmacs(0.5, true), row);
  EXPECT_DOUBLE_EQ(rates.gmacs(8, false), 50);
  EXPECT_DOUBLE_EQ(rates.gmacs(16, false), 75);  // half of the way from 8 to 32
  EXPECT_DOUBLE_EQ(rates.gmacs(1000, false), 150);
  EXPECT_DOUBLE_EQ(rates.gmacs(1000, true), 200);
  EXPECT_GT(rates.gmacs(64, true), 100);
}

TEST_F(ProbeFile, FewerThreadsAndLesserSetsHaveTheirShareOfTheProducts) {
  test::TinyModel tiny;
  tiny.qk_norm = true;
  std::filesystem::create_directories(folder_);
  test::write_tiny_model(tiny, folder_ + "/m.gguf");
  const model::Model model = model::open(folder_ + "/m.gguf");
  Probe probe = made_up();
  probe.cores = 4;
  const auto rates = [&](uint32_t n_threads, Isa isa) {
    engine::EngineOptions options;
    options.n_threads = n_threads;
    options.isa = isa;
    return rates_of(probe, model, options);
  };
  const MachineRates all = rates(4, Isa::kAvx512), many = rates(9, Isa::kAvx512), half = rates(2, Isa::kAvx2);
  EXPECT_EQ(all.operations.product(format::TensorType::kQ4_0)->dense_gmacs, 200);
  EXPECT_EQ(many.operations.product(format::TensorType::kQ4_0)->row_gbps, 40);
  const ProductRates* product = half.operations.product(format::TensorType::kQ4_0);
  EXPECT_DOUBLE_EQ(product->dense_gmacs, 200 * 60.0 / 140 / 2);
  EXPECT_DOUBLE_EQ(product->row_gbps, 40 * 66.0 / 80);
  EXPECT_EQ(half.operations.fork_ns, 3000);
  EXPECT_TRUE(rates(4, Isa::kScalar).operations.products.empty());
}

TEST(Probe, ItsPlaceFollowsTheCacheFolder) {
  ::setenv("XDG_CACHE_HOME", "/tmp/somewhere", 1);
  EXPECT_EQ(probe_path(), "/tmp/somewhere/outrider/probe.json");
  ::setenv("XDG_CACHE_HOME", "not/absolute", 1);
  ::setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(probe_path(), "/home/somebody/.cache/outrider/probe.json");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(probe_path(), "");
}

}  // namespace
}  // namespace outrider::whatif

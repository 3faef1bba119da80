// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "outrider/base/error.h"
#include "tiny_model.h"

namespace outrider::whatif {
namespace {

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CacheRequest, EveryFormIsRead) {
  EXPECT_EQ(parse_cache_request("auto").kind, CacheRequest::Kind::kAuto);
  EXPECT_EQ(parse_cache_request("48s").kind, CacheRequest::Kind::kSlots);
  EXPECT_EQ(parse_cache_request("48s").value, 48);
  EXPECT_EQ(parse_cache_request("12.5%").kind, CacheRequest::Kind::kShare);
  EXPECT_EQ(parse_cache_request("2GiB").value, 0x1p31);
}

TEST(CacheRequest, BadFormsAreToldWithTheGoodOnes) {
  for (const char* bad : {"", "s", "%", "-1s", "1.5s", "nans", "lots", "5 apples", "1e99%"}) {
    EXPECT_EQ(
        message_of([&] { parse_cache_request(bad); }),
        "--expert-cache " + std::string(bad) + ": wanted auto, a size (2GiB), slots per layer (48s) or a share (25%)");
  }
  EXPECT_EQ(message_of([] { parse_cache_request("65535", "--cache"); }),
            "--cache 65535: wanted a unit: 65535s (slots per layer), 65535% (a share) or 65535GiB (a size)");
  EXPECT_EQ(parse_cache_request("65536").value, 65536);
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "plan_test_" + std::to_string(::getpid()) + ".gguf";
    test::TinyModel tiny;
    tiny.qk_norm = true;
    tiny.n_experts = 32;
    tiny.n_used = 4;
    test::write_tiny_model(tiny, path_);
    model_ = model::open(path_);
    budget_.total_bytes = budget_.available_bytes = 8ULL << 30;
    budget_.ruled_by = "test";
  }
  void TearDown() override { std::remove(path_.c_str()); }
  Plan plan(const char* cache) { return make_plan(model_, {}, parse_cache_request(cache), budget_); }

  std::string path_;
  model::Model model_;
  MemoryBudget budget_;
};

TEST_F(PlanTest, AutoTakesEverythingWhenItFits) {
  const Plan result = plan("auto");
  EXPECT_EQ(result.slots_per_layer, 32U);
  uint64_t sum = 0;
  for (const auto& line : result.lines) sum += line.bytes;
  EXPECT_EQ(sum, result.total_bytes);
  EXPECT_EQ(result.total_bytes, result.everything_bytes);
}

TEST_F(PlanTest, AutoShrinksTheCacheFirstAndStaysInTheBudget) {
  const uint64_t slot_bytes = (plan("5s").total_bytes - plan("4s").total_bytes);
  budget_.available_bytes = plan("4s").total_bytes + 6 * slot_bytes + slot_bytes / 2 + (64ULL << 20);
  const Plan result = plan("auto");
  EXPECT_EQ(result.slots_per_layer, 10U);
  EXPECT_LE(result.total_bytes + result.margin_bytes, budget_.available_bytes);
}

TEST_F(PlanTest, TooSmallIsRefusedWithTheMinimum) {
  EXPECT_EQ(message_of([&] { plan("3s"); }),
            "--expert-cache 3s: too small, this model needs at least 4s (12.5%): 4 experts a token");
  EXPECT_EQ(message_of([&] { plan("64KiB"); }).rfind("--expert-cache 64KiB: too small, this model needs at least ", 0),
            0U);
  EXPECT_EQ(plan("4s").slots_per_layer, 4U);
}

TEST_F(PlanTest, TooLargeIsCappedWithANote) {
  const Plan result = plan("1000%");
  EXPECT_EQ(result.slots_per_layer, 32U);
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_EQ(plan("10GiB").slots_per_layer, 32U);
}

// A model whose embedding is worth something, in a budget that everything does not fit.
class TightPlanTest : public PlanTest {
 protected:
  void SetUp() override {
    PlanTest::SetUp();
    test::TinyModel tiny;
    tiny.n_experts = 32;
    tiny.n_used = 4;
    tiny.qk_norm = true;
    tiny.n_vocab = 20000;
    tiny.context = 4096;
    test::write_tiny_model(tiny, path_);
    model_ = model::open(path_);
    options_.chunk = 0;
    options_.context = 1024;
  }
  Plan tight(const char* cache, EmbeddingPlace place = EmbeddingPlace::kAuto, const MachineRates& rates = {}) {
    return make_plan(model_, options_, parse_cache_request(cache), budget_, place, rates);
  }
  engine::EngineOptions options_;
};

TEST_F(TightPlanTest, PlentyOfMemoryKeepsTheEmbeddingAndTheUsualChunk) {
  const Plan result = tight("auto");
  EXPECT_FALSE(result.embedding_on_drive);
  EXPECT_EQ(result.chunk, 512U);
  EXPECT_TRUE(result.is_chunk_chosen);
  EXPECT_EQ(tight("25%").embedding_on_drive, false);
}

TEST_F(TightPlanTest, EveryBudgetFromTheSmallestOnGetsAPlanThatFits) {
  const uint64_t smallest = tight("auto").minimum_bytes;
  const uint64_t everything = tight("auto").everything_bytes;
  uint32_t last_chunk = 0, last_slots = 0;
  for (uint64_t need = smallest; need < everything + (1U << 20); need += (everything - smallest) / 23) {
    budget_.available_bytes = need + (64ULL << 20);
    const Plan result = tight("auto");
    EXPECT_LE(result.total_bytes, need);
    EXPECT_EQ(result.embedding_on_drive, result.slots_per_layer < 32 || need < everything) << need;
    EXPECT_GE(result.slots_per_layer, 4U);
    EXPECT_TRUE(result.chunk != last_chunk || result.slots_per_layer >= last_slots) << need;
    last_chunk = result.chunk, last_slots = result.slots_per_layer;
    const engine::EngineOptions settled = planned(options_, result);
    EXPECT_EQ(engine::resolve(model_, settled).chunk, result.chunk);
    uint64_t total = 0;
    for (const auto& line : engine::memory_plan(model_, settled)) total += line.bytes;
    for (const auto& line : result.lines) total += line.name == "program" ? line.bytes : 0;
    EXPECT_EQ(total, result.total_bytes);
  }
  budget_.available_bytes = smallest - 1 + (64ULL << 20);
  EXPECT_NE(message_of([&] { tight("auto"); }).find("the smallest plan needs"), std::string::npos);
}

TEST_F(TightPlanTest, AnExplicitChunkIsObeyedOrRefused) {
  options_.chunk = 512;
  const uint64_t needed = tight("4s", EmbeddingPlace::kDrive).total_bytes;
  budget_.available_bytes = needed + (64ULL << 20);
  EXPECT_EQ(tight("auto").chunk, 512U);
  EXPECT_FALSE(tight("auto").is_chunk_chosen);
  budget_.available_bytes -= 1;
  EXPECT_NE(message_of([&] { tight("auto"); }).find("the plan needs"), std::string::npos);
  options_.chunk = 0;
  EXPECT_LT(tight("auto").chunk, 512U);
}

TEST_F(TightPlanTest, LargerChunksOnlyWhereTheDriveBoundsPrefill) {
  options_.context = 4096;
  const MachineRates slow = {.dram_gbps = 30, .drive_gbps = 0.001, .int8_gmacs = 400};
  const MachineRates fast = {.dram_gbps = 30, .drive_gbps = 1000, .int8_gmacs = 0.1};
  EXPECT_EQ(tight("8s", EmbeddingPlace::kAuto, slow).chunk, 2048U);
  EXPECT_EQ(tight("8s", EmbeddingPlace::kAuto, fast).chunk, 512U);
  EXPECT_EQ(tight("32s", EmbeddingPlace::kAuto, slow).chunk, 512U);
  EXPECT_EQ(tight("8s").chunk, 512U);
}

TEST_F(TightPlanTest, AnEmbeddingThatIsTheHeadCannotStayOnTheDrive) {
  test::TinyModel tiny;
  tiny.qk_norm = true;
  tiny.tied = true;
  test::write_tiny_model(tiny, path_);
  model_ = model::open(path_);
  EXPECT_EQ(
      message_of([&] { tight("auto", EmbeddingPlace::kDrive); }),
      "--embedding drive: the head of this model uses the token embedding, so it must be resident; wanted auto or ram");
  EXPECT_FALSE(tight("auto").embedding_on_drive);
}

TEST_F(PlanTest, OverTheBudgetIsRefusedWithTheSmallestPlan) {
  budget_.available_bytes = 70ULL << 20;
  const std::string message = message_of([&] { plan("auto"); });
  EXPECT_NE(message.find("the plan needs"), std::string::npos) << message;
  EXPECT_NE(message.find("70.0 MiB left by test"), std::string::npos) << message;
  EXPECT_NE(message.find("the smallest plan needs"), std::string::npos) << message;
}

}  // namespace
}  // namespace outrider::whatif

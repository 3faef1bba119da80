// SPDX-License-Identifier: Apache-2.0
// Look-ahead never reaches a bit: whatever the policy, the cache, the width and the drive's behaviour.
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/policy.h"
#include "temp_model.h"
#include "tiny_model.h"

namespace outrider {
namespace {

using engine::EngineOptions;

constexpr uint32_t kGreedy = 12;

// Late: every completion waits for the next ones. Failed: each place fails so often that the first read of it is given
// up; a pass whose demand fails is run again.
enum class Drive { kHealthy, kLate, kReordered, kFailing };

class LateFaults : public io::FaultPlan {
 public:
  uint32_t hold_completion(uint64_t /*offset*/) override { return 3; }
};

std::unique_ptr<io::FaultPlan> make_faults(Drive drive) {
  switch (drive) {
    case Drive::kHealthy:
      return nullptr;
    case Drive::kLate:
      return std::make_unique<LateFaults>();
    case Drive::kReordered:
      return std::make_unique<io::TestFaults>(io::Faults{.shorten = true, .reorder = true}, 3);
    case Drive::kFailing:
      return std::make_unique<io::TestFaults>(io::Faults{.n_eio = 5}, 4);
  }
  return nullptr;
}

std::string digest_of(const model::Model& model, EngineOptions options, Drive drive, std::span<const int32_t> prompt,
                      residency::StoreCounters* counters = nullptr) {
  const std::unique_ptr<io::FaultPlan> faults = make_faults(drive);
  options.faults = faults.get();
  engine::Engine engine(model, options);
  observe::Digest digest;
  int32_t token = 0;
  const auto run = [&](std::span<const int32_t> ids) {
    for (int i = 0;; ++i) {
      try {
        const std::span<const float> logits = engine.prefill(0, ids);
        digest.add(logits);
        token = test::best_token(logits);
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kIo || i == 200) throw;
      }
    }
  };
  run(prompt);
  for (uint32_t i = 0; i < kGreedy; ++i) {
    const int32_t next = token;
    run({&next, 1});
  }
  if (counters != nullptr) *counters = engine.counters().experts;
  return digest.hex();
}

test::TinyModel routed_model(uint32_t n_layers, uint32_t n_experts, uint32_t n_used) {
  test::TinyModel tiny;
  tiny.n_layers = n_layers;
  tiny.n_experts = n_experts;
  tiny.n_used = n_used;
  tiny.qk_norm = true;
  return tiny;
}

std::vector<int32_t> prompt_ids(uint32_t n_vocab, uint32_t n) {
  TestRng random(5);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(n_vocab));
  return ids;
}

// The digest of everything resident, and how the look-ahead of a policy, a cache and a drive leaves it: one case each,
// for every width. 3 of 16 experts a row: 3 slots hold one row, 16 all.
const model::Model& routed() {
  static const test::TempModel file(routed_model(4, 16, 3));
  static const model::Model model = model::open(file.path());
  return model;
}

EngineOptions routed_options() {
  EngineOptions options;
  options.context = 64;
  options.chunk = 20;
  options.isa = best_isa();  // the bits are the scalar ones, sooner
  return options;
}

const std::string& routed_digest() {
  static const std::string digest = digest_of(routed(), routed_options(), Drive::kHealthy, prompt_ids(96, 20));
  return digest;
}

using residency::SlotPool;
constexpr std::array kMatrixCaches = {std::pair{3U, SlotPool::kLayer},  std::pair{4U, SlotPool::kLayer},
                                      std::pair{6U, SlotPool::kLayer},  std::pair{11U, SlotPool::kLayer},
                                      std::pair{16U, SlotPool::kLayer}, std::pair{3U, SlotPool::kGlobal},
                                      std::pair{6U, SlotPool::kGlobal}, std::pair{11U, SlotPool::kGlobal}};
constexpr std::array kMatrixWidths = {0U, 1U, 2U, 4U, 8U, engine::kLookAheadAuto};
constexpr std::array kMatrixDrives = {Drive::kHealthy, Drive::kLate, Drive::kReordered, Drive::kFailing};

std::string drive_name(Drive drive) {
  switch (drive) {
    case Drive::kHealthy:
      return "healthy";
    case Drive::kLate:
      return "late";
    case Drive::kReordered:
      return "reordered";
    case Drive::kFailing:
      return "failing";
  }
  return "";
}

using MatrixCase = std::tuple<std::string, Drive>;
class LookAheadMatrix : public ::testing::TestWithParam<MatrixCase> {};

TEST_P(LookAheadMatrix, DigestIsTheSameForEveryCacheAndWidth) {
  const auto& [policy, drive] = GetParam();
  const std::vector<int32_t> prompt = prompt_ids(96, 20);
  uint64_t n_predicted = 0;
  for (const auto& [slots, pool] : kMatrixCaches) {
    for (const uint32_t width : kMatrixWidths) {
      EngineOptions options = routed_options();
      options.evict = policy;
      options.slots_per_layer = slots;
      options.slot_pool = pool;
      options.lookahead = width;
      options.lookahead_distance = width > 2 ? engine::kMaxAheadDistance : 1;
      options.io = width % 2 == 0 ? residency::IoMode::kUring : residency::IoMode::kThreads;
      options.direct = slots % 2 == 0 ? residency::DirectMode::kOff : residency::DirectMode::kAuto;
      residency::StoreCounters counters;
      EXPECT_EQ(digest_of(routed(), options, drive, prompt, &counters), routed_digest())
          << slots << " slots" << (pool == SlotPool::kGlobal ? " in one pool" : "") << ", width " << width;
      EXPECT_EQ(counters.bytes_read, counters.bytes_demand + counters.bytes_predicted_used +
                                         counters.bytes_predicted_wasted + counters.bytes_predicted_pending);
      if (width == 0) {
        EXPECT_EQ(counters.admitted + counters.predicted + counters.dropped, 0U);
      }
      n_predicted += counters.predicted;
    }
  }
  EXPECT_GT(n_predicted, 20U);
}

std::vector<MatrixCase> matrix_cases() {
  std::vector<MatrixCase> cases;
  for (const std::string_view policy : residency::policy_names()) {
    for (const Drive drive : kMatrixDrives) cases.emplace_back(policy, drive);
  }
  return cases;
}

std::string matrix_case(const ::testing::TestParamInfo<MatrixCase>& test_case) {
  std::string name = std::get<0>(test_case.param);
  std::erase(name, '-');
  return name + "_" + drive_name(std::get<1>(test_case.param));
}
INSTANTIATE_TEST_SUITE_P(All, LookAheadMatrix, ::testing::ValuesIn(matrix_cases()), matrix_case);

// Architectures with leading dense layers, shared experts and selection biases go through the same.
TEST(LookAhead, DigestIsTheSameForEveryArchitecture) {
  for (const test::TinyCase& test_case : test::golden_cases()) {
    if (test_case.model.n_experts == 0) continue;
    const test::TempModel file(test_case.model);
    const model::Model model = model::open(file.path());
    const std::vector<int32_t> prompt = test::golden_ids(test_case.model);
    EngineOptions options;
    options.context = 64;
    const std::string want = digest_of(model, options, Drive::kHealthy, prompt);
    options.slots_per_layer = engine::minimum_slots(model);
    for (const uint32_t width : {4U, engine::kLookAheadAuto}) {
      options.lookahead = width;
      EXPECT_EQ(digest_of(model, options, Drive::kReordered, prompt), want) << test_case.name << ", width " << width;
    }
  }
}

TEST(LookAhead, OffIsTheSameSequenceOfHitsAndMisses) {
  const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  EngineOptions options;
  options.context = 64;
  options.isa = best_isa();
  options.slots_per_layer = 12;
  const std::vector<int32_t> prompt = prompt_ids(model.spec.n_vocab, 16);
  residency::StoreCounters first, second;
  digest_of(model, options, Drive::kHealthy, prompt, &first);
  digest_of(model, options, Drive::kReordered, prompt, &second);
  EXPECT_EQ(first.hits, second.hits);
  EXPECT_EQ(first.misses, second.misses);
  EXPECT_EQ(first.bytes_read, first.bytes_demand);
}

// PERF-5 with an engine: what was chosen in a run without look-ahead tells an oracle what never to guess.
class WrongOracle final : public residency::Predictor {
 public:
  WrongOracle(const std::vector<std::vector<uint32_t>>& chosen, uint32_t n_layers, uint32_t n_experts)
      : chosen_(chosen), n_layers_(n_layers), n_experts_(n_experts) {}
  std::string_view name() const noexcept override { return "wrong"; }
  void observe(uint32_t layer, std::span<const int32_t> /*tokens*/, std::span<const uint32_t> /*ids*/,
               uint32_t /*n_used*/) noexcept override {
    if (layer + 1 == n_layers_) ++n_passes_;
  }
  uint32_t predict(uint32_t layer, int32_t /*token*/, std::span<uint32_t> out) noexcept override {
    const std::vector<uint32_t>& chosen = chosen_[n_passes_ * n_layers_ + layer];
    uint32_t n = 0;
    for (uint32_t e = 0; e < n_experts_ && n < out.size(); ++e) {
      if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) out[n++] = e;
    }
    return n;
  }

 private:
  const std::vector<std::vector<uint32_t>>& chosen_;  // by pass and layer
  uint32_t n_layers_, n_experts_;
  size_t n_passes_ = 0;
};

TEST(LookAhead, GuessesThatAreAlwaysWrongAddNoMissAndNoByte) {
  const test::TempModel file(routed_model(4, 16, 3));
  const model::Model model = model::open(file.path());
  const std::vector<int32_t> ids = prompt_ids(96, 60);
  EngineOptions options;
  options.context = 64;
  options.slots_per_layer = 8;
  std::vector<std::vector<uint32_t>> chosen;
  const auto run = [&](engine::Engine& engine) {
    for (const int32_t id : ids) engine.prefill(0, {&id, 1});
    return engine.counters().experts;
  };
  engine::Engine off(model, options);
  off.set_routing_observer(
      [&](const engine::Routing& routing) { chosen.emplace_back(routing.ids.begin(), routing.ids.end()); });
  const residency::StoreCounters want = run(off);
  for (const uint32_t width : {1U, 4U, 8U, engine::kLookAheadAuto}) {
    WrongOracle oracle(chosen, model.n_moe_layers(), 16);
    options.lookahead = width;
    options.guesses = &oracle;
    engine::Engine misled(model, options);
    const residency::StoreCounters got = run(misled);
    EXPECT_EQ(got.misses, want.misses) << width;
    EXPECT_EQ(got.bytes_read, want.bytes_read) << width;
    EXPECT_EQ(got.bytes_demand, want.bytes_demand) << width;
  }
}

TEST(LookAhead, WidthIsCheckedAndOffInADenseModel) {
  const test::TempModel file(routed_model(2, 16, 2));
  const model::Model model = model::open(file.path());
  EngineOptions options;
  options.lookahead = 17;
  EXPECT_EQ(test::error_of([&] { engine::resolve(model, options); }), "look-ahead width is 17, wanted 0..16");
  options.lookahead = 4;
  options.lookahead_distance = 3;
  EXPECT_EQ(test::error_of([&] { engine::resolve(model, options); }), "look-ahead distance is 3, wanted 1..2");
  options.lookahead_distance = 1;
  test::TinyModel dense_tiny = routed_model(2, 0, 0);
  dense_tiny.arch = "llama";
  dense_tiny.qk_norm = false;
  const test::TempModel dense_file(dense_tiny);
  const model::Model dense = model::open(dense_file.path());
  options.lookahead = engine::kLookAheadAuto;
  EXPECT_EQ(engine::resolve(dense, options).lookahead, 0U);
}

}  // namespace
}  // namespace outrider

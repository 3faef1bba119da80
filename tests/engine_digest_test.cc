// SPDX-License-Identifier: Apache-2.0
// The first promise: the bits of the logits are the same for every cache size, policy, thread count, ISA, I/O path,
// chunk and batch company (design.md section 1). Every axis against one run with everything resident, and some pairs of
// axes.
#include <gtest/gtest.h>

#include <functional>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/residency/policy.h"

namespace outrider {
namespace {

using engine::EngineOptions;

constexpr uint32_t kGreedy = 8;

const model::Model& demo() {
  static const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  return model;
}

std::vector<int32_t> prompt(uint32_t n = 24) {
  TestRng random(24);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(demo().spec.n_vocab));
  return ids;
}

// Everything resident, one thread, the default chunk.
EngineOptions base_options() {
  EngineOptions options;
  options.context = 128;
  options.isa = best_isa();
  return options;
}

const std::string& want() {
  static const std::string digest = test::run_digest(demo(), base_options(), prompt(), kGreedy);
  return digest;
}

std::string digest_with(const std::function<void(EngineOptions&)>& set) {
  EngineOptions options = base_options();
  set(options);
  return test::run_digest(demo(), options, prompt(), kGreedy);
}

TEST(EngineDigest, SameForEveryCacheSizeAndPolicy) {
  for (const uint32_t slots : {6U, 7U, 8U, 16U, 32U, 63U, 64U, 1000U}) {
    for (const char* policy : {"lru", "lfu"}) {
      EXPECT_EQ(digest_with([&](EngineOptions& o) { o.slots_per_layer = slots, o.evict = policy; }), want())
          << slots << " slots, " << policy;
    }
  }
}

TEST(EngineDigest, SameForThePoliciesOfTheTable) {
  for (const std::string_view policy : residency::policy_names()) {
    EXPECT_EQ(digest_with([&](EngineOptions& o) { o.slots_per_layer = 9, o.evict = policy; }), want()) << policy;
  }
}

TEST(EngineDigest, SameForEveryThreadCount) {
  for (const uint32_t n_threads : {2U, 3U, 4U}) {
    EXPECT_EQ(digest_with([&](EngineOptions& o) { o.n_threads = n_threads; }), want()) << n_threads << " threads";
  }
}

class EngineDigestIsa : public ::testing::TestWithParam<Isa> {};

TEST_P(EngineDigestIsa, SameAsTheBest) {
  if (!isa_supported(GetParam())) GTEST_SKIP() << "this processor lacks " << isa_name(GetParam());
  EXPECT_EQ(digest_with([](EngineOptions& o) { o.isa = GetParam(); }), want());
}

std::string isa_case(const ::testing::TestParamInfo<Isa>& test_case) { return std::string(isa_name(test_case.param)); }
INSTANTIATE_TEST_SUITE_P(All, EngineDigestIsa, ::testing::ValuesIn(kAllIsas), isa_case);

TEST(EngineDigest, SameForEveryChunk) {
  for (const uint32_t chunk : {1U, 7U, 64U, 512U}) {
    for (const uint32_t slots : {6U, 16U}) {
      EXPECT_EQ(digest_with([&](EngineOptions& o) { o.chunk = chunk, o.slots_per_layer = slots; }), want())
          << "chunk " << chunk << ", " << slots << " slots";
    }
  }
}

TEST(EngineDigest, SameForEveryIoPath) {
  for (const auto io : {residency::IoMode::kUring, residency::IoMode::kThreads}) {
    for (const auto direct : {residency::DirectMode::kOn, residency::DirectMode::kOff}) {
      for (const uint32_t depth : {1U, 32U}) {
        EXPECT_EQ(digest_with([&](EngineOptions& o) {
                    o.io = io, o.direct = direct, o.queue_depth = depth, o.slots_per_layer = 8;
                  }),
                  want())
            << "io " << static_cast<int>(io) << ", direct " << static_cast<int>(direct) << ", depth " << depth;
      }
    }
  }
}

TEST(EngineDigest, SameForPairsOfAxes) {
  EXPECT_EQ(digest_with([](EngineOptions& o) {
              o.isa = Isa::kScalar, o.n_threads = 2, o.slots_per_layer = 6, o.chunk = 7, o.evict = "lfu",
              o.io = residency::IoMode::kThreads;
            }),
            want());
  EXPECT_EQ(digest_with([](EngineOptions& o) {
              o.n_threads = 4, o.slots_per_layer = 7, o.chunk = 5, o.direct = residency::DirectMode::kOff,
              o.logit_rows = 1;
            }),
            want());
}

// Wherever the logits of a row stand among the rows that want them, and however many are held at once.
TEST(EngineDigest, SameForEveryNumberOfLogitRows) {
  for (const uint32_t logit_rows : {1U, 5U, 512U}) {
    EXPECT_EQ(digest_with([&](EngineOptions& o) { o.logit_rows = logit_rows; }), want()) << logit_rows;
  }
}

// Three sequences in one pass, their rows mixed, each the bits of its run alone; a cache too small for their union.
TEST(EngineDigest, SameInAnyCompany) {
  const std::vector<std::vector<int32_t>> texts = {prompt(24), prompt(9), prompt(17)};
  std::vector<std::string> alone;
  for (const auto& text : texts) alone.push_back(test::run_digest(demo(), base_options(), text, 0));

  EngineOptions options = base_options();
  options.n_sequences = 3;
  options.slots_per_layer = 7;
  options.n_threads = 2;
  engine::Engine engine(demo(), options);
  std::vector<observe::Digest> digests(texts.size());
  std::vector<uint32_t> done(texts.size(), 0);
  TestRng random(3);
  while (done[0] + done[1] + done[2] < 24 + 9 + 17) {
    std::vector<engine::PassRow> rows;
    std::vector<uint32_t> owners;
    std::vector<uint32_t> next = done;
    for (uint32_t i = 0; i < 8; ++i) {
      const auto s = static_cast<uint32_t>(random.below(texts.size()));
      if (next[s] == texts[s].size()) continue;
      rows.push_back({.sequence = s, .position = next[s], .token = texts[s][next[s]], .wants_logits = true});
      owners.push_back(s);
      ++next[s];
    }
    const std::span<const float> logits = engine.pass(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      digests[owners[i]].add(logits.subspan(i * demo().spec.n_vocab, demo().spec.n_vocab));
    }
    done = next;
  }
  for (size_t s = 0; s < texts.size(); ++s) EXPECT_EQ(digests[s].hex(), alone[s]) << "sequence " << s;
}

TEST(EngineDigest, SameAfterKeepingAPrefix) {
  engine::Engine engine(demo(), base_options());
  const std::string first = test::run_digest(engine, prompt(), kGreedy);
  EXPECT_EQ(first, want());
  engine.keep(0, 5);
  EXPECT_EQ(engine.n_tokens(0), 5U);
  const std::vector<int32_t> ids = prompt();
  std::vector<float> again;
  engine.prefill(0, std::span(ids).subspan(5),
                 [&](uint32_t, std::span<const float> logits) { again.assign(logits.begin(), logits.end()); });
  engine::Engine fresh(demo(), base_options());
  const std::span<const float> last = fresh.prefill(0, ids);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), again.begin(), again.end()));
  engine.keep(0, 0);
  EXPECT_EQ(test::run_digest(engine, prompt(), kGreedy), want());
}

// KV types differ from each other, but each is the same for every split.
TEST(EngineDigest, SameForEveryThreadCountWithEachKvType) {
  for (const auto type : {kernels::KvType::kF32, kernels::KvType::kQ8_0}) {
    const std::string one = digest_with([&](EngineOptions& o) { o.kv_type = type; });
    EXPECT_NE(one, want());
    EXPECT_EQ(digest_with([&](EngineOptions& o) { o.kv_type = type, o.n_threads = 3, o.chunk = 7; }), one);
  }
}

}  // namespace
}  // namespace outrider

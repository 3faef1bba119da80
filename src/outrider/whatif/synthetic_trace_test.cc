// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/synthetic_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/whatif/fit.h"
#include "outrider/whatif/replay.h"
#include "outrider/whatif/trace_summary.h"

namespace outrider::whatif {
namespace {

SyntheticSpec small() {
  SyntheticSpec spec;
  spec.n_layers = 2;
  spec.n_experts = 32;
  spec.n_used = 4;
  spec.n_prompt = 10;
  spec.n_tokens = 500;
  return spec;
}

bool same(const observe::Trace& a, const observe::Trace& b) {
  if (a.n_demands() != b.n_demands()) return false;
  for (size_t i = 0; i < a.n_demands(); ++i) {
    if (!std::ranges::equal(a.demand(i).row_ids, b.demand(i).row_ids)) return false;
  }
  return true;
}

TEST(SyntheticTrace, SameSeedSameTraceOtherSeedOtherTrace) {
  SyntheticSpec spec = small();
  const observe::Trace trace = make_synthetic_trace(spec);
  EXPECT_TRUE(same(trace, make_synthetic_trace(spec)));
  spec.seed = 2;
  EXPECT_FALSE(same(trace, make_synthetic_trace(spec)));
  EXPECT_EQ(trace.n_steps(), 501U);
  EXPECT_EQ(trace.n_tokens(), 510U);
  EXPECT_EQ(trace.step_rows(0).size(), 10U);
  for (size_t i = 2; i < trace.n_demands(); ++i) EXPECT_EQ(trace.demand(i).experts.size(), 4U);  // distinct in a row
}

TEST(SyntheticTrace, HabitsShow) {
  SyntheticSpec spec = small();
  spec.zipf = spec.recency = spec.topic_share = 0;
  const TraceSummary flat = summarize(make_synthetic_trace(spec));
  EXPECT_NEAR(flat.overlap, 4.0 / 32, 0.03);
  EXPECT_NEAR(flat.top_eighth_share, 4.0 / 32, 0.05);
  spec.recency = 0.5;
  EXPECT_NEAR(summarize(make_synthetic_trace(spec)).overlap, 0.5 + 0.5 * 4 / 32, 0.06);
  spec.recency = 0;
  spec.zipf = 1.2;
  EXPECT_GT(summarize(make_synthetic_trace(spec)).top_eighth_share, 0.5);
  // A topic is a small working set for a while, and a larger one over the whole trace.
  spec.topic_share = 1;
  spec.topic_tokens = 50;
  const TraceSummary topics = summarize(make_synthetic_trace(spec));
  EXPECT_LT(topics.top_eighth_share, 0.5);
  EXPECT_GT(topics.overlap, flat.overlap * 2);
  spec.n_used = 32;  // everything, however skewed
  EXPECT_EQ(summarize(make_synthetic_trace(spec)).overlap, 1);
}

TEST(SyntheticTrace, RefusesBadFields) {
  const auto refused = [](auto change) {
    SyntheticSpec spec = small();
    change(spec);
    EXPECT_THROW(make_synthetic_trace(spec), Error);
  };
  refused([](SyntheticSpec& s) { s.n_layers = 0; });
  refused([](SyntheticSpec& s) { s.n_used = 33; });
  refused([](SyntheticSpec& s) { s.recency = 1.5; });
  refused([](SyntheticSpec& s) { s.zipf = NAN; });
  refused([](SyntheticSpec& s) { s.topic_tokens = 0; });
}

// What matters of a fit: the cache behaves alike.
TEST(SyntheticTrace, FitFindsATraceThatCachesAlike) {
  SyntheticSpec spec = small();
  spec.n_prompt = 0;
  spec.n_tokens = 1500;
  spec.zipf = 1.1;
  spec.recency = 0.3;
  spec.topic_share = 0.25;
  spec.topic_tokens = 64;
  const observe::Trace trace = make_synthetic_trace(spec);
  const SyntheticSpec fitted = fit_synthetic(trace, 77);
  const observe::Trace again = make_synthetic_trace(fitted);
  for (const uint32_t slots : {8U, 16U}) {
    const Replay a = replay_policy(trace, "lru", slots, 256), b = replay_policy(again, "lru", slots, 256);
    const auto rate = [](const Replay& r) { return static_cast<double>(r.hits) / static_cast<double>(r.demanded); };
    EXPECT_NEAR(rate(a), rate(b), 0.04) << slots;
  }
}

TEST(TraceSummary, CountsByHand) {
  observe::TraceHeader header;
  header.n_used = 2;
  header.layers = {{.n_experts = 8, .slab_bytes = 1}};
  observe::Trace trace(header);
  for (const std::vector<uint32_t>& ids : std::vector<std::vector<uint32_t>>{{0, 1, 1, 2}, {0, 1}, {7, 0}}) {
    trace.begin_step(std::vector<observe::TraceRow>(ids.size() / 2));
    trace.add_demand(0, ids);
    trace.end_step(static_cast<uint32_t>(ids.size() / 2));
  }
  const TraceSummary summary = summarize(trace);  // tokens: 01 12 01 70
  EXPECT_EQ(summary.layers[0].expert_uses, (std::vector<uint64_t>{3, 3, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(summary.layers[0].n_seen, 4U);
  EXPECT_DOUBLE_EQ(summary.layers[0].top_eighth_share, 3.0 / 8);
  EXPECT_DOUBLE_EQ(summary.overlap, 3.0 / 6);
  EXPECT_EQ(summary.first_uses, 4U);
  EXPECT_EQ(summary.reuse, (std::vector<uint64_t>{3, 1}));  // 1 after 1, 1 after 1, 0 after 1; 0 after 2
  ASSERT_EQ(summary.working_set.size(), 3U);
  EXPECT_DOUBLE_EQ(summary.working_set[1], 3);
  EXPECT_DOUBLE_EQ(summary.working_set[2], 4);
}

TEST(CostFit, FindsTheLine) {
  std::vector<StepPoint> steps;
  TestRng rng;
  for (int i = 0; i < 200; ++i) {
    const double bytes = 1e6 * rng.uniform();
    steps.push_back({bytes, 2.5 + bytes / 1e6});
  }
  const CostFit exact = fit_cost(steps);
  EXPECT_NEAR(exact.floor_ms, 2.5, 1e-9);
  EXPECT_NEAR(exact.bytes_per_s(), 1e9, 1);
  EXPECT_NEAR(exact.r2, 1, 1e-12);
  for (StepPoint& step : steps) step.ms += 0.1 * rng.normal();
  const CostFit noisy = fit_cost(steps);
  EXPECT_NEAR(noisy.floor_ms, 2.5, 0.06);
  EXPECT_NEAR(noisy.bytes_per_s(), 1e9, 1e8);
  EXPECT_LT(noisy.r2, 0.97);
  EXPECT_GT(noisy.r2, 0.8);
  EXPECT_THROW(fit_cost(std::vector<StepPoint>(2)), Error);
  EXPECT_THROW(fit_cost(std::vector<StepPoint>(20, {5, 1})), Error);
}

}  // namespace
}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/plot.h"

#include <gtest/gtest.h>

#include "outrider/whatif/synthetic_trace.h"

namespace outrider::whatif {
namespace {

// Tags open and close, in order, and no number went wrong.
void expect_well_formed(const std::string& svg) {
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::vector<std::string> open;
  for (size_t at = 0; (at = svg.find('<', at)) != std::string::npos; ++at) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] != '/') {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty()) << name;
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Plot, AllAreWellFormed) {
  const observe::Trace trace = make_synthetic_trace({.n_layers = 3, .n_experts = 16, .n_used = 4, .n_tokens = 40});
  std::vector<Replay> replays;
  for (const uint32_t slots : {4U, 8U, 16U}) {
    replays.push_back(replay_policy(trace, "lru", slots, 256));
    replays.push_back(replay_belady(trace, slots));
  }
  const std::vector<StepPoint> steps = {{0, 1}, {1e6, 2}, {2e6, 3.5}};
  const std::vector<Plot> plots = {plot_miss_curves(replays), plot_heat_map(summarize(trace)),
                                   plot_working_set(summarize(trace)), plot_fit(steps, fit_cost(steps))};
  for (const Plot& plot : plots) expect_well_formed(svg_file({&plot, 1}));
  expect_well_formed(svg_file(plots));
  EXPECT_NE(svg_file(plots).find("belady (bound)"), std::string::npos);
  // Three points a line.
  size_t n_points = 0;
  for (size_t at = 0; (at = plots[0].svg.find("<circle", at)) != std::string::npos; ++at) ++n_points;
  EXPECT_EQ(n_points, 6U);
}

TEST(Plot, NothingToShowIsStillAPlot) {
  const observe::Trace trace = make_synthetic_trace({.n_layers = 1, .n_experts = 4, .n_used = 1, .n_tokens = 0});
  const Replay replay = replay_policy(trace, "lru", 1, 256);
  expect_well_formed(plot_miss_curves({&replay, 1}).svg);
  expect_well_formed(plot_miss_curves({}).svg);
  expect_well_formed(plot_heat_map(summarize(trace)).svg);
  expect_well_formed(plot_working_set(summarize(trace)).svg);
}

TEST(Plot, NamesFromFilesCannotBreakThePage) {
  const std::string page = html_page("<script>alert(1)</script> & \"quotes\"", {});
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot;"), std::string::npos);
}

}  // namespace
}  // namespace outrider::whatif

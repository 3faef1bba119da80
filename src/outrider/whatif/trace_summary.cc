// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/trace_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <span>

namespace outrider::whatif {

namespace {

// One layer's choices, token by token, joined over the passes.
struct Series {
  std::vector<uint32_t> ids;  // (n_tokens, n_used)
  uint32_t n_used = 0;
  size_t n_tokens() const { return ids.size() / n_used; }
  std::span<const uint32_t> token(size_t i) const { return std::span(ids).subspan(i * n_used, n_used); }
};

void count_uses(const Series& series, LayerSummary& layer) {
  layer.expert_uses.assign(layer.n_experts, 0);
  for (const uint32_t id : series.ids) ++layer.expert_uses[id];
  layer.uses = series.ids.size();
  if (layer.uses == 0) return;
  std::vector<uint64_t> sorted = layer.expert_uses;
  std::ranges::sort(sorted, std::greater<>());
  const size_t n_top = std::max<size_t>(1, layer.n_experts / 8);
  uint64_t top = 0;
  for (size_t i = 0; i < n_top; ++i) top += sorted[i];
  layer.top_eighth_share = static_cast<double>(top) / static_cast<double>(layer.uses);
  for (const uint64_t uses : sorted) {
    if (uses == 0) break;
    ++layer.n_seen;
    const double share = static_cast<double>(uses) / static_cast<double>(layer.uses);
    layer.entropy_bits -= share * std::log2(share);
  }
}

void count_overlap(const Series& series, LayerSummary& layer) {
  uint64_t n_same = 0;
  for (size_t t = 1; t < series.n_tokens(); ++t) {
    const auto before = series.token(t - 1);
    for (const uint32_t id : series.token(t)) n_same += std::ranges::find(before, id) != before.end();
  }
  const uint64_t n = series.n_tokens() > 1 ? (series.n_tokens() - 1) * series.n_used : 0;
  layer.overlap = n > 0 ? static_cast<double>(n_same) / static_cast<double>(n) : 0;
}

void count_reuse(const Series& series, uint32_t n_experts, TraceSummary& summary) {
  std::vector<size_t> last(n_experts, 0);  // token + 1
  for (size_t t = 0; t < series.n_tokens(); ++t) {
    for (const uint32_t id : series.token(t)) {
      if (last[id] == 0) {
        ++summary.first_uses;
      } else if (t + 1 > last[id]) {                                            // not twice by one token
        const auto bucket = static_cast<size_t>(std::bit_width(t - last[id]));  // distance - 1: 0, 1, 2..3, 4..7
        if (summary.reuse.size() <= bucket) summary.reuse.resize(bucket + 1, 0);
        ++summary.reuse[bucket];
      }
      last[id] = t + 1;
    }
  }
}

// Mean distinct experts in windows of `width` tokens, by sliding.
double mean_working_set(const Series& series, uint32_t n_experts, size_t width) {
  std::vector<uint32_t> counts(n_experts, 0);
  uint64_t n_distinct = 0, sum = 0;
  for (size_t t = 0; t < series.n_tokens(); ++t) {
    for (const uint32_t id : series.token(t)) n_distinct += counts[id]++ == 0;
    if (t >= width) {
      for (const uint32_t id : series.token(t - width)) n_distinct -= --counts[id] == 0;
    }
    if (t + 1 >= width) sum += n_distinct;
  }
  return static_cast<double>(sum) / static_cast<double>(series.n_tokens() - width + 1);
}

}  // namespace

TraceSummary summarize(const observe::Trace& trace) {
  TraceSummary summary;
  summary.n_tokens = trace.n_tokens();
  std::vector<Series> series(trace.header().layers.size());
  for (Series& s : series) s.n_used = trace.header().n_used;
  for (size_t i = 0; i < trace.n_demands(); ++i) {
    const observe::TraceDemand demand = trace.demand(i);
    auto& ids = series[demand.layer].ids;
    ids.insert(ids.end(), demand.row_ids.begin(), demand.row_ids.end());
  }
  size_t n_shortest = SIZE_MAX;
  for (size_t i = 0; i < series.size(); ++i) {
    LayerSummary layer;
    layer.n_experts = trace.header().layers[i].n_experts;
    count_uses(series[i], layer);
    count_overlap(series[i], layer);
    count_reuse(series[i], layer.n_experts, summary);
    summary.overlap += layer.overlap / static_cast<double>(series.size());
    summary.top_eighth_share += layer.top_eighth_share / static_cast<double>(series.size());
    n_shortest = std::min(n_shortest, series[i].n_tokens());
    summary.layers.push_back(std::move(layer));
  }
  for (size_t width = 1; width <= n_shortest; width *= 2) {
    double mean = 0;
    for (size_t i = 0; i < series.size(); ++i) {
      mean += mean_working_set(series[i], summary.layers[i].n_experts, width) / static_cast<double>(series.size());
    }
    summary.working_set.push_back(mean);
  }
  return summary;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/trace.h"

#include "outrider/base/check.h"

namespace outrider::observe {

std::vector<uint32_t> TraceHeader::expert_counts() const {
  std::vector<uint32_t> counts;
  for (const TraceLayer& layer : layers) counts.push_back(layer.n_experts);
  return counts;
}

std::span<const TraceRow> Trace::step_rows(size_t step) const noexcept {
  return std::span(rows_).subspan(steps_[step].first_row, steps_[step].n_rows);
}

TraceDemand Trace::demand(size_t demand) const noexcept {
  const Demand& d = demands_[demand];
  return {.layer = d.layer,
          .row_ids = std::span(ids_).subspan(d.first_id, d.n_ids),
          .experts = std::span(experts_).subspan(d.first_distinct, d.n_distinct),
          .uses = std::span(uses_).subspan(d.first_distinct, d.n_distinct)};
}

void Trace::begin_step(std::span<const TraceRow> rows) {
  steps_.push_back({.first_row = rows_.size(),
                    .first_demand = demands_.size(),
                    .n_rows = static_cast<uint32_t>(rows.size()),
                    .n_tokens = 0});
  rows_.insert(rows_.end(), rows.begin(), rows.end());
}

void Trace::add_demand(uint32_t layer, std::span<const uint32_t> row_ids) {
  OUTRIDER_CHECK(!steps_.empty() && layer < header_.layers.size());
  const uint32_t n_experts = header_.layers[layer].n_experts;
  counts_.assign(n_experts, 0);
  for (const uint32_t id : row_ids) {
    OUTRIDER_CHECK(id < n_experts, "layer {} expert {}", layer, id);
    ++counts_[id];
  }
  Demand demand = {.layer = layer,
                   .n_ids = static_cast<uint32_t>(row_ids.size()),
                   .n_distinct = 0,
                   .first_id = ids_.size(),
                   .first_distinct = experts_.size()};
  ids_.insert(ids_.end(), row_ids.begin(), row_ids.end());
  for (uint32_t expert = 0; expert < n_experts; ++expert) {
    if (counts_[expert] == 0) continue;
    experts_.push_back(expert);
    uses_.push_back(counts_[expert]);
    ++demand.n_distinct;
  }
  demands_.push_back(demand);
}

void Trace::end_step(uint32_t n_tokens) {
  OUTRIDER_CHECK(!steps_.empty());
  steps_.back().n_tokens = n_tokens;
  n_tokens_ += n_tokens;
}

}  // namespace outrider::observe

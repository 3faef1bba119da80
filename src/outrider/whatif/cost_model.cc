// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/cost_model.h"

#include <algorithm>

namespace outrider::whatif {

namespace {

bool has_single_rows(const observe::Trace& trace) {
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    if (trace.step_tokens(step) == 1) return true;
  }
  return false;
}

// Runs one step; returns the exposed ms, adds the wasted bytes.
class StepCost {
 public:
  StepCost(const observe::Trace& trace, const Replay& replay, const CostModel& model)
      : trace_(trace), replay_(replay), model_(model) {
    const double rate = model.link_bytes_per_s > 0 ? std::min(model.drive_bytes_per_s, model.link_bytes_per_s)
                                                   : model.drive_bytes_per_s;
    ms_per_byte_ = 1e3 / rate;
    layer_ms_ = model.floor_ms / static_cast<double>(trace.header().layers.size());
  }

  double exposed_ms(size_t step) {
    const double compute_ms = layer_ms_ * trace_.step_tokens(step);
    double exposed = 0;
    for (size_t i = trace_.first_demand(step); i < trace_.first_demand(step + 1); ++i) {
      const observe::TraceDemand demand = trace_.demand(i);
      const double slab_ms = static_cast<double>(trace_.header().layers[demand.layer].slab_bytes) * ms_per_byte_;
      const double read_ms = replay_.demand_misses[i] * slab_ms;
      const double left_ms = read_ms - hide(i, slab_ms, read_ms);
      const double overlapped_ms = std::min(left_ms, model_.overlap * compute_ms);
      exposed += left_ms - overlapped_ms;
      idle_ms_ = compute_ms - overlapped_ms;
    }
    return exposed;
  }
  double wasted_ms() const noexcept { return wasted_ms_; }
  double ms_per_byte() const noexcept { return ms_per_byte_; }

 private:
  // Of read_ms, what predictions brought in the idle time of the layer before.
  double hide(size_t demand_idx, double slab_ms, double read_ms) {
    if (model_.lookahead_width == 0) return 0;
    const auto n_demanded = static_cast<double>(trace_.demand(demand_idx).experts.size());
    const double miss_share = replay_.demand_misses[demand_idx] / n_demanded;
    const double wanted_ms = model_.lookahead_width * miss_share * slab_ms;
    const double read_ahead_ms = std::min(wanted_ms, idle_ms_);
    const double useful_ms = std::min(model_.lookahead_precision * read_ahead_ms, read_ms);
    wasted_ms_ += read_ahead_ms - useful_ms;
    return useful_ms;
  }

  const observe::Trace& trace_;
  const Replay& replay_;
  const CostModel& model_;
  double ms_per_byte_ = 0, layer_ms_ = 0;
  double idle_ms_ = 0;  // of the drive, in the layer before
  double wasted_ms_ = 0;
};

}  // namespace

Cost predict_cost(const observe::Trace& trace, const Replay& replay, const CostModel& model) {
  const bool single = has_single_rows(trace);
  StepCost step_cost(trace, replay, model);
  Cost cost;
  double exposed_ms = 0;
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    const uint32_t n_tokens = trace.step_tokens(step);
    if (n_tokens == 0 || (single && n_tokens != 1)) continue;
    exposed_ms += step_cost.exposed_ms(step);
    cost.n_tokens += n_tokens;
  }
  if (cost.n_tokens == 0) return cost;
  cost.exposed_ms_per_token = exposed_ms / static_cast<double>(cost.n_tokens);
  cost.ms_per_token = model.floor_ms + cost.exposed_ms_per_token;
  cost.wasted_bytes = static_cast<uint64_t>(step_cost.wasted_ms() / step_cost.ms_per_byte());
  return cost;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/replay.h"

#include <algorithm>
#include <memory>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/placer.h"
#include "outrider/residency/policy.h"

namespace outrider::whatif {

namespace {

constexpr size_t kNever = SIZE_MAX;

void check_slots(uint32_t slots_per_layer) {
  if (slots_per_layer == 0) fail(ErrorKind::kBadArgument, "cache of 0 slots a layer: wanted at least 1");
}

class Tally {
 public:
  Tally(const observe::Trace& trace, std::string policy, uint32_t slots_per_layer) : trace_(trace) {
    replay_.policy = std::move(policy);
    replay_.slots_per_layer = slots_per_layer;
    replay_.demand_misses.reserve(trace.n_demands());
  }
  void add(const observe::TraceDemand& demand, uint32_t n_misses) {
    replay_.demanded += demand.experts.size();
    replay_.misses += n_misses;
    replay_.bytes += n_misses * trace_.header().layers[demand.layer].slab_bytes;
    replay_.demand_misses.push_back(n_misses);
  }
  Replay take() {
    replay_.hits = replay_.demanded - replay_.misses;
    return std::move(replay_);
  }

 private:
  const observe::Trace& trace_;
  Replay replay_;
};

// For each distinct expert of each demand, in the order of the trace: the step in which its layer demands it next.
class NextUses {
 public:
  explicit NextUses(const observe::Trace& trace) {
    const std::vector<uint32_t> n_experts = trace.header().expert_counts();
    residency::LayerTable<size_t> next(n_experts, kNever);
    first_.resize(trace.n_demands());
    size_t n = 0;
    for (size_t i = 0; i < trace.n_demands(); ++i) {
      first_[i] = n;
      n += trace.demand(i).experts.size();
    }
    steps_.resize(n);
    for (size_t step = trace.n_steps(); step-- > 0;) {
      for (size_t i = trace.first_demand(step + 1); i-- > trace.first_demand(step);) {
        const observe::TraceDemand demand = trace.demand(i);
        for (size_t e = 0; e < demand.experts.size(); ++e) {
          size_t& at = next.at(demand.layer, demand.experts[e]);
          steps_[first_[i] + e] = at;
          at = step;
        }
      }
    }
  }
  std::span<const size_t> of(size_t demand, size_t n) const { return std::span(steps_).subspan(first_[demand], n); }

 private:
  std::vector<size_t> first_;
  std::vector<size_t> steps_;
};

// A cache that knows the next `horizon` steps; `fallback` judges what lies beyond.
class FarSighted {
 public:
  FarSighted(const observe::Trace& trace, uint32_t slots_per_layer, size_t horizon, residency::Policy* fallback)
      : trace_(trace),
        next_uses_(trace),
        horizon_(horizon),
        fallback_(fallback),
        next_(trace.header().expert_counts(), kNever),
        residents_(trace.header().layers.size()),
        slots_(slots_per_layer) {}

  void run(Tally& tally) {
    for (size_t step = 0; step < trace_.n_steps(); ++step) {
      for (size_t i = trace_.first_demand(step); i < trace_.first_demand(step + 1); ++i) {
        const observe::TraceDemand demand = trace_.demand(i);
        tally.add(demand, take(i, demand, step));
      }
      if (fallback_ != nullptr && trace_.step_tokens(step) > 0) fallback_->end_step(trace_.step_tokens(step));
    }
  }

 private:
  // Returns the misses.
  uint32_t take(size_t idx, const observe::TraceDemand& demand, size_t step) {
    if (fallback_ != nullptr) fallback_->observe(demand.layer, demand.experts, demand.uses);
    const std::span<const size_t> next_use = next_uses_.of(idx, demand.experts.size());
    std::vector<uint32_t>& residents = residents_[demand.layer];
    const auto is_demanded = [&](uint32_t expert) {
      return std::binary_search(demand.experts.begin(), demand.experts.end(), expert);
    };
    const auto n_hits = static_cast<uint32_t>(std::count_if(residents.begin(), residents.end(), is_demanded));
    for (size_t e = 0; e < demand.experts.size(); ++e) next_.at(demand.layer, demand.experts[e]) = next_use[e];
    std::erase_if(residents, is_demanded);
    if (demand.experts.size() >= slots_) {
      residents.assign(demand.experts.begin(), demand.experts.end());
      cut(demand.layer, residents, slots_, step);
    } else {
      cut(demand.layer, residents, slots_ - demand.experts.size(), step);
      residents.insert(residents.end(), demand.experts.begin(), demand.experts.end());
    }
    return static_cast<uint32_t>(demand.experts.size()) - n_hits;
  }

  // Keeps the n that are wanted soonest.
  void cut(uint32_t layer, std::vector<uint32_t>& experts, size_t n, size_t step) {
    if (experts.size() <= n) return;
    const auto seen =
        std::partition(experts.begin(), experts.end(), [&](uint32_t e) { return next_of(layer, e, step) != kNever; });
    const auto n_seen = static_cast<size_t>(seen - experts.begin());
    if (n_seen >= n) {
      std::sort(experts.begin(), seen, [&](uint32_t a, uint32_t b) {
        return std::pair(next_.at(layer, a), a) < std::pair(next_.at(layer, b), b);
      });
      experts.resize(n);
      return;
    }
    while (experts.size() > n) {  // of what is out of sight
      const std::span<const uint32_t> unseen = std::span(experts).subspan(n_seen);
      const size_t leaves = fallback_ != nullptr ? fallback_->victim(layer, unseen) : unseen.size() - 1;
      experts.erase(experts.begin() + static_cast<std::ptrdiff_t>(n_seen + leaves));
    }
  }

  size_t next_of(uint32_t layer, uint32_t expert, size_t step) const {
    const size_t next = next_.at(layer, expert);
    return next == kNever || next - step > horizon_ ? kNever : next;
  }

  const observe::Trace& trace_;
  NextUses next_uses_;
  size_t horizon_;
  residency::Policy* fallback_;
  residency::LayerTable<size_t> next_;  // step of the next use, of experts that are resident
  std::vector<std::vector<uint32_t>> residents_;
  size_t slots_;
};

}  // namespace

Replay replay_policy(const observe::Trace& trace, std::string_view policy, uint32_t slots_per_layer,
                     double lfu_half_life_tokens) {
  check_slots(slots_per_layer);
  const std::vector<uint32_t> n_experts = trace.header().expert_counts();
  residency::Placer placer(n_experts, slots_per_layer,
                           residency::make_policy(policy, n_experts, {.lfu_half_life_tokens = lfu_half_life_tokens}));
  Tally tally(trace, std::string(policy), slots_per_layer);
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    for (size_t i = trace.first_demand(step); i < trace.first_demand(step + 1); ++i) {
      const observe::TraceDemand demand = trace.demand(i);
      tally.add(demand, static_cast<uint32_t>(placer.place(demand.layer, demand.experts, demand.uses).loads.size()));
    }
    if (trace.step_tokens(step) > 0) placer.end_step(trace.step_tokens(step));
  }
  return tally.take();
}

Replay replay_belady(const observe::Trace& trace, uint32_t slots_per_layer) {
  check_slots(slots_per_layer);
  Tally tally(trace, "belady", slots_per_layer);
  FarSighted(trace, slots_per_layer, kNever, nullptr).run(tally);
  return tally.take();
}

Replay replay_horizon(const observe::Trace& trace, uint32_t slots_per_layer, uint32_t horizon,
                      double lfu_half_life_tokens) {
  check_slots(slots_per_layer);
  const std::vector<uint32_t> n_experts = trace.header().expert_counts();
  Replay best;
  for (const std::string_view fallback : {"lru", "guarded"}) {
    const auto policy = residency::make_policy(fallback, n_experts, {.lfu_half_life_tokens = lfu_half_life_tokens});
    Tally tally(trace, fmt::format("horizon-{}", horizon), slots_per_layer);
    FarSighted(trace, slots_per_layer, horizon, policy.get()).run(tally);
    Replay replay = tally.take();
    if (best.policy.empty() || replay.misses < best.misses) best = std::move(replay);
  }
  return best;
}

observe::Trace pool_layers(const observe::Trace& trace) {
  observe::TraceHeader header = trace.header();
  std::vector<uint32_t> first;
  uint32_t n_experts = 0;
  for (const observe::TraceLayer& layer : header.layers) {
    first.push_back(n_experts);
    n_experts += layer.n_experts;
  }
  header.layers = {{.n_experts = n_experts, .slab_bytes = header.layers[0].slab_bytes}};
  observe::Trace pooled(header);
  std::vector<uint32_t> ids;
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    pooled.begin_step(trace.step_rows(step));
    for (size_t i = trace.first_demand(step); i < trace.first_demand(step + 1); ++i) {
      const observe::TraceDemand demand = trace.demand(i);
      ids.assign(demand.row_ids.begin(), demand.row_ids.end());
      for (uint32_t& id : ids) id += first[demand.layer];
      pooled.add_demand(0, ids);
    }
    pooled.end_step(trace.step_tokens(step));
  }
  return pooled;
}

}  // namespace outrider::whatif

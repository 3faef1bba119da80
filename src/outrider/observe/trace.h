// SPDX-License-Identifier: Apache-2.0
// What a run demanded of its experts, pass by pass and layer by layer: enough to replay any cache policy at any size.
// trace_file.h has the file format. Threads: thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace outrider::observe {

struct TraceLayer {
  uint32_t n_experts = 0;
  uint64_t slab_bytes = 0;  // payload of one expert
};

// How the run was set up; a replay needs `layers` and `n_used`, the rest tells which live run it must equal.
struct TraceHeader {
  uint64_t fingerprint = 0;  // model::fingerprint(); 0: no model (synthetic)
  std::string model;         // its name
  std::string source;        // what made the trace: "run", "synthetic"
  std::string policy;
  double lfu_half_life_tokens = 256;
  uint32_t slots_per_layer = 0;
  bool lookahead = false;          // predictions or a warm start filled slots too: a replay of demands alone differs
  uint32_t n_used = 0;             // experts per row
  std::vector<TraceLayer> layers;  // MoE layers

  std::vector<uint32_t> expert_counts() const;
};

struct TraceRow {
  uint32_t sequence = 0, position = 0;
  int32_t token = 0;
  friend bool operator==(const TraceRow&, const TraceRow&) = default;
};

struct TraceDemand {
  uint32_t layer = 0;
  std::span<const uint32_t> row_ids;  // (rows of the step, n_used), as the router ranked them
  std::span<const uint32_t> experts;  // distinct, rising
  std::span<const uint32_t> uses;     // beside it
};

// Holds a whole trace in memory: 4 bytes for each choice and 8 for each distinct one.
class Trace {
 public:
  explicit Trace(TraceHeader header) : header_(std::move(header)) {}

  const TraceHeader& header() const noexcept { return header_; }
  size_t n_steps() const noexcept { return steps_.size(); }
  size_t n_demands() const noexcept { return demands_.size(); }
  // Tokens of all steps. A pass that failed is a step of 0 tokens.
  uint64_t n_tokens() const noexcept { return n_tokens_; }
  uint32_t step_tokens(size_t step) const noexcept { return steps_[step].n_tokens; }
  std::span<const TraceRow> step_rows(size_t step) const noexcept;
  // Demands of a step are first_demand(step) .. first_demand(step + 1) - 1, in the order in which they were made.
  size_t first_demand(size_t step) const noexcept {
    return step < steps_.size() ? steps_[step].first_demand : demands_.size();
  }
  TraceDemand demand(size_t demand) const noexcept;

  // Building, in the order of the run: begin_step, its demands, end_step. Ids below the layer's number of experts.
  void begin_step(std::span<const TraceRow> rows);
  void add_demand(uint32_t layer, std::span<const uint32_t> row_ids);
  void end_step(uint32_t n_tokens);

 private:
  struct Step {
    size_t first_row = 0, first_demand = 0;
    uint32_t n_rows = 0, n_tokens = 0;
  };
  struct Demand {
    uint32_t layer = 0, n_ids = 0, n_distinct = 0;
    size_t first_id = 0, first_distinct = 0;
  };

  TraceHeader header_;
  std::vector<Step> steps_;
  std::vector<Demand> demands_;
  std::vector<TraceRow> rows_;
  std::vector<uint32_t> ids_, experts_, uses_;
  std::vector<uint32_t> counts_;  // scratch of add_demand
  uint64_t n_tokens_ = 0;
};

}  // namespace outrider::observe

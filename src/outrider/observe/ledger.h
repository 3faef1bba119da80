// SPDX-License-Identifier: Apache-2.0
// The step ledger: one JSON object a line, one line a pass, that says where the pass's milliseconds and bytes went
// (docs/ledger.md has the keys). A line reaches from the start of its pass to the start of the next, or to
// close_step(): it holds the head and the sampling that followed, and what the program did with the token. Lines sum to
// the engine's counters exactly. The phases are measured apart from the whole, so their sum is a check and not a
// definition. Costs a few clock reads and one formatted line a pass. Threads: owned by one thread, the engine's.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "outrider/engine/engine.h"

namespace outrider::observe {

class StepLedger final : public engine::PassObserver {
 public:
  // `with_layers`: each line also has a row for each MoE layer. Throws Error(kIo) when the file cannot be made.
  StepLedger(const std::string& path, const engine::Engine& engine, bool with_layers);
  ~StepLedger() override;
  StepLedger(const StepLedger&) = delete;
  StepLedger& operator=(const StepLedger&) = delete;

  void begin_pass(std::span<const engine::PassRow> rows) noexcept override;
  void begin_guessed_pass(std::span<const engine::PassRow> rows) noexcept override;
  void resume_pass() noexcept override;
  void end_layer(uint32_t moe_layer) noexcept override;
  void end_pass() noexcept override;

  // Around the choice of a token from the logits of the open step.
  void begin_sampling() noexcept;
  void end_sampling() noexcept;
  // Ends the open step without a next one: the generation is over. Nothing when none is open.
  void close_step() noexcept;
  // Closes the last step, and the file. Throws Error(kIo) when something could not be written. Once.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Step {
    Clock::time_point begin;
    uint32_t n_rows = 0, n_tokens = 0;
    uint64_t sampling_ns = 0, outside_ns = 0;
  };
  struct LayerRow {
    uint64_t demanded = 0, hits = 0, misses = 0, bytes = 0, stall_ns = 0;
  };
  void open_step(uint32_t n_rows) noexcept;
  void end_outside(Clock::time_point now) noexcept;
  void write_line(double ms) noexcept;

  struct Buffer;
  std::string path_;
  const engine::Engine& engine_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::unique_ptr<Buffer> line_;
  int error_ = 0;  // errno of the first failed write
  uint64_t n_steps_ = 0;
  bool is_open_ = false;
  bool is_guess_ = false;  // the open step is of a pass that may not come
  Step step_;
  Clock::time_point mark_;  // the last end_sampling(), or begin_sampling()
  bool is_sampling_ = false, has_sampled_ = false;
  residency::StoreCounters told_;  // what the lines so far add up to
  engine::PhaseTimes phases_told_;
  residency::StoreCounters layer_before_;
  std::vector<LayerRow> layers_;  // of the open step; empty without layers
};

}  // namespace outrider::observe

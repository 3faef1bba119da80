// SPDX-License-Identifier: Apache-2.0
// Watches the passes of an engine: what each one demanded and when it began and ended. Traces, ledgers and scores are
// observers. The calls come from the engine's owner thread, in the order of the work; spans hold during the call.
#pragma once

#include <cstdint>
#include <span>

namespace outrider::engine {

struct PassRow;

// The whole demand of one MoE layer in one pass.
struct LayerDemand {
  uint32_t moe_layer = 0;
  uint32_t n_rows = 0, n_used = 0;
  std::span<const uint32_t> row_ids;  // (n_rows, n_used): what the router chose for each row
  std::span<const uint32_t> experts;  // distinct, rising
  std::span<const uint32_t> uses;     // beside it: how many choices fell on each
};

// A pass that fails has a begin_pass() and no end_pass(); the demands between them were made.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  virtual void begin_pass(std::span<const PassRow> rows) noexcept { static_cast<void>(rows); }
  // The pass of this row will probably be the next and begins before the head of the last one is done. Then comes its
  // resume_pass(), and it goes on; or a begin_pass(), and it was like one that failed.
  virtual void begin_guessed_pass(std::span<const PassRow> rows) noexcept { begin_pass(rows); }
  virtual void resume_pass() noexcept {}
  // Before the store hears of it.
  virtual void demand(const LayerDemand& demand) noexcept { static_cast<void>(demand); }
  // The layer's experts have been computed.
  virtual void end_layer(uint32_t moe_layer) noexcept { static_cast<void>(moe_layer); }
  // All layers are done and the policies have been told; the head may follow.
  virtual void end_pass() noexcept {}
};

}  // namespace outrider::engine

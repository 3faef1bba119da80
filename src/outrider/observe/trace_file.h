// SPDX-License-Identifier: Apache-2.0
// Traces in files: docs/trace-format.md is the format. Written as the run goes, in memory that is fixed at the start;
// read back whole, with every number checked, so that a damaged or cut file is an Error that says where.
// Threads: owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "outrider/engine/pass_observer.h"
#include "outrider/observe/trace.h"

namespace outrider::observe {

inline constexpr uint32_t kTraceVersion = 1;

class TraceWriter {
 public:
  // Throws Error(kIo) when the file cannot be made.
  TraceWriter(const std::string& path, const TraceHeader& header);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // In the order of the run. Allocate nothing; a failed write shows in finish().
  void begin_step(std::span<const TraceRow> rows) noexcept;
  void add_demand(uint32_t layer, std::span<const uint32_t> row_ids) noexcept;
  void end_step(uint32_t n_tokens) noexcept;
  // Writes what is left and the end record, without which a file counts as cut. Throws Error(kIo). Once.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Records the passes of an engine. A pass that fails becomes a step of 0 tokens.
class TraceRecorder final : public engine::PassObserver {
 public:
  // `max_rows`: of a pass.
  TraceRecorder(const std::string& path, const TraceHeader& header, uint32_t max_rows);
  void begin_pass(std::span<const engine::PassRow> rows) noexcept override;
  void demand(const engine::LayerDemand& demand) noexcept override;
  void end_pass() noexcept override;
  void finish();

 private:
  void end_open_step(uint32_t n_tokens) noexcept;

  TraceWriter writer_;
  std::vector<TraceRow> rows_;
  bool is_open_ = false;
};

void write_trace(const std::string& path, const Trace& trace);

// Throws Error(kIo) when the file cannot be read, Error(kBadFile) naming file, byte, field, value and what was wanted.
Trace read_trace(const std::string& path);

}  // namespace outrider::observe

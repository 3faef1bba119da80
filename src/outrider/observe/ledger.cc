// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "outrider/base/check.h"
#include "outrider/base/error.h"

namespace outrider::observe {

namespace {

double ms_of(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

uint64_t ns_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(to - from).count());
}

}  // namespace

struct StepLedger::Buffer {
  fmt::memory_buffer text;
};

StepLedger::StepLedger(const std::string& path, const engine::Engine& engine, bool with_layers)
    : path_(path),
      engine_(engine),
      file_(std::fopen(path.c_str(), "wb"), std::fclose),
      line_(std::make_unique<Buffer>()) {
  if (!file_) fail(ErrorKind::kIo, "{}: cannot be opened for writing: {}", printable(path), std::strerror(errno));
  const uint32_t n_layers = engine.model().n_moe_layers();
  if (with_layers) layers_.resize(n_layers);
  line_->text.reserve(1024 + (with_layers ? n_layers * 160 : 0));
}

StepLedger::~StepLedger() = default;

void StepLedger::begin_pass(std::span<const engine::PassRow> rows) noexcept {
  if (is_guess_) {
    resume_pass();
    step_.n_rows = static_cast<uint32_t>(rows.size());
  } else {
    open_step(static_cast<uint32_t>(rows.size()));
  }
}

void StepLedger::begin_guessed_pass(std::span<const engine::PassRow> rows) noexcept {
  open_step(static_cast<uint32_t>(rows.size()));
  is_guess_ = true;
}

void StepLedger::resume_pass() noexcept {
  if (!is_open_) open_step(1);  // its line was closed: the text had come to an end
  end_outside(Clock::now());
  is_guess_ = false;
}

void StepLedger::open_step(uint32_t n_rows) noexcept {
  close_step();
  is_open_ = true;
  is_sampling_ = has_sampled_ = false;
  std::ranges::fill(layers_, LayerRow{});
  if (!layers_.empty()) layer_before_ = engine_.counters().experts;
  step_ = {.begin = Clock::now(), .n_rows = n_rows};
}

// The engine, or the end of the step, comes after a sampling.
void StepLedger::end_outside(Clock::time_point now) noexcept {
  if (is_sampling_) end_sampling();
  if (has_sampled_) step_.outside_ns += ns_between(mark_, now);
  has_sampled_ = false;
}

void StepLedger::end_layer(uint32_t moe_layer) noexcept {
  if (layers_.empty()) return;
  const residency::StoreCounters now = engine_.counters().experts;
  LayerRow& row = layers_[moe_layer];  // which a pass that did not come may have begun
  row.demanded += now.demanded - layer_before_.demanded;
  row.hits += now.hits - layer_before_.hits;
  row.misses += now.misses - layer_before_.misses;
  row.bytes += now.bytes_read - layer_before_.bytes_read;
  row.stall_ns += now.stall_ns - layer_before_.stall_ns;
  layer_before_ = now;
}

void StepLedger::end_pass() noexcept { step_.n_tokens = step_.n_rows; }

void StepLedger::begin_sampling() noexcept {
  mark_ = Clock::now();
  is_sampling_ = true;
}

void StepLedger::end_sampling() noexcept {
  OUTRIDER_CHECK(is_sampling_, "end_sampling() before begin_sampling()");
  const Clock::time_point now = Clock::now();
  step_.sampling_ns += ns_between(mark_, now);
  mark_ = now;
  is_sampling_ = false;
  has_sampled_ = true;
}

void StepLedger::close_step() noexcept {
  if (!is_open_) return;
  const Clock::time_point now = Clock::now();
  end_outside(now);
  is_open_ = is_guess_ = false;
  write_line(ms_of(ns_between(step_.begin, now)));
}

void StepLedger::write_line(double ms) noexcept {
  const residency::StoreCounters now = engine_.counters().experts;
  const engine::PhaseTimes phases = engine_.phase_times();
  fmt::memory_buffer& text = line_->text;
  text.clear();
  const auto out = fmt::appender(text);
  fmt::format_to(
      out,
      R"({{"step":{},"tokens":{},"ms":{:.6f},"phase_ms":{{"attention":{:.6f},"router":{:.6f},"experts":{:.6f},"dense":{:.6f},)",
      n_steps_++, step_.n_tokens, ms, ms_of(phases.attention - phases_told_.attention),
      ms_of(phases.router - phases_told_.router), ms_of(phases.experts - phases_told_.experts),
      ms_of(phases.dense - phases_told_.dense));
  fmt::format_to(out, R"("head":{:.6f},"sampling":{:.6f},"stall":{:.6f},"other":{:.6f}}},)",
                 ms_of(phases.head - phases_told_.head), ms_of(step_.sampling_ns),
                 ms_of(phases.stall - phases_told_.stall), ms_of(phases.other - phases_told_.other + step_.outside_ns));
  // What is pending can shrink: a line may take back what an earlier one told.
  const auto pending =
      static_cast<int64_t>(now.bytes_predicted_pending) - static_cast<int64_t>(told_.bytes_predicted_pending);
  fmt::format_to(
      out,
      R"("demanded":{},"hits":{},"misses":{},"bytes":{{"demand":{},"prediction_used":{},"prediction_wasted":{},"prediction_pending":{},"background":{}}},)",
      now.demanded - told_.demanded, now.hits - told_.hits, now.misses - told_.misses,
      now.bytes_demand - told_.bytes_demand, now.bytes_predicted_used - told_.bytes_predicted_used,
      now.bytes_predicted_wasted - told_.bytes_predicted_wasted, pending,
      now.bytes_background - told_.bytes_background);
  // No drafting yet: nothing is ever drafted.
  fmt::format_to(
      out,
      R"("admitted":{},"evicted":{},"evicted_unused":{},"dropped":{},"hideable_ms":{:.6f},"drafted":0,"accepted":0)",
      now.admitted - told_.admitted, now.evicted - told_.evicted, now.evicted_unused - told_.evicted_unused,
      now.dropped - told_.dropped, ms_of(now.hideable_ns - told_.hideable_ns));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerRow& row = layers_[i];
    fmt::format_to(out, R"({}{{"layer":{},"demanded":{},"hits":{},"misses":{},"bytes":{},"stall_ms":{:.6f}}})",
                   i == 0 ? R"(,"layers":[)" : ",", i, row.demanded, row.hits, row.misses, row.bytes,
                   ms_of(row.stall_ns));
  }
  fmt::format_to(out, "{}}}\n", layers_.empty() ? "" : "]");
  told_ = now;
  phases_told_ = phases;
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size())
    error_ = errno != 0 ? errno : EIO;
}

void StepLedger::finish() {
  close_step();
  OUTRIDER_CHECK(file_ != nullptr, "finish() twice");
  if (std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
  if (error_ != 0) fail(ErrorKind::kIo, "{}: cannot be written: {}", printable(path_), std::strerror(error_));
}

}  // namespace outrider::observe

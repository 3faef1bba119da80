// SPDX-License-Identifier: Apache-2.0
// What `run` can record beside its text: the demand trace (--trace) and the step ledger (--stats).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine_flags.h"
#include "generate.h"
#include "outrider/observe/ledger.h"
#include "outrider/observe/trace_file.h"

namespace outrider::apps {

struct InstrumentFlags {
  std::string trace, stats;
  bool stats_layers = false;
};

void add_instrument_flags(CLI::App& command, InstrumentFlags& flags);

// Watches the engine of `loaded` from its construction on; dies after the engine's last pass.
class Instruments {
 public:
  // Throws Error(kIo) when a file cannot be made.
  Instruments(const InstrumentFlags& flags, const EngineFlags& engine_flags, LoadedModel& loaded);
  observe::StepLedger* ledger() const noexcept { return ledger_.get(); }  // null without --stats
  // After the last pass: completes the files. Throws Error(kIo).
  void finish();

 private:
  std::unique_ptr<observe::TraceRecorder> trace_;
  std::unique_ptr<observe::StepLedger> ledger_;
};

// `p50, p95, p99` and `buckets[{below_us, reads}]`, all as powers of two.
Json latency_json(const io::ReadLatency& latency);

// Where the time and the bytes of one generation went: a few lines for the end of a run. `experts` is the difference
// over the generation; bytes of predictions whose fate is open are what is open now, and latencies are those of all
// reads.
std::string closing_table(const engine::Engine& engine, const engine::PhaseTimes& before, const GenerateResult& result,
                          const residency::StoreCounters& experts);

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// What `run` can record beside its text: the demand trace (--trace).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine_flags.h"
#include "outrider/observe/trace_file.h"

namespace outrider::apps {

struct InstrumentFlags {
  std::string trace;
};

void add_instrument_flags(CLI::App& command, InstrumentFlags& flags);

// Watches the engine of `loaded` from its construction on; dies after the engine's last pass.
class Instruments {
 public:
  // Throws Error(kIo) when a file cannot be made.
  Instruments(const InstrumentFlags& flags, const EngineFlags& engine_flags, LoadedModel& loaded);
  // After the last pass: completes the files. Throws Error(kIo).
  void finish();

 private:
  std::unique_ptr<observe::TraceRecorder> trace_;
};

}  // namespace outrider::apps

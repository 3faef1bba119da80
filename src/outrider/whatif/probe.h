// SPDX-License-Identifier: Apache-2.0
// What this machine can do, measured once and kept: the drive by size and depth of reads, memory by threads, arithmetic
// by instruction set, and the engine's own operations by weight type. Bounds and predictions are made from it. Kept as
// JSON in the user's cache folder under a fingerprint of processor, core count and drive; a file that is damaged, of
// another version or of another machine counts as none. Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "outrider/engine/engine.h"
#include "outrider/model/model.h"
#include "outrider/whatif/operations.h"
#include "outrider/whatif/predict.h"

namespace outrider::whatif {

inline constexpr uint32_t kProbeVersion = 3;

struct DriveReading {
  uint64_t read_bytes = 0;
  uint32_t depth = 0;  // reads in flight
  double gbps = 0;     // bytes per nanosecond
};

struct MemoryReading {
  uint32_t threads = 0;
  double gbps = 0;
};

struct ArithmeticReading {
  std::string kind;  // "int8", "f32"
  std::string isa;
  double gmacs = 0;  // of one core, multiply-adds per nanosecond
};

struct Probe {
  std::string cpu;
  uint32_t cores = 0;         // usable, as core_budget() tells
  std::string drive_folder;   // where the drive was read
  uint64_t drive_device = 0;  // st_dev of that folder
  bool drive_direct = false;  // past the page cache
  std::string date;           // UTC, ISO 8601
  double load = 0;            // of the machine when it began: readings of a busy machine are low
  std::vector<DriveReading> drive;
  std::vector<MemoryReading> memory;
  std::vector<ArithmeticReading> arithmetic;
  OperationRates operations;  // of all cores, with the best instruction set

  // The best rate at reads of about `read_bytes` (the nearest size measured, by ratio); 0 when nothing was.
  double drive_gbps(uint64_t read_bytes) const noexcept;
  // The smallest depth that gives 95 % of that rate; 0 when nothing was measured.
  uint32_t drive_depth(uint64_t read_bytes) const noexcept;
  // At the nearest number of threads not above `threads`, or the fewest measured.
  double memory_gbps(uint32_t threads) const noexcept;
  // Of the best instruction set up to `isa` (a name of isa.h), or of the best when it is empty; one core.
  double gmacs(const std::string& kind, const std::string& isa = "") const noexcept;
};

struct ProbeOptions {
  std::string folder;         // on the drive to be read; a scratch file is made there and removed
  double seconds_each = 0.2;  // of one drive reading
  uint64_t file_bytes = 512ULL << 20;
  std::vector<format::TensorType> types = weight_types();  // whose products are timed
};

// Bytes of the reads in which the experts of a model arrive: a part, or a packed slab, but at most a piece of the
// reader.
uint64_t read_bytes_of(const model::Model& model);
// The rates that bound this model with these options. Fewer threads than the probe's have their share of its products,
// in decode as the memory's readings go; a lesser instruction set goes by its int8 peak.
MachineRates rates_of(const Probe& probe, const model::Model& model, const engine::EngineOptions& options);

// Takes some fifteen seconds. `progress(done, total)` counts readings. Throws Error(kIo) when the scratch file cannot
// be made.
Probe run_probe(const ProbeOptions& options, const std::function<void(uint64_t, uint64_t)>& progress);

// ${XDG_CACHE_HOME:-~/.cache}/outrider/probe.json; empty when neither variable is set.
std::string probe_path();

std::string probe_json(const Probe& probe);
// nullopt, with one line in `note`, for text that is not a probe of this version.
std::optional<Probe> parse_probe(const std::string& text, std::string& note);

// The probe kept at `path`, when it is of this machine. Else nullopt; `note` says why when a file is there.
std::optional<Probe> load_probe(const std::string& path, std::string& note);
// Replaces the file as a whole, making its folder. Throws Error(kIo).
void store_probe(const std::string& path, const Probe& probe);

}  // namespace outrider::whatif

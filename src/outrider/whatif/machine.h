// SPDX-License-Identifier: Apache-2.0
// Quick readings of what this machine can move, for the bounds printed beside speeds. Under a second each; noisy machines
// give noisy readings, so a bound belongs to the run that measured it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "outrider/base/thread_pool.h"

namespace outrider::whatif {

// Bytes per nanosecond (GB/s) that the pool reads from a buffer of 256 MiB, larger than any cache, or of `most_bytes` if
// that is less; 2 MiB pages asked for: best of sixteen rounds. 0 when even 1 MiB is too much.
double dram_read_gbps(ThreadPool& pool, uint64_t most_bytes);

// Reads n_bytes (a multiple of 64, at an address that is a multiple of 8) as fast as one thread can, asking for what lies
// ahead as the row kernels do; returns a sum, so that the loads stay.
uint64_t read_bytes(const std::byte* data, uint64_t n_bytes) noexcept;

// GB/s of direct reads of `read_bytes` (rounded up to 4 KiB) over the file, at random places, `depth` in flight, for at most
// 0.3 s; 0 when the file system refuses direct reads or the file holds fewer than `depth` such reads.
double drive_read_gbps(const std::string& path, uint64_t read_bytes, uint32_t depth);

// Readings of a drive over the time of a run, at the size of the run's reads and several depths. Drives come and go (a
// shared one, a token bucket), so only the best of readings all along is a bound.
class DriveReadings {
 public:
  DriveReadings(std::string path, uint64_t read_bytes) : path_(std::move(path)), read_bytes_(read_bytes) {}
  void take();
  double best_gbps() const noexcept { return best_gbps_; }
  double least_gbps() const noexcept { return least_gbps_; }
  uint32_t n_readings() const noexcept { return n_readings_; }

 private:
  std::string path_;
  uint64_t read_bytes_;
  double best_gbps_ = 0, least_gbps_ = 0;
  uint32_t n_readings_ = 0;
};

}  // namespace outrider::whatif

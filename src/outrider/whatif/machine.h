// SPDX-License-Identifier: Apache-2.0
// Quick readings of what this machine can move, for the bounds printed beside speeds. Under a second each; noisy
// machines give noisy readings, so a bound belongs to the run that measured it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/thread_pool.h"

namespace outrider::whatif {

// Bytes per nanosecond (GB/s) that the pool reads from a buffer of 256 MiB, larger than any cache, or of `most_bytes`
// if that is less; 2 MiB pages asked for: best of sixteen rounds. 0 when even 1 MiB is too much.
double dram_read_gbps(ThreadPool& pool, uint64_t most_bytes);

// Reads n_bytes (a multiple of 64, at an address that is a multiple of 8) as fast as one thread can; returns a sum, so
// that the loads stay.
uint64_t read_bytes(const std::byte* data, uint64_t n_bytes) noexcept;

// Memory that drive readings go into, for at most `most_bytes` (at least 2 MiB): of 2 MiB pages as the expert cache's,
// since a read into small pages is cut where the drive's list of pieces is full, and larger than most caches, since a
// read that ends in the processor's cache is faster. Where this was written small pages gave half the rate, 14 MiB
// instead of 400 up to 1.5 times.
AlignedBuffer drive_probe_memory(uint64_t most_bytes);

// GB/s of reads of `read_bytes` (a multiple of 4 KiB) at random places of the first n_bytes of an open file, one place
// of `memory` after the other, `depth` threads with one read each, for about `seconds`, at least a read each. 0 when
// the file or the memory is too small.
double drive_read_gbps(int fd, uint64_t n_bytes, std::span<std::byte> memory, uint64_t read_bytes, uint32_t depth,
                       double seconds);

// Readings of a drive over the time of a run, of direct reads at the size and depth of the run's. Drives come and go (a
// shared one, a token bucket): what was measured beside a reading is judged by it.
class DriveReadings {
 public:
  DriveReadings(const std::string& path, uint64_t read_bytes, uint32_t depth, uint64_t most_bytes_of_memory);
  ~DriveReadings();
  DriveReadings(const DriveReadings&) = delete;
  DriveReadings& operator=(const DriveReadings&) = delete;

  // GB/s now; takes 0.4 s. 0 when the file system refuses direct reads or the file is small.
  double take();
  double best_gbps() const noexcept { return best_gbps_; }
  double least_gbps() const noexcept { return least_gbps_; }
  uint32_t n_readings() const noexcept { return n_readings_; }

 private:
  int fd_;
  uint64_t n_bytes_ = 0;
  uint64_t read_bytes_;
  uint32_t depth_;
  AlignedBuffer memory_;
  double best_gbps_ = 0, least_gbps_ = 0;
  uint32_t n_readings_ = 0;
};

}  // namespace outrider::whatif

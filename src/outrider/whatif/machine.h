// SPDX-License-Identifier: Apache-2.0
// Quick readings of what this machine can move, for the bounds printed beside speeds. Under a second each; noisy machines
// give noisy readings, so a bound belongs to the run that measured it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outrider/base/thread_pool.h"

namespace outrider::whatif {

// Bytes per nanosecond (GB/s) that the pool reads from a buffer of 256 MiB, larger than any cache, or of `most_bytes` if
// that is less; 2 MiB pages asked for: best of sixteen rounds. 0 when even 1 MiB is too much.
double dram_read_gbps(ThreadPool& pool, uint64_t most_bytes);

// Reads n_bytes (a multiple of 64, at an address that is a multiple of 8) as fast as one thread can, asking for what lies
// ahead as the row kernels do; returns a sum, so that the loads stay.
uint64_t read_bytes(const std::byte* data, uint64_t n_bytes) noexcept;

// GB/s of direct 1 MiB reads at four in flight over the file, at random places, for at most 0.5 s; 0 when the file system
// refuses direct reads or the file is under 4 MiB.
double drive_read_gbps(const std::string& path);

}  // namespace outrider::whatif

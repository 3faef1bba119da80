// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/machine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/checked.h"
#include "outrider/base/random.h"

namespace outrider::whatif {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

// Eight independent sums, so that loads and not additions are the limit. The hardware's prefetchers stop at each 4 KiB.
uint64_t read_bytes(const std::byte* data, uint64_t n_bytes) noexcept {
  constexpr uint64_t kAhead = 4096, kWords = 8;
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sums[kWords] = {};
  for (uint64_t i = 0; i < n_bytes / 8; i += kWords) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(words + i) + kAhead));
    for (uint64_t lane = 0; lane < kWords; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

double dram_read_gbps(ThreadPool& pool, uint64_t most_bytes) {
  constexpr uint64_t kMostBytes = 256ULL << 20, kPiece = 1ULL << 20;
  const auto n_pieces = static_cast<uint32_t>(std::min(most_bytes, kMostBytes) / kPiece);
  if (n_pieces == 0) return 0;
  const uint64_t n_bytes = n_pieces * kPiece;
  AlignedBuffer buffer(n_bytes, "memory probe");
  std::fill_n(buffer.as<uint64_t>(), n_bytes / 8, 1ULL);
  std::atomic<uint64_t> sink{0};  // keeps the loads; relaxed: only a sum
  double best = 0;
  for (int round = 0; round < 16; ++round) {
    const auto start = Clock::now();
    pool.run(n_pieces, [&](uint32_t piece, uint32_t) {
      sink.fetch_add(read_bytes(buffer.data() + piece * kPiece, kPiece), std::memory_order_relaxed);
    });
    best = std::max(best, static_cast<double>(n_bytes) / 1e9 / seconds_since(start));
  }
  return sink.load() == 0 ? 0 : best;
}

double drive_read_gbps(const std::string& path, uint64_t read_bytes, uint32_t depth) {
  const uint64_t block_bytes = align_up(read_bytes, 4096);
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat status {};
  const uint64_t n_blocks = fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_size) / block_bytes : 0;
  std::atomic<uint64_t> n_bytes{0};  // relaxed: read after the threads have joined
  double seconds = 0;
  if (n_blocks >= depth) {
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < depth; ++t) {
      threads.emplace_back([&, t] {
        AlignedBuffer block(block_bytes, "drive probe");
        Random random(t);
        while (seconds_since(start) < 0.3) {
          const ssize_t got = pread(fd, block.data(), block_bytes, static_cast<off_t>(random.below(n_blocks) * block_bytes));
          if (got != static_cast<ssize_t>(block_bytes)) return;
          n_bytes.fetch_add(block_bytes, std::memory_order_relaxed);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    seconds = seconds_since(start);
  }
  close(fd);
  return seconds > 0 ? static_cast<double>(n_bytes.load()) / 1e9 / seconds : 0;
}

void DriveReadings::take() {
  for (const uint32_t depth : {2U, 4U, 16U}) {
    const double gbps = drive_read_gbps(path_, read_bytes_, depth);
    best_gbps_ = std::max(best_gbps_, gbps);
    least_gbps_ = n_readings_++ == 0 ? gbps : std::min(least_gbps_, gbps);
  }
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/machine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/checked.h"
#include "outrider/base/random.h"

namespace outrider::whatif {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

// Four independent sums of 16 bytes, so that loads and not additions are the limit; without prefetches, which bring
// nothing where there is nothing else to do (two threads on Zen 4, medians of 60 interleaved rounds: 48 GB/s; asking 4
// KiB ahead 47; by words of 8 bytes 40, less than the kernels of products reach).
uint64_t read_bytes(const std::byte* data, uint64_t n_bytes) noexcept {
  typedef uint64_t Pair __attribute__((vector_size(16), aligned(8)));  // NOLINT: the form that GCC takes
  constexpr uint64_t kSums = 4;
  const auto* pairs = reinterpret_cast<const Pair*>(data);
  Pair sums[kSums] = {};
  for (uint64_t i = 0; i < n_bytes / sizeof(Pair); i += kSums) {
    for (uint64_t lane = 0; lane < kSums; ++lane) sums[lane] += pairs[i + lane];
  }
  Pair total = {};
  for (const Pair& sum : sums) total += sum;
  return total[0] + total[1];
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

AlignedBuffer drive_probe_memory(uint64_t most_bytes) {
  constexpr uint64_t kMostBytes = 256ULL << 20, kLeastBytes = 2ULL << 20;
  AlignedBuffer memory(std::clamp(most_bytes, kLeastBytes, kMostBytes), "drive probe");
  memory.populate();
  return memory;
}

double drive_read_gbps(int fd, uint64_t n_bytes, std::span<std::byte> memory, uint64_t read_bytes, uint32_t depth,
                       double seconds) {
  const uint64_t n_places = n_bytes / read_bytes, n_slots = memory.size() / read_bytes;
  if (n_places == 0 || n_slots == 0) return 0;
  depth = static_cast<uint32_t>(std::min<uint64_t>(depth, n_slots));
  std::atomic<uint64_t> n_begun{0}, total{0};  // relaxed: counters; the sum is read after the threads have joined
  const auto start = Clock::now();
  const auto read_on = [&](uint32_t t) {
    Random random(t + read_bytes + static_cast<uint64_t>(start.time_since_epoch().count()));
    do {
      const uint64_t slot = n_begun.fetch_add(1, std::memory_order_relaxed) % n_slots;
      const auto offset = static_cast<off_t>(random.below(n_places) * read_bytes);
      if (pread(fd, memory.data() + slot * read_bytes, read_bytes, offset) != static_cast<ssize_t>(read_bytes)) return;
      total.fetch_add(read_bytes, std::memory_order_relaxed);
    } while (seconds_since(start) < seconds);
  };
  std::vector<std::thread> threads;
  try {
    for (uint32_t t = 0; t < depth; ++t) threads.emplace_back(read_on, t);
  } catch (const std::system_error&) {  // a thread was refused: fewer read
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(total.load()) / 1e9 / seconds_since(start);
}

DriveReadings::DriveReadings(const std::string& path, uint64_t read_bytes, uint32_t depth,
                             uint64_t most_bytes_of_memory)
    : fd_(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)),
      read_bytes_(align_up(read_bytes, 4096)),
      depth_(depth),
      memory_(drive_probe_memory(most_bytes_of_memory)) {
  struct stat status {};
  if (fd_ >= 0 && fstat(fd_, &status) == 0) n_bytes_ = static_cast<uint64_t>(status.st_size);
}

DriveReadings::~DriveReadings() {
  if (fd_ >= 0) close(fd_);
}

double DriveReadings::take() {
  const double gbps =
      fd_ < 0 ? 0 : drive_read_gbps(fd_, n_bytes_, {memory_.data(), memory_.size()}, read_bytes_, depth_, 0.4);
  best_gbps_ = std::max(best_gbps_, gbps);
  least_gbps_ = n_readings_++ == 0 ? gbps : std::min(least_gbps_, gbps);
  return gbps;
}

}  // namespace outrider::whatif

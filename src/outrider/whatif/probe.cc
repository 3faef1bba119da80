// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/memory_budget.h"
#include "outrider/base/random.h"
#include "outrider/base/thread_pool.h"
#include "outrider/io/reader.h"
#include "outrider/whatif/arithmetic.h"
#include "outrider/whatif/machine.h"

namespace outrider::whatif {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<uint64_t, 5> kReadBytes = {16ULL << 10, 64ULL << 10, 256ULL << 10, 1ULL << 20, 4ULL << 20};
constexpr std::array<uint32_t, 4> kDepths = {1, 4, 8, 16};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A file of random words on the drive, without a name: gone with its descriptor, whatever happens.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder, uint64_t n_bytes) : n_bytes_(n_bytes) {
    std::string name = folder + "/outrider-probe-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd < 0) fail(ErrorKind::kIo, "{}: cannot be created: {}", name, std::strerror(errno));
    fill(fd, name);
    fd_ = ::open(name.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    is_direct_ = fd_ >= 0;
    if (!is_direct_) fd_ = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    ::unlink(name.c_str());
    ::close(fd);
    if (fd_ < 0) fail(ErrorKind::kIo, "{}: cannot be opened: {}", name, std::strerror(errno));
  }
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool is_direct() const noexcept { return is_direct_; }

  double read_gbps(uint64_t read_bytes, uint32_t depth, double seconds) {
    return drive_read_gbps(fd_, n_bytes_, {memory_.data(), memory_.size()}, read_bytes, depth, seconds);
  }

 private:
  void fill(int fd, const std::string& name) const {
    std::vector<uint64_t> words(1 << 17);
    Random random(1);
    for (uint64_t& word : words) word = random.next_u64();
    for (uint64_t at = 0; at < n_bytes_; at += words.size() * 8) {
      words[0] = at;  // no two pieces alike, for drives that join equal blocks
      if (::pwrite(fd, words.data(), words.size() * 8, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(words.size() * 8)) {
        const int error = errno;
        ::unlink(name.c_str());
        fail(ErrorKind::kIo, "{}: writing {} bytes failed: {}", name, n_bytes_, std::strerror(error));
      }
    }
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }

  uint64_t n_bytes_;
  AlignedBuffer memory_ = drive_probe_memory(memory_budget().available_bytes / 2);
  int fd_ = -1;
  bool is_direct_ = false;
};

// Best of three runs of about 30 ms, after one that only warms up.
double gmacs_of(const ArithmeticLoop& loop) {
  uint64_t rounds = 1 << 16;
  double best = 0;
  uint64_t sink = 0;
  for (int run = 0; run < 4; ++run) {
    const auto start = Clock::now();
    sink += loop.run(rounds);
    const double seconds = seconds_since(start);
    if (run > 0) best = std::max(best, static_cast<double>(rounds * loop.macs_per_round) / 1e9 / seconds);
    if (run == 0)
      rounds =
          static_cast<uint64_t>(static_cast<double>(rounds) * std::clamp(0.03 / std::max(seconds, 1e-6), 1.0, 1e4));
  }
  asm volatile("" : : "r"(sink));
  return best;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

template <typename Reading>
const Reading* nearest_size(const std::vector<Reading>& readings, uint64_t read_bytes) noexcept {
  const auto distance = [&](const Reading& r) {
    return std::abs(std::log(static_cast<double>(r.read_bytes)) -
                    std::log(static_cast<double>(std::max<uint64_t>(read_bytes, 1))));
  };
  const auto nearest = std::min_element(readings.begin(), readings.end(),
                                        [&](const Reading& a, const Reading& b) { return distance(a) < distance(b); });
  return nearest == readings.end() ? nullptr : &*nearest;
}

}  // namespace

double Probe::drive_gbps(uint64_t read_bytes) const noexcept {
  const DriveReading* size = nearest_size(drive, read_bytes);
  double best = 0;
  for (const DriveReading& reading : drive) {
    if (reading.read_bytes == size->read_bytes) best = std::max(best, reading.gbps);
  }
  return best;
}

uint32_t Probe::drive_depth(uint64_t read_bytes) const noexcept {
  const DriveReading* size = nearest_size(drive, read_bytes);
  uint32_t depth = 0;
  for (const DriveReading& reading : drive) {
    const bool is_enough = reading.read_bytes == size->read_bytes && reading.gbps >= 0.95 * drive_gbps(read_bytes);
    if (is_enough && (depth == 0 || reading.depth < depth)) depth = reading.depth;
  }
  return depth;
}

double Probe::memory_gbps(uint32_t threads) const noexcept {
  const MemoryReading* best = nullptr;
  for (const MemoryReading& reading : memory) {
    const bool fits = reading.threads <= threads;
    if (best == nullptr || (fits && (best->threads > threads || reading.threads > best->threads)) ||
        (!fits && best->threads > threads && reading.threads < best->threads)) {
      best = &reading;
    }
  }
  return best != nullptr ? best->gbps : 0;
}

double Probe::gmacs(const std::string& kind, const std::string& isa) const noexcept {
  const auto limit = isa.empty() ? std::optional<Isa>(Isa::kAvx512) : parse_isa(isa);
  double best = 0;
  for (const ArithmeticReading& reading : arithmetic) {
    const auto has = parse_isa(reading.isa);
    if (reading.kind == kind && has && limit && *has <= *limit) best = std::max(best, reading.gmacs);
  }
  return best;
}

uint64_t read_bytes_of(const model::Model& model) {
  if (model.n_moe_layers() == 0) return io::ReaderOptions{}.piece_bytes;
  const residency::LayerSource layer = engine::expert_sources(model).front();
  const bool is_packed = layer.parts[0].stride != 0;
  return std::min(is_packed ? model.slab_bytes(0) : layer.parts[0].n_bytes, io::ReaderOptions{}.piece_bytes);
}

MachineRates rates_of(const Probe& probe, const model::Model& model, const engine::EngineOptions& options) {
  const std::string isa(isa_name(options.isa));
  const uint32_t n_threads = std::min(options.n_threads, probe.cores);
  const auto part = [](double rate, double whole) { return whole > 0 ? rate / whole : 1; };
  const double isa_share = part(probe.gmacs("int8", isa), probe.gmacs("int8"));
  const double compute = isa_share * n_threads / std::max(probe.cores, 1U);
  const double memory = std::min(1.0, part(probe.memory_gbps(n_threads), probe.memory_gbps(probe.cores)));
  MachineRates rates = {.dram_gbps = probe.memory_gbps(options.n_threads),
                        .drive_gbps = probe.drive_gbps(read_bytes_of(model)),
                        .int8_gmacs = probe.gmacs("int8", isa) * n_threads,
                        .n_threads = n_threads,
                        .operations = probe.operations};
  for (ProductRates& product : rates.operations.products) {
    product.row_gbps *= memory;
    product.dense_gmacs *= compute;
    for (double& gmacs : product.expert_gmacs) gmacs *= compute;
  }
  for (AttentionRates& attention : rates.operations.attention) {
    attention.row_gmacs *= compute;
    attention.rows_gmacs *= compute;
  }
  if (compute <= 0) rates.operations = {};  // a set without a peak: nothing is known
  return rates;
}

Probe run_probe(const ProbeOptions& options, const std::function<void(uint64_t, uint64_t)>& progress) {
  Probe probe;
  const CoreBudget cores = core_budget();
  probe.cpu = cpu_name();
  probe.cores = cores.default_threads;
  probe.drive_folder = options.folder;
  probe.date = utc_now();
  std::array<double, 1> load = {};
  if (::getloadavg(load.data(), 1) == 1) probe.load = load[0];
  struct stat status = {};
  if (::stat(options.folder.c_str(), &status) != 0)
    fail(ErrorKind::kIo, "{}: {}", options.folder, std::strerror(errno));
  probe.drive_device = status.st_dev;

  std::vector<uint32_t> thread_counts;
  for (uint32_t n = 1; n < probe.cores; n *= 2) thread_counts.push_back(n);
  thread_counts.push_back(probe.cores);
  const uint64_t total =
      kReadBytes.size() * kDepths.size() + thread_counts.size() + 2 + n_operation_steps(options.types);
  uint64_t done = 0;
  const auto step = [&] { progress(++done, total); };
  for (const auto& [kind, loops] : {std::pair("int8", int8_loops()), std::pair("f32", f32_loops())}) {
    for (const ArithmeticLoop& loop : loops) {
      if (isa_supported(loop.isa)) probe.arithmetic.push_back({kind, std::string(isa_name(loop.isa)), gmacs_of(loop)});
    }
    step();
  }
  for (const uint32_t n : thread_counts) {
    ThreadPool pool(n);
    probe.memory.push_back({n, dram_read_gbps(pool, memory_budget().available_bytes / 2)});
    step();
  }
  probe.operations =
      measure_operations(probe.cores, best_isa(), memory_budget().available_bytes / 2, options.types, step);
  ScratchFile file(options.folder, options.file_bytes);
  probe.drive_direct = file.is_direct();
  for (const uint64_t read_bytes : kReadBytes) {
    for (const uint32_t depth : kDepths) {
      probe.drive.push_back({read_bytes, depth, file.read_gbps(read_bytes, depth, options.seconds_each)});
      step();
    }
  }
  return probe;
}

}  // namespace outrider::whatif

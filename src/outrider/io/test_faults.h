// SPDX-License-Identifier: Apache-2.0
// For tests of everything that reads: a file of known bytes, and a drive that misbehaves on order.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/base/random.h"
#include "outrider/io/fault.h"

namespace outrider::io {

// A file of seeded random bytes. It has no name in its folder, so nothing is left of it however the process ends (death
// tests).
class TestFile {
 public:
  explicit TestFile(uint64_t n_bytes, uint64_t seed = 7) {
    OUTRIDER_CHECK(fd_ >= 0, "{}: no file without a name: {}", testing::TempDir(), std::strerror(errno));
    path_ = "/proc/self/fd/" + std::to_string(fd_);
    bytes_.resize(n_bytes);
    Random random(seed);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random.next_u64());
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(n_bytes));
  }
  ~TestFile() { ::close(fd_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  std::span<const std::byte> bytes(uint64_t offset, uint64_t n_bytes) const noexcept {
    return std::span<const std::byte>(bytes_).subspan(offset, n_bytes);
  }

 private:
  int fd_ = ::open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  std::string path_;
  std::vector<std::byte> bytes_;
};

// Which faults. All off by default.
struct Faults {
  int ring_error = 0;
  int direct_open_error = 0;
  uint64_t direct_alignment = 0;            // direct reads that are not aligned to it get EINVAL
  uint32_t n_direct_accepted = UINT32_MAX;  // direct reads after that many are refused with EINVAL
  bool shorten = false;                     // every read returns a random shorter length
  uint32_t interrupt_every = 0;             // every nth read gets EINTR
  uint32_t again_every = 0;                 // every nth read gets EAGAIN
  uint32_t n_eio = 0;                       // each position fails that often with EIO before it heals
  std::string file = {};                    // bad_begin to ends_at hold for this file only; empty: for all
  uint64_t bad_begin = 0, bad_end = 0;      // reads that touch this range fail for ever, with bad_error
  int bad_error = EIO;
  uint64_t ends_at = UINT64_MAX;  // the file ends here
  bool reorder = false;           // completions are held back at random
};

class TestFaults : public FaultPlan {
 public:
  explicit TestFaults(const Faults& faults, uint64_t seed = 1) : faults_(faults), random_(seed) {}

  int on_ring() override { return faults_.ring_error; }
  int on_open(std::string_view /*path*/, bool direct) override { return direct ? faults_.direct_open_error : 0; }

  ReadFault on_read(const ReadOp& op) override {
    const std::lock_guard lock(mutex_);
    ++n_reads_;
    if (op.direct) {
      const uint64_t joined = op.offset | op.n_bytes | reinterpret_cast<uintptr_t>(op.address);
      if (faults_.direct_alignment != 0 && joined % faults_.direct_alignment != 0) return {.error = EINVAL};
      if (n_direct_++ >= faults_.n_direct_accepted) return {.error = EINVAL};
    }
    if (faults_.interrupt_every != 0 && n_reads_ % faults_.interrupt_every == 0) return {.error = EINTR};
    if (faults_.again_every != 0 && n_reads_ % faults_.again_every == 0) return {.error = EAGAIN};
    const bool is_chosen = faults_.file.empty() || faults_.file == op.path;
    const uint64_t ends_at = is_chosen ? faults_.ends_at : UINT64_MAX;
    if (is_chosen && op.offset < faults_.bad_end && op.offset + op.n_bytes > faults_.bad_begin)
      return {.error = faults_.bad_error};
    if (faults_.n_eio != 0 && n_failed_at_[op.offset]++ < faults_.n_eio) return {.error = EIO};
    if (op.offset >= ends_at) return {.max_bytes = 0};
    uint64_t most = std::min(op.n_bytes, ends_at - op.offset);
    if (faults_.shorten) most = 1 + random_.below(most);
    return {.max_bytes = most};
  }

  uint32_t hold_completion(uint64_t /*offset*/) override {
    const std::lock_guard lock(mutex_);
    return faults_.reorder ? static_cast<uint32_t>(random_.below(8)) : 0;
  }

  // Faults that begin later, on a store that was opened healthy.
  void set(const Faults& faults) {
    const std::lock_guard lock(mutex_);
    faults_ = faults;
    n_direct_ = 0;
  }
  uint32_t n_reads() const {
    const std::lock_guard lock(mutex_);
    return n_reads_;
  }

 private:
  mutable std::mutex mutex_;
  Faults faults_;
  Random random_;
  std::map<uint64_t, uint32_t> n_failed_at_;
  uint32_t n_reads_ = 0;
  uint32_t n_direct_ = 0;
};

}  // namespace outrider::io

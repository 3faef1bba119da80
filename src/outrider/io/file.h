// SPDX-License-Identifier: Apache-2.0
// A file opened for reading, and what direct reads of it need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "outrider/io/fault.h"

namespace outrider::io {

// Owns one descriptor. Thread-safe: all reads are positional.
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept { swap(other); }
  File& operator=(File&& other) noexcept {
    swap(other);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Throws Error(kIo) "PATH: cannot open: No such file or directory (ENOENT)"; a directory is refused too.
  static File open(const std::string& path, FaultPlan* faults = nullptr);
  // Opens past the page cache. Returns a closed File and sets `error` to the errno when the system refuses.
  static File open_direct(const std::string& path, int& error, FaultPlan* faults = nullptr);

  bool is_open() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  uint64_t n_bytes() const noexcept { return n_bytes_; }  // when it was opened
  const std::string& path() const noexcept { return path_; }

  // Fills `out` from `offset` on; retries interrupted and finishes short reads. Throws Error(kIo) naming file, offset,
  // wanted and got.
  void read_exact(uint64_t offset, std::span<std::byte> out, FaultPlan* faults = nullptr) const;

 private:
  void swap(File& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(n_bytes_, other.n_bytes_);
    path_.swap(other.path_);
  }
  int fd_ = -1;
  uint64_t n_bytes_ = 0;
  std::string path_;
};

// The alignment (of offset, length and address alike) that direct reads of `direct` need: what the file system states
// where it states it, confirmed by a trial read, else the first of 512 B, 4 KiB, 64 KiB that a trial read accepts.
// 0 when every trial is refused; `error` is then the errno.
uint32_t probe_direct_block(const File& direct, int& error, FaultPlan* faults = nullptr);

// One kernel read with the faults applied: bytes read, or -errno.
int64_t read_once(const File& file, uint64_t offset, std::span<std::byte> out, bool direct, FaultPlan* faults) noexcept;

// "Input/output error (EIO)"
std::string errno_text(int error);
// "EIO"
std::string errno_name(int error);

// "PATH: read at offset 4096: wanted 512 bytes, got 100: end of file". `error` 0 is the end of the file.
std::string read_error_text(const std::string& path, uint64_t offset, uint64_t wanted_bytes, uint64_t got_bytes,
                            int error);

}  // namespace outrider::io

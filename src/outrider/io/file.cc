// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/error.h"
#include "outrider/io/piece.h"

namespace outrider::io {

namespace {

constexpr uint32_t kLargestBlock = 64U << 10;

int open_retrying(const std::string& path, int flags) noexcept {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// What the file system states about direct reads, 0 when it states nothing.
uint32_t stated_block(const File& file) noexcept {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (statx(file.fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    const uint32_t block = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
    if (info.stx_dio_offset_align != 0 && block <= kLargestBlock) return std::bit_ceil(block);
  }
#endif
  static_cast<void>(file);
  return 0;
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File File::open(const std::string& path, FaultPlan* faults) {
  File file;
  file.path_ = path;
  const int refused = faults != nullptr ? faults->on_open(path, false) : 0;
  file.fd_ = refused != 0 ? -1 : open_retrying(path, 0);
  if (file.fd_ < 0) fail(ErrorKind::kIo, "{}: cannot open: {}", path, errno_text(refused != 0 ? refused : errno));
  struct stat info = {};
  if (fstat(file.fd_, &info) != 0) fail(ErrorKind::kIo, "{}: cannot stat: {}", path, errno_text(errno));
  if (S_ISDIR(info.st_mode)) fail(ErrorKind::kIo, "{}: cannot open: is a directory", path);
  file.n_bytes_ = static_cast<uint64_t>(info.st_size);
  // Ranges are asked for exactly; readahead past them (8 MiB on some machines) would only be thrown away. What the page
  // cache keeps is the system's business: it serves other processes too, so nothing here tells it to drop pages.
  static_cast<void>(posix_fadvise(file.fd_, 0, 0, POSIX_FADV_RANDOM));
  return file;
}

File File::open_direct(const std::string& path, int& error, FaultPlan* faults) {
  File file;
  file.path_ = path;
  error = faults != nullptr ? faults->on_open(path, true) : 0;
  if (error != 0) return file;
  file.fd_ = open_retrying(path, O_DIRECT);
  struct stat info = {};
  if (file.fd_ < 0 || fstat(file.fd_, &info) != 0) {
    error = errno;
    return File();
  }
  file.n_bytes_ = static_cast<uint64_t>(info.st_size);
  return file;
}

void File::read_exact(uint64_t offset, std::span<std::byte> out, FaultPlan* faults) const {
  if (out.empty()) return;
  Piece piece = {.pos = offset, .end = offset + out.size(), .wanted_end = offset + out.size(), .dst = out.data()};
  for (;;) {
    const int64_t result = read_once(*this, piece.pos, {piece.dst, piece.end - piece.pos}, false, faults);
    const PieceStep step = advance(piece, result);
    if (step == PieceStep::kDone) return;
    if (step == PieceStep::kFailed) {
      throw Error(ErrorKind::kIo, read_error_text(path_, offset, out.size(), piece.pos - offset, piece.error));
    }
  }
}

uint32_t probe_direct_block(const File& direct, int& error, FaultPlan* faults) {
  const std::array<uint32_t, 4> candidates = {stated_block(direct), 512, 4096, kLargestBlock};
  AlignedBuffer buffer(4ULL * kLargestBlock, "direct read probe");
  error = EINVAL;
  for (const uint32_t block : candidates) {
    if (block == 0) continue;
    // An address and an offset that are multiples of `block` and, where they can be, of nothing larger.
    const uint64_t offset = direct.n_bytes() >= 2ULL * block ? block : 0;
    auto* address = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(buffer.data()) + 2 * kLargestBlock - 1) /
                                                 kLargestBlock * kLargestBlock) +
                    block;
    int64_t result = -EINTR;
    for (uint32_t i = 0; i < kMaxInterrupts && (result == -EINTR || result == -EAGAIN); ++i) {
      result = read_once(direct, offset, {address, block}, true, faults);
    }
    if (result >= 0) {
      error = 0;
      return block;
    }
    error = static_cast<int>(-result);
  }
  return 0;
}

int64_t read_once(const File& file, uint64_t offset, std::span<std::byte> out, bool direct,
                  FaultPlan* faults) noexcept {
  ReadFault fault;
  if (faults != nullptr) {
    fault = faults->on_read({file.path(), offset, out.size(), out.data(), direct});
    if (fault.error != 0) return -fault.error;
  }
  const ssize_t n_read = ::pread(file.fd(), out.data(), out.size(), static_cast<off_t>(offset));
  return apply_fault(fault, n_read >= 0 ? n_read : -errno, out.data());
}

std::string errno_name(int error) {
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::string errno_text(int error) {
  const char* description = strerrordesc_np(error);
  return fmt::format("{} ({})", description != nullptr ? description : "unknown error", errno_name(error));
}

std::string read_error_text(const std::string& path, uint64_t offset, uint64_t wanted_bytes, uint64_t got_bytes,
                            int error) {
  return fmt::format("{}: read at offset {}: wanted {} bytes, got {}: {}", path, offset, wanted_bytes, got_bytes,
                     error == 0 ? "end of file" : errno_text(error));
}

}  // namespace outrider::io

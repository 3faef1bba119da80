// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/byte_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "outrider/base/error.h"

namespace outrider::format {

namespace {
constexpr size_t kBufferBytes = 128 * 1024;
}

ByteReader::ByteReader(int fd, uint64_t n_bytes, std::string name)
    : fd_(fd), n_bytes_(n_bytes), name_(std::move(name)), where_("header"), buffer_(kBufferBytes) {}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string name)
    : n_bytes_(bytes.size()), name_(std::move(name)), where_("header"), window_(bytes) {}

void ByteReader::need(uint64_t n_wanted, std::string_view field) const {
  if (n_wanted <= remaining()) return;
  fail(ErrorKind::kBadFile, "{}: {}: {} needs {} bytes at byte {} but the file has {} (truncated?)", name_, where_,
       field, n_wanted, position(), n_bytes_);
}

void ByteReader::read(std::span<std::byte> out, std::string_view field) {
  need(out.size(), field);
  while (!out.empty()) {
    if (used_ == window_.size()) refill();
    const size_t n_copied = std::min(out.size(), window_.size() - used_);
    std::memcpy(out.data(), window_.data() + used_, n_copied);
    used_ += n_copied;
    out = out.subspan(n_copied);
  }
}

// Called with the window used up and bytes left in the file, so never for memory.
void ByteReader::refill() {
  window_start_ += window_.size();
  window_ = {};
  used_ = 0;
  const size_t n_wanted = static_cast<size_t>(std::min<uint64_t>(buffer_.size(), n_bytes_ - window_start_));
  ssize_t n_read = 0;
  do {
    n_read = ::pread(fd_, buffer_.data(), n_wanted, static_cast<off_t>(window_start_));
  } while (n_read < 0 && errno == EINTR);
  if (n_read < 0) {
    fail(ErrorKind::kIo, "{}: {}: reading {} bytes at byte {} failed: {}", name_, where_, n_wanted, window_start_,
         std::strerror(errno));
  }
  if (n_read == 0) {
    fail(ErrorKind::kIo, "{}: {}: the file ends at byte {} but had {} bytes when opened", name_, where_, window_start_,
         n_bytes_);
  }
  window_ = std::span<const std::byte>(buffer_).first(static_cast<size_t>(n_read));
}

}  // namespace outrider::format

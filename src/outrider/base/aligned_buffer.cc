// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"

namespace outrider {

namespace {
constexpr uint64_t kHugePage = 2U << 20;
}

AlignedBuffer::AlignedBuffer(uint64_t n_bytes, const char* what) {
  if (n_bytes == 0) return;
  const uint64_t alignment = n_bytes >= kHugePage ? kHugePage : 4096;
  const auto padded = checked_align_up(n_bytes, 4096);
  const auto wanted = padded ? checked_add(*padded, alignment) : std::nullopt;
  if (!wanted || *wanted > SIZE_MAX) fail(ErrorKind::kOutOfMemory, "{}: {} bytes cannot be addressed", what, n_bytes);
  void* map = mmap(nullptr, *wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    fail(ErrorKind::kOutOfMemory, "{}: the system refused {}: {}", what, format_bytes(n_bytes), std::strerror(errno));
  }
  map_ = map;
  map_bytes_ = *wanted;
  n_bytes_ = n_bytes;
  data_ = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(map), alignment));
  if (alignment == kHugePage) madvise(data_, *padded, MADV_HUGEPAGE);
}

void AlignedBuffer::populate(uint64_t begin, uint64_t n_bytes) noexcept {
  // A write in each small page: the kernel may have refused large ones, and MADV_POPULATE_WRITE is younger than
  // Linux 5.13.
  for (uint64_t at = begin; at < std::min(begin + n_bytes, n_bytes_); at += 4096) {
    auto* byte = reinterpret_cast<volatile std::byte*>(data_ + at);
    *byte = *byte;
  }
}

void AlignedBuffer::reset() noexcept {
  if (map_ != nullptr) munmap(map_, map_bytes_);
  data_ = nullptr;
  map_ = nullptr;
  n_bytes_ = map_bytes_ = 0;
}

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// Large zeroed memory straight from the kernel: page-aligned, 2 MiB pages asked for where they pay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace outrider {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Zeroed, aligned to 4096 bytes (2 MiB when the size is at least that). Throws Error(kOutOfMemory) naming `what`.
  AlignedBuffer(uint64_t n_bytes, const char* what);
  ~AlignedBuffer() { reset(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // Has the kernel give every page now instead of when it is first written; of n_bytes from `begin` on, or of all.
  void populate() noexcept { populate(0, n_bytes_); }
  void populate(uint64_t begin, uint64_t n_bytes) noexcept;

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  uint64_t size() const noexcept { return n_bytes_; }
  template <typename T>
  T* as() noexcept {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const noexcept {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  void reset() noexcept;
  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(map_, other.map_);
    std::swap(n_bytes_, other.n_bytes_);
    std::swap(map_bytes_, other.map_bytes_);
  }
  std::byte* data_ = nullptr;
  void* map_ = nullptr;
  uint64_t n_bytes_ = 0;
  uint64_t map_bytes_ = 0;
};

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// Reads the front part of a file in order, through one small buffer, and never past its end: what a header parser
// needs. Every refusal is one line "NAME: WHERE: FIELD ..." with the position and the file's size. Threads: owned by
// one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrider::format {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

class ByteReader {
 public:
  // Reads `fd` with pread; does not own it. `n_bytes`: size of the file.
  ByteReader(int fd, uint64_t n_bytes, std::string name);
  // Reads `bytes`, which outlive this object, as if they were a file.
  ByteReader(std::span<const std::byte> bytes, std::string name);
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  const std::string& name() const noexcept { return name_; }
  uint64_t n_bytes() const noexcept { return n_bytes_; }
  uint64_t position() const noexcept { return window_start_ + used_; }
  uint64_t remaining() const noexcept { return n_bytes_ - position(); }

  // Names the part of the file being read ("key general.name") in the errors to come.
  void set_where(std::string where) { where_ = std::move(where); }
  const std::string& where() const noexcept { return where_; }

  // Throws Error(kBadFile) when fewer than `n_wanted` bytes are left.
  void need(uint64_t n_wanted, std::string_view field) const;
  void read(std::span<std::byte> out, std::string_view field);

  template <typename T>
  T number(std::string_view field) {
    T value;
    if (window_.size() - used_ >= sizeof(T)) [[likely]] {
      std::memcpy(&value, window_.data() + used_, sizeof(T));
      used_ += sizeof(T);
    } else {
      read(std::as_writable_bytes(std::span(&value, 1)), field);
    }
    return value;
  }

 private:
  void refill();

  int fd_ = -1;
  uint64_t n_bytes_ = 0;
  std::string name_;
  std::string where_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> window_;  // the part of the file at hand: of buffer_, or the whole memory
  uint64_t window_start_ = 0;          // its place in the file
  size_t used_ = 0;                    // bytes of the window already given out
};

}  // namespace outrider::format

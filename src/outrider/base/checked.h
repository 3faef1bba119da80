// SPDX-License-Identifier: Apache-2.0
// Arithmetic on lengths and offsets that came from a file: never wraps, says so instead.
#pragma once

#include <cstdint>
#include <optional>

namespace outrider {

[[nodiscard]] constexpr std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) noexcept {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

[[nodiscard]] constexpr std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) noexcept {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// True when [offset, offset + count) lies inside [0, total). Written so that nothing can wrap.
[[nodiscard]] constexpr bool sub_range(uint64_t offset, uint64_t count, uint64_t total) noexcept {
  return offset <= total && count <= total - offset;
}

// Smallest multiple of `alignment` (a power of two) that is >= value; nullopt when it would wrap.
[[nodiscard]] constexpr std::optional<uint64_t> checked_align_up(uint64_t value, uint64_t alignment) noexcept {
  const auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

// As above for values that are ours and cannot wrap.
[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

[[nodiscard]] constexpr uint64_t ceil_div(uint64_t a, uint64_t b) noexcept { return a / b + (a % b != 0); }

}  // namespace outrider

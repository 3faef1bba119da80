// SPDX-License-Identifier: Apache-2.0
// The instruction sets a kernel variant can be written for. One enum, used by --isa, the kernel tables and the tests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outrider {

// Ordered: each includes the ones before it. kAvx2 needs AVX2, FMA, F16C; kAvx512 needs F, BW, DQ, VL and VNNI besides.
enum class Isa : uint8_t { kScalar, kAvx2, kAvx512 };

inline constexpr std::array<Isa, 3> kAllIsas = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

constexpr std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

constexpr std::optional<Isa> parse_isa(std::string_view name) noexcept {
  for (const Isa isa : kAllIsas) {
    if (isa_name(isa) == name) return isa;
  }
  return std::nullopt;
}

}  // namespace outrider

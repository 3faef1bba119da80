// SPDX-License-Identifier: Apache-2.0
// The parts of the trace format that its writer and its reader share; docs/trace-format.md has the whole.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outrider::observe {

static_assert(std::endian::native == std::endian::little, "block headers are written as they lie in memory");

inline constexpr std::string_view kTraceMagic = "OUTTRACE";
inline constexpr size_t kTraceBlockBytes = 256 * 1024;  // before compression
inline constexpr size_t kMaxVarintBytes = 10;
inline constexpr size_t kMaxTraceText = 1024;

struct TraceBlockHeader {
  uint32_t raw_bytes = 0;  // 1..kTraceBlockBytes
  uint32_t packed_bytes = 0;
  uint64_t hash = 0;  // XXH3, 64 bits, of the packed bytes
};
static_assert(sizeof(TraceBlockHeader) == 16);

enum class TraceRecord : uint8_t { kBeginStep = 1, kDemand = 2, kEndStep = 3, kEnd = 4 };

}  // namespace outrider::observe

// SPDX-License-Identifier: Apache-2.0
// Byte counts and counts as people write and read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outrider {

// "512", "64KiB", "1.5GiB", "2GB" (decimal), "2G" (binary). nullopt when it is not a byte count.
std::optional<uint64_t> parse_bytes(std::string_view text);

// "46.9 MB"-like text with binary units: "44.7 MiB". Exact bytes under 1 KiB.
std::string format_bytes(uint64_t n_bytes);

// A whole decimal number, the whole text; nullopt on anything else or overflow.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace outrider {

namespace {
struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 18> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"K", 0x1p10},
                                          {"KiB", 0x1p10},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"M", 0x1p20},
                                          {"MiB", 0x1p20},
                                          {"MB", 1e6},
                                          {"G", 0x1p30},
                                          {"GiB", 0x1p30},
                                          {"GB", 1e9},
                                          {"T", 0x1p40},
                                          {"TiB", 0x1p40},
                                          {"TB", 1e12},
                                          {"k", 0x1p10},
                                          {"m", 0x1p20},
                                          {"g", 0x1p30}}};
}  // namespace

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const size_t split = text.find_first_not_of("0123456789.");
  const auto number = parse_double(text.substr(0, split));
  if (!number || *number < 0) return std::nullopt;
  std::string_view unit = split == std::string_view::npos ? "" : text.substr(split);
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (known.name != unit) continue;
    const double bytes = *number * known.factor;
    if (bytes >= 0x1p63) return std::nullopt;
    return static_cast<uint64_t>(std::llround(bytes));
  }
  return std::nullopt;
}

std::string format_bytes(uint64_t n_bytes) {
  constexpr std::array<const char*, 5> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (n_bytes < 1024) return fmt::format("{} B", n_bytes);
  double value = static_cast<double>(n_bytes) / 1024;
  size_t i = 0;
  while (value >= 1024 && i + 1 < kNames.size()) {
    value /= 1024;
    ++i;
  }
  return fmt::format("{:.{}f} {}", value, value < 100 ? 1 : 0, kNames[i]);
}

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/split_name.h"

#include <fmt/format.h>

namespace outrider::format {

namespace {
constexpr size_t kDigits = 5;

std::optional<uint64_t> take_digits(std::string_view text) {
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}
}  // namespace

std::string split_suffix(uint64_t number, uint64_t count) { return fmt::format("-{:05}-of-{:05}.gguf", number, count); }

std::optional<SplitName> parse_split_name(std::string_view file_name) {
  constexpr size_t kSuffixBytes = sizeof("-00001-of-00001.gguf") - 1;
  if (file_name.size() <= kSuffixBytes) return std::nullopt;
  const std::string_view suffix = file_name.substr(file_name.size() - kSuffixBytes);
  const auto number = take_digits(suffix.substr(1, kDigits));
  const auto count = take_digits(suffix.substr(1 + kDigits + 4, kDigits));
  if (!number || !count || suffix != split_suffix(*number, *count)) return std::nullopt;
  return SplitName{
      .prefix = std::string(file_name.substr(0, file_name.size() - kSuffixBytes)), .number = *number, .count = *count};
}

}  // namespace outrider::format

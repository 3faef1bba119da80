// SPDX-License-Identifier: Apache-2.0
// File names of split models: PREFIX-NNNNN-of-MMMMM.gguf, the part number counted from 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outrider::format {

// "-00002-of-00003.gguf"
std::string split_suffix(uint64_t number, uint64_t count);

struct SplitName {
  std::string prefix;
  uint64_t number = 1;  // 1..count in a good name; whatever the digits say otherwise
  uint64_t count = 1;

  // Name of another part of the set.
  std::string of(uint64_t other_number) const { return prefix + split_suffix(other_number, count); }
};

// nullopt when `file_name` (no folder) is not of that form.
std::optional<SplitName> parse_split_name(std::string_view file_name);

}  // namespace outrider::format

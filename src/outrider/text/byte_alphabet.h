// SPDX-License-Identifier: Apache-2.0
// The 256 printable characters that stand for bytes in byte-level BPE vocabularies: 21-7E, A1-AC and AE-FF stand for
// themselves, the 68 others, ascending, for U+0100 and up (../shared/spec/tokenizers.md section 5.1).
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace outrider::text {

inline constexpr std::array<uint16_t, 256> kByteAlphabet = [] {
  std::array<uint16_t, 256> table{};
  uint16_t next = 0x100;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    table[byte] = itself ? byte : next++;
  }
  return table;
}();

// The byte a character stands for; -1 for a character outside the alphabet.
constexpr int byte_of_alphabet(char32_t code_point) noexcept {
  constexpr std::array<int16_t, 0x144> inverse = [] {
    std::array<int16_t, 0x144> table{};
    table.fill(-1);
    for (int16_t byte = 0; byte < 256; ++byte) table[kByteAlphabet[static_cast<size_t>(byte)]] = byte;
    return table;
  }();
  return code_point < inverse.size() ? inverse[code_point] : -1;
}

}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
// One step of UTF-8 decoding, strict (no overlong forms, surrogates or code points above U+10FFFF) and without state.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outrider::text {

inline constexpr char32_t kReplacement = 0xFFFD;

struct Utf8Step {
  char32_t code_point = kReplacement;
  // Bytes read: of the character when kValid; of the longest possible beginning of one (at least 1) otherwise.
  uint8_t n_bytes = 1;
  enum State : uint8_t { kValid, kInvalid, kCut } state = kInvalid;  // kCut: the text ends inside a character
};

// Decodes the character at `pos` (pos < text.size()).
Utf8Step decode_utf8(std::string_view text, size_t pos) noexcept;
void append_utf8(std::string& out, char32_t code_point);

}  // namespace outrider::text

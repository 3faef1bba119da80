// SPDX-License-Identifier: Apache-2.0
// Character classes as the pre-tokenizer rules use them: general categories (Unicode 15.1), White_Space, Script=Han.
// Threads: pure functions; the table is built once, at first use.
#pragma once

#include <cstdint>

namespace outrider::text {

// Bits of a class. A code point that is not assigned, a control or a format character has none of the first eight.
using CharClass = uint16_t;
inline constexpr CharClass kLetter = 1 << 0;       // \p{L}
inline constexpr CharClass kUpper = 1 << 1;        // Lu Lt
inline constexpr CharClass kLower = 1 << 2;        // Ll
inline constexpr CharClass kMark = 1 << 3;         // \p{M}
inline constexpr CharClass kNumber = 1 << 4;       // \p{N}
inline constexpr CharClass kDigit = 1 << 5;        // Nd
inline constexpr CharClass kPunctuation = 1 << 6;  // \p{P}
inline constexpr CharClass kSymbol = 1 << 7;       // \p{S}
inline constexpr CharClass kSpace = 1 << 8;        // \s
inline constexpr CharClass kHanScript = 1 << 9;    // \p{Han}

// `code_point` above U+10FFFF: 0.
CharClass char_class(char32_t code_point) noexcept;

}  // namespace outrider::text

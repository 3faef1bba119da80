// SPDX-License-Identifier: Apache-2.0
// The generated tables behind unicode.h (tools/make_unicode_tables.py).
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::text::unicode {

extern const uint32_t kClassStarts[];  // first code point << 8 | CharClass bits, ascending
extern const size_t kClassStartsSize;
extern const uint32_t kHan[];  // first, last, first, last, ...
extern const size_t kHanSize;
extern const uint32_t kWhiteSpace[];
extern const size_t kWhiteSpaceSize;

}  // namespace outrider::text::unicode

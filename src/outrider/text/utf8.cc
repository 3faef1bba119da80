// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/utf8.h"

namespace outrider::text {

Utf8Step decode_utf8(std::string_view text, size_t pos) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(pos);
  if (lead < 0x80) return {lead, 1, Utf8Step::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {kReplacement, 1, Utf8Step::kInvalid};
  const unsigned length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range rules out overlong forms, surrogates and values past U+10FFFF (Unicode table 3-7).
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7Fu >> length);
  for (unsigned i = 1; i < length; ++i) {
    const auto n_read = static_cast<uint8_t>(i);
    if (pos + i >= text.size()) return {kReplacement, n_read, Utf8Step::kCut};
    const uint8_t next = byte(pos + i);
    if (i == 1 ? next < low || next > high : (next & 0xC0) != 0x80) return {kReplacement, n_read, Utf8Step::kInvalid};
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {code_point, static_cast<uint8_t>(length), Utf8Step::kValid};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6), put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12), put(0x80 | (code_point >> 6 & 0x3F)), put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18), put(0x80 | (code_point >> 12 & 0x3F)), put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace outrider::text

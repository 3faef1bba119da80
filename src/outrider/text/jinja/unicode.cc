// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/jinja/unicode.h"

#include <algorithm>
#include <cstring>

#include "outrider/text/unicode.h"

namespace outrider::text::jinja {

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t code_point_bytes(std::string_view text, size_t at) noexcept {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t n = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (n < 2 || text.size() - at < n) return 1;
  for (size_t i = 1; i < n; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 1;
  }
  const auto second = static_cast<unsigned char>(text[at + 1]);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool outside = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
  return overlong || outside ? 1 : n;
}

uint32_t code_point(std::string_view text, size_t at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (code_point_bytes(text, at)) {
    case 2:
      return ((byte(0) & 0x1F) << 6) | (byte(1) & 0x3F);
    case 3:
      return ((byte(0) & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    case 4:
      return ((byte(0) & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F);
    default:
      return byte(0) < 0x80 ? byte(0) : 0xDC00 + byte(0);
  }
}

size_t count_code_points(std::string_view text) noexcept {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) ++n;
  return n;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) noexcept {
  if (from > text.size()) return std::string_view::npos;
  // memmem of the C libraries in use is the two-way algorithm.
  const void* const found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view part) {
  const std::string mirrored_text(text.rbegin(), text.rend());
  const std::string mirrored_part(part.rbegin(), part.rend());
  const size_t at = find_text(mirrored_text, mirrored_part);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

size_t byte_offset(std::string_view text, size_t index) noexcept {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_bytes(text, at);
  return at;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c >= 0xDC80 && c <= 0xDCFF) {  // an invalid byte on its way back
    out += static_cast<char>(c - 0xDC00);
  } else if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_space(uint32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(uint32_t c) noexcept {
  return c == 0x20 || (char_class(c) & (kLetter | kMark | kNumber | kPunctuation | kSymbol)) != 0;
}

namespace {
// Neighbouring pairs, capital first: even capitals in most blocks, odd ones in some.
bool even_pairs(uint32_t c) {
  return (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) || (c >= 0x14A && c <= 0x177) ||
         (c >= 0x460 && c <= 0x481) || (c >= 0x48A && c <= 0x4BF) || (c >= 0x4D0 && c <= 0x52F) ||
         (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
}
bool odd_pairs(uint32_t c) { return (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E); }
}  // namespace

uint32_t to_upper(uint32_t c) noexcept {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if ((c >= 0xE0 && c <= 0xFE && c != 0xF7)) return c - 32;
  if (c == 0xFF) return 0x178;
  if (c == 0xB5) return 0x39C;
  if (even_pairs(c)) return c & ~1U;
  if (odd_pairs(c)) return (c & 1U) == 0 ? c - 1 : c;
  if (c >= 0x3B1 && c <= 0x3CB) return c == 0x3C2 ? 0x3A3 : c - 32;
  if (c == 0x3AC) return 0x386;
  if (c >= 0x3AD && c <= 0x3AF) return c - 37;
  if (c == 0x3CC) return 0x38C;
  if (c == 0x3CD || c == 0x3CE) return c - 63;
  if (c >= 0x430 && c <= 0x44F) return c - 32;
  if (c >= 0x450 && c <= 0x45F) return c - 80;
  return c;
}

uint32_t to_lower(uint32_t c) noexcept {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 32;
  if (c == 0x178) return 0xFF;
  if (even_pairs(c)) return c | 1U;
  if (odd_pairs(c)) return (c & 1U) != 0 ? c + 1 : c;
  if (c >= 0x391 && c <= 0x3AB && c != 0x3A2) return c + 32;
  if (c == 0x386) return 0x3AC;
  if (c >= 0x388 && c <= 0x38A) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (c == 0x38E || c == 0x38F) return c + 63;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  return c;
}

namespace {
template <typename Map>
std::string map_text(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) append_utf8(out, map(code_point(text, at)));
  return out;
}
}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) {
    const uint32_t c = code_point(text, at);
    if (c == 0xDF) {
      out += "SS";  // the one common letter without a single capital
    } else {
      append_utf8(out, to_upper(c));
    }
  }
  return out;
}
std::string lower(std::string_view text) { return map_text(text, to_lower); }

}  // namespace outrider::text::jinja

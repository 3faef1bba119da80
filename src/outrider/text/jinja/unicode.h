// SPDX-License-Identifier: Apache-2.0
// Code points of UTF-8 text. Invalid bytes count as one code point each and pass through unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outrider::text::jinja {

bool is_ascii(std::string_view text) noexcept;
// Bytes of the code point at `at` (< text.size()); 1 for an invalid byte.
size_t code_point_bytes(std::string_view text, size_t at) noexcept;
// The code point at `at`; for an invalid byte 0xDC00 + byte, as Python's surrogateescape has it.
uint32_t code_point(std::string_view text, size_t at) noexcept;
size_t count_code_points(std::string_view text) noexcept;
// std::string_view::find and rfind in linear time, whatever the texts: hostile ones make the standard's quadratic.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0) noexcept;
size_t rfind_text(std::string_view text, std::string_view part);
// Byte offset of code point number `index`, or text.size().
size_t byte_offset(std::string_view text, size_t index) noexcept;
void append_utf8(std::string& out, uint32_t code_point);

bool is_space(uint32_t code_point) noexcept;      // Python's str.isspace
bool is_printable(uint32_t code_point) noexcept;  // for repr
// Simple case mapping of Latin, Greek and Cyrillic letters; other code points are their own.
uint32_t to_upper(uint32_t code_point) noexcept;
uint32_t to_lower(uint32_t code_point) noexcept;
inline bool is_cased(uint32_t c) noexcept { return to_upper(c) != c || to_lower(c) != c; }

std::string upper(std::string_view text);
std::string lower(std::string_view text);

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Parts the scanner files share: the search loop and tests of one character.
#pragma once

#include <algorithm>

#include "outrider/text/scanners.h"

namespace outrider::text::scan {

// What a matcher is given: it looks at pos, at text before it from begin on, and no further than end.
struct View {
  const Character* text;
  size_t begin;
  size_t end;

  bool has(size_t pos, CharClass mask) const noexcept { return pos < end && (text[pos].bits & mask) != 0; }
  bool is(size_t pos, char32_t c) const noexcept { return pos < end && text[pos].code_point == c; }
  bool newline(size_t pos) const noexcept { return is(pos, '\n') || is(pos, '\r'); }
  // First position at or after pos whose character has no bit of mask.
  size_t skip(size_t pos, CharClass mask) const noexcept {
    while (has(pos, mask)) ++pos;
    return pos;
  }
};

// `match(view, pos)` returns the end of the match that starts at pos, or pos for none. It must cost O(1) when it fails
// and O(characters matched) when it succeeds, up to a constant: then the search is linear.
template <typename Match>
void search(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends, Match match) {
  const View view{text, begin, end};
  size_t gap = begin;
  for (size_t pos = begin; pos < end;) {
    const size_t stop = match(view, pos);
    if (stop == pos) {
      ++pos;
      continue;
    }
    if (gap < pos) ends.push_back(pos);
    ends.push_back(stop);
    pos = gap = stop;
  }
  if (gap < end) ends.push_back(end);
}

// X+ for a test of one character.
template <typename Test>
size_t run_of(const View& view, size_t pos, Test test) {
  while (pos < view.end && test(view.text[pos])) ++pos;
  return pos;
}

// (lead)?X+ with lead a blank or any white space.
template <typename Test>
size_t led_run_of(const View& view, size_t pos, bool lead, Test test) {
  const size_t start = pos + (lead ? 1 : 0);
  const size_t stop = run_of(view, start, test);
  if (stop > start) return stop;
  return lead ? run_of(view, pos, test) : pos;
}

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t n>
bool in_ranges(char32_t c, const Range (&ranges)[n]) noexcept {
  const Range* found =
      std::upper_bound(ranges, ranges + n, c, [](char32_t value, const Range& range) { return value < range.first; });
  return found != ranges && c <= found[-1].last;
}

inline bool ascii_punctuation(char32_t c) noexcept {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}
inline bool ascii_letter(char32_t c) noexcept { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

}  // namespace outrider::text::scan

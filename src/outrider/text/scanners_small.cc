// SPDX-License-Identifier: Apache-2.0
// The stages that cut out one kind of thing: digits, newlines, scripts, punctuation.
#include "outrider/text/scanners_common.h"

namespace outrider::text {
namespace {

using scan::in_ranges;
using scan::Range;
using scan::View;

// The members of DSLLM's second stage: the cased letters of an older Unicode, as the model's own file lists them.
constexpr Range kCased[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
// A stage without \p classes sees the ranges as they stand, also U+3000 (ideographic space) in the third: that is the
// model's tokenizer. llama.cpp takes every such space for U+000B (spec 5.3); its vocabulary tests do not depend on it.
constexpr Range kDeepseekPunctuation[] = {{0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
                                          {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr Range kDeepseekCjk[] = {{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}};  // 0800-4E00 and 4E00-9FA5
constexpr Range kCjkKana[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
constexpr Range kAfmoe[] = {{0x0E40, 0x0E7F}, {0x0E80, 0x0EFF}, {0x1000, 0x109F}, {0x1100, 0x11FF}, {0x1780, 0x17FF},
                            {0x2F00, 0x2FDF}, {0x3040, 0x30FF}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xA9E0, 0xA9FF},
                            {0xAA60, 0xAA7F}, {0xAC00, 0xD7AF}, {0xF900, 0xFAFF}, {0xFF65, 0xFF9F}};
constexpr Range kHangul[] = {{0x3131, 0x318E}, {0xAC00, 0xD7A3}};
constexpr Range kYoutuPunctuation[] = {{0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D},
                                       {0x2026, 0x2026}, {0x3001, 0x303F}, {0xFE30, 0xFE4F},
                                       {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};
constexpr Range kBopomofo[] = {{0x3105, 0x312F}};
constexpr Range kConnectors[] = {{'_', '_'},       {0x203F, 0x2040}, {0x2054, 0x2054},
                                 {0xFE33, 0xFE34}, {0xFE4D, 0xFE4F}, {0xFF3F, 0xFF3F}};
// ( white space | . , ! ? and the full stops and commas of other scripts )
constexpr Range kBloomStops[] = {{'!', '!'},       {'(', ')'},       {',', ','},       {'.', '.'},
                                 {'?', '?'},       {'|', '|'},       {0x060C, 0x060C}, {0x06D4, 0x06D4},
                                 {0x0964, 0x0964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xFF0C, 0xFF0C}};

template <typename Test>
void split_runs(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends, Test test) {
  scan::search(text, begin, end, ends, [&](const View& view, size_t pos) { return scan::run_of(view, pos, test); });
}

template <typename Test>
void split_singles(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends, Test test) {
  scan::search(text, begin, end, ends,
               [&](const View& view, size_t pos) { return test(view.text[pos]) ? pos + 1 : pos; });
}

// \s?X+
template <typename Test>
void split_spaced(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends, Test test) {
  scan::search(text, begin, end, ends,
               [&](const View& view, size_t pos) { return scan::led_run_of(view, pos, view.has(pos, kSpace), test); });
}

bool has(const Character& c, CharClass mask) { return (c.bits & mask) != 0; }

// Appends the ends of groups of three of [begin, end), counted from the right.
void group_from_right(size_t begin, size_t end, std::vector<size_t>& ends) {
  for (size_t stop = begin + (end - begin + 2) % 3 + 1; stop <= end; stop += 3) ends.push_back(stop);
}

// Calls run(first, last) for every maximal run with `mask`, and passes over the rest as one piece per gap.
template <typename Run>
void for_runs(const Character* text, size_t begin, size_t end, CharClass mask, std::vector<size_t>& ends, Run run) {
  const View view{text, begin, end};
  size_t gap = begin;
  for (size_t pos = begin; pos < end;) {
    const size_t stop = view.skip(pos, mask);
    if (stop == pos) {
      ++pos;
      continue;
    }
    if (run(pos, stop, gap)) gap = stop;
    pos = stop;
  }
  if (gap < end) ends.push_back(end);
}

size_t literal(const View& view, size_t pos, const char* word) {
  size_t at = pos;
  for (; *word != 0; ++word, ++at) {
    if (!view.is(at, static_cast<unsigned char>(*word))) return pos;
  }
  return at;
}

bool ascii_digit(const Character& c) { return c.code_point >= '0' && c.code_point <= '9'; }

bool default_punctuation(const Character& c) {
  switch (c.code_point) {
    case '$':
    case '+':
    case '<':
    case '=':
    case '>':
    case '^':
    case '~':
    case '|':
      return true;
    default:
      return has(c, kPunctuation);
  }
}

}  // namespace

void split_bloom(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  const auto test = [](const Character& c) { return !has(c, kSpace) && !in_ranges(c.code_point, kBloomStops); };
  scan::search(text, begin, end, ends,
               [&](const View& view, size_t pos) { return scan::led_run_of(view, pos, view.is(pos, ' '), test); });
}

void split_digit(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_singles(text, begin, end, ends, [](const Character& c) { return has(c, kNumber); });
}

void split_digits(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return has(c, kNumber); });
}

void split_three_digits(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, [](const View& view, size_t pos) {
    size_t stop = pos;
    while (stop < pos + 3 && view.has(stop, kNumber)) ++stop;
    return stop;
  });
}

void split_three_ascii_digits(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, [](const View& view, size_t pos) {
    for (size_t i = pos; i < pos + 3; ++i) {
      if (i >= view.end || !ascii_digit(view.text[i])) return pos;
    }
    return pos + 3;
  });
}

void split_grouped_numbers(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  for_runs(text, begin, end, kNumber, ends, [&](size_t first, size_t last, size_t gap) {
    if (gap < first) ends.push_back(first);
    group_from_right(first, last, ends);
    return true;
  });
}

void split_grouped_digits(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  const View view{text, begin, end};
  for_runs(text, begin, end, kDigit, ends, [&](size_t first, size_t last, size_t gap) {
    // \b: a letter, mark or connector behind the digits keeps the whole run from matching.
    if (view.has(last, kLetter | kMark) || (last < end && in_ranges(text[last].code_point, kConnectors))) return false;
    if (gap < first) ends.push_back(first);
    group_from_right(first, last, ends);
    return true;
  });
}

void split_before_digit_groups(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  for_runs(text, begin, end, kDigit, ends, [&](size_t first, size_t last, size_t) {
    // The match is empty: it only cuts. A cut at the very start of the piece cuts nothing.
    for (size_t cut = first + (last - first) % 3; cut < last; cut += 3) {
      if (cut > begin) ends.push_back(cut);
    }
    return false;
  });
}

void split_newline(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_singles(text, begin, end, ends,
                [](const Character& c) { return c.code_point == '\n' || c.code_point == '\r'; });
}

void split_newline_runs(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return c.code_point == '\n'; });
}

void split_trailing_space(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  size_t first = end;
  while (first > begin && has(text[first - 1], kSpace)) --first;
  if (begin < first) ends.push_back(first);
  if (first < end) ends.push_back(end);
}

void split_non_space(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return !has(c, kSpace); });
}

void split_default_punctuation(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, default_punctuation);
}

void split_falcon_punctuation(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return c.code_point == '`' || default_punctuation(c); });
}

void split_deepseek_cased(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_spaced(text, begin, end, ends, [](const Character& c) { return in_ranges(c.code_point, kCased); });
}

void split_deepseek_punctuation(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_spaced(text, begin, end, ends,
               [](const Character& c) { return in_ranges(c.code_point, kDeepseekPunctuation); });
}

void split_deepseek_cjk(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return in_ranges(c.code_point, kDeepseekCjk); });
}

void split_spaced_letters(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_spaced(text, begin, end, ends, [](const Character& c) { return has(c, kLetter); });
}

void split_spaced_punctuation(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_spaced(text, begin, end, ends, [](const Character& c) { return has(c, kPunctuation); });
}

void split_cjk_kana(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return in_ranges(c.code_point, kCjkKana); });
}

void split_afmoe_scripts(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_runs(text, begin, end, ends, [](const Character& c) { return in_ranges(c.code_point, kAfmoe); });
}

void split_youtu_scripts(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  const auto kind = [](const Character& c) {
    return in_ranges(c.code_point, kHangul)             ? 1
           : in_ranges(c.code_point, kYoutuPunctuation) ? 2
           : in_ranges(c.code_point, kBopomofo)         ? 3
           : in_ranges(c.code_point, kCjkKana)          ? 4
                                                        : 0;
  };
  scan::search(text, begin, end, ends, [&](const View& view, size_t pos) {
    const int here = kind(view.text[pos]);
    return here == 0 ? pos : scan::run_of(view, pos, [&](const Character& c) { return kind(c) == here; });
  });
}

void split_chameleon_sentinel(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, [](const View& view, size_t pos) {
    const size_t digits = literal(view, pos, "<sentinel:");
    if (digits == pos) return pos;
    const size_t stop = scan::run_of(view, digits, ascii_digit);
    return stop > digits && view.is(stop, '>') ? stop + 1 : pos;
  });
}

void split_chameleon_image(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, [](const View& view, size_t pos) {
    const size_t letters = literal(view, pos, "IMGIMG");
    if (letters == pos) return pos;
    size_t stop = letters;
    while (stop < letters + 4 && stop < view.end && view.text[stop].code_point >= 'A' &&
           view.text[stop].code_point <= 'I')
      ++stop;
    return stop > letters && view.is(stop, 'Z') ? stop + 1 : pos;
  });
}

void split_chameleon_blanks(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, [](const View& view, size_t pos) {
    if (view.is(pos, '\t') || view.is(pos, '\n')) return pos + 1;
    const size_t four = literal(view, pos, "    ");
    return four > pos ? four : literal(view, pos, "  ");
  });
}

void split_chameleon_punctuation(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_singles(text, begin, end, ends,
                [](const Character& c) { return has(c, kPunctuation) || scan::ascii_punctuation(c.code_point); });
}

}  // namespace outrider::text

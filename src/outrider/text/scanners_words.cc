// SPDX-License-Identifier: Apache-2.0
// The word families: every stage that ends in the white-space idiom T.
#include "outrider/text/scanners_common.h"

namespace outrider::text {
namespace {

using scan::View;

// 's|'t|'re|'ve|'m|'ll|'d; the end of the match or pos.
size_t contraction(const View& view, size_t pos, bool any_case) {
  if (!view.is(pos, '\'')) return pos;
  const auto letter = [&](size_t at) -> char32_t {
    if (at >= view.end) return 0;
    const char32_t c = view.text[at].code_point;
    return any_case && c >= 'A' && c <= 'Z' ? c | 0x20 : c;
  };
  switch (letter(pos + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return pos + 2;
    case 'r':
    case 'v':
      return letter(pos + 2) == 'e' ? pos + 3 : pos;
    case 'l':
      return letter(pos + 2) == 'l' ? pos + 3 : pos;
    default:
      return pos;
  }
}

// \s+(?!\S)|\s+ at a white-space character.
size_t spaces(const View& view, size_t pos) {
  const size_t stop = view.skip(pos, kSpace);
  return stop == view.end || stop - pos == 1 ? stop : stop - 1;
}

// \s*[\r\n]+ : up to the last newline of the white-space run.
size_t spaces_to_newline(const View& view, size_t pos) {
  // A blank just before, in this piece, was the end of a match in the same run: it found no newline further on. Not
  // looking again keeps rules that take a long run in small bites linear.
  if (pos > view.begin && view.has(pos - 1, kSpace) && !view.newline(pos - 1)) return pos;
  size_t last = pos;
  for (size_t i = pos; view.has(i, kSpace); ++i) {
    if (view.newline(i)) last = i + 1;
  }
  return last;
}

// \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}
size_t spaces_in_powers(const View& view, size_t pos) {
  size_t n = 0;
  while (n <= 512 && view.has(pos + n, kSpace)) ++n;
  const auto fits = [&](size_t k) { return n > k || (n == k && pos + k == view.end); };
  for (size_t k = 512; k >= 4; k /= 2) {
    if (fits(k)) return pos + k;
  }
  return pos + (fits(2) ? 2 : 1);
}

enum class Words : uint8_t {
  kLetters,  // lead?\p{L}+
  kMarked,   // lead?[\p{L}\p{M}]+
  kPhrase,   // lead?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
  kCased,    // lead?U*W+C?|lead?U+W*C?
};
enum class Tail : uint8_t { kNone, kNewlines, kNewlinesSlash, kOneNewlineSlash };
enum class Spaces : uint8_t { kUsual, kPowers, kSingleNewline };

// One family as data; the alternatives are tried in the order of the fields.
struct WordRule {
  bool han_runs = false;            // \p{Han}+
  bool leading_contraction = true;  // C
  bool punctuated_word = false;     // A[A-Za-z]+
  Words words = Words::kLetters;
  CharClass no_lead = kLetter | kNumber;  // lead = [^\r\n...]
  bool trailing_contraction = false;      // C? behind a kCased word
  CharClass no_letter = 0;                // taken out of U and W
  size_t n_digits = 1;                    // \p{N}{1,n}; 0: no such alternative
  // ` ?[^\s...]+` when negated, else ` ?[...]+`
  bool punctuation_negated = true;
  CharClass punctuation = kLetter | kNumber;
  Tail tail = Tail::kNewlines;
  Spaces spaces = Spaces::kUsual;
};

// lead? before X+, where X has only characters that are no lead, or behaves the same when one of them leads.
template <typename Run>
size_t led(const View& view, size_t pos, CharClass no_lead, Run run) {
  if (!view.has(pos, no_lead) && !view.newline(pos)) {
    const size_t stop = run(pos + 1);
    if (stop > pos + 1) return stop;
  }
  return run(pos);
}

size_t phrase(const View& view, size_t pos) {
  size_t stop = pos;
  while (view.has(stop, kLetter)) {
    stop = view.skip(stop + 1, kMark);
    if (view.is(stop, ' ') && view.has(stop + 1, kLetter)) ++stop;
  }
  return stop;
}

// U*W+ : U* greedy, then given back until a character that is in W too can start W+.
size_t upper_then_lower(const View& view, size_t pos, CharClass no_letter) {
  const auto in = [&](size_t at, CharClass wrong_case) {
    return view.has(at, kLetter | kMark) && !view.has(at, wrong_case | no_letter);
  };
  size_t stop = pos;
  size_t last_both = pos;  // end of the last character that is in U and in W
  for (; in(stop, kLower); ++stop) {
    if (in(stop, kUpper)) last_both = stop + 1;
  }
  const size_t upper_end = stop;
  while (in(stop, kUpper)) ++stop;
  return stop > upper_end ? stop : last_both;
}

// U+W*, reached only when U*W+ has failed here, so that no character of W follows or is among them.
size_t upper_only(const View& view, size_t pos, CharClass no_letter) {
  while (view.has(pos, kLetter | kMark) && !view.has(pos, kLower | no_letter)) ++pos;
  return pos;
}

size_t cased(const View& view, size_t pos, const WordRule& rule) {
  size_t stop = led(view, pos, rule.no_lead, [&](size_t at) { return upper_then_lower(view, at, rule.no_letter); });
  if (stop == pos) stop = led(view, pos, rule.no_lead, [&](size_t at) { return upper_only(view, at, rule.no_letter); });
  if (stop == pos || !rule.trailing_contraction) return stop;
  return contraction(view, stop, true);
}

size_t word(const View& view, size_t pos, const WordRule& rule) {
  switch (rule.words) {
    case Words::kLetters:
      return led(view, pos, rule.no_lead, [&](size_t at) { return view.skip(at, kLetter); });
    case Words::kMarked:
      return led(view, pos, rule.no_lead, [&](size_t at) { return view.skip(at, kLetter | kMark); });
    case Words::kPhrase:
      return led(view, pos, rule.no_lead, [&](size_t at) { return phrase(view, at); });
    case Words::kCased:
      return cased(view, pos, rule);
  }
  return pos;
}

size_t punctuation(const View& view, size_t pos, const WordRule& rule) {
  const bool blank = view.is(pos, ' ');
  const size_t stop = scan::led_run_of(view, pos, blank, [&](const Character& c) {
    if (!rule.punctuation_negated) return (c.bits & rule.punctuation) != 0;
    return (c.bits & (rule.punctuation | kSpace)) == 0;
  });
  if (stop == pos || rule.tail == Tail::kNone) return stop;
  const auto tail = [&](size_t at) { return view.newline(at) || (rule.tail != Tail::kNewlines && view.is(at, '/')); };
  size_t last = stop;
  while (tail(last)) {
    ++last;
    if (rule.tail == Tail::kOneNewlineSlash) break;
  }
  return last;
}

size_t white_space(const View& view, size_t pos, const WordRule& rule) {
  if (!view.has(pos, kSpace)) return pos;
  if (rule.spaces == Spaces::kSingleNewline) return view.newline(pos) ? pos + 1 : spaces(view, pos);
  const size_t stop = spaces_to_newline(view, pos);
  if (stop > pos) return stop;
  return rule.spaces == Spaces::kPowers ? spaces_in_powers(view, pos) : spaces(view, pos);
}

size_t match(const View& view, size_t pos, const WordRule& rule) {
  size_t stop = rule.han_runs ? view.skip(pos, kHanScript) : pos;
  if (stop == pos && rule.leading_contraction) stop = contraction(view, pos, true);
  if (stop == pos && rule.punctuated_word && scan::ascii_punctuation(view.text[pos].code_point)) {
    const size_t letters =
        scan::run_of(view, pos + 1, [](const Character& c) { return scan::ascii_letter(c.code_point); });
    if (letters > pos + 1) stop = letters;
  }
  if (stop == pos) stop = word(view, pos, rule);
  if (stop == pos && rule.n_digits > 0) {
    while (stop - pos < rule.n_digits && view.has(stop, kNumber)) ++stop;
  }
  if (stop == pos) stop = punctuation(view, pos, rule);
  if (stop == pos) stop = white_space(view, pos, rule);
  return stop;
}

void split_words(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends, const WordRule& rule) {
  scan::search(text, begin, end, ends, [&](const View& view, size_t pos) { return match(view, pos, rule); });
}

constexpr WordRule kLlama3 = {.n_digits = 3};
constexpr WordRule kQwen2 = {};
constexpr WordRule kQwen2NoContractions = {.leading_contraction = false};
constexpr WordRule kQwen35 = {.words = Words::kMarked, .punctuation = kLetter | kMark | kNumber};
constexpr WordRule kSeedCoder = {.tail = Tail::kNone};
constexpr WordRule kExaoneMoe = {.words = Words::kPhrase, .tail = Tail::kOneNewlineSlash};
constexpr WordRule kLongDigits = {.n_digits = SIZE_MAX};
constexpr WordRule kJais2 = {.n_digits = 3, .spaces = Spaces::kPowers};
constexpr WordRule kO200 = {.leading_contraction = false,
                            .words = Words::kCased,
                            .trailing_contraction = true,
                            .n_digits = 3,
                            .tail = Tail::kNewlinesSlash};
constexpr WordRule kO200Digit = {
    .leading_contraction = false, .words = Words::kCased, .trailing_contraction = true, .tail = Tail::kNewlinesSlash};
constexpr WordRule kTekken = {.leading_contraction = false, .words = Words::kCased, .tail = Tail::kNewlinesSlash};
constexpr WordRule kKimiK2 = {.han_runs = true,
                              .leading_contraction = false,
                              .words = Words::kCased,
                              .trailing_contraction = true,
                              .no_letter = kHanScript,
                              .n_digits = 3};
constexpr WordRule kDeepseekV3 = {.leading_contraction = false,
                                  .punctuated_word = true,
                                  .words = Words::kMarked,
                                  .no_lead = kLetter | kPunctuation | kSymbol,
                                  .n_digits = 0,
                                  .punctuation_negated = false,
                                  .punctuation = kPunctuation | kSymbol};
constexpr WordRule kSpark = {.leading_contraction = false,
                             .punctuated_word = true,
                             .words = Words::kMarked,
                             .no_lead = kLetter | kPunctuation | kSymbol,
                             .n_digits = 0,
                             .punctuation_negated = false,
                             .punctuation = kPunctuation | kSymbol,
                             .tail = Tail::kNone,
                             .spaces = Spaces::kSingleNewline};

// ` ?X+` of G2 at pos, with what X is decided by the character after the blank.
size_t gpt2(const View& view, size_t pos) {
  const size_t contracted = contraction(view, pos, false);
  if (contracted > pos) return contracted;
  const size_t start = view.is(pos, ' ') && pos + 1 < view.end && !view.has(pos + 1, kSpace) ? pos + 1 : pos;
  if (view.has(start, kSpace)) return spaces(view, pos);
  for (const CharClass one : {kLetter, kNumber}) {
    if (view.has(start, one)) return view.skip(start, one);
  }
  return scan::run_of(view, start, [](const Character& c) { return (c.bits & (kSpace | kLetter | kNumber)) == 0; });
}

}  // namespace

void split_gpt2(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  scan::search(text, begin, end, ends, gpt2);
}

void split_llama3(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kLlama3);
}

void split_qwen2(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kQwen2);
}

void split_qwen2_no_contractions(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kQwen2NoContractions);
}

void split_qwen35(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kQwen35);
}

void split_seed_coder(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kSeedCoder);
}

void split_exaone_moe(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kExaoneMoe);
}

void split_long_digits(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kLongDigits);
}

void split_jais2(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kJais2);
}

void split_o200(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kO200);
}

void split_o200_digit(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kO200Digit);
}

void split_tekken(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kTekken);
}

void split_kimi_k2(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kKimiK2);
}

void split_deepseek_v3(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kDeepseekV3);
}

void split_spark(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends) {
  split_words(text, begin, end, ends, kSpark);
}

}  // namespace outrider::text

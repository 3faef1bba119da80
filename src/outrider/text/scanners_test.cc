// SPDX-License-Identifier: Apache-2.0
// Each scanner against PCRE2 with the expression it stands for, on random mixtures of scripts, spaces and punctuation.
#include "outrider/text/scanners.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <string>

#include "outrider/base/test_rng.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

struct Pattern {
  const char* name;
  Stage stage;
  std::string regex;
};

// The models' own expressions, put together from the abbreviations of the spec. (?i:...) is spelled out because PCRE2
// would also fold U+017F, and \b because its word characters differ.
const std::string kC = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]";
const std::string kTail = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kLead = R"([^\r\n\p{L}\p{N}]?)";
const std::string kU = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
const std::string kW = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
const std::string kNoHan = R"((?!\p{sc:Han}))";
const std::string kPunctuation = R"(| ?[^\s\p{L}\p{N}]+)";

std::string cased(const std::string& u, const std::string& w, const std::string& behind, const std::string& digits,
                  const std::string& tail) {
  return kLead + "(?:" + u + ")*(?:" + w + ")+" + behind + "|" + kLead + "(?:" + u + ")+(?:" + w + ")*" + behind + "|" +
         digits + kPunctuation + tail + "|" + kTail;
}

std::string qwen(const std::string& digits, const std::string& tail, const std::string& spaces) {
  return kC + "|" + kLead + R"(\p{L}+|)" + digits + kPunctuation + tail + "|" + spaces;
}

std::vector<Pattern> patterns() {
  const std::string newlines = R"([\r\n]*)";
  const std::string maybe_c = "(?:" + kC + ")?";
  const std::string deepseek = R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)";
  const std::string jais_spaces =
      R"(\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
  return {
      {"gpt2", split_gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
      {"llama3", split_llama3, qwen(R"(\p{N}{1,3})", newlines, kTail)},
      {"qwen2", split_qwen2, qwen(R"(\p{N})", newlines, kTail)},
      {"bailingmoe", split_qwen2,
       R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
      {"qwen2_no_contractions", split_qwen2_no_contractions,
       kLead + R"(\p{L}+|\p{N})" + kPunctuation + newlines + "|" + kTail},
      {"qwen35", split_qwen35, kC + "|" + kLead + R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" + kTail},
      {"seed_coder", split_seed_coder, kC + "|" + kLead + R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" + kTail},
      {"exaone_moe", split_exaone_moe,
       kC + "|" + kLead +
           R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"},
      {"long_digits", split_long_digits, qwen(R"(\p{N}+)", newlines, kTail)},
      {"jais2", split_jais2, qwen(R"(\p{N}{1,3})", newlines, jais_spaces)},
      {"o200", split_o200, cased(kU, kW, maybe_c, R"(\p{N}{1,3})", R"([\r\n/]*)")},
      {"o200_digit", split_o200_digit, cased(kU, kW, maybe_c, R"(\p{N})", R"([\r\n/]*)")},
      {"tekken", split_tekken, cased(kU, kW, "", R"(\p{N})", R"([\r\n/]*)")},
      {"kimi_k2", split_kimi_k2,
       R"(\p{sc:Han}+|)" + cased(kNoHan + kU, kNoHan + kW, maybe_c, R"(\p{N}{1,3})", newlines)},
      {"deepseek_v3", split_deepseek_v3, deepseek + newlines + "|" + kTail},
      {"spark", split_spark, deepseek + R"(|[\r\n]|\s+(?!\S)|\s+)"},
      {"bloom", split_bloom, R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)"},
      {"digit", split_digit, R"(\p{N})"},
      {"digits", split_digits, R"(\p{N}+)"},
      {"three_digits", split_three_digits, R"(\p{N}{1,3})"},
      {"three_ascii_digits", split_three_ascii_digits, "[0-9][0-9][0-9]"},
      {"grouped_numbers", split_grouped_numbers, R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))"},
      {"grouped_digits", split_grouped_digits, R"(\d{1,3}(?=(?:\d{3})*(?![\p{L}\p{M}\p{Nd}\p{Pc}])))"},
      {"before_digit_groups", split_before_digit_groups, R"((?=(\d{3})+(?!\d)))"},
      {"newline", split_newline, R"([\r\n])"},
      {"newline_runs", split_newline_runs, R"([^\n]+|[\n]+)"},
      {"trailing_space", split_trailing_space, R"(\s+\z)"},
      {"non_space", split_non_space, R"(\S+)"},
      {"default_punctuation", split_default_punctuation, R"([\p{P}\$\+<=>\^~\|]+)"},
      {"falcon_punctuation", split_falcon_punctuation, R"([\p{P}\$\+<=>\^~\|`]+)"},
      {"deepseek_punctuation", split_deepseek_punctuation,
       R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"},
      {"deepseek_cjk", split_deepseek_cjk, R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)"},
      {"spaced_letters", split_spaced_letters, R"(\s?\p{L}+)"},
      {"spaced_punctuation", split_spaced_punctuation, R"(\s?\p{P}+)"},
      {"cjk_kana", split_cjk_kana, R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"},
      {"afmoe_scripts", split_afmoe_scripts,
       R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F})"
       R"(\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)"},
      {"youtu_scripts", split_youtu_scripts,
       R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F})"
       R"(\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"},
      {"chameleon_sentinel", split_chameleon_sentinel, "<sentinel:[0-9]+>"},
      {"chameleon_image", split_chameleon_image, "IMGIMG[A-I]{1,4}Z"},
      {"chameleon_blanks", split_chameleon_blanks, R"([\t\n]|    |  )"},
      {"chameleon_punctuation", split_chameleon_punctuation, R"([\p{P}!-/:-@\[-`{-~])"},
  };
}

// What random texts are made of: cases, marks, number classes, white space, scripts, symbols, controls, and the words
// that some rules look for.
// clang-format off
const char* const kAtoms[] = {
    "a", "b", "hello", "World", "ABC", "xYz", "\u00E9", "\u00C9", "\u0130", "\u01C5", "\u02B0", "\u017F", "\u00AA",
    "\u0301", "\u0308", "\u093F", "\u0939\u093F\u0928\u094D", "0", "7", "12", "1234567", "\u0663", "\u00B2", "\u00BD",
    "\u2167", "\u3007", "\u3021", " ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r", "\r\n", "\u00A0", "\u2003",
    "\u3000", "\u0085", "\u2028", "\x0B", "'s", "'S", "'re", "'LL", "'x", "'", "'d", ".", ",", "!", "/", "//", "(",
    ")", "_", "-", "\"", "$", "+", "^", "`", "|", "~", "\u2014", "\u2019", "\u2026", "\u3002", "\uFF0C", "\uFF01",
    "\u20AC", "\u00AB", "\u203F", "\u4E2D", "\u6587\u5B57", "\u3005", "\u2E80", "\u3042", "\u30AB\u30BF", "\u3105",
    "\uD55C\uAD6D", "\u3131", "\u0E44\u0E17\u0E22", "\u0645\u0631", "\u05E9\u05DC", "\u10D0", "\u1E9E",
    "\u0394\u03B4", "\u0416\u0436", "\U0001F642", "\U0001F468\u200D\U0001F469", "\uFEFF", "\u200B", "\x01", "\x7F",
    "\u0378", "\U00020000", "<sentinel:12>", "<sentinel:>", "IMGIMGABCZ", "IMGIMGZ", "\u060C", "\u0964", "\uF900",
    "\uFF76",
};
// clang-format on

std::string random_text(TestRng& rng) {
  std::string text;
  for (size_t n = rng.below(25); n > 0; --n) {
    const char* atom = kAtoms[rng.below(std::size(kAtoms))];
    for (size_t times = rng.below(8) == 0 ? 1 + rng.below(rng.below(10) == 0 ? 600 : 8) : 1; times > 0; --times)
      text += atom;
  }
  return text;
}

// The isolated split that tokenizer libraries do with an expression: matches and the text between them.
class RegexSplitter {
 public:
  explicit RegexSplitter(const std::string& regex)
      : code_(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.c_str()), regex.size(), PCRE2_UTF | PCRE2_UCP, &error_,
                            &offset_, nullptr),
              pcre2_code_free),
        data_(pcre2_match_data_create(8, nullptr), pcre2_match_data_free) {
    EXPECT_NE(code_, nullptr) << regex << " at " << offset_;
  }

  std::vector<size_t> split(const std::string& text) const {
    std::vector<size_t> ends;
    size_t gap = 0;
    for (size_t pos = 0; pos < text.size();) {
      if (pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos, 0, data_.get(),
                      nullptr) <= 0)
        break;
      const size_t* match = pcre2_get_ovector_pointer(data_.get());
      if (match[0] == text.size()) break;
      if (match[0] > gap) ends.push_back(match[0]);
      if (match[1] > match[0]) ends.push_back(match[1]);
      gap = match[1];
      pos = match[1] > match[0] ? match[1] : match[1] + decode_utf8(text, match[1]).n_bytes;
    }
    if (gap < text.size()) ends.push_back(text.size());
    return ends;
  }

 private:
  int error_ = 0;
  size_t offset_ = 0;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_;
};

std::vector<size_t> split_by_scanner(Stage stage, const std::string& text) {
  std::vector<Character> characters;
  std::vector<size_t> offsets;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    characters.push_back({step.code_point, char_class(step.code_point)});
    offsets.push_back(pos);
    pos += step.n_bytes;
  }
  offsets.push_back(text.size());
  std::vector<size_t> ends;
  if (!characters.empty()) stage(characters.data(), 0, characters.size(), ends);
  for (size_t& end : ends) end = offsets[end];
  return ends;
}

std::string marked(const std::string& text, const std::vector<size_t>& ends) {
  std::string out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out += "[" + text.substr(begin, end - begin) + "]";
    begin = end;
  }
  return out;
}

TEST(Scanners, CutWhereTheExpressionTheyStandForCuts) {
  for (const Pattern& pattern : patterns()) {
    TestRng rng(11);
    const RegexSplitter splitter(pattern.regex);
    for (int round = 0; round < 1000; ++round) {
      const std::string text = random_text(rng);
      const auto want = splitter.split(text);
      const auto got = split_by_scanner(pattern.stage, text);
      ASSERT_EQ(got, want) << pattern.name << "\nwant " << marked(text, want) << "\ngot  " << marked(text, got);
    }
  }
}

// The list of cased letters is the model's own; what can be checked is that it holds cased letters only and no others.
TEST(Scanners, DeepseekCasedLettersAreLettersWithCase) {
  for (char32_t c = 0; c < 0x11000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const Character text[] = {{'0', char_class('0')}, {c, char_class(c)}, {'0', char_class('0')}};
    std::vector<size_t> ends;
    split_deepseek_cased(text, 0, 3, ends);
    const bool cased = (char_class(c) & (kUpper | kLower)) != 0;
    const bool listed = ends.size() == 3;
    EXPECT_TRUE(cased || !listed) << std::hex << static_cast<uint32_t>(c);
    EXPECT_TRUE(listed || !cased || c >= 0x250) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Scanners, ClassesOfSomeCharacters) {
  EXPECT_EQ(char_class('A'), kLetter | kUpper);
  EXPECT_EQ(char_class(0x01C5), kLetter | kUpper);  // title case
  EXPECT_EQ(char_class(0x00DF), kLetter | kLower);
  EXPECT_EQ(char_class(0x02B0), kLetter);
  EXPECT_EQ(char_class(0x4E2D), kLetter | kHanScript);
  EXPECT_EQ(char_class(0x3007), kNumber | kHanScript);
  EXPECT_EQ(char_class(0x0663), kNumber | kDigit);
  EXPECT_EQ(char_class(0x00A0), kSpace);
  EXPECT_EQ(char_class(0x200B), 0);
  EXPECT_EQ(char_class(0x20AC), kSymbol);
  EXPECT_EQ(char_class(0x2EBF0), kLetter | kHanScript);  // new in 15.1
  EXPECT_EQ(char_class(0x10FFFF), 0);
  EXPECT_EQ(char_class(kNoCodePoint), 0);
}

}  // namespace
}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
// The stages of pre-tokenizer rules, as scanners instead of regular expressions: linear in the text and without
// recursion, so a megabyte of one letter needs no stack (bug-log TOK-1). Each is documented by the expression it
// equals; their agreement with a real engine is tested (scanners_test.cc). Abbreviations as in
// ../shared/spec/tokenizers.md 5.4.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "outrider/text/unicode.h"

namespace outrider::text {

// A character as the scanners see it. A byte that is no UTF-8 is one character with code_point kNoCodePoint, class 0.
struct Character {
  char32_t code_point;
  CharClass bits;
};
inline constexpr char32_t kNoCodePoint = 0x110000;

// Splits the piece [begin, end): appends the end of every match and of every text between matches to `ends`, ascending;
// the last one appended is `end`. Look-ahead sees `end` as the end of the text.
using Stage = void (*)(const Character* text, size_t begin, size_t end, std::vector<size_t>& ends);

// Families. T = \s*[\r\n]+|\s+(?!\S)|\s+ and C = (?i:'s|'t|'re|'ve|'m|'ll|'d), which lead or follow as said.
void split_gpt2(const Character*, size_t, size_t, std::vector<size_t>&);    // G2
void split_llama3(const Character*, size_t, size_t, std::vector<size_t>&);  // L3
void split_qwen2(const Character*, size_t, size_t, std::vector<size_t>&);   // L3 with \p{N}
void split_qwen2_no_contractions(const Character*, size_t, size_t, std::vector<size_t>&);
void split_qwen35(const Character*, size_t, size_t, std::vector<size_t>&);       // Q2, marks are letters
void split_seed_coder(const Character*, size_t, size_t, std::vector<size_t>&);   // Q2, punctuation without [\r\n]
void split_exaone_moe(const Character*, size_t, size_t, std::vector<size_t>&);   // Q2, single blanks inside a word run
void split_long_digits(const Character*, size_t, size_t, std::vector<size_t>&);  // L3 with \p{N}+
void split_jais2(const Character*, size_t, size_t, std::vector<size_t>&);        // L3, white space in powers of two
void split_o200(const Character*, size_t, size_t, std::vector<size_t>&);         // words cut at case, C behind
void split_o200_digit(const Character*, size_t, size_t, std::vector<size_t>&);   // O200 with \p{N}
void split_tekken(const Character*, size_t, size_t, std::vector<size_t>&);       // O200 without C, with \p{N}
void split_kimi_k2(const Character*, size_t, size_t, std::vector<size_t>&);      // Han runs, O200 without Han
void split_deepseek_v3(const Character*, size_t, size_t, std::vector<size_t>&);  // third stage of DSV3
void split_spark(const Character*, size_t, size_t, std::vector<size_t>&);        // the same with single newlines
void split_bloom(const Character*, size_t, size_t, std::vector<size_t>&);

// Small stages.
void split_digit(const Character*, size_t, size_t, std::vector<size_t>&);               // \p{N}
void split_digits(const Character*, size_t, size_t, std::vector<size_t>&);              // \p{N}+
void split_three_digits(const Character*, size_t, size_t, std::vector<size_t>&);        // \p{N}{1,3}
void split_three_ascii_digits(const Character*, size_t, size_t, std::vector<size_t>&);  // [0-9][0-9][0-9]
void split_grouped_numbers(const Character*, size_t, size_t,
                           std::vector<size_t>&);                                   // \p{N} runs, threes from the right
void split_grouped_digits(const Character*, size_t, size_t, std::vector<size_t>&);  // \d{1,3}(?=(?:\d{3})*\b)
void split_before_digit_groups(const Character*, size_t, size_t, std::vector<size_t>&);   // (?=(\d{3})+(?!\d))
void split_newline(const Character*, size_t, size_t, std::vector<size_t>&);               // [\r\n]
void split_newline_runs(const Character*, size_t, size_t, std::vector<size_t>&);          // [^\n]+|[\n]+
void split_trailing_space(const Character*, size_t, size_t, std::vector<size_t>&);        // \s+$
void split_non_space(const Character*, size_t, size_t, std::vector<size_t>&);             // \S+
void split_default_punctuation(const Character*, size_t, size_t, std::vector<size_t>&);   // [\p{P}\$\+<=>\^~\|]+
void split_falcon_punctuation(const Character*, size_t, size_t, std::vector<size_t>&);    // the same with a backtick
void split_deepseek_cased(const Character*, size_t, size_t, std::vector<size_t>&);        // \s?[CASED]+
void split_deepseek_punctuation(const Character*, size_t, size_t, std::vector<size_t>&);  // DSLLM stage 3
void split_deepseek_cjk(const Character*, size_t, size_t, std::vector<size_t>&);          // DSLLM stage 5
void split_spaced_letters(const Character*, size_t, size_t, std::vector<size_t>&);        // \s?\p{L}+
void split_spaced_punctuation(const Character*, size_t, size_t, std::vector<size_t>&);    // \s?\p{P}+
void split_cjk_kana(const Character*, size_t, size_t, std::vector<size_t>&);  // [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+
void split_afmoe_scripts(const Character*, size_t, size_t, std::vector<size_t>&);
void split_youtu_scripts(const Character*, size_t, size_t, std::vector<size_t>&);
void split_chameleon_sentinel(const Character*, size_t, size_t, std::vector<size_t>&);     // <sentinel:[0-9]+>
void split_chameleon_image(const Character*, size_t, size_t, std::vector<size_t>&);        // IMGIMG[A-I]{1,4}Z
void split_chameleon_blanks(const Character*, size_t, size_t, std::vector<size_t>&);       // [\t\n]| {4}| {2}
void split_chameleon_punctuation(const Character*, size_t, size_t, std::vector<size_t>&);  // [\p{P}!-/:-@\[-`{-~]

}  // namespace outrider::text

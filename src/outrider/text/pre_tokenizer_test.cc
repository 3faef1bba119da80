// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include "outrider/base/test_rng.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

std::vector<std::string> pieces_of(std::string_view text, std::string_view pre) {
  const PreRule* rule = find_pre_rule(pre);
  EXPECT_NE(rule, nullptr) << pre;
  std::vector<size_t> ends;
  pre_tokenize(text, *rule, ends);
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    EXPECT_LT(begin, end);
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t pos = text.find(from); pos != std::string::npos; pos = text.find(from, pos + to.size()))
    text.replace(pos, from.size(), to);
}

// splits.txt's way of writing (tests/golden/tokenizer/PROVENANCE.md).
std::string unescaped(std::string text) {
  replace_all(text, "\u2423", " ");
  replace_all(text, "\u25CC", "");
  replace_all(text, "\\n", "\n");
  replace_all(text, "\\r", "\r");
  replace_all(text, "\\t", "\t");
  return text;
}

TEST(PreTokenizer, GoldenSplits) {
  const std::map<std::string, std::string> pre_of_family = {
      {"G2", "gpt-2"},      {"L3", "llama-bpe"},     {"Q2", "qwen2"},   {"Q35", "qwen35"},
      {"O200", "gpt-4o"},   {"DSV3", "deepseek-v3"}, {"K2", "kimi-k2"}, {"DSLLM", "deepseek-llm"},
      {"SMOLLM", "smollm"}, {"DEFAULT", "default"}};
  std::ifstream file(OUTRIDER_SOURCE_DIR "/tests/golden/tokenizer/splits.txt");
  std::string input;
  std::string line;
  int n_checked = 0;
  while (std::getline(file, line)) {
    if (line.starts_with("Input: ")) {
      input = unescaped(line.substr(7));
    } else if (line.starts_with("  ")) {
      const size_t colon = line.find(": ");
      std::vector<std::string> want;
      std::string rest = line.substr(colon + 2);
      const std::string cut = " \u00A6 ";
      for (size_t pos = 0; pos != std::string::npos;) {
        const size_t end = rest.find(cut, pos);
        want.push_back(unescaped(rest.substr(pos, end == std::string::npos ? end : end - pos)));
        pos = end == std::string::npos ? end : end + cut.size();
      }
      std::istringstream families(line.substr(2, colon - 2));
      for (std::string family; std::getline(families >> std::ws, family, ',');) {
        EXPECT_EQ(pieces_of(input, pre_of_family.at(family)), want) << family << ": " << input;
        ++n_checked;
      }
    }
  }
  EXPECT_EQ(n_checked, 50);  // ten families, five texts
}

TEST(PreTokenizer, UnknownNamesAreNotFoundAndAllKnownOnesAreListed) {
  EXPECT_EQ(find_pre_rule("no-such-rule"), nullptr);
  EXPECT_EQ(find_pre_rule(""), nullptr);
  const std::string names = ", " + pre_rule_names() + ",";
  for (const char* name : {"default", "llama-bpe", "qwen2", "gpt-4o", "deepseek-v3", "gemma4", "whitespace"}) {
    EXPECT_NE(names.find(std::string(", ") + name + ","), std::string::npos) << name;
  }
}

// Every rule on every kind of text: the pieces are not empty and make up the text again (checked by pieces_of).
TEST(PreTokenizer, PiecesOfRandomBytesMakeUpTheText) {
  TestRng rng(5);
  std::istringstream names(pre_rule_names());
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    for (int round = 0; round < 20; ++round) {
      std::string text;
      const size_t n = rng.below(200);
      while (text.size() < n) {
        if (rng.below(3) == 0) {
          text.push_back(static_cast<char>(rng.below(256)));
        } else {
          append_utf8(text, static_cast<char32_t>(rng.below(rng.below(2) == 0 ? 0x80 : 0x3100)));
        }
      }
      pieces_of(text, name);
    }
  }
}

// TOK-1 for the rules: every one is linear, also where a long run is taken in small bites or must not match after all.
TEST(PreTokenizer, Tok1EveryRuleIsLinearInLongRuns) {
  std::istringstream names(pre_rule_names());
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    for (const char unit : {' ', '7', 'X'}) {
      const std::string text = std::string(100000, unit) + "a";
      std::vector<size_t> ends;
      const std::clock_t start = std::clock();
      pre_tokenize(text, *find_pre_rule(name), ends);
      // A few milliseconds; a scan that starts again at every character takes 5e9 steps.
      EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1.0)
          << name << " on a run of '" << unit << "'";
    }
  }
}

TEST(PreTokenizer, InvalidBytesStayAsTheyAre) {
  EXPECT_EQ(pieces_of("ab\xFF\xFE"
                      "cd \xE2\x82",
                      "gpt-2"),
            (std::vector<std::string>{"ab", "\xFF\xFE", "cd", " \xE2\x82"}));
}

}  // namespace
}  // namespace outrider::text

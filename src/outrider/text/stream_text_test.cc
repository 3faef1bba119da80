// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/stream_text.h"

#include <gtest/gtest.h>

#include "outrider/base/test_rng.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

struct Shown {
  std::string text;
  std::string stop;
  bool operator==(const Shown&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Shown& shown) {
  return out << '"' << shown.text << "\" stop \"" << shown.stop << '"';
}

bool valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    if (step.state != Utf8Step::kValid) return false;
    pos += step.n_bytes;
  }
  return true;
}

Shown stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StreamText out(stops);
  std::string text;
  for (const std::string& piece : pieces) {
    const std::string part = out.push(piece);
    EXPECT_TRUE(valid_utf8(part));
    text += part;
  }
  text += out.finish();
  EXPECT_EQ(out.push("more"), out.stopped() ? "" : "more");
  return {text, out.matched_stop()};
}

// Streams `text` cut at every pair of places, and byte by byte.
void expect_any_cut(const std::string& text, const std::vector<std::string>& stops, const Shown& want) {
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      EXPECT_EQ(stream({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, stops), want)
          << "cut at " << a << " and " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(stream(bytes, stops), want) << "byte by byte";
}

TEST(StreamText, ShowsWholeCharactersAtEveryByteBoundary) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82z";
  expect_any_cut(text, {}, {text, ""});
}

TEST(StreamText, ImpossibleBytesBecomeOneReplacementEachAndNeverBlock) {
  expect_any_cut("a\x80z", {}, {"a" + kFffd + "z", ""});
  expect_any_cut("\xC0\xAF", {}, {kFffd + kFffd, ""});                          // overlong
  expect_any_cut("\xED\xA0\x80", {}, {kFffd + kFffd + kFffd, ""});              // surrogate
  expect_any_cut("\xF4\x90\x80\x80", {}, {kFffd + kFffd + kFffd + kFffd, ""});  // above U+10FFFF
  expect_any_cut("\xF0\x9F\x41", {}, {kFffd + "A", ""});                        // cut short by another character
  expect_any_cut("\xE2\x82\xE2\x82\xAC", {}, {kFffd + "\xE2\x82\xAC", ""});
  expect_any_cut("\xFF\xC3\xA9", {}, {kFffd + "\xC3\xA9", ""});
}

TEST(StreamText, AnUnfinishedCharacterIsHeldAndEndsAsOneReplacement) {
  StreamText out;
  EXPECT_EQ(out.push("x\xF0\x9F"), "x");
  EXPECT_EQ(out.push("\x99"), "");
  EXPECT_EQ(out.finish(), kFffd);
}

TEST(StreamText, StopsAreFoundWhereverTheyAreCut) {
  expect_any_cut("aaab", {"aab"}, {"a", "aab"});
  expect_any_cut("xxSTOPyy", {"STOP"}, {"xx", "STOP"});
  expect_any_cut("one\n\nUser: two", {"\n\nUser:", "\nUser"}, {"one\n", "\nUser"});
  expect_any_cut("\xE2\x82\xAC\xE7\xB5\x82\xE4\xBA\x86", {"\xE7\xB5\x82\xE4\xBA\x86"},
                 {"\xE2\x82\xAC", "\xE7\xB5\x82\xE4\xBA\x86"});
  expect_any_cut("abcab", {"abcabd"}, {"abcab", ""});
  expect_any_cut("abab", {""}, {"abab", ""});
}

TEST(StreamText, OfOverlappingStopsTheOneThatEndsFirstWinsThenTheLongest) {
  expect_any_cut("zabcd", {"abcd", "bc"}, {"za", "bc"});
  expect_any_cut("zabcd", {"bc", "abc"}, {"z", "abc"});
  expect_any_cut("zabcd", {"abcd", "ab", "abc"}, {"z", "ab"});
}

TEST(StreamText, HoldsBackOnlyWhatMayBecomeAStop) {
  StreamText out({"STOP"});
  EXPECT_EQ(out.push("a S"), "a ");
  EXPECT_EQ(out.push("T"), "");
  EXPECT_EQ(out.push("x"), "STx");
  EXPECT_EQ(out.push("ST"), "");
  EXPECT_EQ(out.finish(), "ST");
  EXPECT_FALSE(out.stopped());
}

TEST(StreamText, ResultDoesNotDependOnTheCuts) {
  TestRng rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += "ab\xC3\xA9\xF0\x9F"[rng.below(6)];
    const std::vector<std::string> stops = {"abab", "b\xC3\xA9", "aab"};
    const Shown whole = stream({text}, stops);
    std::vector<std::string> pieces;
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = 1 + rng.below(5);
      pieces.push_back(text.substr(pos, n));
      pos += n;
    }
    EXPECT_EQ(stream(pieces, stops), whole);
  }
}

}  // namespace
}  // namespace outrider::text

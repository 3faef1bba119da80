// SPDX-License-Identifier: Apache-2.0
// Cuts the tokens that are matched as plain byte strings (control, unknown, user-defined) out of a text, before
// anything else looks at it. The longest token is cut out everywhere first, then the next longest in what is left, and
// so on: not the leftmost longest, but what GGUF models are run with (../shared/spec/tokenizers.md section 4).
// Threads: immutable after construction.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "outrider/text/vocabulary.h"

namespace outrider::text {

struct Fragment {
  size_t begin;
  size_t end;
  TokenId token = kNoToken;  // kNoToken: text that is left
};

// Where control tokens may be taken. Ranges are ascending and do not touch.
struct Trust {
  struct Range {
    size_t begin;
    size_t end;
  };
  std::vector<Range> ranges;
  // User-defined tokens that are written like markers (<|name|>) count as control tokens: some files type them so.
  bool guard_markers = false;
};

class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocabulary& vocabulary);

  // A control token is taken only where it lies in one trusted range as a whole; a user-defined one anywhere. Time is
  // linear in the text, times the number of different special tokens that occur in it.
  std::vector<Fragment> partition(std::string_view text, const Trust& trust) const;

 private:
  struct Special {
    TokenId id;
    std::string text;
    bool control;
    bool marker;
    bool right_strip;
  };
  std::vector<bool> occurring(std::string_view text) const;
  void add(uint32_t special_idx);

  std::vector<Special> specials_;  // longest first, then the lower id
  // A trie over the texts: node << 8 | byte -> child, with the first step in an array of its own.
  std::array<uint32_t, 256> root_{};
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<uint32_t> special_of_node_;
};

}  // namespace outrider::text

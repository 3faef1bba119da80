// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE: characters of a text are joined while the result is a token, the best score first. Needs no
// merges. Pairs wait in a heap: O(n log n), without recursion.
// Threads: immutable after load; the caller brings the scratch memory.
#pragma once

#include <string_view>
#include <vector>

#include "outrider/text/vocabulary.h"

namespace outrider::text {

class SentencePiece {
 public:
  struct Symbol {
    uint32_t begin;
    uint32_t n_bytes;  // 0: joined to its left neighbour
    uint32_t prev;
    uint32_t next;
  };
  struct Pair {
    float score;
    uint32_t left;
    uint32_t right;
    uint32_t n_bytes;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Pair> heap;
    std::string text;
  };

  void load(const Vocabulary& vocabulary);

  // Appends the ids of `raw`, at most 2^29 bytes, with a space put before it when `prefix`. A character without a token
  // becomes its byte tokens, without those the unknown token, without that Error(kBadArgument).
  void encode(const Vocabulary& vocabulary, std::string_view raw, bool prefix, Scratch& scratch,
              std::vector<TokenId>& ids) const;

 private:
  TokenId find(const Vocabulary& vocabulary, std::string_view text) const noexcept;
  void consider(const Vocabulary& vocabulary, Scratch& scratch, uint32_t left, uint32_t right) const;
  void emit(const Vocabulary& vocabulary, std::string_view text, std::vector<TokenId>& ids) const;

  size_t max_token_bytes_ = 0;
};

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space in these vocabularies

}  // namespace outrider::text

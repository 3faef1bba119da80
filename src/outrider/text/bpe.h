// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece: join the adjacent pair of lowest rank, leftmost first, until no pair has a rank.
// Pairs wait in a heap, so a piece of n symbols costs O(n log n); nothing recurses (bug-log TOK-1).
// Threads: immutable after load; the caller brings the scratch memory.
#pragma once

#include <string_view>
#include <vector>

#include "outrider/format/metadata.h"
#include "outrider/text/vocabulary.h"

namespace outrider::text {

class Bpe {
 public:
  struct Symbol {
    uint32_t symbol;  // StringTable::kNone for a character the vocabulary does not have
    uint32_t prev;
    uint32_t next;
    uint32_t begin;    // in the piece
    uint32_t n_bytes;  // 0: joined to its left neighbour
  };
  struct Pair {
    uint32_t rank;
    uint32_t left;
    uint32_t right;
    uint32_t left_symbol;
    uint32_t right_symbol;
    uint32_t joined;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Pair> heap;
    std::string spelled;
  };

  // Reads the merges; adds what occurs in them only to the vocabulary's symbols. Throws Error(kBadFile).
  void load(Vocabulary& vocabulary, const format::Metadata& metadata);

  // Appends the ids of `piece`, at most 2^31 bytes. Throws Error(kBadArgument) when a character has neither a token nor
  // byte tokens and there is no unknown token.
  void encode(const Vocabulary& vocabulary, std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;  // left symbol << 32 | right symbol; UINT64_MAX: an empty slot
    uint32_t rank = 0;
    uint32_t joined = 0;
  };
  const Merge* find(uint32_t left, uint32_t right) const noexcept;
  size_t slot_of(uint64_t pair) const noexcept;
  void spell(const Vocabulary& vocabulary, std::string_view piece, Scratch& scratch) const;
  void join(Scratch& scratch) const;
  void consider(Scratch& scratch, uint32_t left, uint32_t right) const;
  void emit(const Vocabulary& vocabulary, std::string_view piece, const Symbol& symbol,
            std::vector<TokenId>& ids) const;

  std::vector<Merge> merges_;                   // open addressing, at most half full
  std::array<uint32_t, 256> symbol_of_byte_{};  // byte alphabet only
};

}  // namespace outrider::text

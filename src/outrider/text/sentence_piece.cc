// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/sentence_piece.h"

#include <algorithm>

#include "outrider/base/error.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

// "Less" of the heap: joined later.
bool later(const SentencePiece::Pair& a, const SentencePiece::Pair& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

}  // namespace

void SentencePiece::load(const Vocabulary& vocabulary) {
  for (uint32_t id = 0; id < vocabulary.n_tokens(); ++id) {
    max_token_bytes_ = std::max(max_token_bytes_, vocabulary.text(static_cast<TokenId>(id)).size());
  }
}

// Only tokens that stand for text: llama.cpp looks at all of them, so that the spelling of a control or byte token
// could turn into it. No real vocabulary has the steps in between, so ids do not differ.
TokenId SentencePiece::find(const Vocabulary& vocabulary, std::string_view text) const noexcept {
  if (text.size() > max_token_bytes_) return kNoToken;
  const TokenId id = vocabulary.find(text);
  if (id == kNoToken || vocabulary.reserved[static_cast<size_t>(id)]) return kNoToken;
  const TokenType type = vocabulary.type(id);
  const bool is_text = type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kControl;
  return is_text ? id : kNoToken;
}

void SentencePiece::encode(const Vocabulary& vocabulary, std::string_view raw, bool prefix, Scratch& scratch,
                           std::vector<TokenId>& ids) const {
  std::string& text = scratch.text;
  text.clear();
  if (prefix) text += kSpaceMark;
  for (const char c : raw) {
    if (c == ' ') {
      text += kSpaceMark;
    } else {
      text += c;
    }
  }

  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const uint32_t n_bytes = step.state == Utf8Step::kValid ? step.n_bytes : 1;
    const auto i = static_cast<uint32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(pos), n_bytes, i - 1, i + 1});
    pos += n_bytes;
  }
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(vocabulary, scratch, i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Pair pair = heap.back();
    heap.pop_back();
    Symbol& left = symbols[pair.left];
    Symbol& right = symbols[pair.right];
    if (left.n_bytes == 0 || right.n_bytes == 0 || left.n_bytes + right.n_bytes != pair.n_bytes) continue;  // stale
    left.n_bytes += right.n_bytes;
    right.n_bytes = 0;
    left.next = right.next;
    if (left.next < symbols.size()) symbols[left.next].prev = pair.left;
    consider(vocabulary, scratch, left.prev, pair.left);
    consider(vocabulary, scratch, pair.left, left.next);
  }
  for (uint32_t i = 0; i < symbols.size(); i = symbols[i].next) {
    emit(vocabulary, std::string_view(text).substr(symbols[i].begin, symbols[i].n_bytes), ids);
  }
}

void SentencePiece::consider(const Vocabulary& vocabulary, Scratch& scratch, uint32_t left, uint32_t right) const {
  if (left >= scratch.symbols.size() || right >= scratch.symbols.size()) return;
  const Symbol& a = scratch.symbols[left];
  const uint32_t n_bytes = a.n_bytes + scratch.symbols[right].n_bytes;
  const TokenId id = find(vocabulary, std::string_view(scratch.text).substr(a.begin, n_bytes));
  if (id == kNoToken) return;
  scratch.heap.push_back({vocabulary.scores[static_cast<size_t>(id)], left, right, n_bytes});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
}

void SentencePiece::emit(const Vocabulary& vocabulary, std::string_view text, std::vector<TokenId>& ids) const {
  if (const TokenId id = find(vocabulary, text); id != kNoToken) {
    ids.push_back(id);
    return;
  }
  const auto& bytes = vocabulary.byte_tokens;
  if (std::all_of(text.begin(), text.end(), [&](char c) { return bytes[static_cast<uint8_t>(c)] != kNoToken; })) {
    for (const char c : text) ids.push_back(bytes[static_cast<uint8_t>(c)]);
  } else if (vocabulary.unknown != kNoToken) {
    ids.push_back(vocabulary.unknown);
  } else {
    fail(ErrorKind::kBadArgument,
         "{}: the vocabulary has no token for {} of the text, no byte tokens and no unknown token", vocabulary.source,
         printable(text));
  }
}

}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/bpe.h"

#include <algorithm>

#include "outrider/base/error.h"
#include "outrider/text/byte_alphabet.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

constexpr uint32_t kNone = StringTable::kNone;

// Of heap order: std::push_heap keeps the greatest on top, so "less" is "joined later".
bool later(const Bpe::Pair& a, const Bpe::Pair& b) { return a.rank != b.rank ? a.rank > b.rank : a.left > b.left; }

}  // namespace

size_t Bpe::slot_of(uint64_t pair) const noexcept {
  const size_t mask = merges_.size() - 1;
  size_t slot = static_cast<size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 20) & mask;
  while (merges_[slot].pair != UINT64_MAX && merges_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

const Bpe::Merge* Bpe::find(uint32_t left, uint32_t right) const noexcept {
  if (left == kNone || right == kNone) return nullptr;
  const Merge& merge = merges_[slot_of(uint64_t{left} << 32 | right)];
  return merge.pair == UINT64_MAX ? nullptr : &merge;
}

void Bpe::load(Vocabulary& vocabulary, const format::Metadata& metadata) {
  const auto* lines = metadata.find_strings("tokenizer.ggml.merges");
  const bool may_lack = vocabulary.pre->name.starts_with("kimi-k2");
  if (lines == nullptr && !may_lack)
    fail(ErrorKind::kBadFile, "{}: key tokenizer.ggml.merges is missing", vocabulary.source);
  const size_t n = lines == nullptr ? 0 : lines->size();
  if (n >= UINT32_MAX)
    fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.merges has {} entries, more than 4294967294", vocabulary.source, n);
  size_t n_slots = 16;
  while (n_slots < 2 * n) n_slots *= 2;
  merges_.assign(n_slots, Merge{});

  if (vocabulary.model == Model::kByteBpe) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string character;
      append_utf8(character, kByteAlphabet[byte]);
      symbol_of_byte_[byte] = vocabulary.symbols.add(character);
    }
  }
  std::string joined;
  for (size_t rank = 0; rank < n; ++rank) {
    const std::string_view line = (*lines)[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) continue;  // joins nothing
    joined.assign(line.substr(0, space)).append(line.substr(space + 1));
    const uint32_t left = vocabulary.symbols.add(line.substr(0, space));
    const uint32_t right = vocabulary.symbols.add(line.substr(space + 1));
    const uint32_t result = vocabulary.symbols.add(joined);
    // Text must not grow into a control token (TOK-2). No real vocabulary has such a merge.
    const TokenId token = result < vocabulary.token_of_symbol.size() ? vocabulary.token_of_symbol[result] : kNoToken;
    if (token != kNoToken && vocabulary.reserved[static_cast<size_t>(token)]) continue;
    Merge& merge = merges_[slot_of(uint64_t{left} << 32 | right)];
    if (merge.pair != UINT64_MAX) continue;  // the first rank of a pair counts
    merge = {uint64_t{left} << 32 | right, static_cast<uint32_t>(rank), result};
  }
}

void Bpe::encode(const Vocabulary& vocabulary, std::string_view piece, Scratch& scratch,
                 std::vector<TokenId>& ids) const {
  const PreRule& pre = *vocabulary.pre;
  if (pre.ignore_merges || (pre.newline_tokens && piece.find_first_not_of('\n') == std::string_view::npos)) {
    std::string_view text = piece;
    if (pre.byte_alphabet) {
      scratch.spelled.clear();
      for (const char c : piece) append_utf8(scratch.spelled, kByteAlphabet[static_cast<uint8_t>(c)]);
      text = scratch.spelled;
    }
    const TokenId id = vocabulary.find(text);
    if (id != kNoToken && !vocabulary.reserved[static_cast<size_t>(id)]) {
      ids.push_back(id);
      return;
    }
  }
  spell(vocabulary, piece, scratch);
  join(scratch);
  for (uint32_t i = 0; i < scratch.symbols.size(); i = scratch.symbols[i].next)
    emit(vocabulary, piece, scratch.symbols[i], ids);
}

// One symbol per byte of the alphabet, or per character. An invalid byte is a symbol of its own.
void Bpe::spell(const Vocabulary& vocabulary, std::string_view piece, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (size_t pos = 0; pos < piece.size();) {
    size_t n_bytes = 1;
    uint32_t symbol = 0;
    if (vocabulary.model == Model::kByteBpe) {
      symbol = symbol_of_byte_[static_cast<uint8_t>(piece[pos])];
    } else {
      const Utf8Step step = decode_utf8(piece, pos);
      n_bytes = step.state == Utf8Step::kValid ? step.n_bytes : 1;
      symbol = vocabulary.symbols.find(piece.substr(pos, n_bytes));
    }
    const auto i = static_cast<uint32_t>(symbols.size());
    symbols.push_back({symbol, i - 1, i + 1, static_cast<uint32_t>(pos), static_cast<uint32_t>(n_bytes)});
    pos += n_bytes;
  }
}

void Bpe::consider(Scratch& scratch, uint32_t left, uint32_t right) const {
  if (left >= scratch.symbols.size() || right >= scratch.symbols.size()) return;
  const uint32_t a = scratch.symbols[left].symbol;
  const uint32_t b = scratch.symbols[right].symbol;
  const Merge* merge = find(a, b);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, left, right, a, b, merge->joined});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
}

void Bpe::join(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) consider(scratch, i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Pair pair = heap.back();
    heap.pop_back();
    Symbol& left = symbols[pair.left];
    Symbol& right = symbols[pair.right];
    // A pair is stale when either side has been joined to something else since.
    if (left.n_bytes == 0 || right.n_bytes == 0 || left.symbol != pair.left_symbol || right.symbol != pair.right_symbol)
      continue;
    left.symbol = pair.joined;
    left.n_bytes += right.n_bytes;
    right.n_bytes = 0;
    left.next = right.next;
    if (left.next < symbols.size()) symbols[left.next].prev = pair.left;
    consider(scratch, left.prev, pair.left);
    consider(scratch, pair.left, left.next);
  }
}

void Bpe::emit(const Vocabulary& vocabulary, std::string_view piece, const Symbol& symbol,
               std::vector<TokenId>& ids) const {
  const auto token_of = [&](uint32_t number) {
    return number < vocabulary.token_of_symbol.size() ? vocabulary.token_of_symbol[number] : kNoToken;
  };
  if (const TokenId id = token_of(symbol.symbol); id != kNoToken) {
    ids.push_back(id);
    return;
  }
  const std::string_view bytes = piece.substr(symbol.begin, symbol.n_bytes);
  const auto token_of_byte = [&](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return vocabulary.model == Model::kByteBpe ? token_of(symbol_of_byte_[byte]) : vocabulary.byte_tokens[byte];
  };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return token_of_byte(c) != kNoToken; })) {
    for (const char c : bytes) ids.push_back(token_of_byte(c));
  } else if (vocabulary.unknown != kNoToken) {
    ids.push_back(vocabulary.unknown);
  } else {
    fail(ErrorKind::kBadArgument,
         "{}: the vocabulary has no token for {} of the text, no byte tokens and no unknown token", vocabulary.source,
         printable(bytes));
  }
}

}  // namespace outrider::text

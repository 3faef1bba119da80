// SPDX-License-Identifier: Apache-2.0
// What a model file says about its tokens: texts, types, special ids and their defaults, the end-of-generation set,
// with the corrections of types that runtimes apply (../shared/spec/tokenizers.md sections 1 to 3).
// Threads: immutable after load.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/format/metadata.h"
#include "outrider/text/pre_tokenizer.h"
#include "outrider/text/string_table.h"
#include "outrider/text/tokenizer.h"

namespace outrider::text {

enum class Model : uint8_t { kByteBpe, kRawBpe, kSentencePiece };

struct Vocabulary {
  std::string source;  // the file's name, for error texts
  Model model = Model::kByteBpe;
  const PreRule* pre = nullptr;  // BPE only

  // Token texts, then symbols that occur in merges only. Of several tokens with one text the first is meant.
  StringTable symbols;
  std::vector<uint32_t> symbol_of_token;
  std::vector<TokenId> token_of_symbol;  // by symbol number; kNoToken past the tokens'
  std::vector<TokenType> types;          // after the corrections
  // The file itself calls it control or unknown: text from outside must never become it, whatever the corrections say.
  std::vector<bool> reserved;
  std::vector<float> scores;             // SPM only
  std::array<TokenId, 256> byte_tokens;  // <0xHH>, kNoToken where there is none
  std::vector<bool> right_strip;         // the token swallows white space behind it (Phi-3)

  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId unknown = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::vector<bool> end_of_generation;
  std::vector<TokenId> suppressed;

  uint32_t n_tokens() const noexcept { return static_cast<uint32_t>(symbol_of_token.size()); }
  std::string_view text(TokenId id) const noexcept { return symbols.at(symbol_of_token[static_cast<size_t>(id)]); }
  // kNoToken when no token has this text.
  TokenId find(std::string_view token_text) const noexcept {
    const uint32_t symbol = symbols.find(token_text);
    return symbol < token_of_symbol.size() ? token_of_symbol[symbol] : kNoToken;
  }
  TokenType type(TokenId id) const noexcept { return types[static_cast<size_t>(id)]; }

  // Throws Error(kBadFile) naming the file, the key and what was wanted.
  static Vocabulary load(const format::Metadata& metadata);
};

}  // namespace outrider::text

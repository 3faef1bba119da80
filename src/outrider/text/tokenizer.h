// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, from the tokenizer.* metadata of a model file: byte-level BPE and SPM
// (../shared/spec/tokenizers.md). An unknown model or pre-tokenizer name is refused by name with the known ones listed.
// Threads: immutable after load; encode and decode may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/format/metadata.h"

namespace outrider::text {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct EncodeOptions {
  bool add_special = false;    // BOS / EOS as the file wants them
  bool parse_special = false;  // control tokens spelled in the text become those tokens
};

// A piece of a prompt: template text (control tokens count) or content that came from outside (they are plain text).
struct TextSpan {
  std::string_view text;
  bool trusted = true;
};

class Tokenizer {
 public:
  // True when the file carries a tokenizer ("none"/absent: false; text operations must be refused, saying why).
  static bool present(const format::Metadata& metadata);
  // Throws Error(kBadFile).
  static std::unique_ptr<Tokenizer> load(const format::Metadata& metadata);
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const = 0;
  // Encodes the concatenation of the spans as one text, except that a control token must lie in trusted spans as a
  // whole (TOK-2). A user-defined token written like a marker, <|name|>, counts as control here: some files type them
  // so. add_special as above; control tokens in trusted spans are always recognised.
  virtual std::vector<TokenId> encode_spans(std::span<const TextSpan> spans, bool add_special) const = 0;
  // The bytes of one token in running text; control tokens give "" unless show_special. The first token of an SPM text
  // keeps its space: removing a dummy prefix is decode()'s business.
  virtual std::string_view piece(TokenId id, bool show_special) const = 0;
  // The whole text; inverse of encode() without add_special.
  virtual std::string decode(std::span<const TokenId> ids, bool show_special) const = 0;

  virtual uint32_t n_tokens() const noexcept = 0;
  virtual std::string_view raw_text(TokenId id) const = 0;  // the vocabulary's own spelling
  virtual TokenType type(TokenId id) const = 0;
  virtual TokenId bos() const noexcept = 0;  // kNoToken when there is none
  virtual TokenId eos() const noexcept = 0;
  virtual bool add_bos() const noexcept = 0;
  virtual bool add_eos() const noexcept = 0;
  virtual bool is_end_of_generation(TokenId id) const noexcept = 0;
  // Ids that must never be sampled (unused rows, tokenizer.ggml.suppress_tokens).
  virtual std::span<const TokenId> suppressed() const noexcept = 0;
};

}  // namespace outrider::text

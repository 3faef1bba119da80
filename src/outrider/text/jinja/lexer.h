// SPDX-License-Identifier: Apache-2.0
// Cuts a template into tokens, with the white-space rules of trim_blocks and lstrip_blocks applied to the text between
// the tags (../shared/spec/tokenizers.md section 11, "White space").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outrider::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of a string: its value
  int64_t integer = 0;
  double real = 0;
};

// Throws Fault with the line. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace outrider::text::jinja

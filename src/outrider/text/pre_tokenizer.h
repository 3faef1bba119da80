// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer rules by their names in tokenizer.ggml.pre (../shared/spec/tokenizers.md section 5.5), and their
// application to a text.
// Threads: pure functions over constant tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/text/scanners.h"

namespace outrider::text {

struct PreRule {
  std::string_view name;
  std::span<const Stage> stages;
  bool ignore_merges = false;   // a piece that is a vocabulary entry is emitted at once
  bool add_bos = false;         // default of add_bos_token
  bool byte_alphabet = true;    // false: vocabulary and merges are plain UTF-8
  bool escape_spaces = false;   // spaces become U+2581 first
  bool newline_tokens = false;  // a piece of newlines that is a token is emitted at once
};

// nullptr for a name that is not known.
const PreRule* find_pre_rule(std::string_view name);
// All names, comma-separated, for an error text.
std::string pre_rule_names();

// Appends the byte end of every piece of `text` to `ends`; the last one is text.size(). Invalid bytes are kept: each is
// a character of no class, where llama.cpp would put U+FFFD in its place and lose it.
void pre_tokenize(std::string_view text, const PreRule& rule, std::vector<size_t>& ends);

}  // namespace outrider::text

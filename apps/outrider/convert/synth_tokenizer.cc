// SPDX-License-Identifier: Apache-2.0
#include "convert/synth_tokenizer.h"

#include <string>
#include <vector>

#include "outrider/base/check.h"

namespace outrider::apps {
namespace {

// GPT-2's printable stand-in for a byte: itself when it is a printable Latin-1 character, else 256 and up in order.
std::string byte_symbol(uint32_t byte) {
  const auto printable = [](uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 256;
    for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

// Frequent English pairs, in merge order; a space stands for the symbol of the byte 32.
constexpr const char* kMerges[][2] = {{" ", "t"}, {"h", "e"},   {" ", "a"}, {"i", "n"},   {"r", "e"},
                                      {"o", "n"}, {" t", "he"}, {"e", "r"}, {" ", "s"},   {"a", "t"},
                                      {" ", "w"}, {" ", "o"},   {"e", "n"}, {" ", "c"},   {"in", "g"},
                                      {"n", "d"}, {" ", "b"},   {"o", "u"}, {" a", "nd"}, {"e", "s"}};

std::string symbols(const char* text) {
  std::string out;
  for (const char* c = text; *c != 0; ++c) out += byte_symbol(static_cast<unsigned char>(*c));
  return out;
}

constexpr int64_t kNormal = 1, kControl = 3, kUnused = 5;

}  // namespace

void set_synth_tokenizer(format::Metadata& metadata, uint32_t n_vocab) {
  OUTRIDER_CHECK(n_vocab >= kMinSynthVocab, "{}", n_vocab);
  std::vector<std::string> tokens, merges;
  for (uint32_t byte = 0; byte < 256; ++byte) tokens.push_back(byte_symbol(byte));
  for (const auto& [left, right] : kMerges) {
    tokens.push_back(symbols(left) + symbols(right));
    merges.push_back(symbols(left) + " " + symbols(right));
  }
  std::vector<int64_t> types(tokens.size(), kNormal);
  const auto end_of_text = static_cast<uint32_t>(tokens.size());
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(special);
    types.push_back(kControl);
  }
  while (tokens.size() < n_vocab) {
    tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    types.push_back(kUnused);
  }
  metadata.set_string("tokenizer.ggml.model", "gpt2");
  metadata.set_string("tokenizer.ggml.pre", "gpt-2");
  metadata.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  metadata.set_ints("tokenizer.ggml.token_type", std::move(types));
  metadata.set_strings("tokenizer.ggml.merges", std::move(merges));
  metadata.set_uint("tokenizer.ggml.bos_token_id", end_of_text);
  metadata.set_uint("tokenizer.ggml.eos_token_id", end_of_text + 2);
  metadata.set_uint("tokenizer.ggml.padding_token_id", end_of_text);
  metadata.set_bool("tokenizer.ggml.add_bos_token", false);
  metadata.set_string("tokenizer.chat_template",
                      "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
                      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

}  // namespace outrider::apps

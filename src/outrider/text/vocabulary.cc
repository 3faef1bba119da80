// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "outrider/base/error.h"

namespace outrider::text {
namespace {

using format::Metadata;

constexpr std::string_view kPrefix = "tokenizer.ggml.";
std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

// Tokens known by their text. The order decides between several that are there; llama.cpp takes whichever its hash map
// yields first. The DeepSeek names are written with U+FF5C and U+2581.
// clang-format off
constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
    "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", "<end_of_utterance>"};
constexpr std::string_view kEndOfMessage[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefix[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
                                           "<\xEF\xBD\x9C" "fim\xE2\x96\x81" "begin\xEF\xBD\x9C>", "<PRE>", "\xE2\x96\x81<PRE>",
                                           "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffix[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                                           "<\xEF\xBD\x9C" "fim\xE2\x96\x81hole\xEF\xBD\x9C>", "<SUF>", "\xE2\x96\x81<SUF>",
                                           "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddle[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                                           "<\xEF\xBD\x9C" "fim\xE2\x96\x81" "end\xEF\xBD\x9C>", "<MID>", "\xE2\x96\x81<MID>",
                                           "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPad[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepository[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparator[] = {"<|file_sep|>"};
constexpr std::string_view kEndOfGeneration[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>",
    "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>",
    "<|tool_response>", "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", "[e~["};
// clang-format on
// gpt-oss: the output parser has to see these.
constexpr std::string_view kChannelTokens[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// Model and pre-tokenizer, with what they say about defaults.
void read_model(Vocabulary& vocabulary, const Metadata& metadata) {
  const std::string_view name = metadata.require_string(key("model"));
  std::string_view pre = metadata.find_string(key("pre")).value_or("default");
  if (pre.empty()) pre = "default";
  if (name == "llama") {
    vocabulary.model = Model::kSentencePiece;
    vocabulary.bos = 1, vocabulary.eos = 2, vocabulary.unknown = 0;
    vocabulary.add_bos = vocabulary.add_space_prefix = true;
    return;
  }
  if (name == "gemma4") pre = "gemma4";
  if (name != "gpt2" && name != "gemma4") {
    fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.model is {}, which is not supported (supported: gpt2, llama, gemma4)",
         vocabulary.source, printable(name));
  }
  vocabulary.pre = find_pre_rule(pre);
  if (vocabulary.pre == nullptr) {
    fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.pre is {}, which is not known (known: {})", vocabulary.source,
         printable(pre), pre_rule_names());
  }
  // llama.cpp's defaults for BOS and EOS here are 11, right for Falcon only and stated by its files: none.
  vocabulary.model = vocabulary.pre->byte_alphabet ? Model::kByteBpe : Model::kRawBpe;
  vocabulary.add_bos = vocabulary.pre->add_bos;
}

void read_tokens(Vocabulary& vocabulary, const Metadata& metadata) {
  const auto* tokens = metadata.find_strings(key("tokens"));
  if (tokens == nullptr || tokens->empty()) {
    fail(ErrorKind::kBadFile, "{}: key tokenizer.ggml.tokens is {}", vocabulary.source,
         tokens == nullptr ? "missing" : "empty");
  }
  const size_t n = tokens->size();
  if (n > INT32_MAX)
    fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.tokens has {} tokens, more than 2147483647", vocabulary.source, n);
  size_t n_bytes = 0;
  for (const std::string& token : *tokens) n_bytes += token.size();
  vocabulary.symbols.reserve(n, n_bytes);
  vocabulary.symbol_of_token.reserve(n);
  for (const std::string& token : *tokens) {
    const uint32_t symbol = vocabulary.symbols.add(token);
    if (symbol == vocabulary.token_of_symbol.size()) {
      // An empty text is no token's: nothing could ever match it.
      vocabulary.token_of_symbol.push_back(token.empty() ? kNoToken
                                                         : static_cast<TokenId>(vocabulary.symbol_of_token.size()));
    }
    vocabulary.symbol_of_token.push_back(symbol);
  }

  vocabulary.types.assign(n, TokenType::kNormal);
  vocabulary.reserved.assign(n, false);
  if (const auto types = metadata.find_ints(key("token_type"))) {
    if (types->size() < n) {
      fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.token_type has {} entries for {} tokens", vocabulary.source,
           types->size(), n);
    }
    for (size_t i = 0; i < n; ++i) {
      const int64_t type = (*types)[i];
      vocabulary.types[i] = type >= 0 && type <= 6 ? static_cast<TokenType>(type) : TokenType::kUndefined;
      vocabulary.reserved[i] = vocabulary.types[i] == TokenType::kControl || vocabulary.types[i] == TokenType::kUnknown;
    }
  }
  if (vocabulary.model == Model::kSentencePiece) {
    vocabulary.scores.assign(n, 0.0f);
    if (const auto scores = metadata.find_reals(key("scores"))) {
      if (scores->size() < n) {
        fail(ErrorKind::kBadFile, "{}: tokenizer.ggml.scores has {} entries for {} tokens", vocabulary.source,
             scores->size(), n);
      }
      std::transform(scores->begin(), scores->begin() + static_cast<std::ptrdiff_t>(n), vocabulary.scores.begin(),
                     [](double score) { return static_cast<float>(score); });
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    vocabulary.byte_tokens[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
}

// The id a key holds. One outside the vocabulary (-1 is written for "none") counts as absent.
TokenId id_of_key(const Vocabulary& vocabulary, const Metadata& metadata, std::initializer_list<std::string_view> names,
                  TokenId fallback) {
  TokenId id = fallback >= 0 && static_cast<uint32_t>(fallback) < vocabulary.n_tokens() ? fallback : kNoToken;
  for (const std::string_view name : names) {
    const auto value = metadata.find_int(key(name));
    if (value && *value >= 0 && *value < vocabulary.n_tokens()) id = static_cast<TokenId>(*value);
  }
  return id;
}

// Corrects types and collects the end-of-generation set.
class SpecialTokens {
 public:
  SpecialTokens(Vocabulary& vocabulary, const Metadata& metadata) : vocabulary_(vocabulary), metadata_(metadata) {}

  void read() {
    vocabulary_.end_of_generation.assign(vocabulary_.n_tokens(), false);
    vocabulary_.bos = id_of_key(vocabulary_, metadata_, {"bos_token_id"}, vocabulary_.bos);
    vocabulary_.eos = id_of_key(vocabulary_, metadata_, {"eos_token_id"}, vocabulary_.eos);
    vocabulary_.unknown = id_of_key(vocabulary_, metadata_, {"unknown_token_id"}, vocabulary_.unknown);

    stop(vocabulary_.eos);
    stop(role({"eot_token_id"}, kEndOfTurn));
    stop(role({"eom_token_id"}, kEndOfMessage));
    role({"prefix_token_id", "fim_pre_token_id"}, kFimPrefix);
    role({"suffix_token_id", "fim_suf_token_id"}, kFimSuffix);
    role({"middle_token_id", "fim_mid_token_id"}, kFimMiddle);
    stop(role({"fim_pad_token_id"}, kFimPad));
    stop(role({"fim_rep_token_id"}, kFimRepository));
    stop(role({"fim_sep_token_id"}, kFimSeparator));
    for (const std::string_view text : kEndOfGeneration) {
      const TokenId id = vocabulary_.find(text);
      stop(id);
      set_type(id, TokenType::kControl);
    }
    for (const std::string_view text : kChannelTokens) set_type(vocabulary_.find(text), TokenType::kUserDefined);
    exceptions();
  }

 private:
  TokenId role(std::initializer_list<std::string_view> keys, std::span<const std::string_view> texts) {
    TokenId id = id_of_key(vocabulary_, metadata_, keys, kNoToken);
    for (const std::string_view text : texts) {
      if (id != kNoToken) break;
      id = vocabulary_.find(text);
      set_type(id, TokenType::kControl);
    }
    return id;
  }

  void stop(TokenId id) {
    if (id != kNoToken) vocabulary_.end_of_generation[static_cast<size_t>(id)] = true;
  }

  void set_type(TokenId id, TokenType type) {
    if (id != kNoToken) vocabulary_.types[static_cast<size_t>(id)] = type;
  }

  bool stops(std::string_view text) const {
    const TokenId id = vocabulary_.find(text);
    return id != kNoToken && vocabulary_.end_of_generation[static_cast<size_t>(id)];
  }

  // In these families a token of the list above is a separator inside an answer.
  void exceptions() {
    if (stops("<|end|>") && ((stops("<|return|>") && (stops("<|call|>") || stops("<|calls|>"))) ||
                             (stops("<|flush|>") && (stops("<|call|>") || stops("<|calls|>"))))) {
      const TokenId end = vocabulary_.find("<|end|>");
      vocabulary_.end_of_generation[static_cast<size_t>(end)] = false;
      set_type(end, TokenType::kUserDefined);
    }
    if (stops("<|tool_response>") && stops("</s>")) {
      const TokenId end = vocabulary_.find("</s>");
      vocabulary_.end_of_generation[static_cast<size_t>(end)] = false;
      set_type(end, TokenType::kNormal);
    }
  }

  Vocabulary& vocabulary_;
  const Metadata& metadata_;
};

void read_flags(Vocabulary& vocabulary, const Metadata& metadata) {
  if (const auto flag = metadata.find_bool(key("add_bos_token"))) vocabulary.add_bos = *flag;
  if (const auto flag = metadata.find_bool(key("add_eos_token"))) vocabulary.add_eos = *flag;
  if (vocabulary.pre != nullptr && vocabulary.pre->newline_tokens)
    vocabulary.add_bos = true;  // Gemma 4 files say false
  if (vocabulary.model == Model::kSentencePiece) {
    vocabulary.add_space_prefix = metadata.find_bool(key("add_space_prefix")).value_or(true);
  }
  // Files that ask for a token they do not have: nothing can be added.
  vocabulary.add_bos = vocabulary.add_bos && vocabulary.bos != kNoToken;
  vocabulary.add_eos = vocabulary.add_eos && vocabulary.eos != kNoToken;

  for (uint32_t id = 0; id < vocabulary.n_tokens(); ++id) {
    if (vocabulary.types[id] == TokenType::kUnused) vocabulary.suppressed.push_back(static_cast<TokenId>(id));
  }
  for (const int64_t id : metadata.find_ints(key("suppress_tokens")).value_or(std::vector<int64_t>{})) {
    if (id >= 0 && id < vocabulary.n_tokens()) vocabulary.suppressed.push_back(static_cast<TokenId>(id));
  }
  std::sort(vocabulary.suppressed.begin(), vocabulary.suppressed.end());
  vocabulary.suppressed.erase(std::unique(vocabulary.suppressed.begin(), vocabulary.suppressed.end()),
                              vocabulary.suppressed.end());
}

// Files do not carry the strip flags of added tokens; Phi-3 is the one decoder that needs them, known by its name.
void read_strip_flags(Vocabulary& vocabulary, const Metadata& metadata) {
  vocabulary.right_strip.assign(vocabulary.n_tokens(), false);
  std::string name(metadata.find_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  for (uint32_t id = 0; id < vocabulary.n_tokens(); ++id) {
    const TokenType type = vocabulary.types[id];
    const std::string_view text = vocabulary.text(static_cast<TokenId>(id));
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
    vocabulary.right_strip[id] = special && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
  }
}

}  // namespace

Vocabulary Vocabulary::load(const Metadata& metadata) {
  Vocabulary vocabulary;
  vocabulary.source = metadata.source();
  read_model(vocabulary, metadata);
  read_tokens(vocabulary, metadata);
  SpecialTokens(vocabulary, metadata).read();
  read_flags(vocabulary, metadata);
  read_strip_flags(vocabulary, metadata);
  return vocabulary;
}

}  // namespace outrider::text

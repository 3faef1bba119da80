// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/tokenizer.h"

#include "outrider/base/error.h"
#include "outrider/text/bpe.h"
#include "outrider/text/byte_alphabet.h"
#include "outrider/text/sentence_piece.h"
#include "outrider/text/special_matcher.h"
#include "outrider/text/utf8.h"
#include "outrider/text/vocabulary.h"

namespace outrider::text {
namespace {

// Offsets of symbols are 32 bits wide, and SPM writes a space as three bytes.
constexpr size_t kMaxTextBytes = size_t{1} << 29;

// The one byte of a text like <0x0A>; -1 for another text.
int byte_of_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

void append_from_alphabet(std::string& out, std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    const int byte = step.state == Utf8Step::kValid ? byte_of_alphabet(step.code_point) : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out += text.substr(pos, step.n_bytes);  // not of the alphabet: as it stands
    }
    pos += step.n_bytes;
  }
}

void append_with_spaces(std::string& out, std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos).starts_with(kSpaceMark)) {
      out += ' ';
      pos += kSpaceMark.size();
    } else {
      out += text[pos++];
    }
  }
}

class ModelTokenizer final : public Tokenizer {
 public:
  explicit ModelTokenizer(const format::Metadata& metadata)
      : vocabulary_(Vocabulary::load(metadata)), specials_(vocabulary_) {
    if (vocabulary_.model == Model::kSentencePiece) {
      sentence_piece_.load(vocabulary_);
    } else {
      bpe_.load(vocabulary_, metadata);
    }
    make_pieces();
  }

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override {
    Trust trust;
    if (options.parse_special) trust.ranges.push_back({0, text.size()});
    return encode_trusting(text, trust, options.add_special);
  }

  std::vector<TokenId> encode_spans(std::span<const TextSpan> spans, bool add_special) const override {
    std::string text;
    Trust trust;
    trust.guard_markers = true;
    for (const TextSpan& span : spans) {
      const size_t begin = text.size();
      text += span.text;
      if (!span.trusted || span.text.empty()) continue;
      if (!trust.ranges.empty() && trust.ranges.back().end == begin) {
        trust.ranges.back().end = text.size();
      } else {
        trust.ranges.push_back({begin, text.size()});
      }
    }
    return encode_trusting(text, trust, add_special);
  }

  std::string_view piece(TokenId id, bool show_special) const override {
    check(id);
    if (show_special && hidden(vocabulary_.type(id))) return vocabulary_.text(id);
    const auto i = static_cast<size_t>(id);
    return std::string_view(piece_bytes_).substr(piece_offsets_[i], piece_offsets_[i + 1] - piece_offsets_[i]);
  }

  std::string decode(std::span<const TokenId> ids, bool show_special) const override {
    std::string text;
    // encode() puts a space before every stretch of SPM text: at the start and after each token that was cut out.
    bool dummy_space = vocabulary_.add_space_prefix;
    for (const TokenId id : ids) {
      std::string_view bytes = piece(id, show_special);
      const TokenType type = vocabulary_.type(id);
      if (type == TokenType::kNormal || type == TokenType::kByte || type == TokenType::kUnknown) {
        if (dummy_space && type == TokenType::kNormal && bytes.starts_with(' ')) bytes.remove_prefix(1);
        dummy_space = false;
      } else if (type == TokenType::kControl || type == TokenType::kUserDefined) {
        dummy_space = vocabulary_.add_space_prefix;
      }
      text += bytes;
    }
    return text;
  }

  uint32_t n_tokens() const noexcept override { return vocabulary_.n_tokens(); }
  std::string_view raw_text(TokenId id) const override { return check(id), vocabulary_.text(id); }
  TokenType type(TokenId id) const override { return check(id), vocabulary_.type(id); }
  TokenId bos() const noexcept override { return vocabulary_.bos; }
  TokenId eos() const noexcept override { return vocabulary_.eos; }
  bool add_bos() const noexcept override { return vocabulary_.add_bos; }
  bool add_eos() const noexcept override { return vocabulary_.add_eos; }
  bool is_end_of_generation(TokenId id) const noexcept override {
    return id >= 0 && static_cast<uint32_t>(id) < n_tokens() && vocabulary_.end_of_generation[static_cast<size_t>(id)];
  }
  std::span<const TokenId> suppressed() const noexcept override { return vocabulary_.suppressed; }

 private:
  static bool hidden(TokenType type) { return type == TokenType::kControl || type == TokenType::kUnknown; }

  void check(TokenId id) const {
    if (id < 0 || static_cast<uint32_t>(id) >= n_tokens()) {
      fail(ErrorKind::kBadArgument, "token id {} is not in the vocabulary of {} (0 to {})", id, vocabulary_.source,
           n_tokens() - 1);
    }
  }

  void make_pieces() {
    piece_offsets_.reserve(n_tokens() + size_t{1});
    for (uint32_t i = 0; i < n_tokens(); ++i) {
      piece_offsets_.push_back(piece_bytes_.size());
      append_piece(vocabulary_.types[i], vocabulary_.text(static_cast<TokenId>(i)));
    }
    piece_offsets_.push_back(piece_bytes_.size());
  }

  void append_piece(TokenType type, std::string_view text) {
    if (hidden(type) || type == TokenType::kUndefined || type == TokenType::kUnused) return;
    const int byte = type == TokenType::kByte ? byte_of_text(text) : -1;
    if (byte >= 0) {
      piece_bytes_ += static_cast<char>(byte);
    } else if (type == TokenType::kUserDefined) {
      piece_bytes_ += text;
    } else if (vocabulary_.model == Model::kByteBpe) {
      append_from_alphabet(piece_bytes_, text);
    } else if (vocabulary_.model == Model::kSentencePiece || vocabulary_.pre->escape_spaces) {
      append_with_spaces(piece_bytes_, text);
    } else {
      piece_bytes_ += text;
    }
  }

  std::vector<TokenId> encode_trusting(std::string_view text, const Trust& trust, bool add_special) const {
    if (text.size() > kMaxTextBytes) {
      fail(ErrorKind::kBadArgument, "the text has {} bytes, more than {}", text.size(), kMaxTextBytes);
    }
    std::vector<TokenId> ids;
    if (add_special && vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
    const std::vector<Fragment> fragments = specials_.partition(text, trust);
    if (vocabulary_.model == Model::kSentencePiece) {
      encode_sentence_piece(text, fragments, ids);
    } else {
      encode_bpe(text, fragments, ids);
    }
    if (add_special && vocabulary_.add_eos) ids.push_back(vocabulary_.eos);
    return ids;
  }

  void encode_sentence_piece(std::string_view text, std::span<const Fragment> fragments,
                             std::vector<TokenId>& ids) const {
    SentencePiece::Scratch scratch;
    bool after_special = true;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        ids.push_back(fragment.token);
      } else {
        sentence_piece_.encode(vocabulary_, text.substr(fragment.begin, fragment.end - fragment.begin),
                               vocabulary_.add_space_prefix && after_special, scratch, ids);
      }
      after_special = fragment.token != kNoToken;
    }
  }

  void encode_bpe(std::string_view text, std::span<const Fragment> fragments, std::vector<TokenId>& ids) const {
    Bpe::Scratch scratch;
    std::vector<size_t> ends;
    std::string escaped;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        ids.push_back(fragment.token);
        continue;
      }
      std::string_view raw = text.substr(fragment.begin, fragment.end - fragment.begin);
      if (vocabulary_.pre->escape_spaces) {
        escaped.clear();
        for (const char c : raw) c == ' ' ? escaped.append(kSpaceMark) : escaped.append(1, c);
        raw = escaped;
      }
      ends.clear();
      pre_tokenize(raw, *vocabulary_.pre, ends);
      size_t begin = 0;
      for (const size_t end : ends) {
        bpe_.encode(vocabulary_, raw.substr(begin, end - begin), scratch, ids);
        begin = end;
      }
    }
  }

  Vocabulary vocabulary_;
  SpecialMatcher specials_;
  Bpe bpe_;
  SentencePiece sentence_piece_;
  std::string piece_bytes_;
  std::vector<size_t> piece_offsets_;
};

}  // namespace

bool Tokenizer::present(const format::Metadata& metadata) {
  const auto model = metadata.find_string("tokenizer.ggml.model");
  return model && *model != "none" && *model != "no_vocab";
}

std::unique_ptr<Tokenizer> Tokenizer::load(const format::Metadata& metadata) {
  return std::make_unique<ModelTokenizer>(metadata);
}

}  // namespace outrider::text

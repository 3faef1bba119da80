// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "outrider/base/error.h"
#include "outrider/text/jinja/unicode.h"
#include "outrider/text/jinja/value.h"

namespace outrider::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

// Every kind of line end becomes \n, and one at the very end is dropped.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(code_point(text, at))) at += code_point_bytes(text, at);
  return at;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    // Step back over continuation bytes to the start of the last code point.
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (at + code_point_bytes(text, at) != text.size()) at = text.size() - 1;
    if (!is_space(code_point(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag(at_);
      if (tag == std::string::npos) {
        push_text(rest(at_));
        break;
      }
      lex_from(tag);
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view view() const { return source_; }
  std::string_view rest(size_t from) const { return view().substr(from); }
  char peek(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  [[noreturn]] void error(const std::string& message) const { throw Fault(message, line_); }

  void push(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }
  void count_lines(std::string_view text) { line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n')); }
  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::kText, std::string(text));
  }

  size_t find_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = peek(at + 1);
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // The text before a tag, after the white-space control of that tag's start.
  std::string_view before_tag(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_print) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    return skip_space(text, line_begin) == text.size() ? text.substr(0, line_begin) : text;
  }

  // Consumes the end of a block or comment at `at` (which shows `close`): its sign, itself, and the white space after
  // it. Returns false, consuming nothing, when there is no such end here.
  bool consume_end(size_t at, std::string_view close, bool trims_newline) {
    const char sign = peek(at) == '-' || (peek(at) == '+' && trims_newline) ? peek(at) : '\0';
    const size_t begin = at;
    if (sign != '\0') ++at;
    if (rest(at).substr(0, close.size()) != close) return false;
    at += close.size();
    if (sign == '-') {
      at = skip_space(source_, at);
    } else if (sign == '\0' && trims_newline && peek(at) == '\n') {
      ++at;
    }
    finish(begin, at);
    return true;
  }

  void finish(size_t begin, size_t end) {
    count_lines(view().substr(begin, end - begin));
    line_starting_ = end > 0 && source_[end - 1] == '\n';
    at_ = end;
  }

  void lex_from(size_t tag) {
    const std::string_view text = view().substr(at_, tag - at_);
    const char type = source_[tag + 1];
    const char sign = peek(tag + 2) == '-' || peek(tag + 2) == '+' ? peek(tag + 2) : '\0';
    push_text(before_tag(text, sign, type == '{'));
    count_lines(text);
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (type == '#') {
      lex_comment(inside);
    } else if (type == '{') {
      push(TokenKind::kPrintBegin, "{{");
      at_ = inside;
      lex_expression("}}", TokenKind::kPrintEnd);
    } else if (const size_t raw = raw_begin(inside); raw != 0) {
      lex_raw(inside, raw);
    } else {
      push(TokenKind::kBlockBegin, "{%");
      at_ = inside;
      lex_expression("%}", TokenKind::kBlockEnd);
    }
  }

  void lex_comment(size_t at) {
    const size_t close = source_.find("#}", at);
    if (close == std::string::npos) error("a comment is not closed");
    const bool has_sign = close > at && (source_[close - 1] == '-' || source_[close - 1] == '+');
    const size_t end = has_sign ? close - 1 : close;
    count_lines(view().substr(at, end - at));
    static_cast<void>(consume_end(end, "#}", true));
  }

  // Where the body of a raw block begins when the tag whose inside starts at `at` opens one; else 0.
  size_t raw_begin(size_t at) const {
    at = skip_space(source_, at);
    if (rest(at).substr(0, 3) != "raw") return 0;
    at = skip_space(source_, at + 3);
    if (rest(at).substr(0, 2) == "%}") return at + 2;
    return rest(at).substr(0, 3) == "-%}" ? skip_space(source_, at + 3) : 0;
  }

  void lex_raw(size_t inside, size_t body) {
    count_lines(view().substr(inside, body - inside));
    for (size_t at = source_.find("{%", body); at != std::string::npos; at = source_.find("{%", at + 1)) {
      const char sign = peek(at + 2) == '-' || peek(at + 2) == '+' ? peek(at + 2) : '\0';
      size_t name = skip_space(source_, at + 2 + (sign != '\0' ? 1 : 0));
      if (rest(name).substr(0, 6) != "endraw") continue;
      name = skip_space(source_, name + 6);
      const std::string_view text = view().substr(body, at - body);
      line_starting_ = source_[body - 1] == '\n';
      const std::string_view kept = before_tag(text, sign, false);
      if (!consume_end(name, "%}", true)) continue;
      push_text(kept);
      count_lines(text);
      return;
    }
    error("a raw block is not closed");
  }

  void lex_expression(std::string_view close, TokenKind end_kind) {
    std::string open_brackets;
    while (true) {
      const size_t next = skip_space(source_, at_);
      count_lines(view().substr(at_, next - at_));
      at_ = next;
      if (at_ >= source_.size()) error(fmt::format("'{}' is missing at the end of the template", close));
      if (open_brackets.empty()) {
        const int line = line_;
        const size_t at = at_;
        if (consume_end(at, close, end_kind == TokenKind::kBlockEnd)) {
          push(end_kind, std::string(close));
          tokens_.back().line = line;
          return;
        }
      }
      const char c = source_[at_];
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && is_name_char(source_[at_])) ++at_;
        push(TokenKind::kName, source_.substr(begin, at_ - begin));
      } else if (c == '"' || c == '\'') {
        lex_string(c);
      } else {
        lex_operator(open_brackets);
      }
    }
  }

  void lex_operator(std::string& open_brackets) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    const std::string_view two = rest(at_).substr(0, 2);
    if (std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo)) {
      push(TokenKind::kOperator, std::string(two));
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (std::strchr("+-/*%~[](){}><=.:|,;", c) == nullptr || c == '\0') {
      error(fmt::format("unexpected character '{}'", printable(rest(at_).substr(0, code_point_bytes(source_, at_)))));
    }
    if (c == '(' || c == '[' || c == '{') open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) error(fmt::format("unexpected '{}'", c));
      if (open_brackets.back() != c) error(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
      open_brackets.pop_back();
    }
    push(TokenKind::kOperator, std::string(1, c));
    ++at_;
  }

  // Digits with single underscores between them, from `at`; returns where they end.
  size_t digits_end(size_t at) const {
    while (is_digit(peek(at)) || (peek(at) == '_' && is_digit(peek(at + 1)))) ++at;
    return at;
  }

  void lex_number() {
    const size_t begin = at_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';  // a.0.1 is two look-ups, not a float
    const char radix = static_cast<char>(peek(begin + 1) | 0x20);
    if (source_[begin] == '0' && (radix == 'x' || radix == 'o' || radix == 'b')) {
      size_t end = begin + 2;
      std::string digits;
      for (; std::isxdigit(static_cast<unsigned char>(peek(end))) != 0 || peek(end) == '_'; ++end) {
        if (source_[end] != '_') digits += source_[end];
      }
      push_integer(digits, radix == 'x' ? 16 : radix == 'o' ? 8 : 2, end);
      return;
    }
    size_t end = digits_end(begin);
    bool is_real = false;
    if (!after_dot) {
      if (peek(end) == '.' && is_digit(peek(end + 1))) {
        end = digits_end(end + 1);
        is_real = true;
      }
      if ((peek(end) | 0x20) == 'e') {
        const size_t sign = peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0;
        if (is_digit(peek(end + 1 + sign))) {
          end = digits_end(end + 1 + sign);
          is_real = true;
        }
      }
    }
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    if (!is_real) {
      push_integer(digits, 10, end);
      return;
    }
    push(TokenKind::kFloat, digits);
    tokens_.back().real = std::strtod(digits.c_str(), nullptr);
    at_ = end;
  }

  void push_integer(const std::string& digits, int base, size_t end) {
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) {
      error(fmt::format("integer '{}' does not fit into 64 bits", printable(view().substr(at_, end - at_))));
    }
    push(TokenKind::kInt, digits);
    tokens_.back().integer = value;
    at_ = end;
  }

  void lex_string(char quote) {
    const int line = line_;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) at += source_[at] == '\\' ? 2 : 1;
    if (at >= source_.size()) error("a string is not closed");
    const std::string_view raw = view().substr(at_ + 1, at - at_ - 1);
    push(TokenKind::kString, unescape(raw));
    tokens_.back().line = line;
    count_lines(raw);
    at_ = at + 1;
  }

  std::string unescape(std::string_view raw) const {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      const size_t known = kFrom.find(c);
      if (c == '\n') continue;
      if (known != std::string_view::npos) {
        out += kTo[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        i += append_escape(raw.substr(i + 1).substr(0, n), n, 16, out);
      } else if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && i + n < raw.size() && raw[i + n] >= '0' && raw[i + n] <= '7') ++n;
        i += append_escape(raw.substr(i, n), n, 8, out) - 1;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  size_t append_escape(std::string_view digits, size_t n, int base, std::string& out) const {
    uint32_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const bool whole = digits.size() == n && result.ec == std::errc() && result.ptr == digits.data() + digits.size();
    if (!whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      error("a string has a truncated or invalid escape");
    append_utf8(out, value);
    return n;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalise(source)).run(); }

}  // namespace outrider::text::jinja

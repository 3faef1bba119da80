// SPDX-License-Identifier: Apache-2.0
// The recursive-descent parser behind parser.h, shared by its two sources.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "outrider/text/jinja/ast.h"
#include "outrider/text/jinja/lexer.h"

namespace outrider::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Program run();

 private:
  // Counts one level of nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& token() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  // The current token, stepping past it; the last one stays.
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_operator(std::string_view text) const { return token().kind == TokenKind::kOperator && token().text == text; }
  bool is_name(std::string_view text) const { return token().kind == TokenKind::kName && token().text == text; }
  bool skip_operator(std::string_view text) { return is_operator(text) && (next(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (next(), true); }
  void expect_operator(std::string_view text);
  std::string expect_name(std::string_view what);
  [[noreturn]] void error(const std::string& message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  NameId intern(const std::string& name);
  ExprPtr make(ExprKind kind, int line) const;

  ExprPtr parse_expression(bool allow_conditional = true);
  ExprPtr parse_operators(int min_level);
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_bracketed(int line);
  ExprPtr parse_tuple(bool allow_conditional, bool may_be_empty);
  ExprPtr parse_suffixes(ExprPtr base, bool with_filters);
  bool parse_postfix(std::vector<Suffix>& suffixes);
  void parse_subscript(Suffix& suffix);
  Arguments parse_arguments();
  void parse_filters_and_tests(std::vector<Suffix>& suffixes);
  void parse_filter(std::vector<Suffix>& suffixes);
  void parse_test(std::vector<Suffix>& suffixes);
  void note_unknown(std::string_view what, const std::string& name);
  void note_special_name(const std::string& name);

  // Statements up to a block whose name is in `ends`; that name is the current token afterwards.
  Body parse_body(const std::vector<std::string_view>& ends);
  Body parse_until(std::string_view end);  // ... and past that block
  StmtPtr parse_statement();
  void parse_if(Stmt& stmt);
  void parse_for(Stmt& stmt);
  void parse_set(Stmt& stmt);
  void parse_macro(Stmt& stmt);
  void parse_call(Stmt& stmt);
  void parse_with(Stmt& stmt);
  void parse_parameters(MacroDef& macro);
  Target parse_target(bool allow_attribute, bool allow_tuple);
  Target parse_one_target(bool allow_attribute);
  void expect_block_end();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // enclosing for-loops within this macro
  // Jinja2 lets an unknown filter or test pass where a condition may keep it from being reached; others are errors.
  int soft_ = 0;                                      // enclosing conditions
  std::vector<std::pair<std::string, int>> unknown_;  // complaint and line
  std::vector<MacroDef*> macros_;                     // whose bodies enclose this place
  Program program_;
  std::unordered_map<std::string, NameId> name_ids_;
};

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Expressions. Statements are in parser_statements.cc.
#include "outrider/text/jinja/parser.h"

#include "outrider/base/error.h"
#include "outrider/text/jinja/builtins.h"
#include "outrider/text/jinja/parser_impl.h"

namespace outrider::text::jinja {
namespace {

// From loose to tight. "not" sits between and & comparison and is handled apart.
enum Level : int { kOrLevel, kAndLevel, kNotLevel, kCompareLevel, kSumLevel, kConcatLevel, kProductLevel, kPowerLevel };

struct BinaryOperator {
  int level = -1;
  ExprKind kind = ExprKind::kArithmetic;
  Op op = Op::kNone;
  int n_tokens = 1;
};

BinaryOperator operator_at(const Token& token, const Token& next) {
  if (token.kind == TokenKind::kName) {
    if (token.text == "or") return {kOrLevel, ExprKind::kOr};
    if (token.text == "and") return {kAndLevel, ExprKind::kAnd};
    if (token.text == "in") return {kCompareLevel, ExprKind::kCompare, Op::kIn};
    if (token.text == "not" && next.kind == TokenKind::kName && next.text == "in") {
      return {kCompareLevel, ExprKind::kCompare, Op::kNotIn, 2};
    }
    return {};
  }
  if (token.kind != TokenKind::kOperator) return {};
  struct Row {
    const char* text;
    BinaryOperator op;
  };
  static constexpr Row kRows[] = {
      {"==", {kCompareLevel, ExprKind::kCompare, Op::kEq}},
      {"!=", {kCompareLevel, ExprKind::kCompare, Op::kNe}},
      {"<", {kCompareLevel, ExprKind::kCompare, Op::kLt}},
      {"<=", {kCompareLevel, ExprKind::kCompare, Op::kLe}},
      {">", {kCompareLevel, ExprKind::kCompare, Op::kGt}},
      {">=", {kCompareLevel, ExprKind::kCompare, Op::kGe}},
      {"+", {kSumLevel, ExprKind::kArithmetic, Op::kAdd}},
      {"-", {kSumLevel, ExprKind::kArithmetic, Op::kSub}},
      {"~", {kConcatLevel, ExprKind::kConcat}},
      {"*", {kProductLevel, ExprKind::kArithmetic, Op::kMul}},
      {"/", {kProductLevel, ExprKind::kArithmetic, Op::kDiv}},
      {"//", {kProductLevel, ExprKind::kArithmetic, Op::kFloorDiv}},
      {"%", {kProductLevel, ExprKind::kArithmetic, Op::kMod}},
      {"**", {kPowerLevel, ExprKind::kArithmetic, Op::kPow}},
  };
  for (const Row& row : kRows) {
    if (token.text == row.text) return row.op;
  }
  return {};
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser.depth_ > kMaxNesting) parser.error(fmt::format("more than {} levels of nesting", kMaxNesting));
}

void Parser::error(const std::string& message) const { throw Fault(message, token().line); }

void Parser::unexpected(std::string_view wanted) const {
  error(token().kind == TokenKind::kEnd ? fmt::format("expected {}, got the end of the template", wanted)
                                        : fmt::format("expected {}, got '{}'", wanted, printable(token().text, 40)));
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) unexpected(fmt::format("'{}'", text));
}

std::string Parser::expect_name(std::string_view what) {
  if (token().kind != TokenKind::kName) unexpected(what);
  return next().text;
}

NameId Parser::intern(const std::string& name) {
  const auto [it, is_new] = name_ids_.emplace(name, static_cast<NameId>(program_.names.size()));
  if (is_new) program_.names.push_back(name);
  return it->second;
}

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr Parser::parse_expression(bool allow_conditional) {
  const Nesting nesting(*this);
  const int line = token().line;
  const size_t n_unknown = unknown_.size();
  ExprPtr value = parse_operators(kOrLevel);
  while (allow_conditional && skip_name("if")) {
    unknown_.resize(n_unknown);  // the value may never be asked for
    ExprPtr whole = make(ExprKind::kConditional, line);
    whole->items.push_back(std::move(value));
    ++soft_;
    whole->items.push_back(parse_operators(kOrLevel));
    if (skip_name("else")) whole->items.push_back(parse_expression());
    --soft_;
    value = std::move(whole);
  }
  return value;
}

ExprPtr Parser::parse_operators(int min_level) {
  const Nesting nesting(*this);
  const int line = token().line;
  ExprPtr left;
  if (min_level <= kNotLevel && is_name("not")) {
    next();
    left = make(ExprKind::kNot, line);
    left->items.push_back(parse_operators(kNotLevel));
  } else {
    left = parse_unary(true);
  }
  int open_level = -1;  // the level whose chain `left` is, when this loop made it
  while (true) {
    const BinaryOperator found = operator_at(token(), peek());
    if (found.level < min_level || found.level < 0) return left;
    for (int i = 0; i < found.n_tokens; ++i) next();
    ExprPtr right = parse_operators(found.level + 1);
    if (open_level != found.level) {
      ExprPtr chain = make(found.kind, line);
      chain->items.push_back(std::move(left));
      left = std::move(chain);
      open_level = found.level;
    }
    left->items.push_back(std::move(right));
    left->ops.push_back(found.op);
  }
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = token().line;
  ExprPtr expr;
  if (is_operator("-") || is_operator("+")) {
    expr = make(next().text == "-" ? ExprKind::kNegate : ExprKind::kPlus, line);
    expr->items.push_back(parse_unary(false));
  } else {
    expr = parse_primary();
  }
  return parse_suffixes(std::move(expr), with_filters);
}

ExprPtr Parser::parse_primary() {
  const int line = token().line;
  ExprPtr expr = make(ExprKind::kConstant, line);
  switch (token().kind) {
    case TokenKind::kName: {
      const std::string name = next().text;
      if (name == "true" || name == "True") {
        expr->constant = Value::boolean(true);
      } else if (name == "false" || name == "False") {
        expr->constant = Value::boolean(false);
      } else if (name == "none" || name == "None") {
        expr->constant = Value::none();
      } else {
        expr->kind = ExprKind::kName;
        expr->name = intern(name);
        note_special_name(name);
      }
      return expr;
    }
    case TokenKind::kString: {
      std::string text = next().text;
      while (token().kind == TokenKind::kString) text += next().text;
      expr->constant = Value::string(constant_str(std::move(text)));
      return expr;
    }
    case TokenKind::kInt:
      expr->constant = Value::integer(next().integer);
      return expr;
    case TokenKind::kFloat:
      expr->constant = Value::real(next().real);
      return expr;
    case TokenKind::kOperator:
      return parse_bracketed(line);
    default:
      unexpected("an expression");
  }
}

ExprPtr Parser::parse_bracketed(int line) {
  if (skip_operator("(")) {
    ExprPtr inner = parse_tuple(true, true);
    expect_operator(")");
    return inner;
  }
  if (skip_operator("[")) {
    ExprPtr list = make(ExprKind::kList, line);
    while (!is_operator("]")) {
      if (!list->items.empty()) expect_operator(",");
      if (is_operator("]")) break;
      list->items.push_back(parse_expression());
    }
    expect_operator("]");
    return list;
  }
  if (skip_operator("{")) {
    ExprPtr dict = make(ExprKind::kDict, line);
    while (!is_operator("}")) {
      if (!dict->items.empty()) expect_operator(",");
      if (is_operator("}")) break;
      dict->items.push_back(parse_expression());
      expect_operator(":");
      dict->items.push_back(parse_expression());
    }
    expect_operator("}");
    return dict;
  }
  unexpected("an expression");
}

// One expression, or a tuple when there are commas. `may_be_empty`: "()" is the empty tuple.
ExprPtr Parser::parse_tuple(bool allow_conditional, bool may_be_empty) {
  const int line = token().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return token().kind == TokenKind::kPrintEnd || token().kind == TokenKind::kBlockEnd || is_operator(")") ||
           (!allow_conditional && is_name("recursive"));
  };
  while (!at_end()) {
    items.push_back(parse_expression(allow_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !may_be_empty) unexpected("an expression");
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->items = std::move(items);
  return tuple;
}

ExprPtr Parser::parse_suffixes(ExprPtr base, bool with_filters) {
  std::vector<Suffix> suffixes;
  while (token().kind == TokenKind::kOperator && parse_postfix(suffixes)) {
  }
  if (with_filters) parse_filters_and_tests(suffixes);
  if (suffixes.empty()) return base;
  ExprPtr expr = make(ExprKind::kSuffixed, base != nullptr ? base->line : token().line);
  expr->items.push_back(std::move(base));
  expr->suffixes = std::move(suffixes);
  return expr;
}

bool Parser::parse_postfix(std::vector<Suffix>& suffixes) {
  Suffix suffix;
  suffix.line = token().line;
  if (skip_operator(".")) {
    if (token().kind == TokenKind::kInt) {
      suffix.kind = SuffixKind::kItem;
      ExprPtr index = make(ExprKind::kConstant, token().line);
      index->constant = Value::integer(next().integer);
      suffix.args.positional.push_back(std::move(index));
    } else {
      suffix.name = constant_str(expect_name("a name or number after '.'"));
    }
  } else if (skip_operator("[")) {
    parse_subscript(suffix);
    expect_operator("]");
  } else if (is_operator("(")) {
    suffix.kind = SuffixKind::kCall;
    suffix.args = parse_arguments();
  } else {
    return false;
  }
  suffixes.push_back(std::move(suffix));
  return true;
}

void Parser::parse_subscript(Suffix& suffix) {
  suffix.kind = SuffixKind::kItem;
  const int line = token().line;
  if (!is_operator(":")) {
    ExprPtr first = parse_expression();
    if (!is_operator(":")) {
      if (is_operator(",")) {
        ExprPtr tuple = make(ExprKind::kTuple, line);
        tuple->items.push_back(std::move(first));
        while (skip_operator(",")) tuple->items.push_back(parse_expression());
        first = std::move(tuple);
      }
      suffix.args.positional.push_back(std::move(first));
      return;
    }
    suffix.from = std::move(first);
  }
  expect_operator(":");
  suffix.kind = SuffixKind::kSlice;
  if (!is_operator("]") && !is_operator(":")) suffix.to = parse_expression();
  if (skip_operator(":") && !is_operator("]")) suffix.step = parse_expression();
}

Arguments Parser::parse_arguments() {
  Arguments args;
  expect_operator("(");
  bool first = true;
  while (!is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (is_operator(")")) break;
    }
    first = false;
    if (skip_operator("**")) {
      args.spread_named = parse_expression();
    } else if (skip_operator("*")) {
      args.spread = parse_expression();
    } else if (token().kind == TokenKind::kName && peek().kind == TokenKind::kOperator && peek().text == "=") {
      std::string name = next().text;
      next();
      args.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!args.named.empty() || args.spread_named != nullptr) error("a positional argument follows a named one");
      args.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  return args;
}

void Parser::parse_filters_and_tests(std::vector<Suffix>& suffixes) {
  while (true) {
    if (is_operator("|")) {
      next();
      parse_filter(suffixes);
    } else if (is_name("is")) {
      parse_test(suffixes);
    } else if (is_operator("(")) {
      static_cast<void>(parse_postfix(suffixes));
    } else {
      return;
    }
  }
}

void Parser::parse_filter(std::vector<Suffix>& suffixes) {
  Suffix suffix;
  suffix.kind = SuffixKind::kFilter;
  suffix.line = token().line;
  std::string name = expect_name("a filter's name");
  while (skip_operator(".")) name += "." + expect_name("a filter's name");
  if (find_filter(name) == nullptr) note_unknown("filter", name);
  suffix.name = constant_str(std::move(name));
  if (is_operator("(")) suffix.args = parse_arguments();
  suffixes.push_back(std::move(suffix));
}

void Parser::note_unknown(std::string_view what, const std::string& name) {
  if (soft_ == 0) unknown_.emplace_back(fmt::format("no {} named '{}'", what, printable(name, 40)), token().line);
}

void Parser::parse_test(std::vector<Suffix>& suffixes) {
  next();
  Suffix suffix;
  suffix.kind = skip_name("not") ? SuffixKind::kTestNot : SuffixKind::kTest;
  suffix.line = token().line;
  std::string name = expect_name("a test's name");
  while (skip_operator(".")) name += "." + expect_name("a test's name");
  if (find_test(name) == nullptr) note_unknown("test", name);
  suffix.name = constant_str(std::move(name));
  const TokenKind kind = token().kind;
  if (is_operator("(")) {
    suffix.args = parse_arguments();
  } else if ((kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and")) ||
             kind == TokenKind::kString || kind == TokenKind::kInt || kind == TokenKind::kFloat || is_operator("[") ||
             is_operator("{")) {
    if (is_name("is")) error("tests cannot be chained with 'is'");
    const Nesting nesting(*this);
    suffix.args.positional.push_back(parse_suffixes(parse_primary(), false));
  }
  suffixes.push_back(std::move(suffix));
}

Program parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace outrider::text::jinja

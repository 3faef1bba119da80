// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "outrider/base/error.h"
#include "outrider/text/jinja/parser.h"
#include "outrider/text/jinja/parser_impl.h"

namespace outrider::text::jinja {

Program Parser::run() {
  program_.loop = intern("loop");
  program_.caller = intern("caller");
  program_.varargs = intern("varargs");
  program_.kwargs = intern("kwargs");
  program_.body = parse_body({});
  if (!unknown_.empty()) throw Fault(unknown_[0].first, unknown_[0].second);
  return std::move(program_);
}

void Parser::note_special_name(const std::string& name) {
  // As in Jinja2, a macro also uses what the macros inside it use.
  for (MacroDef* const macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
  }
}

void Parser::expect_block_end() {
  if (token().kind != TokenKind::kBlockEnd) unexpected("'%}'");
  next();
}

Body Parser::parse_body(const std::vector<std::string_view>& ends) {
  const Nesting nesting(*this);
  Body body;
  while (true) {
    const int line = token().line;
    switch (token().kind) {
      case TokenKind::kText: {
        auto stmt = std::make_unique<Stmt>();
        stmt->line = line;
        stmt->text = constant_str(next().text);
        body.push_back(std::move(stmt));
        break;
      }
      case TokenKind::kPrintBegin: {
        next();
        auto stmt = std::make_unique<Stmt>();
        stmt->kind = StmtKind::kPrint;
        stmt->line = line;
        stmt->expr = parse_tuple(true, false);
        if (token().kind != TokenKind::kPrintEnd) unexpected("'}}'");
        next();
        body.push_back(std::move(stmt));
        break;
      }
      case TokenKind::kBlockBegin:
        next();
        if (token().kind != TokenKind::kName) unexpected("a tag's name");
        if (std::find(ends.begin(), ends.end(), token().text) != ends.end()) return body;
        body.push_back(parse_statement());
        break;
      default:
        if (!ends.empty()) unexpected(fmt::format("'{}'", fmt::join(ends, "' or '")));
        return body;
    }
  }
}

Body Parser::parse_until(std::string_view end) {
  Body body = parse_body({end});
  next();
  expect_block_end();
  return body;
}

StmtPtr Parser::parse_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = token().line;
  const std::string tag = token().text;
  if (tag == "if") {
    parse_if(*stmt);
  } else if (tag == "for") {
    parse_for(*stmt);
  } else if (tag == "set") {
    parse_set(*stmt);
  } else if (tag == "macro") {
    parse_macro(*stmt);
  } else if (tag == "call") {
    parse_call(*stmt);
  } else if (tag == "with") {
    parse_with(*stmt);
  } else if (tag == "filter") {
    next();
    stmt->kind = StmtKind::kFilter;
    std::vector<Suffix> suffixes;
    parse_filter(suffixes);
    parse_filters_and_tests(suffixes);
    stmt->filter = make(ExprKind::kSuffixed, stmt->line);
    stmt->filter->suffixes = std::move(suffixes);
    expect_block_end();
    stmt->body = parse_until("endfilter");
  } else if (tag == "generation") {
    next();
    stmt->kind = StmtKind::kScope;
    expect_block_end();
    stmt->body = parse_until("endgeneration");
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0) error(fmt::format("'{}' outside of a loop", tag));
    next();
    stmt->kind = tag == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    expect_block_end();
  } else {
    error(fmt::format("unknown tag '{}'", printable(tag, 40)));
  }
  return stmt;
}

void Parser::parse_if(Stmt& stmt) {
  stmt.kind = StmtKind::kIf;
  ++soft_;
  while (true) {
    if (skip_name("else")) {
      expect_block_end();
      stmt.else_body = parse_until("endif");
      break;
    }
    if (skip_name("endif")) {
      expect_block_end();
      break;
    }
    next();  // if or elif
    Branch branch;
    branch.condition = parse_tuple(false, false);
    expect_block_end();
    branch.body = parse_body({"elif", "else", "endif"});
    stmt.branches.push_back(std::move(branch));
  }
  --soft_;
}

Target Parser::parse_one_target(bool allow_attribute) {
  Target target;
  if (skip_operator("(")) {
    const Nesting nesting(*this);
    target = parse_target(false, true);
    expect_operator(")");
    return target;
  }
  const std::string name = expect_name("a name to assign to");
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    error(fmt::format("cannot assign to '{}'", name));
  }
  target.name = intern(name);
  if (allow_attribute && skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.attribute = expect_name("an attribute's name");
  }
  return target;
}

Target Parser::parse_target(bool allow_attribute, bool allow_tuple) {
  Target first = parse_one_target(allow_attribute);
  if (!allow_tuple || !is_operator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (token().kind != TokenKind::kName && !is_operator("(")) break;
    if (is_name("in")) break;
    tuple.items.push_back(parse_one_target(false));
  }
  return tuple;
}

void Parser::parse_for(Stmt& stmt) {
  stmt.kind = StmtKind::kFor;
  next();
  stmt.target = parse_target(false, true);
  if (!skip_name("in")) unexpected("'in'");
  stmt.expr = parse_tuple(false, false);
  if (skip_name("if")) stmt.filter = parse_expression();
  stmt.recursive = skip_name("recursive");
  expect_block_end();
  ++loops_;
  const int soft = std::exchange(soft_, 0);
  stmt.body = parse_body({"else", "endfor"});
  soft_ = soft;
  --loops_;
  if (skip_name("else")) {
    expect_block_end();
    stmt.else_body = parse_body({"endfor"});
  }
  next();
  expect_block_end();
}

void Parser::parse_set(Stmt& stmt) {
  next();
  stmt.target = parse_target(true, true);
  if (skip_operator("=")) {
    stmt.kind = StmtKind::kSet;
    stmt.expr = parse_tuple(true, false);
    expect_block_end();
    return;
  }
  stmt.kind = StmtKind::kSetBlock;
  std::vector<Suffix> suffixes;
  parse_filters_and_tests(suffixes);
  if (!suffixes.empty()) {
    stmt.filter = make(ExprKind::kSuffixed, stmt.line);
    stmt.filter->suffixes = std::move(suffixes);
  }
  expect_block_end();
  stmt.body = parse_until("endset");
}

void Parser::parse_parameters(MacroDef& macro) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    Parameter parameter;
    parameter.name = parse_one_target(false).name;
    if (skip_operator("=")) {
      parameter.fallback = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      error("a parameter without default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_operator(")");
}

void Parser::parse_macro(Stmt& stmt) {
  stmt.kind = StmtKind::kMacro;
  next();
  stmt.macro.name = expect_name("a macro's name");
  stmt.name = intern(stmt.macro.name);
  const int loops = std::exchange(loops_, 0);
  const int soft = std::exchange(soft_, 0);
  parse_parameters(stmt.macro);
  expect_block_end();
  macros_.push_back(&stmt.macro);
  stmt.macro.body = parse_until("endmacro");
  macros_.pop_back();
  loops_ = loops;
  soft_ = soft;
}

void Parser::parse_call(Stmt& stmt) {
  stmt.kind = StmtKind::kCall;
  next();
  stmt.macro.name = "caller";
  if (is_operator("(")) parse_parameters(stmt.macro);
  stmt.expr = parse_expression();
  if (stmt.expr->kind != ExprKind::kSuffixed || stmt.expr->suffixes.back().kind != SuffixKind::kCall) {
    error("a call tag needs a call");
  }
  expect_block_end();
  macros_.push_back(&stmt.macro);
  const int loops = std::exchange(loops_, 0);
  stmt.macro.body = parse_until("endcall");
  loops_ = loops;
  macros_.pop_back();
}

void Parser::parse_with(Stmt& stmt) {
  stmt.kind = StmtKind::kWith;
  next();
  while (token().kind != TokenKind::kBlockEnd) {
    if (!stmt.bindings.empty()) expect_operator(",");
    Target target = parse_one_target(false);
    expect_operator("=");
    stmt.bindings.emplace_back(std::move(target), parse_expression());
  }
  expect_block_end();
  stmt.body = parse_until("endwith");
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// The parsed template. Operators of one level and suffixes (.a[b](c)|f is t) are stored as flat lists, so the depth of
// the tree is the depth of nesting in the source, which the parser bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "outrider/text/jinja/value.h"

namespace outrider::text::jinja {

using NameId = uint32_t;  // index into Program::names

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr spread, spread_named;  // *args, **kwargs
};

enum class SuffixKind : uint8_t { kAttribute, kItem, kSlice, kCall, kFilter, kTest, kTestNot };
struct Suffix {
  SuffixKind kind = SuffixKind::kAttribute;
  int line = 0;
  StrRef name;             // of an attribute, filter or test
  Arguments args;          // of a call, filter or test; item: positional[0]
  ExprPtr from, to, step;  // of a slice; each may be absent
};

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,  // kDict: keys and values in turn
  kNot,
  kNegate,
  kPlus,
  kOr,
  kAnd,
  kCompare,
  kArithmetic,
  kConcat,       // n operands in items, n - 1 operators in ops
  kConditional,  // value, condition[, otherwise]
  kSuffixed,     // items[0] and suffixes
};
enum class Op : uint8_t {
  kNone,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  Value constant;
  NameId name = 0;
  std::vector<ExprPtr> items;
  std::vector<Op> ops;
  std::vector<Suffix> suffixes;
};

// What set and for write to.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple } kind = Kind::kName;
  NameId name = 0;
  std::string attribute;
  std::vector<Target> items;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Parameter {
  NameId name = 0;
  ExprPtr fallback;  // null: none
};

struct MacroDef {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Branch {
  ExprPtr condition;
  Body body;
};

enum class StmtKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCall,
  kFilter,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  StrRef text;     // kText
  ExprPtr expr;    // printed, iterated or assigned value; the called macro of kCall
  ExprPtr filter;  // for: the condition; kSetBlock and kFilter: filters applied to the captured text, or null
  Target target;   // for, set
  std::vector<Branch> branches;  // if
  Body body, else_body;          // for, if (else), captured blocks
  bool recursive = false;
  std::vector<std::pair<Target, ExprPtr>> bindings;  // with
  MacroDef macro;                                    // kMacro, and the block of kCall
  NameId name = 0;                                   // of a macro
};

struct Program {
  Body body;
  std::vector<std::string> names;
  NameId loop = 0, caller = 0, varargs = 0, kwargs = 0;  // the special names
};

}  // namespace outrider::text::jinja

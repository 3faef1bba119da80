// SPDX-License-Identifier: Apache-2.0
// Walks the syntax tree. Every node costs a step and nesting is counted, so a hostile template ends in a Fault.
// Threads: one Interpreter and its Heap per render; the Program is only read.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "outrider/text/jinja/ast.h"
#include "outrider/text/jinja/builtins.h"
#include "outrider/text/jinja/value.h"

namespace outrider::text::jinja {

// The variables of one scope; loop bodies, macros and captured blocks open one, if does not.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;
  bool captured = false;  // a macro refers to it, so it outlives its block
};

class Interpreter {
 public:
  // `now`: seconds since the epoch, for strftime_now.
  Interpreter(const Program& program, Heap& heap, int64_t now) : program_(program), heap_(heap), now_(now) {}

  // Throws Fault with the line at which it happened.
  void run(DictObj* variables, StrBuilder& out);

  Heap& heap() noexcept { return heap_; }
  int64_t now() const noexcept { return now_; }

  // a.name: attribute or method first, then key. a[key]: key first. Missing: undefined with a hint.
  Value attribute(const Value& object, const StrRef& name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, CallArgs& args);
  Value apply_filter(std::string_view name, CallArgs& args);
  bool apply_test(std::string_view name, CallArgs& args);
  Value add(const Value& a, const Value& b);
  Value arithmetic(Op op, const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);

  // For callables.
  Value call_macro(const MacroDef& macro, Scope* closure, CallArgs& args);
  Value call_loop(const Stmt& stmt, Scope* scope, const Value& sequence, int64_t depth);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter.depth_ > interpreter.heap_.limits().eval_depth)
        fault("the template nests or recurses too deeply");
    }
    ~Depth() { --interpreter_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& interpreter_;
  };

  Flow execute(const Body& body, Scope* scope, StrBuilder& out);
  Flow execute_branches(const Stmt& stmt, Scope* scope, StrBuilder& out);
  Flow run_loop(const Stmt& stmt, const Value& sequence, Scope* scope, int64_t depth, StrBuilder& out);
  std::vector<Value> loop_items(const Stmt& stmt, const Value& sequence, Scope* scope);
  void execute_macro(const Stmt& stmt, Scope* scope);
  void execute_call(const Stmt& stmt, Scope* scope, StrBuilder& out);
  void execute_captured(const Stmt& stmt, Scope* scope, StrBuilder& out);
  Flow execute_scoped(const Stmt& stmt, Scope* scope, StrBuilder& out);
  void assign(const Target& target, Value value, Scope* scope);

  Value evaluate(const Expr& expr, Scope* scope);
  Value evaluate_items(const Expr& expr, Scope* scope);
  Value evaluate_logic(const Expr& expr, Scope* scope);
  Value evaluate_compare(const Expr& expr, Scope* scope);
  Value evaluate_arithmetic(const Expr& expr, Scope* scope);
  Value evaluate_unary(const Expr& expr, Scope* scope);
  Value evaluate_conditional(const Expr& expr, Scope* scope);
  Value evaluate_suffixed(const Expr& expr, Scope* scope, const Value* caller = nullptr);
  Value evaluate_suffixes(const Expr& expr, Value value, Scope* scope, const Value* caller = nullptr);
  Value apply_suffix(const Suffix& suffix, Value value, Scope* scope, const Value* caller);
  Value slice(const Value& object, const Suffix& suffix, Scope* scope);
  CallArgs evaluate_arguments(const Arguments& arguments, Scope* scope, const Value* first);
  bool holds(Op op, const Value& a, const Value& b);
  Value add_texts(const Value& a, const Value& b);
  Value lookup(NameId name, Scope* scope);
  Value missing(const Value& object, std::string_view name);

  Scope* open_scope(Scope* parent);
  void close_scope(Scope* scope);
  static void capture(Scope* scope);

  const Program& program_;
  Heap& heap_;
  int64_t now_;
  DictObj* variables_ = nullptr;
  std::unordered_map<std::string_view, Value> globals_;
  std::vector<Scope*> free_scopes_;
  uint32_t depth_ = 0;
  int line_ = 0;
  // Inside the arguments of raise_exception undefined counts as "": the template's message must come through.
  int lenient_ = 0;
};

// Wraps raise_exception, so that its arguments can be evaluated leniently.
bool is_raise_exception(const Value& value);
// Integer and float arithmetic of Python, in arithmetic.cc.
Value number_arithmetic(Op op, const Value& a, const Value& b);
const char* op_text(Op op);
// The price of reading a string once.
void charge_text(Heap& heap, const Value& value);

}  // namespace outrider::text::jinja

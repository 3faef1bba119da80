// SPDX-License-Identifier: Apache-2.0
// Statements and scopes. Expressions are in evaluate.cc.
#include "outrider/text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

namespace outrider::text::jinja {
namespace {

struct MacroObj : CallableObj {
  const MacroDef* def = nullptr;
  Scope* closure = nullptr;
  Value call(Interpreter& interpreter, CallArgs& args) override { return interpreter.call_macro(*def, closure, args); }
  std::string describe() const override { return "<Macro '" + def->name + "'>"; }
  bool attribute(Interpreter& interpreter, std::string_view name, Value& value) override {
    if (name != "name") return false;
    value = Value::string(interpreter.heap().make_str(def->name));
    return true;
  }
};

struct RecurseObj : CallableObj {
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;
  int64_t depth = 1;
  Value call(Interpreter& interpreter, CallArgs& args) override {
    if (args.positional.size() != 1 || !args.named.empty()) fault("loop() takes one sequence");
    return interpreter.call_loop(*stmt, scope, args.positional[0], depth + 1);
  }
  std::string describe() const override { return "<LoopContext>"; }
};

}  // namespace

Scope* Interpreter::open_scope(Scope* parent) {
  Scope* scope = nullptr;
  if (free_scopes_.empty()) {
    scope = heap_.make<Scope>();
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::close_scope(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

void Interpreter::capture(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

void Interpreter::run(DictObj* variables, StrBuilder& out) {
  variables_ = variables;
  try {
    execute(program_.body, open_scope(nullptr), out);
  } catch (const Fault& e) {
    throw Fault(e.what(), e.line() != 0 ? e.line() : line_, e.from_template());
  }
}

Interpreter::Flow Interpreter::execute(const Body& body, Scope* scope, StrBuilder& out) {
  const Depth depth(*this);
  for (const StmtPtr& stmt : body) {
    heap_.charge(1);
    line_ = stmt->line;
    Flow flow = Flow::kNext;
    switch (stmt->kind) {
      case StmtKind::kText:
        out.append(*stmt->text);
        break;
      case StmtKind::kPrint:
        print(evaluate(*stmt->expr, scope), out, heap_);
        break;
      case StmtKind::kIf:
        flow = execute_branches(*stmt, scope, out);
        break;
      case StmtKind::kFor:
        flow = run_loop(*stmt, evaluate(*stmt->expr, scope), scope, 1, out);
        break;
      case StmtKind::kSet:
        assign(stmt->target, evaluate(*stmt->expr, scope), scope);
        break;
      case StmtKind::kSetBlock:
      case StmtKind::kFilter:
        execute_captured(*stmt, scope, out);
        break;
      case StmtKind::kMacro:
        execute_macro(*stmt, scope);
        break;
      case StmtKind::kCall:
        execute_call(*stmt, scope, out);
        break;
      case StmtKind::kWith:
      case StmtKind::kScope:
        flow = execute_scoped(*stmt, scope, out);
        break;
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_branches(const Stmt& stmt, Scope* scope, StrBuilder& out) {
  for (const Branch& branch : stmt.branches) {
    if (truthy(evaluate(*branch.condition, scope))) return execute(branch.body, scope, out);
  }
  return execute(stmt.else_body, scope, out);
}

std::vector<Value> Interpreter::loop_items(const Stmt& stmt, const Value& sequence, Scope* scope) {
  std::vector<Value> items = iterate(heap_, sequence);
  if (stmt.filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    Scope* const inner = open_scope(scope);
    assign(stmt.target, item, inner);
    const bool keep = truthy(evaluate(*stmt.filter, inner));
    close_scope(inner);
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const Value& sequence, Scope* scope, int64_t depth,
                                        StrBuilder& out) {
  const std::vector<Value> items = loop_items(stmt, sequence, scope);
  heap_.grow(items.size() * sizeof(Value));
  LoopObj* const loop = heap_.make<LoopObj>();
  loop->items = &items;
  loop->length = items.size();
  loop->depth = depth;
  if (stmt.recursive) {
    auto* recurse = heap_.make<RecurseObj>();
    recurse->stmt = &stmt;
    recurse->scope = scope;
    recurse->depth = depth;
    capture(scope);
    loop->recurse = recurse;
  }
  // As in Jinja2, only a round that runs to its end keeps the else-branch from running.
  bool completed_one = false;
  for (size_t i = 0; i < items.size(); ++i) {
    heap_.charge(1);
    loop->index0 = i;
    Scope* const inner = open_scope(scope);
    inner->variables.emplace_back(program_.loop, Value(loop));
    assign(stmt.target, items[i], inner);
    const Flow flow = execute(stmt.body, inner, out);
    close_scope(inner);
    if (flow == Flow::kNext) completed_one = true;
    if (flow == Flow::kBreak) break;
  }
  loop->items = nullptr;
  heap_.shrink(items.size() * sizeof(Value));
  if (completed_one || stmt.else_body.empty()) return Flow::kNext;
  Scope* const inner = open_scope(scope);
  const Flow flow = execute(stmt.else_body, inner, out);
  close_scope(inner);
  return flow;
}

Value Interpreter::call_loop(const Stmt& stmt, Scope* scope, const Value& sequence, int64_t depth) {
  const Depth guard(*this);
  StrBuilder out(heap_);
  static_cast<void>(run_loop(stmt, sequence, scope, depth, out));
  return out.take_value();
}

void Interpreter::execute_macro(const Stmt& stmt, Scope* scope) {
  auto* macro = heap_.make<MacroObj>();
  macro->def = &stmt.macro;
  macro->closure = scope;
  capture(scope);
  Target target;
  target.name = stmt.name;
  assign(target, Value(macro), scope);
}

void Interpreter::execute_call(const Stmt& stmt, Scope* scope, StrBuilder& out) {
  auto* caller = heap_.make<MacroObj>();
  caller->def = &stmt.macro;
  caller->closure = scope;
  capture(scope);
  const Value value(caller);
  print(evaluate_suffixed(*stmt.expr, scope, &value), out, heap_);
}

void Interpreter::execute_captured(const Stmt& stmt, Scope* scope, StrBuilder& out) {
  StrBuilder inside(heap_);
  Scope* const inner = open_scope(scope);
  static_cast<void>(execute(stmt.body, inner, inside));
  close_scope(inner);
  Value value = inside.take_value();
  if (stmt.filter != nullptr) value = evaluate_suffixes(*stmt.filter, std::move(value), scope);
  if (stmt.kind == StmtKind::kSetBlock) {
    assign(stmt.target, std::move(value), scope);
  } else {
    print(value, out, heap_);
  }
}

Interpreter::Flow Interpreter::execute_scoped(const Stmt& stmt, Scope* scope, StrBuilder& out) {
  Scope* const inner = open_scope(scope);
  for (const auto& [target, expr] : stmt.bindings) assign(target, evaluate(*expr, scope), inner);
  const Flow flow = execute(stmt.body, inner, out);
  close_scope(inner);
  return flow;
}

void Interpreter::assign(const Target& target, Value value, Scope* scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      for (auto& [name, slot] : scope->variables) {
        if (name == target.name) {
          slot = std::move(value);
          return;
        }
      }
      if (scope->captured) heap_.grow(sizeof(scope->variables[0]));
      scope->variables.emplace_back(target.name, std::move(value));
      return;
    case Target::Kind::kAttribute: {
      const Value object = lookup(target.name, scope);
      if (!object.is(Kind::kNamespace)) fault("cannot assign attribute on non-namespace object");
      object.ns()->fields->set(heap_, Value::string(heap_.make_str(target.attribute)), std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      std::vector<Value> parts = iterate(heap_, value);
      if (parts.size() != target.items.size()) {
        fault("{} values to unpack (expected {})", parts.size() < target.items.size() ? "not enough" : "too many",
              target.items.size());
      }
      for (size_t i = 0; i < parts.size(); ++i) assign(target.items[i], std::move(parts[i]), scope);
    }
  }
}

Value Interpreter::call_macro(const MacroDef& macro, Scope* closure, CallArgs& args) {
  const Depth guard(*this);
  Scope* const scope = open_scope(closure);
  const size_t n = macro.parameters.size();
  const auto bind = [&](NameId name, Value value) { scope->variables.emplace_back(name, std::move(value)); };

  std::vector<Value> extra;
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i < n) {
      bind(macro.parameters[i].name, std::move(args.positional[i]));
    } else if (macro.uses_varargs) {
      extra.push_back(std::move(args.positional[i]));
    } else {
      fault("macro '{}' takes not more than {} argument(s)", macro.name, n);
    }
  }
  const size_t n_bound = std::min(n, args.positional.size());
  DictObj* const extra_named = heap_.make<DictObj>();
  bool has_caller = false;
  for (auto& [name, value] : args.named) {
    const auto parameter =
        std::find_if(macro.parameters.begin(), macro.parameters.end(),
                     [this, &wanted = name](const Parameter& p) { return program_.names[p.name] == wanted; });
    if (parameter != macro.parameters.end()) {
      if (parameter < macro.parameters.begin() + static_cast<std::ptrdiff_t>(n_bound)) {
        fault("macro '{}' got two values for argument '{}'", macro.name, name);
      }
      bind(parameter->name, std::move(value));
    } else if (name == "caller" && macro.uses_caller) {
      bind(program_.caller, std::move(value));
      has_caller = true;
    } else if (macro.uses_kwargs) {
      extra_named->set(heap_, Value::string(heap_.make_str(name)), std::move(value));
    } else {
      fault("macro '{}' takes no keyword argument '{}'", macro.name, name);
    }
  }
  for (size_t i = n_bound; i < n; ++i) {
    const Parameter& p = macro.parameters[i];
    const bool given =
        std::any_of(scope->variables.begin(), scope->variables.end(), [&](const auto& v) { return v.first == p.name; });
    if (given) continue;
    bind(p.name, p.fallback != nullptr
                     ? evaluate(*p.fallback, scope)
                     : Value::undefined(heap_.make_str("parameter '" + program_.names[p.name] + "' was not provided")));
  }
  if (macro.uses_caller && !has_caller) bind(program_.caller, Value::undefined(heap_.make_str("No caller defined")));
  if (macro.uses_varargs) bind(program_.varargs, heap_.make_list(std::move(extra), ListFlavor::kTuple));
  if (macro.uses_kwargs) bind(program_.kwargs, extra_named);

  StrBuilder out(heap_);
  static_cast<void>(execute(macro.body, scope, out));
  close_scope(scope);
  return out.take_value();
}

}  // namespace outrider::text::jinja

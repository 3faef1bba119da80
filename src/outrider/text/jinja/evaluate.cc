// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <algorithm>

#include "outrider/base/error.h"
#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {

void charge_text(Heap& heap, const Value& value) {
  if (value.is_string()) heap.charge(value.text().size() / 64);
}

Value Interpreter::lookup(NameId name, Scope* scope) {
  for (const Scope* at = scope; at != nullptr; at = at->parent) {
    for (const auto& variable : at->variables) {
      if (variable.first == name) return variable.second;
    }
  }
  const std::string& text = program_.names[name];
  if (const int64_t at = variables_->find(text); at >= 0) return variables_->entries[static_cast<size_t>(at)].second;
  auto it = globals_.find(text);
  if (it == globals_.end()) it = globals_.emplace(text, make_global(heap_, text)).first;
  if (!it->second.is_undefined()) return it->second;
  return Value::undefined(heap_.make_str("'" + text + "' is undefined"));
}

Value Interpreter::evaluate(const Expr& expr, Scope* scope) {
  const Depth depth(*this);
  heap_.charge(1);
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return lookup(expr.name, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
    case ExprKind::kConcat:
      return evaluate_items(expr, scope);
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return evaluate_unary(expr, scope);
    case ExprKind::kOr:
    case ExprKind::kAnd:
      return evaluate_logic(expr, scope);
    case ExprKind::kCompare:
      return evaluate_compare(expr, scope);
    case ExprKind::kArithmetic:
      return evaluate_arithmetic(expr, scope);
    case ExprKind::kConditional:
      return evaluate_conditional(expr, scope);
    case ExprKind::kSuffixed:
      return evaluate_suffixed(expr, scope);
  }
  return {};
}

Value Interpreter::evaluate_items(const Expr& expr, Scope* scope) {
  if (expr.kind == ExprKind::kConcat) {
    StrBuilder out(heap_);
    for (const ExprPtr& item : expr.items) print(evaluate(*item, scope), out, heap_);
    return out.take_value();
  }
  if (expr.kind == ExprKind::kDict) {
    DictObj* const dict = heap_.make<DictObj>();
    for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
      const Value key = evaluate(*expr.items[i], scope);
      dict->set(heap_, key, evaluate(*expr.items[i + 1], scope));
    }
    return dict;
  }
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(evaluate(*item, scope));
  return heap_.make_list(std::move(items), expr.kind == ExprKind::kTuple ? ListFlavor::kTuple : ListFlavor::kList);
}

Value Interpreter::evaluate_unary(const Expr& expr, Scope* scope) {
  const Value value = evaluate(*expr.items[0], scope);
  if (expr.kind == ExprKind::kNot) return Value::boolean(!truthy(value));
  if (value.is_undefined()) fault("{}", value.undefined_text());
  if (!value.is_number())
    fault("bad operand type for unary {}: '{}'", expr.kind == ExprKind::kPlus ? "+" : "-", type_name(value));
  if (value.is(Kind::kFloat)) return Value::real(expr.kind == ExprKind::kPlus ? value.as_real() : -value.as_real());
  return number_arithmetic(expr.kind == ExprKind::kPlus ? Op::kAdd : Op::kSub, Value::integer(0), value);
}

Value Interpreter::evaluate_logic(const Expr& expr, Scope* scope) {
  Value value;
  for (const ExprPtr& item : expr.items) {
    value = evaluate(*item, scope);
    if (truthy(value) == (expr.kind == ExprKind::kOr)) break;
  }
  return value;
}

Value Interpreter::evaluate_compare(const Expr& expr, Scope* scope) {
  Value left = evaluate(*expr.items[0], scope);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1], scope);
    line_ = expr.line;
    if (!holds(expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_arithmetic(const Expr& expr, Scope* scope) {
  Value left = evaluate(*expr.items[0], scope);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = evaluate(*expr.items[i + 1], scope);
    line_ = expr.line;
    left = arithmetic(expr.ops[i], left, right);
  }
  return left;
}

Value Interpreter::evaluate_conditional(const Expr& expr, Scope* scope) {
  if (truthy(evaluate(*expr.items[1], scope))) return evaluate(*expr.items[0], scope);
  if (expr.items.size() > 2) return evaluate(*expr.items[2], scope);
  return Value::undefined(
      heap_.make_str("the inline if-expression evaluated to false and no else section was defined"));
}

bool Interpreter::holds(Op op, const Value& a, const Value& b) {
  // NaN is unordered: compare() calls it greater, and no order holds for it.
  const auto is_nan = [](const Value& v) { return v.is(Kind::kFloat) && v.as_real() != v.as_real(); };
  const auto ordered = [&] { return !is_nan(a) && !is_nan(b); };
  switch (op) {
    case Op::kEq:
      return equals(heap_, a, b);
    case Op::kNe:
      return !equals(heap_, a, b);
    case Op::kLt:
      return compare(heap_, a, b, "<") < 0 && ordered();
    case Op::kLe:
      return compare(heap_, a, b, "<=") <= 0 && ordered();
    case Op::kGt:
      return compare(heap_, a, b, ">") > 0 && ordered();
    case Op::kGe:
      return compare(heap_, a, b, ">=") >= 0 && ordered();
    case Op::kIn:
      return contains(b, a);
    case Op::kNotIn:
      return !contains(b, a);
    default:
      return false;
  }
}

bool Interpreter::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) {
        if (lenient_ > 0 && item.is_undefined()) return false;
        fault("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      heap_.charge(container.text().size() / 64);
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      charge_text(heap_, item);
      return container.dict()->find(item) >= 0;
    case Kind::kList: {
      const std::vector<Value>& items = container.list()->items;
      return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equals(heap_, v, item); });
    }
    case Kind::kGenerator: {
      GeneratorObj& generator = *container.generator();
      while (generator.next < generator.items.size()) {
        if (equals(heap_, generator.items[generator.next++], item)) return true;
      }
      return false;
    }
    default:
      fault("argument of type '{}' is not iterable", type_name(container));
  }
}

Value Interpreter::add_texts(const Value& a, const Value& b) {
  StrBuilder out(heap_);
  const bool markup = a.str()->markup || b.str()->markup;
  for (const Value* part : {&a, &b}) {
    if (markup && !part->str()->markup) {
      out.append(*escape_html(heap_, *part->str()));
    } else {
      out.append(*part->str());
    }
  }
  return out.take_value(markup);
}

Value Interpreter::add(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number_arithmetic(Op::kAdd, a, b);
  if (lenient_ > 0 && (a.is_undefined() || b.is_undefined() || a.is_string() || b.is_string())) {
    return add_texts(Value::string(to_str(a, heap_)), Value::string(to_str(b, heap_)));
  }
  if (a.is_undefined()) fault("{}", a.undefined_text());
  if (b.is_undefined()) fault("{}", b.undefined_text());
  if (a.is_string() && b.is_string()) return add_texts(a, b);
  if (a.is_string()) fault("can only concatenate str (not \"{}\") to str", type_name(b));
  if (a.is(Kind::kList) && b.is(Kind::kList)) {
    const auto kind_of = [](const Value& v) {
      return v.list()->flavor == ListFlavor::kGroup ? ListFlavor::kTuple : v.list()->flavor;
    };
    if (kind_of(a) == kind_of(b) && kind_of(a) <= ListFlavor::kTuple) {
      heap_.charge(a.list()->items.size() + b.list()->items.size());
      std::vector<Value> items = a.list()->items;
      items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
      return heap_.make_list(std::move(items), kind_of(a));
    }
  }
  fault("unsupported operand type(s) for +: '{}' and '{}'", type_name(a), type_name(b));
}

Value Interpreter::arithmetic(Op op, const Value& a, const Value& b) {
  if (op == Op::kAdd) return add(a, b);
  if (a.is_number() && b.is_number()) return number_arithmetic(op, a, b);
  if (a.is_undefined()) fault("{}", a.undefined_text());
  if (op == Op::kMod && a.is_string()) return Value::string(format_percent(*this, a.str(), b));
  if (b.is_undefined()) fault("{}", b.undefined_text());
  if (op == Op::kMul && (a.is_integral() || b.is_integral())) {
    const Value& what = a.is_integral() ? b : a;
    const auto n = static_cast<uint64_t>(std::max<int64_t>(0, a.is_integral() ? a.as_int() : b.as_int()));
    if (what.is_string()) {
      if (n > 0 && what.text().size() > heap_.limits().text_bytes / n)
        fault("a text of the template grows past {} bytes", heap_.limits().text_bytes);
      StrBuilder out(heap_);
      for (uint64_t i = 0; i < n && !what.text().empty(); ++i) out.append(*what.str());
      return out.take_value(what.str()->markup);
    }
    if (what.is(Kind::kList) && what.list()->flavor <= ListFlavor::kTuple) {
      const std::vector<Value>& part = what.list()->items;
      if (n > 0 && part.size() > heap_.limits().live_bytes / sizeof(Value) / n)
        fault("a list of the template grows too long");
      heap_.charge(n * part.size());
      std::vector<Value> items;
      items.reserve(n * part.size());
      for (uint64_t i = 0; i < n && !part.empty(); ++i) items.insert(items.end(), part.begin(), part.end());
      return heap_.make_list(std::move(items), what.list()->flavor);
    }
  }
  fault("unsupported operand type(s) for {}: '{}' and '{}'", op_text(op), type_name(a), type_name(b));
}

Value Interpreter::evaluate_suffixed(const Expr& expr, Scope* scope, const Value* caller) {
  return evaluate_suffixes(expr, evaluate(*expr.items[0], scope), scope, caller);
}

Value Interpreter::evaluate_suffixes(const Expr& expr, Value value, Scope* scope, const Value* caller) {
  for (const Suffix& suffix : expr.suffixes) {
    const bool is_last = &suffix == &expr.suffixes.back();
    value = apply_suffix(suffix, std::move(value), scope, is_last ? caller : nullptr);
  }
  return value;
}

Value Interpreter::apply_suffix(const Suffix& suffix, Value value, Scope* scope, const Value* caller) {
  heap_.charge(1);
  line_ = suffix.line;
  switch (suffix.kind) {
    case SuffixKind::kAttribute:
      return attribute(value, suffix.name);
    case SuffixKind::kItem: {
      const Value key = evaluate(*suffix.args.positional[0], scope);
      line_ = suffix.line;
      return item(value, key);
    }
    case SuffixKind::kSlice:
      return slice(value, suffix, scope);
    case SuffixKind::kCall: {
      const bool raises = is_raise_exception(value);
      if (raises) ++lenient_;
      CallArgs args = evaluate_arguments(suffix.args, scope, nullptr);
      if (caller != nullptr) args.named.emplace_back("caller", *caller);
      line_ = suffix.line;
      Value result = call(value, args);
      line_ = suffix.line;
      return result;
    }
    case SuffixKind::kFilter: {
      CallArgs args = evaluate_arguments(suffix.args, scope, &value);
      line_ = suffix.line;
      return apply_filter(suffix.name->text, args);
    }
    case SuffixKind::kTest:
    case SuffixKind::kTestNot: {
      CallArgs args = evaluate_arguments(suffix.args, scope, &value);
      line_ = suffix.line;
      return Value::boolean(apply_test(suffix.name->text, args) == (suffix.kind == SuffixKind::kTest));
    }
  }
  return {};
}

CallArgs Interpreter::evaluate_arguments(const Arguments& arguments, Scope* scope, const Value* first) {
  CallArgs args;
  args.positional.reserve(arguments.positional.size() + 1);
  if (first != nullptr) args.positional.push_back(*first);
  for (const ExprPtr& expr : arguments.positional) args.positional.push_back(evaluate(*expr, scope));
  for (const Value& value : args.positional) charge_text(heap_, value);
  for (const auto& [name, expr] : arguments.named) {
    const bool twice = std::any_of(args.named.begin(), args.named.end(),
                                   [&wanted = name](const auto& a) { return a.first == wanted; });
    if (twice) fault("keyword argument '{}' is given twice", name);
    args.named.emplace_back(name, evaluate(*expr, scope));
  }
  if (arguments.spread != nullptr) {
    for (Value& value : iterate(heap_, evaluate(*arguments.spread, scope))) args.positional.push_back(std::move(value));
  }
  if (arguments.spread_named != nullptr) {
    const Value spread = evaluate(*arguments.spread_named, scope);
    if (!spread.is(Kind::kDict)) fault("argument after ** must be a mapping, not {}", type_name(spread));
    for (const auto& [key, value] : spread.dict()->entries) {
      if (!key.is_string()) fault("keywords must be strings");
      args.named.emplace_back(std::string(key.text()), value);
    }
  }
  return args;
}

Value Interpreter::call(const Value& callee, CallArgs& args) {
  if (callee.is(Kind::kCallable)) return callee.callable()->call(*this, args);
  if (callee.is(Kind::kLoop) && callee.loop()->recurse != nullptr) return callee.loop()->recurse->call(*this, args);
  if (callee.is(Kind::kLoop)) fault("the loop is not recursive: it needs the 'recursive' marker to be called");
  if (callee.is_undefined()) fault("{}", callee.undefined_text());
  fault("'{}' object is not callable", type_name(callee));
}

Value Interpreter::apply_filter(std::string_view name, CallArgs& args) {
  const FilterFn filter = find_filter(name);
  if (filter == nullptr) fault("no filter named '{}'", printable(name, 40));
  const Depth depth(*this);
  charge_text(heap_, args.positional[0]);
  return filter(*this, args);
}

bool Interpreter::apply_test(std::string_view name, CallArgs& args) {
  const TestFn test = find_test(name);
  if (test == nullptr) fault("no test named '{}'", printable(name, 40));
  const Depth depth(*this);
  charge_text(heap_, args.positional[0]);
  return test(*this, args);
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Argument matching, tests and global functions.
#include "outrider/text/jinja/builtins.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "outrider/base/error.h"
#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {

Bound::Bound(std::string_view what, const CallArgs& args, std::initializer_list<std::string_view> parameters,
             size_t n_required, size_t skip)
    : what_(what), names_(parameters), values_(parameters.size(), nullptr) {
  if (args.positional.size() > skip + names_.size()) {
    fault("{} takes at most {} argument(s), got {}", what, names_.size(), args.positional.size() - skip);
  }
  for (size_t i = skip; i < args.positional.size(); ++i) values_[i - skip] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) fault("{} got an unexpected keyword argument '{}'", what, printable(name, 40));
    const Value*& slot = values_[static_cast<size_t>(it - names_.begin())];
    if (slot != nullptr) fault("{} got two values for argument '{}'", what, name);
    slot = &value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (values_[i] == nullptr) fault("{} lacks its argument '{}'", what, names_[i]);
  }
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (!values_[i]->is_integral())
    fault("{}: argument '{}' must be an integer, not {}", what_, names_[i], type_name(*values_[i]));
  return values_[i]->as_int();
}

bool Bound::flag(size_t i, bool fallback) const { return has(i) ? truthy(*values_[i]) : fallback; }

StrRef Bound::text(size_t i) const {
  if (!has(i) || values_[i]->is_none()) return nullptr;
  if (!values_[i]->is_string())
    fault("{}: argument '{}' must be str, not {}", what_, names_[i], type_name(*values_[i]));
  return values_[i]->str();
}

namespace {

const Value& subject(const CallArgs& args) { return args.positional[0]; }

template <Kind kKind>
bool test_kind(Interpreter&, CallArgs& args) {
  return subject(args).is(kKind);
}

bool test_defined(Interpreter&, CallArgs& args) { return !subject(args).is_undefined(); }
bool test_boolean(Interpreter&, CallArgs& args) { return subject(args).is(Kind::kBool); }
bool test_true(Interpreter&, CallArgs& args) { return subject(args).is(Kind::kBool) && truthy(subject(args)); }
bool test_false(Interpreter&, CallArgs& args) { return subject(args).is(Kind::kBool) && !truthy(subject(args)); }
bool test_number(Interpreter&, CallArgs& args) { return subject(args).is_number(); }
bool test_iterable(Interpreter&, CallArgs& args) { return is_iterable(subject(args)); }
bool test_sequence(Interpreter&, CallArgs& args) {
  const Value& v = subject(args);
  return v.is_undefined() || v.is_string() || v.is(Kind::kDict) ||
         (v.is(Kind::kList) && v.list()->flavor <= ListFlavor::kRange);
}
bool test_callable(Interpreter&, CallArgs& args) {
  // An undefined value of Jinja2 has a call operator, one that fails.
  return subject(args).is(Kind::kCallable) || subject(args).is(Kind::kLoop) || subject(args).is_undefined();
}
bool test_escaped(Interpreter&, CallArgs& args) { return subject(args).is_string() && subject(args).str()->markup; }

bool has_rest(Interpreter& in, const Value& value, const Value& divisor) {
  return !equals(in.heap(), in.arithmetic(Op::kMod, value, divisor), Value::integer(0));
}
bool test_even(Interpreter& in, CallArgs& args) { return !has_rest(in, subject(args), Value::integer(2)); }
bool test_odd(Interpreter& in, CallArgs& args) {
  return equals(in.heap(), in.arithmetic(Op::kMod, subject(args), Value::integer(2)), Value::integer(1));
}
bool test_divisibleby(Interpreter& in, CallArgs& args) {
  const Bound b("test 'divisibleby'", args, {"value", "num"}, 2);
  return !has_rest(in, b[0], b[1]);
}

const Value& operand(const CallArgs& args, const char* test) {
  if (args.positional.size() != 2 || !args.named.empty()) fault("test '{}' takes one argument", test);
  return args.positional[1];
}
bool test_eq(Interpreter& in, CallArgs& args) { return equals(in.heap(), subject(args), operand(args, "eq")); }
bool test_ne(Interpreter& in, CallArgs& args) { return !equals(in.heap(), subject(args), operand(args, "ne")); }
bool test_lt(Interpreter& in, CallArgs& args) {
  return compare(in.heap(), subject(args), operand(args, "lt"), "<") < 0;
}
bool test_le(Interpreter& in, CallArgs& args) {
  return compare(in.heap(), subject(args), operand(args, "le"), "<=") <= 0;
}
bool test_gt(Interpreter& in, CallArgs& args) {
  return compare(in.heap(), subject(args), operand(args, "gt"), ">") > 0;
}
bool test_ge(Interpreter& in, CallArgs& args) {
  return compare(in.heap(), subject(args), operand(args, "ge"), ">=") >= 0;
}
bool test_in(Interpreter& in, CallArgs& args) { return in.contains(operand(args, "in"), subject(args)); }
bool test_sameas(Interpreter& in, CallArgs& args) {
  const Value& a = subject(args);
  const Value& b = operand(args, "sameas");
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::kList)) return a.list() == b.list();
  if (a.is(Kind::kDict)) return a.dict() == b.dict();
  if (a.is_string()) return a.str() == b.str() || a.text() == b.text();
  return equals(in.heap(), a, b);
}
bool cased_as(Interpreter& in, CallArgs& args, bool want_upper) {
  bool any = false;
  const StrRef text = to_str(subject(args), in.heap());
  for (size_t at = 0; at < text->text.size(); at += code_point_bytes(text->text, at)) {
    const uint32_t c = code_point(text->text, at);
    if (!is_cased(c)) continue;
    if ((want_upper ? to_upper(c) : to_lower(c)) != c) return false;
    any = true;
  }
  return any;
}
bool test_upper(Interpreter& in, CallArgs& args) { return cased_as(in, args, true); }
bool test_lower(Interpreter& in, CallArgs& args) { return cased_as(in, args, false); }
bool test_filter(Interpreter&, CallArgs& args) {
  return subject(args).is_string() && find_filter(subject(args).text()) != nullptr;
}
bool test_test(Interpreter&, CallArgs& args) {
  return subject(args).is_string() && find_test(subject(args).text()) != nullptr;
}

constexpr Named<TestFn> kTests[] = {
    {"!=", test_ne},
    {"<", test_lt},
    {"<=", test_le},
    {"==", test_eq},
    {">", test_gt},
    {">=", test_ge},
    {"boolean", test_boolean},
    {"callable", test_callable},
    {"defined", test_defined},
    {"divisibleby", test_divisibleby},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"escaped", test_escaped},
    {"even", test_even},
    {"false", test_false},
    {"filter", test_filter},
    {"float", test_kind<Kind::kFloat>},
    {"ge", test_ge},
    {"greaterthan", test_gt},
    {"gt", test_gt},
    {"in", test_in},
    {"integer", test_kind<Kind::kInt>},
    {"iterable", test_iterable},
    {"le", test_le},
    {"lessthan", test_lt},
    {"lower", test_lower},
    {"lt", test_lt},
    {"mapping", test_kind<Kind::kDict>},
    {"ne", test_ne},
    {"none", test_kind<Kind::kNone>},
    {"number", test_number},
    {"odd", test_odd},
    {"sameas", test_sameas},
    {"sequence", test_sequence},
    {"string", test_kind<Kind::kString>},
    {"test", test_test},
    {"true", test_true},
    {"undefined", test_kind<Kind::kUndefined>},
    {"upper", test_upper},
};

// A global function. Those with state are classes of their own.
struct Function : CallableObj {
  using Fn = Value (*)(Interpreter&, CallArgs&);
  Fn fn = nullptr;
  std::string_view name;
  Value call(Interpreter& interpreter, CallArgs& args) override { return fn(interpreter, args); }
  std::string describe() const override { return fmt::format("<function {}>", name); }
};

Value call_range(Interpreter& in, CallArgs& args) {
  const Bound b("range()", args, {"start", "stop", "step"}, 1);
  const int64_t start = b.has(1) ? b.integer(0, 0) : 0;
  const int64_t stop = b.has(1) ? b.integer(1, 0) : b.integer(0, 0);
  const int64_t step = b.integer(2, 1);
  if (step == 0) fault("range() arg 3 must not be zero");
  // The sandbox of Jinja2 has the same limit.
  constexpr uint64_t kMaxRange = 100000;
  const bool empty = step > 0 ? stop <= start : stop >= start;
  const auto low = static_cast<uint64_t>(step > 0 ? start : stop);
  const auto high = static_cast<uint64_t>(step > 0 ? stop : start);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (high - low - 1) / stride + 1;
  if (count > kMaxRange) fault("range too big: the sandbox blocks ranges larger than 100000");
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    // Unsigned: the product may leave 64 bits on the way although the sum does not.
    items.push_back(
        Value::integer(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  ListObj* const list = in.heap().make_list(std::move(items), ListFlavor::kRange);
  list->start = start;
  list->stop = stop;
  list->step = step;
  return list;
}

DictObj* dict_of(Interpreter& in, CallArgs& args, const char* what) {
  Heap& heap = in.heap();
  DictObj* const dict = heap.make<DictObj>();
  if (args.positional.size() > 1) fault("{} takes at most one positional argument", what);
  for (const Value& source : args.positional) {
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict()->entries) dict->set(heap, key, value);
      continue;
    }
    for (const Value& pair : iterate(heap, source)) {
      std::vector<Value> parts = iterate(heap, pair);
      if (parts.size() != 2) fault("{}: an element has {} parts, 2 are required", what, parts.size());
      dict->set(heap, parts[0], parts[1]);
    }
  }
  for (auto& [name, value] : args.named) dict->set(heap, Value::string(heap.make_str(name)), value);
  return dict;
}

Value call_dict(Interpreter& in, CallArgs& args) { return dict_of(in, args, "dict()"); }

Value call_namespace(Interpreter& in, CallArgs& args) {
  auto* ns = in.heap().make<NamespaceObj>();
  ns->fields = dict_of(in, args, "namespace()");
  return ns;
}

Value call_raise_exception(Interpreter& in, CallArgs& args) {
  if (args.positional.size() != 1 || !args.named.empty()) fault("raise_exception() takes one argument");
  throw Fault(to_str(args.positional[0], in.heap())->text, 0, true);
}

Value call_strftime_now(Interpreter& in, CallArgs& args) {
  const Bound b("strftime_now()", args, {"format"}, 1);
  const StrRef format = b.text(0);
  if (format == nullptr) fault("strftime_now() needs a format");
  return Value::string(in.heap().make_str(format_time(format->text, in.now()), format->untrusted.empty()));
}

struct Joiner : CallableObj {
  Value separator;
  bool used = false;
  Value call(Interpreter& in, CallArgs&) override {
    if (!used) {
      used = true;
      return Value::string(in.heap().make_str(""));
    }
    return separator;
  }
  std::string describe() const override { return "<joiner>"; }
};

Value call_joiner(Interpreter& in, CallArgs& args) {
  const Bound b("joiner()", args, {"sep"}, 0);
  auto* joiner = in.heap().make<Joiner>();
  joiner->separator = b.has(0) ? b[0] : Value::string(in.heap().make_str(", "));
  return joiner;
}

struct Cycler : CallableObj {
  struct Step : CallableObj {
    Cycler* cycler = nullptr;
    bool resets = false;
    Value call(Interpreter&, CallArgs&) override {
      if (resets) {
        cycler->at = 0;
        return Value::none();
      }
      Value value = cycler->items[cycler->at];
      cycler->at = (cycler->at + 1) % cycler->items.size();
      return value;
    }
    std::string describe() const override { return "<method of Cycler>"; }
  };
  std::vector<Value> items;
  size_t at = 0;
  Value call(Interpreter&, CallArgs&) override { fault("'Cycler' object is not callable"); }
  std::string describe() const override { return "<Cycler>"; }
  bool attribute(Interpreter& in, std::string_view name, Value& value) override {
    if (name == "current") {
      value = items[at];
      return true;
    }
    if (name != "next" && name != "reset") return false;
    auto* step = in.heap().make<Step>();
    step->cycler = this;
    step->resets = name == "reset";
    value = step;
    return true;
  }
};

Value call_cycler(Interpreter& in, CallArgs& args) {
  if (args.positional.empty() || !args.named.empty()) fault("cycler() needs at least one item");
  auto* cycler = in.heap().make<Cycler>();
  cycler->items = args.positional;
  return cycler;
}

constexpr Named<Function::Fn> kFunctions[] = {
    {"cycler", call_cycler},
    {"dict", call_dict},
    {"joiner", call_joiner},
    {"namespace", call_namespace},
    {"range", call_range},
    {"raise_exception", call_raise_exception},
    {"strftime_now", call_strftime_now},
};

}  // namespace

TestFn find_test(std::string_view name) {
  for (const auto& row : kTests) {
    if (row.name == name) return row.fn;
  }
  return nullptr;
}

FilterFn find_filter(std::string_view name) {
  const FilterFn filter = find_text_filter(name);
  return filter != nullptr ? filter : find_sequence_filter(name);
}

Value make_global(Heap& heap, std::string_view name) {
  for (const auto& row : kFunctions) {
    if (row.name != name) continue;
    auto* function = heap.make<Function>();
    function->fn = row.fn;
    function->name = row.name;
    return function;
  }
  return {};
}

bool is_raise_exception(const Value& value) {
  if (!value.is(Kind::kCallable)) return false;
  const auto* function = dynamic_cast<const Function*>(value.callable());
  return function != nullptr && function->fn == call_raise_exception;
}

std::string format_time(const std::string& format, int64_t now) {
  if (format.size() > 1024) fault("strftime_now(): the format is longer than 1024 bytes");
  const auto seconds = static_cast<std::time_t>(now);
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) fault("strftime_now(): the time {} has no calendar date", now);
  // A mark in front tells an empty result from one that did not fit.
  const std::string marked = "x" + format;
  std::string buffer(16384, '\0');
  const size_t n = std::strftime(buffer.data(), buffer.size(), marked.c_str(), &local);
  if (n == 0) fault("strftime_now(): the result is longer than {} bytes", buffer.size());
  return buffer.substr(1, n - 1);
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices.
#include <algorithm>

#include "outrider/base/error.h"
#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {
namespace {

struct BoundMethod : CallableObj {
  Value self;
  MethodFn fn = nullptr;
  std::string name;
  Value call(Interpreter& interpreter, CallArgs& args) override {
    charge_text(interpreter.heap(), self);
    return fn(interpreter, self, args);
  }
  std::string describe() const override {
    return fmt::format("<built-in method {} of {} object>", name, type_name(self));
  }
};

// loop.cycle and loop.changed.
struct LoopMethod : CallableObj {
  LoopObj* loop = nullptr;
  bool is_cycle = false;
  Value call(Interpreter& interpreter, CallArgs& args) override {
    if (!args.named.empty()) fault("loop.{} takes no keyword arguments", is_cycle ? "cycle" : "changed");
    if (is_cycle) {
      if (args.positional.empty()) fault("no items for cycling given");
      return args.positional[loop->index0 % args.positional.size()];
    }
    Heap& heap = interpreter.heap();
    const std::vector<Value>& now = args.positional;
    const bool same = loop->changed_once && now.size() == loop->last_changed.size() &&
                      std::equal(now.begin(), now.end(), loop->last_changed.begin(),
                                 [&](const Value& a, const Value& b) { return equals(heap, a, b); });
    loop->changed_once = true;
    loop->last_changed = now;
    return Value::boolean(!same);
  }
  std::string describe() const override {
    return fmt::format("<bound method LoopContext.{}>", is_cycle ? "cycle" : "changed");
  }
};

Value loop_method(Heap& heap, LoopObj* loop, bool is_cycle) {
  auto* method = heap.make<LoopMethod>();
  method->loop = loop;
  method->is_cycle = is_cycle;
  return method;
}

// False: no such attribute.
bool loop_attribute(Heap& heap, LoopObj* loop, std::string_view name, Value& value) {
  const auto index = static_cast<int64_t>(loop->index0);
  const auto length = static_cast<int64_t>(loop->length);
  const auto neighbour = [&](int64_t at, const char* hint) {
    if (loop->items == nullptr || at < 0 || at >= length) return Value::undefined(heap.make_str(hint));
    return (*loop->items)[static_cast<size_t>(at)];
  };
  if (name == "index") {
    value = Value::integer(index + 1);
  } else if (name == "index0") {
    value = Value::integer(index);
  } else if (name == "revindex") {
    value = Value::integer(length - index);
  } else if (name == "revindex0") {
    value = Value::integer(length - index - 1);
  } else if (name == "first") {
    value = Value::boolean(index == 0);
  } else if (name == "last") {
    value = Value::boolean(index + 1 == length);
  } else if (name == "length") {
    value = Value::integer(length);
  } else if (name == "depth") {
    value = Value::integer(loop->depth);
  } else if (name == "depth0") {
    value = Value::integer(loop->depth - 1);
  } else if (name == "previtem") {
    value = neighbour(index - 1, "there is no previous item");
  } else if (name == "nextitem") {
    value = neighbour(index + 1, "there is no next item");
  } else if (name == "cycle" || name == "changed") {
    value = loop_method(heap, loop, name == "cycle");
  } else {
    return false;
  }
  return true;
}

int64_t clamp_index(const Value& bound, int64_t fallback, int64_t length, int64_t low, int64_t high) {
  if (bound.is_none()) return fallback;
  int64_t at = bound.as_int();
  if (at < 0) at = at < -length ? low : at + length;
  return std::clamp(at, low, high);
}

}  // namespace

Value Interpreter::missing(const Value& object, std::string_view name) {
  const std::string what = object.is_none() ? "None" : fmt::format("'{} object'", type_name(object));
  return Value::undefined(heap_.make_str(fmt::format("{} has no attribute '{}'", what, printable(name))));
}

Value Interpreter::attribute(const Value& object, const StrRef& name) {
  const std::string_view text = name->text;
  if (object.is_undefined()) {
    if (lenient_ > 0) return object;
    fault("{}", object.undefined_text());
  }
  if (text.substr(0, 2) == "__" && text.size() > 4 && text.substr(text.size() - 2) == "__") {
    return Value::undefined(heap_.make_str(fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                                       printable(text), type_name(object))),
                            true);
  }
  if (const MethodFn fn = find_method(object, text); fn != nullptr) {
    auto* method = heap_.make<BoundMethod>();
    method->self = object;
    method->fn = fn;
    method->name = text;
    return method;
  }
  Value value;
  switch (object.kind()) {
    case Kind::kDict:
      if (const int64_t at = object.dict()->find(text); at >= 0)
        return object.dict()->entries[static_cast<size_t>(at)].second;
      break;
    case Kind::kNamespace:
      if (const int64_t at = object.ns()->fields->find(text); at >= 0) {
        return object.ns()->fields->entries[static_cast<size_t>(at)].second;
      }
      break;
    case Kind::kList:
      if (object.list()->flavor == ListFlavor::kGroup && text == "grouper") return object.list()->items[0];
      if (object.list()->flavor == ListFlavor::kGroup && text == "list") return object.list()->items[1];
      break;
    case Kind::kLoop:
      if (loop_attribute(heap_, object.loop(), text, value)) return value;
      break;
    case Kind::kCallable:
      if (object.callable()->attribute(*this, text, value)) return value;
      break;
    default:
      break;
  }
  return missing(object, text);
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    if (lenient_ > 0) return object;
    fault("{}", object.undefined_text());
  }
  charge_text(heap_, key);
  if (object.is(Kind::kDict)) {
    // An unhashable key is no key, and undefined equals no key of a message.
    if (!key.is(Kind::kDict) && !(key.is(Kind::kList) && key.list()->flavor != ListFlavor::kTuple)) {
      if (const int64_t at = object.dict()->find(key); at >= 0)
        return object.dict()->entries[static_cast<size_t>(at)].second;
    }
  }
  if (key.is_integral()) {
    int64_t index = key.as_int();
    if (object.is(Kind::kList) && object.list()->flavor <= ListFlavor::kRange) {
      const std::vector<Value>& items = object.list()->items;
      if (index < 0) index += static_cast<int64_t>(items.size());
      if (index >= 0 && index < static_cast<int64_t>(items.size())) return items[static_cast<size_t>(index)];
    } else if (object.is_string()) {
      const Str& s = *object.str();
      if (!s.ascii) heap_.charge(s.text.size() / 16);
      const int64_t length = length_of(object);
      if (index < 0) index += length;
      if (index >= 0 && index < length) {
        const size_t at = s.ascii ? static_cast<size_t>(index) : byte_offset(s.text, static_cast<size_t>(index));
        return Value::string(slice_bytes(heap_, object.str(), at, at + code_point_bytes(s.text, at)));
      }
    }
    return Value::undefined(
        heap_.make_str(fmt::format("{} object has no element {}", type_name(object), key.as_int())));
  }
  if (key.is_string()) return attribute(object, key.str());
  return Value::undefined(heap_.make_str(fmt::format("{} object has no such element", type_name(object))));
}

Value Interpreter::slice(const Value& object, const Suffix& suffix, Scope* scope) {
  const auto part = [&](const ExprPtr& expr) { return expr != nullptr ? evaluate(*expr, scope) : Value::none(); };
  const Value from = part(suffix.from);
  const Value to = part(suffix.to);
  const Value by = part(suffix.step);
  line_ = suffix.line;
  if (object.is_undefined()) {
    if (lenient_ > 0) return object;
    fault("{}", object.undefined_text());
  }
  const auto is_index = [](const Value& v) { return v.is_none() || v.is_integral(); };
  const bool sliceable = object.is_string() || (object.is(Kind::kList) && object.list()->flavor <= ListFlavor::kRange);
  if (!sliceable || !is_index(from) || !is_index(to) || !is_index(by)) {
    fault("'{}' object cannot be sliced with these indices", type_name(object));
  }
  const int64_t step = by.is_none() ? 1 : by.as_int();
  if (step == 0) fault("slice step cannot be zero");
  const int64_t length = length_of(object);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  int64_t at = clamp_index(from, step > 0 ? low : high, length, low, high);
  const int64_t end = clamp_index(to, step > 0 ? high : low, length, low, high);

  if (object.is_string() && step == 1) {
    const StrRef& s = object.str();
    if (at >= end) return Value::string(heap_.make_str(""));
    if (s->ascii) return Value::string(slice_bytes(heap_, s, static_cast<size_t>(at), static_cast<size_t>(end)));
    heap_.charge(s->text.size() / 16);
    const size_t begin = byte_offset(s->text, static_cast<size_t>(at));
    const size_t n = byte_offset(std::string_view(s->text).substr(begin), static_cast<size_t>(end - at));
    return Value::string(slice_bytes(heap_, s, begin, begin + n));
  }
  const std::vector<Value> items = iterate(heap_, object);
  std::vector<Value> picked;
  const int64_t first = at;
  // The step may be as large as an integer gets: stop before it carries the index past the end.
  while (step > 0 ? at < end : at > end) {
    picked.push_back(items[static_cast<size_t>(at)]);
    if (step > 0 ? end - at <= step : at - end <= -(step + 1)) break;
    at += step;
  }
  if (object.is_string()) {
    StrBuilder out(heap_);
    for (const Value& item : picked) out.append(*item.str());
    return out.take_value(object.str()->markup);
  }
  const ListObj& source = *object.list();
  ListObj* const list =
      heap_.make_list(std::move(picked), source.flavor == ListFlavor::kGroup ? ListFlavor::kTuple : source.flavor);
  if (source.flavor == ListFlavor::kRange) {
    // Only for printing; unsigned, because the ends of a range at the edge of 64 bits may lie outside.
    const auto place = [&](int64_t i) {
      return static_cast<int64_t>(static_cast<uint64_t>(source.start) +
                                  static_cast<uint64_t>(i) * static_cast<uint64_t>(source.step));
    };
    list->start = place(first);
    list->stop = place(end);
    list->step = static_cast<int64_t>(static_cast<uint64_t>(step) * static_cast<uint64_t>(source.step));
  }
  return list;
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Methods of dict, list and tuple. append, pop and their like change the container: the sandbox of Hugging Face refuses
// them, but templates written for other engines use them, and here they can harm nothing but the render itself.
#include <algorithm>

#include "outrider/text/jinja/interpreter.h"

namespace outrider::text::jinja {
namespace {

Value dict_view(Heap& heap, const DictObj& dict, ListFlavor flavor) {
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (flavor == ListFlavor::kDictItems) {
      items.emplace_back(heap.make_list({key, value}, ListFlavor::kTuple));
    } else {
      items.push_back(flavor == ListFlavor::kDictKeys ? key : value);
    }
  }
  return heap.make_list(std::move(items), flavor);
}

template <ListFlavor kFlavor>
Value dict_items(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("dict.items()", args, {}, 0);
  return dict_view(in.heap(), *self.dict(), kFlavor);
}

Value dict_get(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b("dict.get()", args, {"key", "default"}, 1);
  if (!args.named.empty()) fault("dict.get() takes no keyword arguments");
  const int64_t at = self.dict()->find(b[0]);
  if (at >= 0) return self.dict()->entries[static_cast<size_t>(at)].second;
  return b.has(1) ? b[1] : Value::none();
}

Value dict_copy(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("dict.copy()", args, {}, 0);
  DictObj* const copy = in.heap().make<DictObj>();
  for (const auto& [key, value] : self.dict()->entries) copy->set(in.heap(), key, value);
  return copy;
}

Value dict_pop(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b("dict.pop()", args, {"key", "default"}, 1);
  const int64_t at = self.dict()->find(b[0]);
  if (at < 0) {
    if (!b.has(1)) fault("dict.pop(): the key is missing");
    return b[1];
  }
  Value value = self.dict()->entries[static_cast<size_t>(at)].second;
  self.dict()->erase(static_cast<size_t>(at));
  return value;
}

Value dict_setdefault(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("dict.setdefault()", args, {"key", "default"}, 1);
  const int64_t at = self.dict()->find(b[0]);
  if (at >= 0) return self.dict()->entries[static_cast<size_t>(at)].second;
  const Value value = b.has(1) ? b[1] : Value::none();
  self.dict()->set(in.heap(), b[0], value);
  return value;
}

Value dict_update(Interpreter& in, const Value& self, CallArgs& args) {
  if (args.positional.size() > 1) fault("dict.update() takes at most one positional argument");
  for (const Value& source : args.positional) {
    if (!source.is(Kind::kDict)) fault("dict.update() needs a mapping, not {}", type_name(source));
    const auto entries = source.dict()->entries;  // a copy: the source may be the dict itself
    for (const auto& [key, value] : entries) self.dict()->set(in.heap(), key, value);
  }
  for (auto& [name, value] : args.named) self.dict()->set(in.heap(), Value::string(in.heap().make_str(name)), value);
  return Value::none();
}

Value list_index(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.index()", args, {"value"}, 1);
  const auto& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(in.heap(), items[i], b[0])) return Value::integer(static_cast<int64_t>(i));
  }
  fault("list.index(x): x not in list");
}

Value list_count(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.count()", args, {"value"}, 1);
  const auto& items = self.list()->items;
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equals(in.heap(), v, b[0]); }));
}

Value list_copy(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.copy()", args, {}, 0);
  return in.heap().make_list(self.list()->items);
}

Value list_append(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.append()", args, {"object"}, 1);
  in.heap().grow(sizeof(Value));
  self.list()->items.push_back(b[0]);
  return Value::none();
}

Value list_extend(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.extend()", args, {"iterable"}, 1);
  std::vector<Value> more = iterate(in.heap(), b[0]);
  in.heap().grow(more.size() * sizeof(Value));
  self.list()->items.insert(self.list()->items.end(), more.begin(), more.end());
  return Value::none();
}

Value list_insert(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.insert()", args, {"index", "object"}, 2);
  auto& items = self.list()->items;
  const auto length = static_cast<int64_t>(items.size());
  int64_t at = b.integer(0, 0);
  if (at < 0) at = std::max<int64_t>(0, at < -length ? 0 : at + length);
  in.heap().grow(sizeof(Value));
  in.heap().charge(items.size());
  items.insert(items.begin() + std::min(at, length), b[1]);
  return Value::none();
}

Value list_pop(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("list.pop()", args, {"index"}, 0);
  auto& items = self.list()->items;
  const auto length = static_cast<int64_t>(items.size());
  if (length == 0) fault("pop from empty list");
  int64_t at = b.integer(0, -1);
  if (at < 0) at = at < -length ? -1 : at + length;
  if (at < 0 || at >= length) fault("pop index out of range");
  Value value = items[static_cast<size_t>(at)];
  in.heap().charge(items.size());
  items.erase(items.begin() + at);
  return value;
}

constexpr Named<MethodFn> kDictMethods[] = {
    {"copy", dict_copy},
    {"get", dict_get},
    {"items", dict_items<ListFlavor::kDictItems>},
    {"keys", dict_items<ListFlavor::kDictKeys>},
    {"pop", dict_pop},
    {"setdefault", dict_setdefault},
    {"update", dict_update},
    {"values", dict_items<ListFlavor::kDictValues>},
};
constexpr Named<MethodFn> kListMethods[] = {
    {"append", list_append}, {"copy", list_copy},     {"count", list_count}, {"extend", list_extend},
    {"index", list_index},   {"insert", list_insert}, {"pop", list_pop},
};

}  // namespace

MethodFn find_method(const Value& self, std::string_view name) {
  if (self.is_string()) return find_string_method(name);
  if (self.is(Kind::kDict)) {
    for (const auto& row : kDictMethods) {
      if (row.name == name) return row.fn;
    }
  }
  if (self.is(Kind::kList) && self.list()->flavor <= ListFlavor::kRange) {
    const bool is_list = self.list()->flavor == ListFlavor::kList;
    for (const auto& row : kListMethods) {
      if (row.name == name && (is_list || name == "index" || name == "count")) return row.fn;
    }
  }
  return nullptr;
}

}  // namespace outrider::text::jinja

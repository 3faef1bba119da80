// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {

Str::~Str() {
  if (owner != nullptr) owner->shrink(text.size() + untrusted.size() * sizeof(ByteRange) + sizeof(Str));
}

void Heap::charge(uint64_t steps) {
  if (steps > steps_left_) {
    steps_left_ = 0;
    fault("the template takes more than {} steps", limits_.steps);
  }
  steps_left_ -= steps;
}

void Heap::grow(uint64_t bytes) {
  if (live_bytes_ + bytes > limits_.live_bytes)
    fault("the template needs more than {} bytes of memory", limits_.live_bytes);
  live_bytes_ += bytes;
}

ListObj* Heap::make_list(std::vector<Value> items, ListFlavor flavor) {
  charge(items.size());
  grow(items.size() * sizeof(Value));
  auto* list = make<ListObj>();
  list->items = std::move(items);
  list->flavor = flavor;
  return list;
}

GeneratorObj* Heap::make_generator(std::vector<Value> items) {
  charge(items.size());
  grow(items.size() * sizeof(Value));
  auto* generator = make<GeneratorObj>();
  generator->items = std::move(items);
  return generator;
}

StrRef Heap::make_str(std::string text, bool trusted) {
  StrBuilder builder(*this);
  builder.append(text, trusted);
  return builder.take();
}

StrRef constant_str(std::string text) {
  auto s = std::make_shared<Str>();
  s->ascii = is_ascii(text);
  s->text = std::move(text);
  return s;
}

Value Value::undefined(StrRef hint, bool forbidden) {
  Value v;
  v.i_ = forbidden ? 1 : 0;
  v.s_ = std::move(hint);
  return v;
}
Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.i_ = b ? 1 : 0;
  return v;
}
Value Value::integer(int64_t i) {
  Value v(Kind::kInt);
  v.i_ = i;
  return v;
}
Value Value::real(double d) {
  Value v(Kind::kFloat);
  v.d_ = d;
  return v;
}
Value Value::string(StrRef s) {
  Value v(Kind::kString);
  v.s_ = std::move(s);
  return v;
}
Value::Value(ListObj* list) : kind_(Kind::kList), o_(list) {}
Value::Value(DictObj* dict) : kind_(Kind::kDict), o_(dict) {}
Value::Value(NamespaceObj* ns) : kind_(Kind::kNamespace), o_(ns) {}
Value::Value(GeneratorObj* generator) : kind_(Kind::kGenerator), o_(generator) {}
Value::Value(CallableObj* callable) : kind_(Kind::kCallable), o_(callable) {}
Value::Value(LoopObj* loop) : kind_(Kind::kLoop), o_(loop) {}

std::string Value::undefined_text() const { return s_ != nullptr ? s_->text : "value is undefined"; }

// Few entries are searched by comparing; an index pays only beyond that.
constexpr size_t kIndexFrom = 16;

int64_t DictObj::find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find("s" + std::string(key));
    return it == index.end() ? -1 : it->second;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].first.is_string() && entries[i].first.text() == key) return static_cast<int64_t>(i);
  }
  return -1;
}

int64_t DictObj::find(const Value& key) const {
  if (key.is_string()) return find(key.text());
  const std::string wanted = hash_key(key);
  if (!index.empty()) {
    const auto it = index.find(wanted);
    return it == index.end() ? -1 : it->second;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].first.is_string() && hash_key(entries[i].first) == wanted) return static_cast<int64_t>(i);
  }
  return -1;
}

void DictObj::set(Heap& heap, const Value& key, Value value) {
  const int64_t at = find(key);
  if (at >= 0) {
    entries[static_cast<size_t>(at)].second = std::move(value);
    return;
  }
  heap.charge(1);
  heap.grow(sizeof(entries[0]) + (entries.size() >= kIndexFrom ? 96 : 0));
  entries.emplace_back(key, std::move(value));
  if (!index.empty()) {
    index.emplace(hash_key(key), static_cast<uint32_t>(entries.size() - 1));
  } else if (entries.size() > kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(hash_key(entries[i].first), static_cast<uint32_t>(i));
  }
}

void DictObj::erase(size_t position) {
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(position));
  index.clear();
  if (entries.size() <= kIndexFrom) return;
  for (size_t i = 0; i < entries.size(); ++i) index.emplace(hash_key(entries[i].first), static_cast<uint32_t>(i));
}

void StrBuilder::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = static_cast<uint32_t>(end);
  } else {
    untrusted_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
}

void StrBuilder::append(std::string_view text, bool trusted) {
  heap_->charge(1 + text.size() / 64);
  const uint64_t limit = heap_->limits().text_bytes;
  if (text.size() > limit - text_.size()) fault("a text of the template grows past {} bytes", limit);
  if (!trusted) mark(text_.size(), text_.size() + text.size());
  text_ += text;
}

void StrBuilder::append(const Str& s, size_t begin, size_t end) {
  const size_t at = text_.size();
  append(std::string_view(s.text).substr(begin, end - begin));
  for (const ByteRange& range : s.untrusted) {
    const size_t from = std::max<size_t>(range.begin, begin);
    const size_t to = std::min<size_t>(range.end, end);
    if (from < to) mark(at + from - begin, at + to - begin);
  }
}

void StrBuilder::append_repeated(char c, uint64_t n) {
  if (n > heap_->limits().text_bytes) fault("a text of the template grows past {} bytes", heap_->limits().text_bytes);
  append(std::string(n, c));
}

void StrBuilder::distrust_all() {
  untrusted_.clear();
  mark(0, text_.size());
}

StrRef StrBuilder::take(bool markup) {
  const uint64_t bytes = text_.size() + untrusted_.size() * sizeof(ByteRange) + sizeof(Str);
  auto s = std::make_shared<Str>();
  heap_->grow(bytes);
  s->owner = heap_;
  s->ascii = is_ascii(text_);
  s->markup = markup;
  s->text = std::move(text_);
  s->untrusted = std::move(untrusted_);
  text_.clear();
  untrusted_.clear();
  return s;
}

StrRef slice_bytes(Heap& heap, const StrRef& s, size_t begin, size_t end) {
  if (begin == 0 && end == s->text.size()) return s;
  StrBuilder out(heap);
  out.append(*s, begin, end);
  return out.take(s->markup);
}

Value like(Heap& heap, const Str& s, std::string text) {
  StrBuilder out(heap);
  if (s.ascii && text.size() == s.text.size()) {
    out.append(s);
    out.text() = std::move(text);
  } else {
    out.append(text, s.untrusted.empty());
  }
  return out.take_value(s.markup);
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return !value.list()->items.empty();
    case Kind::kDict:
      return !value.dict()->entries.empty();
    case Kind::kNamespace:
    case Kind::kGenerator:
    case Kind::kCallable:
    case Kind::kLoop:
      return true;
  }
  return false;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.str()->markup ? "Markup" : "str";
    case Kind::kList:
      switch (value.list()->flavor) {
        case ListFlavor::kList:
          return "list";
        case ListFlavor::kTuple:
        case ListFlavor::kGroup:
          return "tuple";
        case ListFlavor::kRange:
          return "range";
        case ListFlavor::kDictKeys:
          return "dict_keys";
        case ListFlavor::kDictValues:
          return "dict_values";
        case ListFlavor::kDictItems:
          return "dict_items";
      }
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kGenerator:
      return "generator";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "?";
}

namespace {
ListFlavor base_flavor(ListFlavor flavor) { return flavor == ListFlavor::kGroup ? ListFlavor::kTuple : flavor; }

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : (a.as_int() > b.as_int() ? 1 : 0);
  // long double holds every int64 exactly.
  const long double x =
      a.is(Kind::kFloat) ? static_cast<long double>(a.as_real()) : static_cast<long double>(a.as_int());
  const long double y =
      b.is(Kind::kFloat) ? static_cast<long double>(b.as_real()) : static_cast<long double>(b.as_int());
  return x < y ? -1 : (x == y ? 0 : 1);
}
}  // namespace

bool equals(Heap& heap, const Value& a, const Value& b, uint32_t depth) {
  if (depth > heap.limits().value_depth) fault("values are nested too deeply to compare");
  heap.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      heap.charge(a.text().size() / 64);
      return a.text() == b.text();
    case Kind::kList: {
      const auto& x = *a.list();
      const auto& y = *b.list();
      if (&x == &y) return true;
      if (base_flavor(x.flavor) != base_flavor(y.flavor) || x.items.size() != y.items.size()) return false;
      for (size_t i = 0; i < x.items.size(); ++i) {
        if (!equals(heap, x.items[i], y.items[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const auto& x = *a.dict();
      const auto& y = *b.dict();
      if (&x == &y) return true;
      if (x.entries.size() != y.entries.size()) return false;
      for (const auto& [key, value] : x.entries) {
        const int64_t at = y.find(key);
        if (at < 0 || !equals(heap, value, y.entries[static_cast<size_t>(at)].second, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kNamespace:
      return a.ns() == b.ns();
    case Kind::kGenerator:
      return a.generator() == b.generator();
    case Kind::kCallable:
      return a.callable() == b.callable();
    case Kind::kLoop:
      return a.loop() == b.loop();
    default:
      return false;
  }
}

int compare(Heap& heap, const Value& a, const Value& b, const char* op, uint32_t depth) {
  if (depth > heap.limits().value_depth) fault("values are nested too deeply to compare");
  heap.charge(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    // Bytes of UTF-8 sort as their code points do.
    heap.charge(a.text().size() / 64);
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : (order > 0 ? 1 : 0);
  }
  if (a.is(Kind::kList) && b.is(Kind::kList)) {
    const auto& x = *a.list();
    const auto& y = *b.list();
    const bool ordered = base_flavor(x.flavor) == ListFlavor::kList || base_flavor(x.flavor) == ListFlavor::kTuple;
    if (ordered && base_flavor(x.flavor) == base_flavor(y.flavor)) {
      for (size_t i = 0; i < std::min(x.items.size(), y.items.size()); ++i) {
        if (!equals(heap, x.items[i], y.items[i], depth + 1))
          return compare(heap, x.items[i], y.items[i], op, depth + 1);
      }
      return x.items.size() < y.items.size() ? -1 : (x.items.size() > y.items.size() ? 1 : 0);
    }
  }
  if (a.is_undefined()) fault("{}", a.undefined_text());
  if (b.is_undefined()) fault("{}", b.undefined_text());
  fault("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

std::string hash_key(const Value& value, uint32_t depth) {
  if (depth > 20) fault("a key is nested too deeply");
  switch (value.kind()) {
    case Kind::kUndefined:
      return "u";
    case Kind::kNone:
      return "n";
    case Kind::kBool:
    case Kind::kInt:
      return "i" + std::to_string(value.as_int());
    case Kind::kFloat: {
      const double d = value.as_real();
      if (d == std::floor(d) && std::fabs(d) < 9.2e18) return "i" + std::to_string(static_cast<int64_t>(d));
      return "f" + real_repr(d);
    }
    case Kind::kString:
      return "s" + std::string(value.text());
    case Kind::kList: {
      const ListObj& list = *value.list();
      if (list.flavor != ListFlavor::kTuple && list.flavor != ListFlavor::kGroup) break;
      std::string key = "t";
      for (const Value& item : list.items) {
        const std::string part = hash_key(item, depth + 1);
        key += std::to_string(part.size()) + ":" + part;
        if (key.size() > (1U << 20)) fault("a key is too long");
      }
      return key;
    }
    case Kind::kNamespace:
      return fmt::format("o{}", static_cast<const void*>(value.ns()));
    case Kind::kGenerator:
      return fmt::format("o{}", static_cast<const void*>(value.generator()));
    case Kind::kCallable:
      return fmt::format("o{}", static_cast<const void*>(value.callable()));
    case Kind::kLoop:
      return fmt::format("o{}", static_cast<const void*>(value.loop()));
    case Kind::kDict:
      break;
  }
  fault("unhashable type: '{}'", type_name(value));
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict:
    case Kind::kGenerator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
      heap.charge(value.list()->items.size());
      return value.list()->items;
    case Kind::kDict: {
      std::vector<Value> keys;
      heap.charge(value.dict()->entries.size());
      for (const auto& entry : value.dict()->entries) keys.push_back(entry.first);
      return keys;
    }
    case Kind::kString: {
      std::vector<Value> chars;
      const StrRef& s = value.str();
      for (size_t at = 0; at < s->text.size();) {
        const size_t n = code_point_bytes(s->text, at);
        StrBuilder c(heap);  // of markup, too, the characters are plain
        c.append(*s, at, at + n);
        chars.push_back(c.take_value());
        at += n;
      }
      return chars;
    }
    case Kind::kGenerator: {
      GeneratorObj& generator = *value.generator();
      heap.charge(generator.items.size());
      std::vector<Value> rest(generator.items.begin() + static_cast<std::ptrdiff_t>(generator.next),
                              generator.items.end());
      generator.next = generator.items.size();
      return rest;
    }
    default:
      fault("'{}' object is not iterable", type_name(value));
  }
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(value.str()->ascii ? value.text().size() : count_code_points(value.text()));
    case Kind::kList:
      return static_cast<int64_t>(value.list()->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict()->entries.size());
    default:
      return -1;
  }
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Filters on sequences and mappings. Those that are lazy in Jinja2 give a generator here, worked out at once.
#include <algorithm>
#include <numeric>
#include <utility>

#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {

std::vector<size_t> sorted_order(Heap& heap, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (reverse) std::reverse(order.begin(), order.end());
  std::vector<size_t> merged(order.size());
  // A merge sort of our own: with values that have no consistent order (NaN) the result is arbitrary but memory is
  // safe.
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t a = begin;
      size_t b = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_b = a == middle || (b < end && compare(heap, keys[order[b]], keys[order[a]], "<") < 0);
        merged[out] = take_b ? order[b++] : order[a++];
      }
    }
    order.swap(merged);
  }
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

namespace {

// The value of a path such as "function.name" or "0".
Value get_path(Interpreter& in, Value value, const Value& path, const Value* fallback) {
  const auto step = [&](const Value& key) {
    value = in.item(value, key);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  };
  if (path.is_integral()) {
    step(path);
    return value;
  }
  if (!path.is_string()) fault("an attribute's name must be a string or an integer, not {}", type_name(path));
  const std::string text(path.text());
  for (size_t begin = 0; begin <= text.size();) {
    const size_t dot = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, dot - begin);
    const bool is_index = !part.empty() && part.size() < 18 &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    step(is_index ? Value::integer(std::stoll(part)) : Value::string(in.heap().make_str(part)));
    begin = dot + 1;
  }
  return value;
}

Value without_case(Heap& heap, const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? like(heap, *value.str(), lower(value.text())) : value;
}

Value filter_length(Interpreter&, CallArgs& args) {
  const Bound b("filter 'length'", args, {"obj"}, 1);
  const int64_t n = length_of(b[0]);
  if (n < 0) fault("object of type '{}' has no len()", type_name(b[0]));
  return Value::integer(n);
}

Value filter_join(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'join'", args, {"value", "d", "attribute"}, 1);
  Heap& heap = in.heap();
  const StrRef separator = b.has(1) ? to_str(b[1], heap) : nullptr;
  StrBuilder out(heap);
  bool first = true;
  for (const Value& item : iterate(heap, b[0])) {
    if (!first && separator != nullptr) out.append(*separator);
    first = false;
    print(b.has(2) && !b[2].is_none() ? get_path(in, item, b[2], nullptr) : item, out, heap);
  }
  return out.take_value();
}

Value filter_first(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'first'", args, {"seq"}, 1);
  if (b[0].is(Kind::kGenerator)) {
    GeneratorObj& generator = *b[0].generator();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
  } else {
    const std::vector<Value> items = iterate(in.heap(), b[0]);
    if (!items.empty()) return items.front();
  }
  return Value::undefined(in.heap().make_str("No first item, sequence was empty."));
}

Value filter_last(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'last'", args, {"seq"}, 1);
  if (b[0].is(Kind::kGenerator)) fault("'generator' object is not reversible");
  const std::vector<Value> items = iterate(in.heap(), b[0]);
  if (!items.empty()) return items.back();
  return Value::undefined(in.heap().make_str("No last item, sequence was empty."));
}

Value filter_list(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'list'", args, {"value"}, 1);
  return in.heap().make_list(iterate(in.heap(), b[0]));
}

Value filter_reverse(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'reverse'", args, {"value"}, 1);
  std::vector<Value> items = iterate(in.heap(), b[0]);
  std::reverse(items.begin(), items.end());
  if (!b[0].is_string()) return in.heap().make_generator(std::move(items));
  StrBuilder out(in.heap());
  for (const Value& c : items) out.append(*c.str());
  return out.take_value(b[0].str()->markup);
}

Value filter_items(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'items'", args, {"value"}, 1);
  if (b[0].is_undefined()) return in.heap().make_generator({});
  if (!b[0].is(Kind::kDict)) fault("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, value] : b[0].dict()->entries)
    items.emplace_back(in.heap().make_list({key, value}, ListFlavor::kTuple));
  return in.heap().make_generator(std::move(items));
}

Value pick(Heap& heap, const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  return heap.make_list(std::move(sorted));
}

Value filter_dictsort(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'dictsort'", args, {"value", "case_sensitive", "by", "reverse"}, 1);
  const StrRef by = b.text(2);
  if (by != nullptr && by->text != "key" && by->text != "value")
    fault("You can only sort by either \"key\" or \"value\"");
  if (b[0].is_undefined()) fault("{}", b[0].undefined_text());
  if (!b[0].is(Kind::kDict)) fault("filter 'dictsort' needs a mapping, not {}", type_name(b[0]));
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : b[0].dict()->entries) {
    items.emplace_back(in.heap().make_list({key, value}, ListFlavor::kTuple));
    keys.push_back(without_case(in.heap(), by != nullptr && by->text == "value" ? value : key, b.flag(1, false)));
  }
  return pick(in.heap(), items, sorted_order(in.heap(), keys, b.flag(3, false)));
}

Value filter_sort(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'sort'", args, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  const std::vector<Value> items = iterate(in.heap(), b[0]);
  // "a,b" sorts by a, then by b.
  std::vector<Value> paths;
  if (b.has(3) && b[3].is_string()) {
    const std::string text(b[3].text());
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      paths.push_back(Value::string(in.heap().make_str(text.substr(begin, comma - begin))));
      begin = comma + 1;
    }
  } else if (b.has(3) && !b[3].is_none()) {
    paths.push_back(b[3]);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& path : paths) {
      parts.push_back(without_case(in.heap(), get_path(in, item, path, nullptr), b.flag(2, false)));
    }
    if (paths.empty()) parts.push_back(without_case(in.heap(), item, b.flag(2, false)));
    // A list, as in Jinja2: equal parts are passed over, even of types that have no order.
    keys.emplace_back(in.heap().make_list(std::move(parts)));
  }
  return pick(in.heap(), items, sorted_order(in.heap(), keys, b.flag(1, false)));
}

std::vector<Value> keys_of(Interpreter& in, const std::vector<Value>& items, const Value* path, const Value* fallback,
                           bool case_sensitive) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    const Value key = path != nullptr && !path->is_none() ? get_path(in, item, *path, fallback) : item;
    keys.push_back(without_case(in.heap(), key, case_sensitive));
  }
  return keys;
}

Value filter_unique(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'unique'", args, {"value", "case_sensitive", "attribute"}, 1);
  const std::vector<Value> items = iterate(in.heap(), b[0]);
  const std::vector<Value> keys = keys_of(in, items, b.has(2) ? &b[2] : nullptr, nullptr, b.flag(1, false));
  std::unordered_map<std::string, bool> seen;
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    if (seen.emplace(hash_key(keys[i]), true).second) kept.push_back(items[i]);
  }
  return in.heap().make_generator(std::move(kept));
}

template <int kSign>
Value extreme(Interpreter& in, CallArgs& args) {
  const Bound b("the filter", args, {"value", "case_sensitive", "attribute"}, 1);
  const std::vector<Value> items = iterate(in.heap(), b[0]);
  if (items.empty()) return Value::undefined(in.heap().make_str("No aggregated item, sequence was empty."));
  const std::vector<Value> keys = keys_of(in, items, b.has(2) ? &b[2] : nullptr, nullptr, b.flag(1, false));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (kSign * compare(in.heap(), keys[i], keys[best], kSign > 0 ? ">" : "<") > 0) best = i;
  }
  return items[best];
}

Value filter_sum(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'sum'", args, {"iterable", "attribute", "start"}, 1);
  Value total = b.has(2) ? b[2] : Value::integer(0);
  if (total.is_string()) fault("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(in.heap(), b[0])) {
    total = in.add(total, b.has(1) && !b[1].is_none() ? get_path(in, item, b[1], nullptr) : item);
  }
  return total;
}

Value filter_groupby(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'groupby'", args, {"value", "attribute", "default", "case_sensitive"}, 2);
  Heap& heap = in.heap();
  const std::vector<Value> items = iterate(heap, b[0]);
  const Value* fallback = b.has(2) && !b[2].is_none() ? &b[2] : nullptr;
  const std::vector<Value> keys = keys_of(in, items, &b[1], fallback, b.flag(3, false));
  const std::vector<size_t> order = sorted_order(heap, keys, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const size_t first = order[i];
    for (; i < order.size() && equals(heap, keys[order[i]], keys[first]); ++i) members.push_back(items[order[i]]);
    if (members.empty()) members.push_back(items[order[i++]]);  // NaN equals nothing, not even itself
    const Value key = get_path(in, members.front(), b[1], fallback);
    groups.emplace_back(heap.make_list({key, Value(heap.make_list(std::move(members)))}, ListFlavor::kGroup));
  }
  return heap.make_list(std::move(groups));
}

Value filter_batch(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'batch'", args, {"value", "linecount", "fill_with"}, 2);
  const int64_t width = b.integer(1, 1);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : iterate(in.heap(), b[0])) {
    if (static_cast<int64_t>(row.size()) == width) rows.emplace_back(in.heap().make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (b.has(2) && !b[2].is_none()) {
      while (static_cast<int64_t>(row.size()) < width) {
        in.heap().charge(1);
        row.push_back(b[2]);
      }
    }
    rows.emplace_back(in.heap().make_list(std::move(row)));
  }
  return in.heap().make_generator(std::move(rows));
}

Value filter_slice(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'slice'", args, {"value", "slices", "fill_with"}, 2);
  const std::vector<Value> items = iterate(in.heap(), b[0]);
  const int64_t n = b.integer(1, 1);
  if (n < 1) fault("filter 'slice' needs at least one slice");
  const auto length = static_cast<int64_t>(items.size());
  const int64_t each = length / n;
  const int64_t longer = length % n;
  std::vector<Value> slices;
  auto at = items.begin();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t count = each + (i < longer ? 1 : 0);
    std::vector<Value> part(at, at + count);
    at += count;
    if (b.has(2) && !b[2].is_none() && i >= longer) part.push_back(b[2]);
    slices.emplace_back(in.heap().make_list(std::move(part)));
  }
  return in.heap().make_generator(std::move(slices));
}

// What map and select run over: anything false, none included, is as good as an empty sequence.
std::vector<Value> iterate_if_true(Heap& heap, const Value& value) {
  return truthy(value) ? iterate(heap, value) : std::vector<Value>{};
}

Value filter_map(Interpreter& in, CallArgs& args) {
  Heap& heap = in.heap();
  const std::vector<Value> items = iterate_if_true(heap, args.positional[0]);
  std::vector<Value> mapped;
  if (args.positional.size() == 1) {
    const Bound b("filter 'map'", args, {"value", "attribute", "default"}, 2);
    const Value* fallback = b.has(2) && !b[2].is_none() ? &b[2] : nullptr;
    for (const Value& item : items) mapped.push_back(get_path(in, item, b[1], fallback));
    return heap.make_generator(std::move(mapped));
  }
  const StrRef name = to_str(args.positional[1], heap);
  for (const Value& item : items) {
    CallArgs inner;
    inner.positional.push_back(item);
    inner.positional.insert(inner.positional.end(), args.positional.begin() + 2, args.positional.end());
    inner.named = args.named;
    mapped.push_back(in.apply_filter(name->text, inner));
  }
  return heap.make_generator(std::move(mapped));
}

// select, reject, selectattr, rejectattr.
template <bool kKeep, bool kByAttribute>
Value filter_select(Interpreter& in, CallArgs& args) {
  Heap& heap = in.heap();
  if (kByAttribute && args.positional.size() < 2) fault("Missing parameter for attribute name");
  constexpr size_t kTestAt = kByAttribute ? 2 : 1;
  std::vector<Value> kept;
  for (const Value& item : iterate_if_true(heap, args.positional[0])) {
    const Value tested = kByAttribute ? get_path(in, item, args.positional[1], nullptr) : item;
    bool holds = truthy(tested);
    if (args.positional.size() > kTestAt) {
      CallArgs inner;
      inner.positional.push_back(tested);
      inner.positional.insert(inner.positional.end(), args.positional.begin() + kTestAt + 1, args.positional.end());
      inner.named = args.named;
      holds = in.apply_test(to_str(args.positional[kTestAt], heap)->text, inner);
    }
    if (holds == kKeep) kept.push_back(item);
  }
  return heap.make_generator(std::move(kept));
}

constexpr Named<FilterFn> kFilters[] = {
    {"batch", filter_batch},
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", extreme<1>},
    {"min", extreme<-1>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

FilterFn find_sequence_filter(std::string_view name) {
  for (const auto& row : kFilters) {
    if (row.name == name) return row.fn;
  }
  return nullptr;
}

}  // namespace outrider::text::jinja

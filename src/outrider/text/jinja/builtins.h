// SPDX-License-Identifier: Apache-2.0
// The tables of filters, tests, methods and global functions, and how they take their arguments.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "outrider/text/jinja/value.h"

namespace outrider::text::jinja {

// args.positional[0] is the filtered or tested value.
using FilterFn = Value (*)(Interpreter& interpreter, CallArgs& args);
using TestFn = bool (*)(Interpreter& interpreter, CallArgs& args);
using MethodFn = Value (*)(Interpreter& interpreter, const Value& self, CallArgs& args);

template <typename Fn>
struct Named {
  std::string_view name;
  Fn fn;
};

FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);
MethodFn find_method(const Value& self, std::string_view name);
// The global of that name, or undefined. Made once per render.
Value make_global(Heap& heap, std::string_view name);

// Parts of the filter table, one per source file.
FilterFn find_text_filter(std::string_view name);
FilterFn find_sequence_filter(std::string_view name);
MethodFn find_string_method(std::string_view name);

// Matches arguments to parameters by position and name, as Python does.
class Bound {
 public:
  // Of `parameters` the first `n_required` must be given. `skip` leading positional arguments belong to someone else.
  Bound(std::string_view what, const CallArgs& args, std::initializer_list<std::string_view> parameters,
        size_t n_required, size_t skip = 0);
  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  int64_t integer(size_t i, int64_t fallback) const;
  bool flag(size_t i, bool fallback) const;
  // A string argument; none and absent give null. Another type is a fault.
  StrRef text(size_t i) const;

 private:
  std::string_view what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// str.strip of Python: a null set means white space. side: -1 left, 1 right, 0 both.
StrRef strip(Heap& heap, const StrRef& s, const Str* set, int side);
// str.replace; n < 0: all.
StrRef replace(Heap& heap, const StrRef& s, const Str& from, const Str& to, int64_t n);
StrRef escape_html(Heap& heap, const Str& s);
std::vector<Value> split_lines(Heap& heap, const StrRef& s, bool keep_ends = false);
// "..." % args and "...".format(args), in format.cc.
StrRef format_percent(Interpreter& interpreter, const StrRef& format, const Value& args);
StrRef format_braces(Interpreter& interpreter, const StrRef& format, const CallArgs& args);
// Seconds since the epoch as local time.
std::string format_time(const std::string& format, int64_t now);
// A stable order; ties keep their place also when reversed. `keys[i]` belongs to items[i].
std::vector<size_t> sorted_order(Heap& heap, const std::vector<Value>& keys, bool reverse);

}  // namespace outrider::text::jinja

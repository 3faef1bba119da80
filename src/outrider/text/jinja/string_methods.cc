// SPDX-License-Identifier: Apache-2.0
// Methods of str.
#include <algorithm>

#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"
#include "outrider/text/unicode.h"

namespace outrider::text::jinja {
namespace {

Value string_value(StrRef s) { return Value::string(std::move(s)); }

template <int kSide>
Value method_strip(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.strip()", args, {"chars"}, 0);
  return string_value(strip(in.heap(), self.str(), b.text(0).get(), kSide));
}

Value pieces(Heap& heap, std::vector<Value> parts) { return heap.make_list(std::move(parts)); }

// Runs of white space separate; n < 0: no limit. The rest after n splits keeps its inner and trailing white space.
std::vector<Value> split_space(Heap& heap, const StrRef& s, int64_t n) {
  std::vector<Value> parts;
  const std::string& text = s->text;
  const auto space = [&](size_t at) { return is_space(code_point(text, at)); };
  const auto step = [&](size_t at) { return at + code_point_bytes(text, at); };
  size_t at = 0;
  while (true) {
    while (at < text.size() && space(at)) at = step(at);
    if (at >= text.size()) return parts;
    if (n >= 0 && static_cast<int64_t>(parts.size()) == n) {
      parts.push_back(string_value(slice_bytes(heap, s, at, text.size())));
      return parts;
    }
    const size_t begin = at;
    while (at < text.size() && !space(at)) at = step(at);
    parts.push_back(string_value(slice_bytes(heap, s, begin, at)));
  }
}

std::vector<Value> rsplit_space(Heap& heap, const StrRef& s, int64_t n) {
  std::vector<Value> words = split_space(heap, s, -1);
  if (n < 0 || static_cast<int64_t>(words.size()) <= n) return words;
  // The first n from the right stay words; what is left of them is one piece.
  size_t end = strip(heap, s, nullptr, 1)->text.size();
  std::vector<Value> parts(words.end() - static_cast<std::ptrdiff_t>(n), words.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    end -= parts[parts.size() - 1 - i].text().size();
    end = strip(heap, slice_bytes(heap, s, 0, end), nullptr, 1)->text.size();
  }
  parts.insert(parts.begin(), string_value(slice_bytes(heap, s, 0, end)));
  return parts;
}

Value method_split(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.split()", args, {"sep", "maxsplit"}, 0);
  const int64_t n = b.integer(1, -1);
  const StrRef separator = b.text(0);
  Heap& heap = in.heap();
  if (separator == nullptr) return pieces(heap, split_space(heap, self.str(), n));
  if (separator->text.empty()) fault("empty separator");
  std::vector<Value> parts;
  const std::string& text = self.str()->text;
  size_t begin = 0;
  for (size_t at = find_text(text, separator->text); at != std::string::npos && static_cast<int64_t>(parts.size()) != n;
       at = find_text(text, separator->text, begin)) {
    parts.push_back(string_value(slice_bytes(heap, self.str(), begin, at)));
    begin = at + separator->text.size();
  }
  parts.push_back(string_value(slice_bytes(heap, self.str(), begin, text.size())));
  return pieces(heap, std::move(parts));
}

Value method_rsplit(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.rsplit()", args, {"sep", "maxsplit"}, 0);
  const int64_t n = b.integer(1, -1);
  const StrRef separator = b.text(0);
  Heap& heap = in.heap();
  if (separator == nullptr) return pieces(heap, rsplit_space(heap, self.str(), n));
  if (separator->text.empty()) fault("empty separator");
  std::vector<Value> parts;
  // Searched from the left in the mirrored text, which is linear.
  const std::string& text = self.str()->text;
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string mirrored_separator(separator->text.rbegin(), separator->text.rend());
  size_t end = text.size();
  while (static_cast<int64_t>(parts.size()) != n) {
    const size_t found = find_text(mirrored, mirrored_separator, text.size() - end);
    if (found == std::string_view::npos) break;
    const size_t begin = text.size() - found;
    parts.push_back(string_value(slice_bytes(heap, self.str(), begin, end)));
    end = begin - separator->text.size();
  }
  parts.push_back(string_value(slice_bytes(heap, self.str(), 0, end)));
  std::reverse(parts.begin(), parts.end());
  return pieces(heap, std::move(parts));
}

template <bool kFromRight>
Value method_partition(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.partition()", args, {"sep"}, 1);
  const StrRef separator = b.text(0);
  if (separator == nullptr || separator->text.empty()) fault("empty separator");
  Heap& heap = in.heap();
  const StrRef& s = self.str();
  const size_t at = kFromRight ? rfind_text(s->text, separator->text) : find_text(s->text, separator->text);
  const Value empty = string_value(heap.make_str(""));
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = kFromRight ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
  } else {
    parts = {string_value(slice_bytes(heap, s, 0, at)), string_value(separator),
             string_value(slice_bytes(heap, s, at + separator->text.size(), s->text.size()))};
  }
  return heap.make_list(std::move(parts), ListFlavor::kTuple);
}

Value method_splitlines(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.splitlines()", args, {"keepends"}, 0);
  return pieces(in.heap(), split_lines(in.heap(), self.str(), b.flag(0, false)));
}

// The byte range that optional start and end arguments (code points, maybe negative) select. False: nothing can match.
bool search_window(const Value& self, const Bound& b, size_t& begin, size_t& end) {
  const int64_t length = length_of(self);
  const auto bound = [&](size_t i, int64_t fallback) {
    if (!b.has(i) || b[i].is_none()) return fallback;
    const int64_t at = b.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(0, at < -length ? 0 : at + length) : at;
  };
  const int64_t from = bound(1, 0);
  const int64_t to = std::min(bound(2, length), length);
  if (from > to) return false;
  begin = byte_offset(self.text(), static_cast<size_t>(from));
  end = byte_offset(self.text(), static_cast<size_t>(to));
  return true;
}

template <bool kAtEnd>
Value method_affix(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b(kAtEnd ? "str.endswith()" : "str.startswith()", args, {"affix", "start", "end"}, 1);
  size_t begin = 0;
  size_t end = 0;
  const bool valid = search_window(self, b, begin, end);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      fault("{} first arg must be str or a tuple of str, not {}", kAtEnd ? "endswith" : "startswith", type_name(affix));
    if (!valid) return false;
    const std::string_view text = self.text().substr(begin, end - begin);
    const std::string_view a = affix.text();
    return kAtEnd ? text.ends_with(a) : text.starts_with(a);
  };
  if (b[0].is(Kind::kList) && b[0].list()->flavor == ListFlavor::kTuple) {
    const auto& items = b[0].list()->items;
    return Value::boolean(std::any_of(items.begin(), items.end(), matches));
  }
  return Value::boolean(matches(b[0]));
}

enum class Search { kFind, kRfind, kIndex, kRindex };
template <Search kSearch>
Value method_find(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b("str.find()", args, {"sub", "start", "end"}, 1);
  const StrRef sub = b.text(0);
  if (sub == nullptr) fault("find() needs a string");
  size_t begin = 0;
  size_t end = 0;
  size_t at = std::string_view::npos;
  constexpr bool kFromRight = kSearch == Search::kRfind || kSearch == Search::kRindex;
  if (search_window(self, b, begin, end)) {
    const std::string_view text = self.text().substr(begin, end - begin);
    at = kFromRight ? rfind_text(text, sub->text) : find_text(text, sub->text);
  }
  if (at == std::string_view::npos) {
    if (kSearch == Search::kIndex || kSearch == Search::kRindex) fault("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(count_code_points(self.text().substr(0, begin + at))));
}

Value method_count(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b("str.count()", args, {"sub", "start", "end"}, 1);
  const StrRef sub = b.text(0);
  if (sub == nullptr) fault("count() needs a string");
  size_t begin = 0;
  size_t end = 0;
  if (!search_window(self, b, begin, end)) return Value::integer(0);
  const std::string_view text = self.text().substr(begin, end - begin);
  if (sub->text.empty()) return Value::integer(static_cast<int64_t>(count_code_points(text)) + 1);
  int64_t n = 0;
  for (size_t at = find_text(text, sub->text); at != std::string_view::npos;
       at = find_text(text, sub->text, at + sub->text.size()))
    ++n;
  return Value::integer(n);
}

Value method_replace(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.replace()", args, {"old", "new", "count"}, 2);
  StrRef from = b.text(0);
  StrRef to = b.text(1);
  if (from == nullptr || to == nullptr) fault("replace() needs two strings");
  if (self.str()->markup) {
    from = from->markup ? from : escape_html(in.heap(), *from);
    to = to->markup ? to : escape_html(in.heap(), *to);
  }
  return string_value(replace(in.heap(), self.str(), *from, *to, b.integer(2, -1)));
}

Value method_join(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.join()", args, {"iterable"}, 1);
  Heap& heap = in.heap();
  const bool markup = self.str()->markup;
  StrBuilder out(heap);
  int64_t n = 0;
  for (const Value& item : iterate(heap, b[0])) {
    if (n > 0) out.append(*self.str());
    if (!item.is_string()) fault("sequence item {}: expected str instance, {} found", n, type_name(item));
    out.append(markup && !item.str()->markup ? *escape_html(heap, *item.str()) : *item.str());
    ++n;
  }
  return out.take_value(markup);
}

template <FilterFn (*kFind)(std::string_view)>
Value by_filter(Interpreter& in, const Value& self, CallArgs& args, std::string_view name) {
  if (!args.positional.empty() || !args.named.empty()) fault("str.{}() takes no arguments", name);
  CallArgs inner;
  inner.positional.push_back(self);
  return kFind(name)(in, inner);
}
Value method_upper(Interpreter& in, const Value& self, CallArgs& args) {
  return by_filter<find_text_filter>(in, self, args, "upper");
}
Value method_lower(Interpreter& in, const Value& self, CallArgs& args) {
  return by_filter<find_text_filter>(in, self, args, "lower");
}
Value method_capitalize(Interpreter& in, const Value& self, CallArgs& args) {
  return by_filter<find_text_filter>(in, self, args, "capitalize");
}

template <bool kSwap>
Value method_title(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.title()", args, {}, 0);
  std::string out;
  bool after_letter = false;
  const std::string_view text = self.text();
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) {
    const uint32_t c = code_point(text, at);
    if (kSwap) {
      append_utf8(out, to_lower(c) != c ? to_lower(c) : to_upper(c));
    } else {
      append_utf8(out, after_letter ? to_lower(c) : to_upper(c));
    }
    after_letter = is_cased(c);
  }
  return like(in.heap(), *self.str(), out);
}

enum class Is { kDecimal, kNumeric, kAlpha, kAlnum, kSpace, kAscii, kUpper, kLower };
template <Is kIs>
Value method_is(Interpreter&, const Value& self, CallArgs& args) {
  const Bound b("the method", args, {}, 0);
  const std::string_view text = self.text();
  bool any_cased = false;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) {
    const uint32_t c = code_point(text, at);
    const auto has = [c](unsigned classes) { return (char_class(c) & classes) != 0; };
    bool ok = true;
    switch (kIs) {
      case Is::kDecimal:
        ok = has(kDigit);
        break;
      case Is::kNumeric:
        ok = has(kNumber);
        break;
      case Is::kAlpha:
        ok = has(kLetter);
        break;
      case Is::kAlnum:
        ok = has(kLetter | kNumber);
        break;
      case Is::kSpace:
        ok = is_space(c);
        break;
      case Is::kAscii:
        ok = c < 0x80;
        break;
      case Is::kUpper:
        ok = to_upper(c) == c;
        break;
      case Is::kLower:
        ok = to_lower(c) == c;
        break;
    }
    if (!ok) return Value::boolean(false);
    any_cased = any_cased || is_cased(c);
  }
  if (kIs == Is::kUpper || kIs == Is::kLower) return Value::boolean(any_cased);
  return Value::boolean(kIs == Is::kAscii || !text.empty());
}

template <int kSide>  // the side that is padded: -1 left, 1 right, 0 both
Value method_pad(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.ljust()", args, {"width", "fillchar"}, 1);
  const StrRef fill = b.text(1);
  if (fill != nullptr && count_code_points(fill->text) != 1)
    fault("The fill character must be exactly one character long");
  const int64_t width = b.integer(0, 0);
  const int64_t pad = width - length_of(self);
  if (pad <= 0) return self;
  const int64_t left = kSide < 0 ? pad : kSide > 0 ? 0 : pad / 2 + (pad & width & 1);
  StrBuilder out(in.heap());
  const auto append_fill = [&](int64_t n) {
    if (fill == nullptr) return out.append_repeated(' ', static_cast<uint64_t>(n));
    for (; n > 0; --n) out.append(*fill);
  };
  append_fill(left);
  out.append(*self.str());
  append_fill(pad - left);
  return out.take_value(self.str()->markup);
}

Value method_zfill(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.zfill()", args, {"width"}, 1);
  const int64_t pad = b.integer(0, 0) - length_of(self);
  if (pad <= 0) return self;
  const std::string& text = self.str()->text;
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  StrBuilder out(in.heap());
  out.append(*self.str(), 0, sign);
  out.append_repeated('0', static_cast<uint64_t>(pad));
  out.append(*self.str(), sign, text.size());
  return out.take_value(self.str()->markup);
}

template <bool kSuffix>
Value method_remove(Interpreter& in, const Value& self, CallArgs& args) {
  const Bound b("str.removeprefix()", args, {"affix"}, 1);
  const StrRef affix = b.text(0);
  if (affix == nullptr) fault("removeprefix() needs a string");
  const size_t n = affix->text.size();
  const size_t size = self.text().size();
  if (!(kSuffix ? self.text().ends_with(affix->text) : self.text().starts_with(affix->text))) return self;
  return string_value(kSuffix ? slice_bytes(in.heap(), self.str(), 0, size - n)
                              : slice_bytes(in.heap(), self.str(), n, size));
}

Value method_format(Interpreter& in, const Value& self, CallArgs& args) {
  return string_value(format_braces(in, self.str(), args));
}

constexpr Named<MethodFn> kMethods[] = {
    {"capitalize", method_capitalize},
    {"center", method_pad<0>},
    {"count", method_count},
    {"endswith", method_affix<true>},
    {"find", method_find<Search::kFind>},
    {"format", method_format},
    {"index", method_find<Search::kIndex>},
    {"isalnum", method_is<Is::kAlnum>},
    {"isalpha", method_is<Is::kAlpha>},
    {"isascii", method_is<Is::kAscii>},
    {"isdecimal", method_is<Is::kDecimal>},
    {"isdigit", method_is<Is::kDecimal>},
    {"islower", method_is<Is::kLower>},
    {"isnumeric", method_is<Is::kNumeric>},
    {"isspace", method_is<Is::kSpace>},
    {"isupper", method_is<Is::kUpper>},
    {"join", method_join},
    {"ljust", method_pad<1>},
    {"lower", method_lower},
    {"lstrip", method_strip<-1>},
    {"partition", method_partition<false>},
    {"removeprefix", method_remove<false>},
    {"removesuffix", method_remove<true>},
    {"replace", method_replace},
    {"rfind", method_find<Search::kRfind>},
    {"rindex", method_find<Search::kRindex>},
    {"rjust", method_pad<-1>},
    {"rpartition", method_partition<true>},
    {"rsplit", method_rsplit},
    {"rstrip", method_strip<1>},
    {"split", method_split},
    {"splitlines", method_splitlines},
    {"startswith", method_affix<false>},
    {"strip", method_strip<0>},
    {"swapcase", method_title<true>},
    {"title", method_title<false>},
    {"upper", method_upper},
    {"zfill", method_zfill},
};

}  // namespace

MethodFn find_string_method(std::string_view name) {
  for (const auto& row : kMethods) {
    if (row.name == name) return row.fn;
  }
  return nullptr;
}

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
// Filters on one value: texts, numbers, default, tojson.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"
#include "outrider/text/unicode.h"

namespace outrider::text::jinja {

StrRef escape_html(Heap& heap, const Str& s) {
  StrBuilder out(heap);
  size_t begin = 0;
  for (size_t at = 0; at < s.text.size(); ++at) {
    const char* name = nullptr;
    switch (s.text[at]) {
      case '&':
        name = "&amp;";
        break;
      case '<':
        name = "&lt;";
        break;
      case '>':
        name = "&gt;";
        break;
      case '\'':
        name = "&#39;";
        break;
      case '"':
        name = "&#34;";
        break;
      default:
        continue;
    }
    out.append(s, begin, at);
    out.append(name);
    begin = at + 1;
  }
  out.append(s, begin, s.text.size());
  return out.take(true);
}

StrRef replace(Heap& heap, const StrRef& s, const Str& from, const Str& to, int64_t n) {
  StrBuilder out(heap);
  const std::string& text = s->text;
  size_t begin = 0;
  if (from.text.empty()) {
    // Python inserts before every code point and at the end.
    for (size_t at = 0; n != 0; --n) {
      out.append(to);
      if (at >= text.size()) break;
      const size_t next = at + code_point_bytes(text, at);
      out.append(*s, at, next);
      begin = at = next;
    }
  } else {
    for (size_t at = find_text(text, from.text); at != std::string::npos && n != 0; --n) {
      out.append(*s, begin, at);
      out.append(to);
      begin = at + from.text.size();
      at = find_text(text, from.text, begin);
    }
  }
  out.append(*s, begin, text.size());
  return out.take(s->markup);
}

StrRef strip(Heap& heap, const StrRef& s, const Str* set, int side) {
  std::vector<uint32_t> members;
  if (set != nullptr) {
    for (size_t at = 0; at < set->text.size(); at += code_point_bytes(set->text, at))
      members.push_back(code_point(set->text, at));
  }
  std::sort(members.begin(), members.end());
  const auto goes = [&](size_t at) {
    const uint32_t c = code_point(s->text, at);
    return set != nullptr ? std::binary_search(members.begin(), members.end(), c) : is_space(c);
  };
  heap.charge(1 + s->text.size() / 64 + members.size());
  size_t begin = 0;
  size_t end = s->text.size();
  if (side <= 0) {
    while (begin < end && goes(begin)) begin += code_point_bytes(s->text, begin);
  }
  while (side >= 0 && end > begin) {
    size_t at = end - 1;
    while (at > begin && end - at < 4 && (static_cast<unsigned char>(s->text[at]) & 0xC0) == 0x80) --at;
    if (at + code_point_bytes(s->text, at) != end) at = end - 1;
    if (!goes(at)) break;
    end = at;
  }
  return slice_bytes(heap, s, begin, end);
}

std::vector<Value> split_lines(Heap& heap, const StrRef& s, bool keep_ends) {
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < s->text.size();) {
    const uint32_t c = code_point(s->text, at);
    size_t next = at + code_point_bytes(s->text, at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (ends) {
      if (c == '\r' && next < s->text.size() && s->text[next] == '\n') ++next;
      lines.push_back(Value::string(slice_bytes(heap, s, begin, keep_ends ? next : at)));
      begin = next;
    }
    at = next;
  }
  if (begin < s->text.size()) lines.push_back(Value::string(slice_bytes(heap, s, begin, s->text.size())));
  return lines;
}

namespace {

StrRef soft_text(Interpreter& in, const CallArgs& args) { return to_str(args.positional[0], in.heap()); }

Value trim(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'trim'", args, {"value", "chars"}, 1);
  const StrRef set = b.text(1);
  return Value::string(strip(in.heap(), soft_text(in, args), set.get(), 0));
}

template <std::string (*kMap)(std::string_view)>
Value map_case(Interpreter& in, CallArgs& args) {
  const Bound b("the filter", args, {"s"}, 1);
  const StrRef s = soft_text(in, args);
  return like(in.heap(), *s, kMap(s->text));
}

std::string title_case(std::string_view text) {
  std::string out;
  bool at_begin = true;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) {
    const uint32_t c = code_point(text, at);
    const bool separates = is_space(c) || (c < 0x80 && c != 0 && std::strchr("-({[<", static_cast<int>(c)) != nullptr);
    append_utf8(out, separates ? c : at_begin ? to_upper(c) : to_lower(c));
    at_begin = separates;
  }
  return out;
}

std::string capital_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text, at)) {
    const uint32_t c = code_point(text, at);
    append_utf8(out, at == 0 ? to_upper(c) : to_lower(c));
  }
  return out;
}

Value filter_string(Interpreter& in, CallArgs& args) { return Value::string(soft_text(in, args)); }

Value filter_replace(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'replace'", args, {"s", "old", "new", "count"}, 3);
  const int64_t n = b.has(3) && !b[3].is_none() ? b.integer(3, -1) : -1;
  Heap& heap = in.heap();
  StrRef result = replace(heap, to_str(b[0], heap), *to_str(b[1], heap), *to_str(b[2], heap), n);
  if (!result->markup) return Value::string(result);
  StrBuilder plain(heap);  // without auto-escaping the filter works on plain text
  plain.append(*result);
  return plain.take_value();
}

Value filter_indent(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'indent'", args, {"s", "width", "first", "blank"}, 1);
  if (b[0].is_undefined()) fault("{}", b[0].undefined_text());
  if (!b[0].is_string()) fault("filter 'indent' needs a string, not {}", type_name(b[0]));
  Heap& heap = in.heap();
  StrBuilder pad(heap);
  if (b.has(1) && b[1].is_string()) {
    pad.append(*b[1].str());
  } else {
    pad.append_repeated(' ', static_cast<uint64_t>(std::max<int64_t>(0, b.integer(1, 4))));
  }
  const StrRef indention = pad.take();
  const bool blank = b.flag(3, false);
  // A line end is added first, so that one at the end of the text survives the splitting.
  StrBuilder extended(heap);
  extended.append(*b[0].str());
  extended.append("\n");
  const std::vector<Value> lines = split_lines(heap, extended.take());
  StrBuilder out(heap);
  if (b.flag(2, false)) out.append(*indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i > 0 && (blank || !lines[i].text().empty())) out.append(*indention);
    out.append(*lines[i].str());
  }
  return out.take_value(b[0].str()->markup);
}

Value filter_safe(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'safe'", args, {"value"}, 1);
  StrBuilder out(in.heap());
  out.append(*soft_text(in, args));
  return out.take_value(true);
}

Value filter_escape(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'escape'", args, {"value"}, 1);
  const StrRef s = soft_text(in, args);
  return Value::string(s->markup ? s : escape_html(in.heap(), *s));
}

Value filter_default(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'default'", args, {"value", "default_value", "boolean"}, 1);
  const bool replaced = b[0].is_undefined() || (b.flag(2, false) && !truthy(b[0]));
  if (!replaced) return b[0];
  return b.has(1) ? b[1] : Value::string(in.heap().make_str(""));
}

std::string trimmed_digits(std::string_view text) {
  size_t begin = 0;
  size_t end = text.size();
  const auto space = [&](size_t i) { return is_space(static_cast<unsigned char>(text[i])); };
  while (begin < end && space(begin)) ++begin;
  while (end > begin && space(end - 1)) --end;
  std::string out;
  for (size_t i = begin; i < end; ++i) {
    // Underscores may stand between digits only.
    const bool between = text[i] == '_' && i > begin && i + 1 < end &&
                         std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) out += text[i];
  }
  return out;
}

bool parse_int(std::string_view text, int64_t base, int64_t& value) {
  std::string digits = trimmed_digits(text);
  if ((base != 0 && base < 2) || base > 36) return false;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      base = marked;
      digits.erase(0, 2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return false;
  if (negative) digits.insert(0, "-");
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (result.ec == std::errc::result_out_of_range)
    fault("the integer '{}' does not fit into 64 bits", digits.substr(0, 40));
  return result.ec == std::errc() && result.ptr == digits.data() + digits.size();
}

bool parse_real(std::string_view text, double& value) {
  std::string digits = trimmed_digits(text);
  if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
  if (digits.empty() || digits[0] == '+') return false;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    value = std::strtod(digits.c_str(), nullptr);
    return true;
  }
  // Python takes "inf", "infinity" and "nan" as from_chars does, but no "nan(...)".
  return result.ec == std::errc() && result.ptr == digits.data() + digits.size() &&
         digits.find('(') == std::string::npos;
}

Value truncate_real(double d) {
  if (!std::isfinite(d)) fault("cannot convert float {} to integer", real_repr(d));
  if (std::fabs(d) >= 9.2e18) fault("the number {} does not fit into 64 bits", real_repr(d));
  return Value::integer(static_cast<int64_t>(d));
}

Value filter_int(Interpreter&, CallArgs& args) {
  const Bound b("filter 'int'", args, {"value", "default", "base"}, 1);
  const Value& v = b[0];
  if (v.is_undefined()) fault("{}", v.undefined_text());
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is(Kind::kFloat)) return truncate_real(v.as_real());
  if (v.is_string()) {
    int64_t i = 0;
    double d = 0;
    if (parse_int(v.text(), b.integer(2, 10), i)) return Value::integer(i);
    if (parse_real(v.text(), d) && !std::isnan(d)) return truncate_real(d);
  }
  return b.has(1) ? b[1] : Value::integer(0);
}

Value filter_float(Interpreter&, CallArgs& args) {
  const Bound b("filter 'float'", args, {"value", "default"}, 1);
  const Value& v = b[0];
  if (v.is_undefined()) fault("{}", v.undefined_text());
  if (v.is_number()) return Value::real(v.as_real());
  double d = 0;
  if (v.is_string() && parse_real(v.text(), d)) return Value::real(d);
  return b.has(1) ? b[1] : Value::real(0);
}

const Value& number(const Value& v, const char* filter) {
  if (v.is_undefined()) fault("{}", v.undefined_text());
  if (!v.is_number()) fault("filter '{}' needs a number, not {}", filter, type_name(v));
  return v;
}

Value filter_abs(Interpreter&, CallArgs& args) {
  const Bound b("filter 'abs'", args, {"x"}, 1);
  const Value& v = number(b[0], "abs");
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.as_real()));
  return v.as_int() < 0 ? number_arithmetic(Op::kSub, Value::integer(0), v) : Value::integer(v.as_int());
}

double round_real(double d, int64_t precision) {
  if (!std::isfinite(d) || precision > 300) return d;
  if (precision < 0) {
    if (precision < -308) return std::copysign(0.0, d);
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(d / scale) * scale;
  }
  // Printing rounds the exact binary value correctly, as Python's round does.
  return std::strtod(fmt::format("{:.{}f}", d, precision).c_str(), nullptr);
}

Value round_integer(int64_t i, int64_t precision) {
  if (precision >= 0) return Value::integer(i);
  if (precision < -18) return Value::integer(0);
  int64_t scale = 1;
  for (int64_t k = 0; k < -precision; ++k) scale *= 10;
  int64_t down = number_arithmetic(Op::kFloorDiv, Value::integer(i), Value::integer(scale)).as_int();
  const int64_t rest = i - down * scale;
  if (rest > scale / 2 || (rest == scale / 2 && down % 2 != 0)) ++down;
  return number_arithmetic(Op::kMul, Value::integer(down), Value::integer(scale));
}

Value filter_round(Interpreter&, CallArgs& args) {
  const Bound b("filter 'round'", args, {"value", "precision", "method"}, 1);
  const Value& v = number(b[0], "round");
  const int64_t precision = b.integer(1, 0);
  const StrRef method = b.text(2);
  if (method == nullptr || method->text == "common") {
    return v.is(Kind::kFloat) ? Value::real(round_real(v.as_real(), precision)) : round_integer(v.as_int(), precision);
  }
  if (method->text != "ceil" && method->text != "floor") fault("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.as_real() * scale;
  return Value::real((method->text == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_tojson(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'tojson'", args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style;
  style.ensure_ascii = b.flag(1, false);
  style.sort_keys = b.flag(4, false);
  if (b.has(2) && !b[2].is_none()) {
    style.multiline = true;
    style.item_separator = ",";
    const int64_t width = b[2].is_string() ? 0 : b.integer(2, 0);
    if (width > 1000) fault("filter 'tojson': indent is larger than 1000");
    style.indent = b[2].is_string() ? std::string(b[2].text())
                                    : std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  if (b.has(3) && !b[3].is_none()) {
    const std::vector<Value> parts = iterate(in.heap(), b[3]);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string())
      fault("filter 'tojson': separators must be two strings");
    style.item_separator = parts[0].text();
    style.key_separator = parts[1].text();
  }
  return Value::string(to_json(b[0], style, in.heap()));
}

Value filter_format(Interpreter& in, CallArgs& args) {
  Heap& heap = in.heap();
  const StrRef format = soft_text(in, args);
  if (!args.named.empty()) {
    if (args.positional.size() > 1) fault("can't handle positional and keyword arguments at the same time");
    DictObj* const dict = heap.make<DictObj>();
    for (auto& [name, value] : args.named) dict->set(heap, Value::string(heap.make_str(name)), value);
    return Value::string(format_percent(in, format, dict));
  }
  std::vector<Value> values(args.positional.begin() + 1, args.positional.end());
  return Value::string(format_percent(in, format, heap.make_list(std::move(values), ListFlavor::kTuple)));
}

Value filter_center(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'center'", args, {"value", "width"}, 1);
  const StrRef s = soft_text(in, args);
  const int64_t pad = b.integer(1, 80) - length_of(Value::string(s));
  if (pad <= 0) return Value::string(s);
  const int64_t left = pad / 2 + (pad & b.integer(1, 80) & 1);
  StrBuilder out(in.heap());
  out.append_repeated(' ', static_cast<uint64_t>(left));
  out.append(*s);
  out.append_repeated(' ', static_cast<uint64_t>(pad - left));
  return out.take_value(s->markup);
}

Value filter_wordcount(Interpreter& in, CallArgs& args) {
  const Bound b("filter 'wordcount'", args, {"s"}, 1);
  const StrRef s = soft_text(in, args);
  int64_t n = 0;
  bool inside = false;
  for (size_t at = 0; at < s->text.size(); at += code_point_bytes(s->text, at)) {
    const uint32_t c = code_point(s->text, at);
    const bool is_word = c == '_' || (char_class(c) & (kLetter | kNumber)) != 0;
    if (is_word && !inside) ++n;
    inside = is_word;
  }
  return Value::integer(n);
}

constexpr Named<FilterFn> kFilters[] = {
    {"abs", filter_abs},
    {"capitalize", map_case<capital_case>},
    {"center", filter_center},
    {"d", filter_default},
    {"default", filter_default},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"float", filter_float},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", map_case<lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", map_case<title_case>},
    {"tojson", filter_tojson},
    {"trim", trim},
    {"upper", map_case<upper>},
    {"wordcount", filter_wordcount},
};

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  for (const auto& row : kFilters) {
    if (row.name == name) return row.fn;
  }
  return nullptr;
}

}  // namespace outrider::text::jinja

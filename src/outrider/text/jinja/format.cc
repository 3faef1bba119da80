// SPDX-License-Identifier: Apache-2.0
// "..." % args and "...".format(args). The text of the format keeps its provenance, each value brings its own.
#include <cmath>
#include <cstring>

#include "outrider/base/error.h"
#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/unicode.h"

namespace outrider::text::jinja {
namespace {

// Widths and precisions come from the template: this bounds what one conversion can produce.
constexpr int64_t kMaxWidth = 100000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + space
  bool alternate = false;
  bool zero = false;
  char group = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t n = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    n = n * 10 + (text[at] - '0');
    if (n > kMaxWidth) fault("a width or precision of a format is larger than {}", kMaxWidth);
  }
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t n = code_point_bytes(text, 0);
    if (n < text.size() && is_align(text[n])) {
      spec.fill = text.substr(0, n);
      spec.align = text[n];
      at = n + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto skip = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (at < text.size() && std::strchr("+- ", text[at]) != nullptr) spec.sign = text[at++];
  spec.alternate = skip('#');
  if (skip('0')) {
    spec.zero = true;
    if (spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = read_number(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.group = text[at++];
  if (skip('.')) {
    const size_t begin = at;
    spec.precision = read_number(text, at);
    if (at == begin) fault("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fault("Invalid format specifier '{}'", printable(text));
  return spec;
}

std::string group_digits(const std::string& digits, char separator, size_t every) {
  size_t whole = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (whole == std::string::npos) whole = digits.size();
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string integer_digits(uint64_t magnitude, const Spec& spec, std::string& prefix) {
  std::string digits;
  size_t every = 3;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      every = 4;
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      every = 4;
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      every = 4;
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      prefix = "0b";
      every = 4;
      break;
    default:
      digits = std::to_string(magnitude);
      break;
  }
  if (!spec.alternate) prefix.clear();
  return spec.group != '\0' ? group_digits(digits, spec.group, every) : digits;
}

std::string real_digits(double magnitude, const Spec& spec) {
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    default:
      digits = spec.precision < 0 ? real_repr(magnitude)
                                  : fmt::format("{:.{}g}", magnitude, std::max<int64_t>(1, precision));
      break;
  }
  if (spec.type == '\0' && spec.precision >= 0 && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return spec.group != '\0' ? group_digits(digits, spec.group, 3) : digits;
}

void pad(StrBuilder& out, const Spec& spec, char default_align, const std::string& prefix, const Str& body) {
  const int64_t length = static_cast<int64_t>(prefix.size() + count_code_points(body.text));
  const int64_t missing = std::max<int64_t>(0, spec.width - length);
  const char align = spec.align != '\0' ? spec.align : default_align;
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const auto fill = [&](int64_t n) {
    for (; n > 0; --n) out.append(spec.fill);
  };
  fill(left);
  out.append(prefix);
  if (align == '=') fill(missing);
  out.append(body);
  if (align != '=') fill(missing - left);
}

void format_number(StrBuilder& out, Heap& heap, const Spec& spec, const Value& value) {
  const bool real = value.is(Kind::kFloat) || (spec.type != '\0' && std::strchr("fFeEgG%", spec.type) != nullptr);
  std::string prefix;
  std::string digits;
  bool negative = false;
  if (real) {
    const double d = value.as_real();
    negative = std::signbit(d) && !std::isnan(d);
    digits = real_digits(std::fabs(d), spec);
  } else {
    const int64_t i = value.as_int();
    negative = i < 0;
    digits = integer_digits(negative ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i), spec, prefix);
  }
  if (negative) {
    prefix.insert(0, "-");
  } else if (spec.sign != '-') {
    prefix.insert(0, 1, spec.sign);
  }
  pad(out, spec, '>', prefix, *heap.make_str(digits));
}

StrRef cut(Heap& heap, const StrRef& s, int64_t n_code_points) {
  return n_code_points < 0 ? s : slice_bytes(heap, s, 0, byte_offset(s->text, static_cast<size_t>(n_code_points)));
}

StrRef repr_text(Heap& heap, const Value& value) {
  StrBuilder out(heap);
  repr(value, out, heap);
  if (out.has_untrusted()) out.distrust_all();
  return out.take();
}

void format_value(StrBuilder& out, Heap& heap, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return print(value, out, heap);
  const Spec spec = parse_spec(spec_text);
  if (value.is(Kind::kFloat) || (value.is_integral() && !(value.is(Kind::kBool) && spec.type == 's'))) {
    if (spec.type != '\0' && std::strchr("bdoxXnfFeEgG%", spec.type) == nullptr) {
      fault("Unknown format code '{}' for object of type '{}'", printable({&spec.type, 1}), type_name(value));
    }
    if (value.is(Kind::kFloat) && spec.type != '\0' && std::strchr("bdoxX", spec.type) != nullptr) {
      fault("Unknown format code '{}' for object of type 'float'", spec.type);
    }
    return format_number(out, heap, spec, value);
  }
  if (!value.is_string()) fault("unsupported format string passed to {}.__format__", type_name(value));
  if (spec.type != '\0' && spec.type != 's') {
    fault("Unknown format code '{}' for object of type 'str'", printable({&spec.type, 1}));
  }
  if (spec.align == '=' && !spec.zero) fault("'=' alignment not allowed in string format specifier");
  pad(out, spec, '<', "", *cut(heap, value.str(), spec.precision));
}

// One "{...}" after another.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, const CallArgs& args) : in_(in), heap_(in.heap()), args_(args) {}

  void run(const Str& format, StrBuilder& out) {
    const std::string& text = format.text;
    size_t at = 0;
    while (at < text.size()) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace);
      if (brace == text.size()) return;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') fault("Single '}}' encountered in format string");
      int depth = 1;
      size_t end = brace + 1;
      for (; end < text.size(); ++end) {
        depth += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
        if (depth == 0) break;
      }
      if (end >= text.size()) fault("expected '}}' before end of string");
      field(std::string_view(text).substr(brace + 1, end - brace - 1), out);
      at = end + 1;
    }
  }

 private:
  void field(std::string_view text, StrBuilder& out) {
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < text.size(); ++name_end) {
      if (text[name_end] == '[') in_brackets = true;
      if (text[name_end] == ']') in_brackets = false;
      if (!in_brackets && (text[name_end] == ':' || text[name_end] == '!')) break;
    }
    Value value = find(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion == 'r') {
        value = Value::string(repr_text(heap_, value));
      } else if (conversion == 's') {
        value = Value::string(to_str(value, heap_));
      } else {
        fault("Unknown conversion specifier in a format string");
      }
      rest = rest.substr(2);
      if (!rest.empty() && rest[0] != ':') fault("expected ':' after conversion specifier");
    }
    std::string spec(rest.empty() ? rest : rest.substr(1));
    if (spec.find('{') != std::string::npos) {
      // The specification may name further arguments, one level deep.
      StrBuilder inner(heap_);
      if (++depth_ > 1) fault("Max string recursion exceeded");
      run(*heap_.make_str(spec), inner);
      --depth_;
      spec = inner.take()->text;
    }
    format_value(out, heap_, value, spec);
  }

  Value find(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string_view first = path.substr(0, end);
    Value value = argument(first);
    size_t at = end;
    while (at < path.size()) {
      if (path[at] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", at + 1), path.size());
        value = in_.attribute(value, heap_.make_str(std::string(path.substr(at + 1, stop - at - 1))));
        at = stop;
      } else if (path[at] == '[') {
        const size_t stop = path.find(']', at);
        if (stop == std::string_view::npos) fault("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, stop - at - 1);
        size_t digits = 0;
        const bool is_index = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
        value = in_.item(value, is_index ? Value::integer(read_number(key, digits))
                                         : Value::string(heap_.make_str(std::string(key))));
        at = stop + 1;
      } else {
        fault("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    const bool automatic = name.empty();
    const bool numbered = !automatic && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (automatic || numbered) {
      if (numbering_ != Numbering::kNone && (numbering_ == Numbering::kAutomatic) != automatic) {
        fault("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = automatic ? Numbering::kAutomatic : Numbering::kManual;
      size_t at = 0;
      const auto index = automatic ? next_++ : static_cast<size_t>(read_number(name, at));
      if (index >= args_.positional.size()) fault("Replacement index {} out of range for positional args tuple", index);
      return args_.positional[index];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fault("format(): no argument named '{}'", printable(name, 40));
  }

  enum class Numbering { kNone, kAutomatic, kManual };
  Interpreter& in_;
  Heap& heap_;
  const CallArgs& args_;
  Numbering numbering_ = Numbering::kNone;
  size_t next_ = 0;
  int depth_ = 0;
};

// The conversions of "%".
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const Value& args) : heap_(in.heap()), args_(args) {
    is_tuple_ = args.is(Kind::kList) && args.list()->flavor == ListFlavor::kTuple;
  }

  void run(const Str& format, StrBuilder& out) {
    const std::string& text = format.text;
    size_t at = 0;
    while (at < text.size()) {
      const size_t percent = std::min(text.find('%', at), text.size());
      out.append(format, at, percent);
      if (percent == text.size()) break;
      at = percent + 1;
      convert(text, at, out);
    }
    // Python lets a list or dict go unused, for it might be a mapping of names.
    const bool may_rest = (args_.is(Kind::kList) && args_.list()->flavor <= ListFlavor::kRange) ||
                          args_.is(Kind::kDict) || args_.is_undefined();
    const bool all_used = is_tuple_ ? next_ >= args_.list()->items.size() : next_ > 0 || used_name_ || may_rest;
    if (!all_used) fault("not all arguments converted during string formatting");
  }

 private:
  const Value& take() {
    if (is_tuple_ ? next_ >= args_.list()->items.size() : next_ >= 1) fault("not enough arguments for format string");
    return is_tuple_ ? args_.list()->items[next_++] : (++next_, args_);
  }

  void convert(const std::string& text, size_t& at, StrBuilder& out) {
    Value named;
    const bool has_name = at < text.size() && text[at] == '(';
    if (has_name) {
      const size_t close = text.find(')', at);
      if (close == std::string::npos) fault("incomplete format key");
      if (!args_.is(Kind::kDict)) fault("format requires a mapping");
      const int64_t entry = args_.dict()->find(std::string_view(text).substr(at + 1, close - at - 1));
      if (entry < 0) fault("format key is missing");
      named = args_.dict()->entries[static_cast<size_t>(entry)].second;
      used_name_ = true;
      at = close + 1;
    }
    Spec spec;
    bool left = false;
    for (; at < text.size() && std::strchr("-+ #0", text[at]) != nullptr; ++at) {
      if (text[at] == '-') left = true;
      if (text[at] == '+' || (text[at] == ' ' && spec.sign != '+')) spec.sign = text[at];
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zero = true;
    }
    spec.width = star_or_number(text, at);
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = star_or_number(text, at);
    }
    while (at < text.size() && std::strchr("hlL", text[at]) != nullptr) ++at;
    if (at >= text.size()) fault("incomplete format");
    spec.type = text[at++];
    if (spec.type == '%') return out.append("%");
    const Value value = has_name ? named : take();
    spec.align = left ? '<' : '>';
    write(value, spec, left, out);
  }

  int64_t star_or_number(const std::string& text, size_t& at) {
    if (at >= text.size() || text[at] != '*') return read_number(text, at);
    ++at;
    const Value& value = take();
    if (!value.is_integral()) fault("* wants int");
    if (value.as_int() < 0 || value.as_int() > kMaxWidth)
      fault("a width or precision of a format is outside 0..{}", kMaxWidth);
    return value.as_int();
  }

  void write(const Value& value, Spec spec, bool left, StrBuilder& out) {
    switch (spec.type) {
      case 's':
        return pad(out, spec, '>', "", *cut(heap_, to_str(value, heap_), spec.precision));
      case 'r':
      case 'a':
        return pad(out, spec, '>', "", *cut(heap_, repr_text(heap_, value), spec.precision));
      case 'c': {
        if (value.is_string() && length_of(value) == 1) return pad(out, spec, '>', "", *value.str());
        if (!value.is_integral() || value.as_int() < 0 || value.as_int() > 0x10FFFF) fault("%c requires int or char");
        std::string c;
        append_utf8(c, static_cast<uint32_t>(value.as_int()));
        return pad(out, spec, '>', "", *heap_.make_str(c));
      }
      default:
        break;
    }
    if (std::strchr("diouxXeEfFgG", spec.type) == nullptr)
      fault("unsupported format character '{}'", printable({&spec.type, 1}));
    if (!value.is_number()) fault("%{} format: a real number is required, not {}", spec.type, type_name(value));
    if (spec.zero && !left) {
      spec.align = '=';
      spec.fill = "0";
    }
    const bool integral = std::strchr("diouxX", spec.type) != nullptr;
    if (!integral) return format_number(out, heap_, spec, value);
    if (value.is(Kind::kFloat) && std::strchr("oxX", spec.type) != nullptr)
      fault("%{} format: an integer is required, not float", spec.type);
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (value.is(Kind::kFloat) && !(std::fabs(value.as_real()) < 9.2e18))
      fault("%d format: the number does not fit into 64 bits");
    format_number(out, heap_, spec,
                  value.is(Kind::kFloat) ? Value::integer(static_cast<int64_t>(value.as_real())) : value);
  }

  Heap& heap_;
  const Value& args_;
  bool is_tuple_ = false;
  bool used_name_ = false;
  size_t next_ = 0;
};

// Markup escapes what is put into it.
Value escaped(Heap& heap, const Value& value) {
  if (!value.is_string() || value.str()->markup) return value;
  return Value::string(escape_html(heap, *value.str()));
}

}  // namespace

StrRef format_braces(Interpreter& in, const StrRef& format, const CallArgs& args) {
  CallArgs safe = args;
  if (format->markup) {
    for (Value& value : safe.positional) value = escaped(in.heap(), value);
    for (auto& [name, value] : safe.named) value = escaped(in.heap(), value);
  }
  StrBuilder out(in.heap());
  BraceFormatter(in, safe).run(*format, out);
  return out.take(format->markup);
}

StrRef format_percent(Interpreter& in, const StrRef& format, const Value& args) {
  Value safe = args;
  if (format->markup) {
    if (args.is(Kind::kList) && args.list()->flavor == ListFlavor::kTuple) {
      std::vector<Value> items = args.list()->items;
      for (Value& item : items) item = escaped(in.heap(), item);
      safe = in.heap().make_list(std::move(items), ListFlavor::kTuple);
    } else {
      safe = escaped(in.heap(), args);
    }
  }
  StrBuilder out(in.heap());
  PercentFormatter(in, safe).run(*format, out);
  return out.take(format->markup);
}

}  // namespace outrider::text::jinja

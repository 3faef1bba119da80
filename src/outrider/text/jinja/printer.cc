// SPDX-License-Identifier: Apache-2.0
// How values become text: Python's str() and repr(), and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "outrider/text/jinja/unicode.h"
#include "outrider/text/jinja/value.h"

namespace outrider::text::jinja {

std::string real_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  // The shortest digits that read back as d; Python writes an exponent below 1e-4 and from 1e16 on.
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) {
    const int magnitude = std::abs(exponent);
    return text.substr(0, e) + (exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

namespace {

void repr_string(const Str& s, StrBuilder& out) {
  const bool has_single = s.text.find('\'') != std::string::npos;
  const char quote = has_single && s.text.find('"') == std::string::npos ? '"' : '\'';
  std::string text(1, quote);
  for (size_t at = 0; at < s.text.size();) {
    const uint32_t c = code_point(s.text, at);
    const size_t n = code_point_bytes(s.text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (c == '\t') {
      text += "\\t";
    } else if (is_printable(c)) {
      text.append(s.text, at, n);
    } else {
      text += c < 0x100     ? fmt::format("\\x{:02x}", c)
              : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                            : fmt::format("\\U{:08x}", c);
    }
    at += n;
  }
  text += quote;
  if (s.markup) text = "Markup(" + text + ")";
  out.append(text, s.untrusted.empty());
}

void repr_list(const ListObj& list, StrBuilder& out, Heap& heap, uint32_t depth) {
  const char* open = "[";
  const char* close = "]";
  switch (list.flavor) {
    case ListFlavor::kList:
      break;
    case ListFlavor::kTuple:
    case ListFlavor::kGroup:
      open = "(";
      close = list.items.size() == 1 ? ",)" : ")";
      break;
    case ListFlavor::kRange:
      out.append(list.step == 1 ? fmt::format("range({}, {})", list.start, list.stop)
                                : fmt::format("range({}, {}, {})", list.start, list.stop, list.step));
      return;
    case ListFlavor::kDictKeys:
      open = "dict_keys([";
      close = "])";
      break;
    case ListFlavor::kDictValues:
      open = "dict_values([";
      close = "])";
      break;
    case ListFlavor::kDictItems:
      open = "dict_items([";
      close = "])";
      break;
  }
  out.append(open);
  bool first = true;
  for (const Value& item : list.items) {
    if (!first) out.append(", ");
    first = false;
    repr(item, out, heap, depth + 1);
  }
  out.append(close);
}

void repr_dict(const DictObj& dict, StrBuilder& out, Heap& heap, uint32_t depth) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.append(", ");
    first = false;
    repr(key, out, heap, depth + 1);
    out.append(": ");
    repr(value, out, heap, depth + 1);
  }
  out.append("}");
}

}  // namespace

void repr(const Value& value, StrBuilder& out, Heap& heap, uint32_t depth) {
  if (depth > heap.limits().value_depth) fault("a value is nested too deeply to print");
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.append(depth == 0 ? "" : "Undefined");
    case Kind::kNone:
      return out.append("None");
    case Kind::kBool:
      return out.append(value.as_int() != 0 ? "True" : "False");
    case Kind::kInt:
      return out.append(std::to_string(value.as_int()));
    case Kind::kFloat:
      return out.append(real_repr(value.as_real()));
    case Kind::kString:
      return repr_string(*value.str(), out);
    case Kind::kList:
      return repr_list(*value.list(), out, heap, depth);
    case Kind::kDict:
      return repr_dict(*value.dict(), out, heap, depth);
    case Kind::kNamespace:
      out.append("<Namespace ");
      repr_dict(*value.ns()->fields, out, heap, depth + 1);
      return out.append(">");
    case Kind::kGenerator:
      return out.append("<generator object>");
    case Kind::kCallable:
      return out.append(value.callable()->describe());
    case Kind::kLoop:
      return out.append(fmt::format("<LoopContext {}/{}>", value.loop()->index0 + 1, value.loop()->length));
  }
}

void print(const Value& value, StrBuilder& out, Heap& heap) {
  if (value.is_string()) return out.append(*value.str());
  if (value.is_undefined()) return;
  if (value.is_number() || value.is_none()) return repr(value, out, heap);
  // The text of a container is traced as a whole: where a string's quotes and escapes belong is not worth a rule.
  StrBuilder part(heap);
  repr(value, part, heap);
  if (part.has_untrusted()) part.distrust_all();
  out.append(*part.take());
}

StrRef to_str(const Value& value, Heap& heap) {
  if (value.is_string()) return value.str();
  StrBuilder out(heap);
  print(value, out, heap);
  return out.take();
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap), out_(heap) {}

  void write(const Value& value, uint32_t depth) {
    if (depth > heap_.limits().value_depth) fault("a value is nested too deeply for tojson");
    switch (value.kind()) {
      case Kind::kNone:
        return out_.append("null");
      case Kind::kBool:
        return out_.append(value.as_int() != 0 ? "true" : "false");
      case Kind::kInt:
        return out_.append(std::to_string(value.as_int()));
      case Kind::kFloat:
        return out_.append(real(value.as_real()));
      case Kind::kString:
        return write_string(value.text(), value.str()->untrusted.empty());
      case Kind::kList:
        if (value.list()->flavor > ListFlavor::kGroup) break;
        return write_list(*value.list(), depth);
      case Kind::kDict:
        return write_dict(*value.dict(), depth);
      default:
        break;
    }
    fault("Object of type {} is not JSON serializable", type_name(value));
  }

  StrRef take() {
    if (out_.has_untrusted()) out_.distrust_all();
    return out_.take();
  }

 private:
  static std::string real(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return real_repr(d);
  }

  void new_line(uint32_t depth) {
    if (!style_.multiline) return;
    out_.append("\n");
    for (uint32_t i = 0; i < depth; ++i) out_.append(style_.indent);
  }

  void write_string(std::string_view text, bool trusted) {
    std::string escaped = "\"";
    for (size_t at = 0; at < text.size();) {
      const uint32_t c = code_point(text, at);
      const size_t n = code_point_bytes(text, at);
      switch (c) {
        case '"':
          escaped += "\\\"";
          break;
        case '\\':
          escaped += "\\\\";
          break;
        case '\n':
          escaped += "\\n";
          break;
        case '\r':
          escaped += "\\r";
          break;
        case '\t':
          escaped += "\\t";
          break;
        case '\b':
          escaped += "\\b";
          break;
        case '\f':
          escaped += "\\f";
          break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
            escaped += fmt::format("\\u{:04x}", c);
          } else if (style_.ensure_ascii && c >= 0x10000) {
            escaped +=
                fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
          } else {
            escaped.append(text, at, n);
          }
      }
      at += n;
    }
    escaped += '"';
    out_.append(escaped, trusted);
  }

  void write_list(const ListObj& list, uint32_t depth) {
    if (list.items.empty()) return out_.append("[]");
    out_.append("[");
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      new_line(depth + 1);
      write(item, depth + 1);
    }
    new_line(depth);
    out_.append("]");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return write_string(key.text(), key.str()->untrusted.empty());
      case Kind::kNone:
        return write_string("null", true);
      case Kind::kBool:
        return write_string(key.as_int() != 0 ? "true" : "false", true);
      case Kind::kInt:
        return write_string(std::to_string(key.as_int()), true);
      case Kind::kFloat:
        return write_string(real(key.as_real()), true);
      default:
        fault("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(const DictObj& dict, uint32_t depth) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : entries) static_cast<void>(compare(heap_, entries[0]->first, entry->first, "<"));
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return compare(heap_, a->first, b->first, "<") < 0; });
    }
    out_.append("{");
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      new_line(depth + 1);
      write_key(entry->first);
      out_.append(style_.key_separator);
      write(entry->second, depth + 1);
    }
    new_line(depth);
    out_.append("}");
  }

  const JsonStyle& style_;
  Heap& heap_;
  StrBuilder out_;
};

}  // namespace

StrRef to_json(const Value& value, const JsonStyle& style, Heap& heap) {
  JsonWriter writer(style, heap);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace outrider::text::jinja

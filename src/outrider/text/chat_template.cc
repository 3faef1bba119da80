// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "outrider/base/error.h"
#include "outrider/text/jinja/interpreter.h"
#include "outrider/text/jinja/parser.h"

namespace outrider::text {
namespace {

using jinja::Heap;
using jinja::StrBuilder;
using jinja::Value;

// The customary fallback of files without a template.
constexpr std::string_view kChatMl =
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

// Special tokens are told by the engine, not by a client.
bool is_trusted_variable(std::string_view name) {
  return name == "bos_token" || name == "eos_token" || name == "unk_token" || name == "pad_token" ||
         name == "sep_token" || name == "cls_token" || name == "mask_token";
}

Value convert(const nlohmann::ordered_json& json, Heap& heap, bool trusted, uint32_t depth) {
  if (depth > heap.limits().value_depth)
    jinja::fault("the input is nested deeper than {} levels", heap.limits().value_depth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto n = json.get<uint64_t>();
      return n <= static_cast<uint64_t>(INT64_MAX) ? Value::integer(static_cast<int64_t>(n))
                                                   : Value::real(static_cast<double>(n));
    }
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return Value::string(heap.make_str(json.get_ref<const std::string&>(), trusted));
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, heap, trusted, depth + 1));
      return heap.make_list(std::move(items));
    }
    case Type::object: {
      auto* dict = heap.make<jinja::DictObj>();
      for (const auto& [key, value] : json.items()) {
        dict->set(heap, Value::string(heap.make_str(key, trusted)), convert(value, heap, trusted, depth + 1));
      }
      return dict;
    }
    default:
      return Value::none();
  }
}

// Room for a long conversation beside the template's own work.
jinja::Limits limits_for(uint64_t input_bytes) {
  jinja::Limits limits;
  limits.text_bytes = std::min<uint64_t>(limits.text_bytes + 4 * input_bytes, 1U << 30);
  limits.live_bytes += 32 * input_bytes;
  limits.steps += 8 * input_bytes;
  return limits;
}

uint64_t text_bytes(const nlohmann::ordered_json& json, uint32_t depth = 0) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  uint64_t bytes = 1;
  if (depth < 100 && json.is_structured()) {
    for (const auto& item : json) bytes += 8 + text_bytes(item, depth + 1);
  }
  return bytes;
}

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(std::string_view source, std::string name)
      : source_(source), name_(std::move(name)), program_(compile_source(source_, name_)) {}

  std::vector<RenderedSpan> render(const nlohmann::ordered_json& variables,
                                   const RenderOptions& options) const override {
    if (!variables.is_object()) fail(ErrorKind::kBadArgument, "{}: the variables must be a JSON object", name_);
    Heap heap(limits_for(text_bytes(variables)));
    try {
      auto* dict = heap.make<jinja::DictObj>();
      for (const auto& [key, value] : variables.items()) {
        const bool trusted = is_trusted_variable(key);
        dict->set(heap, Value::string(heap.make_str(key)), convert(value, heap, trusted, 0));
      }
      dict->set(heap, Value::string(heap.make_str("add_generation_prompt")),
                Value::boolean(options.add_generation_prompt));
      const int64_t now = options.now >= 0 ? options.now : static_cast<int64_t>(std::time(nullptr));
      StrBuilder out(heap);
      jinja::Interpreter(program_, heap, now).run(dict, out);
      return spans_of(out);
    } catch (const jinja::Fault& fault) {
      if (fault.from_template()) throw Error(ErrorKind::kBadArgument, fault.what());
      fail(ErrorKind::kBadArgument, "{}: line {}: {}", name_, fault.line(), fault.what());
    }
  }

  const std::string& source() const noexcept override { return source_; }

 private:
  static jinja::Program compile_source(const std::string& source, const std::string& name) {
    try {
      return jinja::parse(source);
    } catch (const jinja::Fault& fault) {
      fail(ErrorKind::kBadFile, "{}: line {}: {}", name, fault.line(), fault.what());
    }
  }

  static std::vector<RenderedSpan> spans_of(StrBuilder& out) {
    std::vector<RenderedSpan> spans;
    const std::string& text = out.text();
    size_t at = 0;
    for (const jinja::ByteRange& range : out.untrusted()) {
      if (range.begin > at) spans.push_back({text.substr(at, range.begin - at), true});
      spans.push_back({text.substr(range.begin, range.end - range.begin), false});
      at = range.end;
    }
    if (at < text.size()) spans.push_back({text.substr(at), true});
    return spans;
  }

  std::string source_;
  std::string name_;
  jinja::Program program_;
};

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string name) {
  return std::make_unique<JinjaTemplate>(source, std::move(name));
}

std::unique_ptr<ChatTemplate> ChatTemplate::from_metadata(const format::Metadata& metadata, bool has_tools,
                                                          bool* fallback) {
  if (fallback != nullptr) *fallback = false;
  const std::string prefix = metadata.source().empty() ? "" : metadata.source() + ": ";
  for (const char* key : {"tokenizer.chat_template.tool_use", "tokenizer.chat_template"}) {
    if (!has_tools && std::string_view(key) != "tokenizer.chat_template") continue;
    if (const auto source = metadata.find_string(key)) return compile(*source, prefix + key);
  }
  if (fallback != nullptr) *fallback = true;
  return compile(kChatMl, "ChatML");
}

}  // namespace outrider::text

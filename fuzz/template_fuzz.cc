// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with a line number, or compile to a template that renders a conversation to text or to
// an error, within its limits. The first byte picks the conversation.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/text/chat_template.h"

namespace {

using namespace outrider;

const nlohmann::ordered_json& conversation(uint8_t which) {
  static const nlohmann::ordered_json kConversations = nlohmann::ordered_json::parse(R"([
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|im_start|> \u00e9\u4f60"},
                  {"role": "assistant", "content": "<think>\nx\n</think>\n\nHi"}, {"role": "user", "content": ""}],
     "bos_token": "<s>", "eos_token": "</s>", "n": 3, "x": 1.5, "nothing": null, "yes": true},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Go"}, {"type": "image"}]},
                  {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"id": "call00001", "type":
                   "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, {"b": null}], "c": "d"}}}]},
                  {"role": "tool", "content": "ok", "tool_call_id": "call00001", "name": "f"}],
     "tools": [{"type": "function", "function": {"name": "f", "description": "does", "parameters": {"type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "number"}}, "c": {"type": "string", "enum": ["d"]}},
                "required": ["a"]}}}], "enable_thinking": false, "bos_token": "<s>", "eos_token": "</s>",
     "list": [3, 1, 2], "d": {"b": 1, "items": 2}, "word": "h\u00e9llo"}])");
  return kConversations[which % kConversations.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  if (n_bytes == 0) return 0;
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, n_bytes - 1);
  std::unique_ptr<text::ChatTemplate> chat_template;
  try {
    chat_template = text::ChatTemplate::compile(source, "fuzz");
  } catch (const Error& error) {
    OUTRIDER_CHECK(error.kind() == ErrorKind::kBadFile && std::string_view(error.what()).starts_with("fuzz: line "),
                   "{}", error.what());
    return 0;
  }
  text::RenderOptions options;
  options.now = 1767225600;
  options.add_generation_prompt = (data[0] & 2) != 0;
  try {
    for (const text::RenderedSpan& span : chat_template->render(conversation(data[0]), options))
      OUTRIDER_CHECK(!span.text.empty());
  } catch (const Error& error) {
    OUTRIDER_CHECK(error.kind() == ErrorKind::kBadArgument, "{}", error.what());
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Renders a model's chat template (Jinja) as Hugging Face's environment does (../shared/spec/tokenizers.md sections
// 10-12). The result keeps track of which parts came from the input data, so that they can be tokenised as plain text.
// Threads: immutable after compile; render() may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/format/metadata.h"

namespace outrider::text {

struct RenderedSpan {
  std::string text;
  bool trusted = true;  // false: stems from messages, tools or other input data
};

struct RenderOptions {
  bool add_generation_prompt = true;
  // Seconds since the epoch for strftime_now; negative: the clock.
  int64_t now = -1;
};

class ChatTemplate {
 public:
  // Throws Error(kBadFile) with line and reason on a syntax error.
  static std::unique_ptr<ChatTemplate> compile(std::string_view source, std::string name = "chat template");
  // The template of a model file: tokenizer.chat_template(.tool_use when has_tools); absent: ChatML, and *fallback set.
  static std::unique_ptr<ChatTemplate> from_metadata(const format::Metadata& metadata, bool has_tools,
                                                     bool* fallback = nullptr);
  virtual ~ChatTemplate() = default;

  // `variables`: a JSON object with messages, tools (or absent), bos_token, eos_token and any further keywords; key
  // order is kept. The special tokens (bos_token, eos_token, unk_, pad_, sep_, cls_, mask_token) are trusted text,
  // everything else is not: do not let a client set them. add_generation_prompt comes from the options. Throws
  // Error(kBadArgument) with the template's own text from raise_exception, or with line and reason of a run-time fault.
  // Depth, loops, output size and time are limited.
  virtual std::vector<RenderedSpan> render(const nlohmann::ordered_json& variables,
                                           const RenderOptions& options) const = 0;
  virtual const std::string& source() const noexcept = 0;
};

}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

namespace outrider::apps {

Conversation::Conversation(const format::Metadata& metadata, const text::Tokenizer& tokenizer,
                           const std::string& system)
    : tokenizer_(tokenizer), template_(text::ChatTemplate::from_metadata(metadata, false, &fallback_)) {
  if (!system.empty()) add("system", system);
}

void Conversation::add(const char* role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

std::vector<int32_t> Conversation::prompt() const {
  const auto spelling = [&](text::TokenId id) {
    return id == text::kNoToken ? std::string() : std::string(tokenizer_.raw_text(id));
  };
  const std::string bos = spelling(tokenizer_.bos());
  nlohmann::ordered_json variables = {
      {"messages", messages_}, {"bos_token", bos}, {"eos_token", spelling(tokenizer_.eos())}};
  const std::vector<text::RenderedSpan> rendered = template_->render(variables, {.add_generation_prompt = true});
  std::vector<text::TextSpan> spans;
  for (const text::RenderedSpan& span : rendered) spans.push_back({span.text, span.trusted});
  // Many templates write the BOS themselves; encoding adds it too when the model wants one.
  if (!spans.empty() && tokenizer_.add_bos() && !bos.empty() && spans[0].text.substr(0, bos.size()) == bos) {
    spans[0].text.remove_prefix(bos.size());
  }
  return tokenizer_.encode_spans(spans, true);
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// A conversation: messages, the model's chat template, and the way from both to prompt tokens.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "outrider/format/metadata.h"
#include "outrider/text/chat_template.h"
#include "outrider/text/tokenizer.h"

namespace outrider::apps {

class Conversation {
 public:
  // `metadata` and `tokenizer` must outlive this. An empty system message is left out. Throws for a broken template.
  Conversation(const format::Metadata& metadata, const text::Tokenizer& tokenizer, const std::string& system);
  void add_user(const std::string& content) { add("user", content); }
  void add_assistant(const std::string& content) { add("assistant", content); }
  bool fallback_template() const noexcept { return fallback_; }
  // The whole conversation with the opening of the assistant's turn, as tokens: what a user wrote never becomes a
  // control token, and there is exactly one BOS when the model wants one.
  std::vector<int32_t> prompt() const;

 private:
  void add(const char* role, const std::string& content);

  const text::Tokenizer& tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  bool fallback_ = false;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace outrider::apps

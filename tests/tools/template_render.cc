// SPDX-License-Identifier: Apache-2.0
// A door for the template suites: reads one JSON request a line, {"template", "variables", "now",
// "add_generation_prompt"}, and writes one JSON answer a line: {"text", "spans"} or {"error", "kind"}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "outrider/base/error.h"
#include "outrider/text/chat_template.h"

namespace {

nlohmann::ordered_json answer(const nlohmann::ordered_json& request) {
  try {
    const auto chat_template = outrider::text::ChatTemplate::compile(request.at("template").get<std::string>());
    outrider::text::RenderOptions options;
    options.add_generation_prompt = request.value("add_generation_prompt", false);
    options.now = request.value("now", int64_t{0});
    std::string text;
    auto spans = nlohmann::ordered_json::array();
    for (const auto& span : chat_template->render(request.at("variables"), options)) {
      text += span.text;
      spans.push_back({{"text", span.text}, {"trusted", span.trusted}});
    }
    return {{"text", text}, {"spans", spans}};
  } catch (const outrider::Error& error) {
    return {{"error", error.what()}, {"kind", error.kind() == outrider::ErrorKind::kBadFile ? "syntax" : "render"}};
  }
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    // Text out of a broken template need not be UTF-8: the answer replaces what is not.
    const auto reply = answer(nlohmann::ordered_json::parse(line));
    std::cout << reply.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/format/gguf.h"
#include "outrider/text/utf8.h"

namespace outrider::text {
namespace {

using Ids = std::vector<TokenId>;

const Tokenizer& demo() {
  static const auto tokenizer = Tokenizer::load(format::ModelFile::open(OUTRIDER_SOURCE_DIR "/models/outrider-demo-q4_0.gguf").metadata);
  return *tokenizer;
}

TEST(Tokenizer, GoldenIdsOfTheDemoModel) {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/tests/golden/tokenizer/cases.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 24u);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto want = one.at("ids_parse_special").get<Ids>();
    EXPECT_EQ(demo().encode(text, {.parse_special = true}), want) << text.substr(0, 60);
    EXPECT_EQ(demo().decode(want, true), text);
  }
}

}  // namespace
}  // namespace outrider::text

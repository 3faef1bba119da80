// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/gguf.h"

#include <gtest/gtest.h>

namespace outrider::format {
namespace {

TEST(ModelFile, DemoModelLoads) {
  const auto model = ModelFile::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  EXPECT_EQ(model.metadata.require_string("general.architecture"), "glm4moe");
  EXPECT_EQ(model.metadata.require_uint("glm4moe.expert_count"), 64u);
  EXPECT_EQ(model.metadata.find_strings("tokenizer.ggml.tokens")->size(), 16'384u);
  EXPECT_EQ(model.require("token_embd.weight").dims[0], 512u);
}

}  // namespace
}  // namespace outrider::format

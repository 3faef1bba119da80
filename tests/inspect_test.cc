// SPDX-License-Identifier: Apache-2.0
// The inspect command, run as a program on the demo model and on split sets and damaged files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "outrider/format/gguf_writer.h"
#include "outrider/format/test_files.h"
#include "program.h"

namespace outrider {
namespace {

const std::string kDemo = std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf";

using test::Outcome;

Outcome run_inspect(const std::string& arguments) { return test::run_program("inspect " + arguments); }

TEST(Inspect, JsonOfTheDemoModel) {
  const Outcome outcome = run_inspect(kDemo + " --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto json = nlohmann::json::parse(outcome.text());
  EXPECT_EQ(json["metadata"]["general.architecture"], "glm4moe");
  EXPECT_EQ(json["metadata"]["glm4moe.expert_weights_norm"], true);
  EXPECT_EQ(json["metadata"]["glm4moe.attention.layer_norm_rms_epsilon"], 1e-5);
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["count"], 16'384);
  EXPECT_EQ(json["files"][0]["bytes"], 46'854'592);
  EXPECT_EQ(json["tensors"].size(), 191u);
  EXPECT_EQ(json["experts"]["used_per_token"], 6);
  ASSERT_EQ(json["experts"]["layers"].size(), 9u);
  for (const auto& layer : json["experts"]["layers"]) {
    EXPECT_EQ(layer["experts"], 64);
    EXPECT_EQ(layer["slab_bytes"], 55'296);
    EXPECT_EQ(layer["nextn"], layer["layer"] == 9);
  }
  uint64_t n_bytes = 0;
  for (const auto& tensor : json["tensors"]) n_bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(json["totals"]["bytes"], n_bytes);
  EXPECT_EQ(json["totals"]["dense_bytes"].get<uint64_t>() + json["totals"]["expert_bytes"].get<uint64_t>(), n_bytes);
}

TEST(Inspect, TextShowsTensorsOnDemand) {
  const Outcome brief = run_inspect(kDemo);
  ASSERT_EQ(brief.exit_code, 0) << brief.text();
  EXPECT_NE(brief.text().find("experts, 9 layers, 6 used per token and layer"), std::string::npos);
  EXPECT_EQ(brief.text().find("blk.1.ffn_up_exps.weight"), std::string::npos);
  EXPECT_NE(run_inspect(kDemo + " --tensors").text().find("blk.1.ffn_up_exps.weight"), std::string::npos);
}

TEST(Inspect, SplitSetListsItsFilesAndTextThatIsNoUtf8IsReplaced) {
  const format::TempFolder folder;
  format::GgufWriter writer{format::Metadata()};
  writer.metadata().set_string("general.name", "bad \xFF name");
  for (const char* name : {"a", "b"}) {
    writer.add(name, format::TensorType::kF32, {4}, format::from_values(std::vector<float>(4)));
  }
  const auto paths = writer.write_split(folder / "m", 2);
  const Outcome outcome = run_inspect(folder.path() + " --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text();
  const auto json = nlohmann::json::parse(outcome.text());
  ASSERT_EQ(json["files"].size(), 2u);
  EXPECT_EQ(json["files"][1]["path"], paths[1]);
  EXPECT_EQ(json["metadata"]["general.name"], "bad \xEF\xBF\xBD name");
  EXPECT_TRUE(json["experts"]["layers"].empty());
}

TEST(Inspect, DamagedFileIsOneLineAndExitCodeOne) {
  const format::TempFolder folder;
  const std::string path = folder / "m.gguf";
  format::write_file(path, format::small_image().bytes.substr(0, 895));
  const Outcome outcome = run_inspect(path);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.text(),
            "outrider: " + path +
                ": tensor d: data ends at byte 896, past the end of the file: the tensors need a file of "
                "896 bytes, it has 895 (truncated?)\n");
  EXPECT_EQ(run_inspect("").exit_code, 2);
}

}  // namespace
}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// The tokenize command, run as a program on the demo model, a file with a vocabulary only and one without.
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

Outcome run_tokenize(const std::string& arguments) { return test::run_program("tokenize " + arguments); }

TEST(Tokenize, IdsPiecesAndBack) {
  EXPECT_EQ(run_tokenize(kDemo + " -p 'Hello world' --ids").text(), "8708,5568\n");
  EXPECT_EQ(run_tokenize(kDemo + " -p 'Hello world'").text(), "   8708  Hello\n   5568   world\n");
  EXPECT_EQ(run_tokenize(kDemo + " -p 'Hello world' --json").text(),
            "{\"ids\":[8708,5568],\"pieces\":[\"Hello\",\" world\"]}\n");
  EXPECT_EQ(run_tokenize(kDemo + " --decode 8708,5568").text(), "Hello world");
  EXPECT_EQ(run_tokenize(kDemo + " --decode '8708 5568' --json").text(),
            "{\"ids\":[8708,5568],\"text\":\"Hello world\"}\n");
}

TEST(Tokenize, ControlTokensAreRecognisedUnlessToldOtherwise) {
  EXPECT_EQ(run_tokenize(kDemo + " -p '<|im_start|>user' --ids").text(), "16382,2121\n");
  const Outcome plain = run_tokenize(kDemo + " -p '<|im_start|>user' --ids --no-special");
  EXPECT_EQ(plain.text().find("16382"), std::string::npos) << plain.text();
  EXPECT_EQ(run_tokenize(kDemo + " --decode 16382,2121").text(), "<|im_start|>user");
  EXPECT_EQ(run_tokenize(kDemo + " --decode 16382,2121 --no-special").text(), "user");
}

TEST(Tokenize, EveryByteOfAFileSurvives) {
  const format::TempFolder folder;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  bytes += "\r\n\n";
  format::write_file(folder / "text", bytes);
  format::write_file(folder / "ids", run_tokenize(kDemo + " --ids -f " + folder / "text").text());
  EXPECT_EQ(run_tokenize(kDemo + " --decode @" + folder / "ids").text(), bytes);
  format::write_file(folder / "other", "Hello world");
  EXPECT_EQ(run_tokenize(kDemo + " --ids -f " + folder / "other" + " -f " + folder / "text").text(),
            "8708,5568\n" + format::read_file(folder / "ids"));
}

TEST(Tokenize, AFileWithAVocabularyOnlyWillDo) {
  const format::TempFolder folder;
  format::Metadata metadata("vocabulary.gguf");
  metadata.set_string("general.architecture", "llama");
  metadata.set_string("tokenizer.ggml.model", "gpt2");
  metadata.set_strings("tokenizer.ggml.tokens", {"a", "b", "<s>"});
  metadata.set_ints("tokenizer.ggml.token_type", {1, 1, 3});
  metadata.set_strings("tokenizer.ggml.merges", {});
  metadata.set_uint("tokenizer.ggml.bos_token_id", 2);
  metadata.set_bool("tokenizer.ggml.add_bos_token", true);
  format::GgufWriter(metadata).write(folder / "vocabulary.gguf");
  EXPECT_EQ(run_tokenize(folder / "vocabulary.gguf" + " -p ab --ids --add-special").text(), "2,0,1\n");
  const Outcome outcome = run_tokenize(folder / "vocabulary.gguf" + " -p abc --ids");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.text(),
            "outrider: " + folder / "vocabulary.gguf" +
                ": the vocabulary has no token for c of the text, no byte tokens and no unknown token\n");
}

TEST(Tokenize, RefusesInOneLine) {
  const format::TempFolder folder;
  format::Metadata metadata("bare.gguf");
  metadata.set_string("general.architecture", "llama");
  format::GgufWriter(metadata).write(folder / "bare.gguf");
  Outcome outcome = run_tokenize(folder / "bare.gguf" + " -p a");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(
      outcome.text(),
      "outrider: " + folder / "bare.gguf" +
          ": the file carries no tokenizer (tokenizer.ggml.model is missing): text and ids cannot be converted\n");
  outcome = run_tokenize(kDemo + " --decode 1,x");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.text(), "outrider: --decode: 'x' is not a token id\n");
  EXPECT_EQ(run_tokenize(kDemo).exit_code, 2);
  EXPECT_EQ(run_tokenize(kDemo + " -p a -f b").exit_code, 2);
}

}  // namespace
}  // namespace outrider

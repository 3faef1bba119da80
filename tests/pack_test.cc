// SPDX-License-Identifier: Apache-2.0
// outrider pack, and run on what it makes: the same bits as from the plain file, one read an expert.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "program.h"
#include "temp_model.h"

namespace outrider {
namespace {

using Json = nlohmann::json;
using test::run_program;

Json run_ids(const std::string& model, uint32_t slots) {
  const test::Outcome outcome = run_program("run " + model +
                                            " --prompt-ids 5,9,1,33,70,2,12,8 -n 12 --temp 0 --ignore-eos --digest "
                                            "--json -q --no-warm --lookahead off -t 2 --expert-cache " +
                                            std::to_string(slots) + "s");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? Json::parse(outcome.out) : Json();
}

TEST(Pack, TheDigestIsThatOfThePlainFile) {
  for (test::TinyCase& one : test::golden_cases()) {
    if (one.model.n_experts == 0) continue;
    SCOPED_TRACE(one.name);
    const test::TempModel plain(one.model);
    const std::string packed = plain.path() + ".packed.gguf";
    const test::Outcome outcome = run_program("pack " + plain.path() + " " + packed);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json wanted = run_ids(plain.path(), one.model.n_used);
    const Json got = run_ids(packed, one.model.n_used);
    std::remove(packed.c_str());
    EXPECT_EQ(got["digest"], wanted["digest"]);
    EXPECT_EQ(got["ids"], wanted["ids"]);
    EXPECT_EQ(got["experts"]["misses"], wanted["experts"]["misses"]);
    EXPECT_EQ(got["experts"]["bytes_read"], wanted["experts"]["bytes_read"]);
  }
}

TEST(Pack, TheDemoModelsDigestStaysAndItVerifies) {
  const std::string demo = OUTRIDER_SOURCE_DIR "/models/outrider-demo-q4_0.gguf";
  const std::string packed = ::testing::TempDir() + "demo_packed_" + std::to_string(::getpid()) + ".gguf";
  std::remove(packed.c_str());
  ASSERT_EQ(run_program("pack " + demo + " " + packed).exit_code, 0);
  EXPECT_EQ(run_ids(packed, 16)["digest"], run_ids(demo, 64)["digest"]);
  EXPECT_EQ(run_program("pack --verify " + packed).exit_code, 0);
  const test::Outcome again = run_program("pack " + demo + " " + packed);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.err, "outrider: " + packed + ": is there already (--replace to make it anew)\n");
  const test::Outcome to_itself = run_program("pack " + demo + " " + demo + " --replace");
  EXPECT_EQ(to_itself.err, "outrider: " + demo + ": is part of the model to read, wanted another name\n");
  const test::Outcome quantize = run_program("quantize " + packed + " /tmp/outrider_never.gguf --type q8_0");
  EXPECT_EQ(quantize.err, "outrider: " + packed + ": is packed, wanted the plain model\n");
  std::remove(packed.c_str());
}

}  // namespace
}  // namespace outrider

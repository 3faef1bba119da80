// SPDX-License-Identifier: Apache-2.0
// Every architecture against llama.cpp: logits on tiny random F32 models (tests/golden/archs/PROVENANCE.md).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "outrider/base/cpu.h"
#include "outrider/engine/engine.h"
#include "outrider/model/model.h"
#include "tiny_model.h"

namespace outrider {
namespace {

std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<float> values(static_cast<size_t>(std::max<std::streamoff>(in.tellg(), 0)) / sizeof(float));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

class ArchGolden : public ::testing::TestWithParam<test::TinyCase> {};

// 1e-5 of the logits' RMS: two correct F32 computations in different orders of summation.
TEST_P(ArchGolden, LogitsEqualLlamaCpp) {
  const auto& [name, tiny] = GetParam();
  const std::vector<float> want =
      read_floats(std::string(OUTRIDER_SOURCE_DIR) + "/tests/golden/archs/" + name + ".f32");
  const std::vector<int32_t> ids = test::golden_ids(tiny);
  ASSERT_EQ(want.size(), ids.size() * tiny.n_vocab);
  double square = 0;
  for (const float x : want) square += static_cast<double>(x) * x;
  const double rms = std::sqrt(square / static_cast<double>(want.size()));

  const std::string path = ::testing::TempDir() + "arch_golden_" + name + "_" + std::to_string(::getpid()) + ".gguf";
  test::write_tiny_model(tiny, path);
  const model::Model model = model::open(path);
  engine::EngineOptions options;
  options.isa = best_isa();
  options.kv_type = kernels::KvType::kF32;
  engine::Engine engine(model, options);
  double worst = 0;
  engine.prefill(0, ids, [&](uint32_t i, std::span<const float> logits) {
    for (size_t v = 0; v < logits.size(); ++v) {
      const double error = std::fabs(static_cast<double>(logits[v]) - want[i * tiny.n_vocab + v]);
      worst = std::max(worst, std::isfinite(error) ? error : INFINITY);
    }
  });
  std::remove(path.c_str());
  RecordProperty("relative_error", std::to_string(worst / rms));
  EXPECT_LE(worst / rms, 1e-5) << "largest error " << worst << ", rms " << rms;
}

std::string case_name(const ::testing::TestParamInfo<test::TinyCase>& test_case) {
  std::string name = test_case.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ArchGolden, ::testing::ValuesIn(test::golden_cases()), case_name);

}  // namespace
}  // namespace outrider

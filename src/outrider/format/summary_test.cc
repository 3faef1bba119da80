// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/summary.h"

#include <gtest/gtest.h>

#include "outrider/format/gguf_writer.h"
#include "outrider/format/test_files.h"

namespace outrider::format {
namespace {

void add_zeros(GgufWriter& writer, const std::string& name, TensorType type, std::vector<uint64_t> dims) {
  uint64_t n_bytes = row_bytes(type, dims[0]);
  for (size_t d = 1; d < dims.size(); ++d) n_bytes *= dims[d];
  writer.add(name, type, std::move(dims), from_memory(std::vector<std::byte>(n_bytes)));
}

TEST(Summary, DemoModel) {
  const auto model = ModelFile::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  const ModelSummary summary = summarize(model);
  ASSERT_EQ(summary.expert_layers.size(), 9u);
  // Three matrices of 512 x 64 in q4_0: 18 bytes for 32 elements.
  for (const ExpertLayer& layer : summary.expert_layers) {
    EXPECT_EQ(layer.n_experts, 64u);
    EXPECT_EQ(layer.slab_bytes, 3u * 512 * 64 / 32 * 18);
    EXPECT_EQ(layer.is_nextn, layer.layer == 9);
    ASSERT_EQ(layer.tensors.size(), 3u);
    EXPECT_EQ(layer.tensors[0].part, "gate");
    EXPECT_EQ(layer.tensors[1].part, "up");
    EXPECT_EQ(layer.tensors[2].part, "down");
  }
  EXPECT_EQ(summary.expert_bytes, 9u * 64 * 55'296);
  EXPECT_EQ(summary.dense_bytes + summary.expert_bytes, model.total_tensor_bytes());
  uint64_t type_bytes = 0;
  uint64_t n_tensors = 0;
  for (const TypeTotal& total : summary.types) {
    type_bytes += total.dense_bytes + total.expert_bytes;
    n_tensors += total.n_tensors;
  }
  EXPECT_EQ(type_bytes, model.total_tensor_bytes());
  EXPECT_EQ(n_tensors, model.tensors.size());
  EXPECT_EQ(summary.types[0].type, TensorType::kQ4_0);
}

TEST(Summary, FusedGateAndUpAndOtherTensorsOfExperts) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  add_zeros(writer, "blk.12.ffn_down_exps.weight", TensorType::kQ8_0, {32, 64, 5});
  add_zeros(writer, "blk.12.ffn_gate_up_exps.weight", TensorType::kQ4_0, {64, 64, 5});
  add_zeros(writer, "blk.12.ffn_gate_up_exps.bias", TensorType::kF32, {64, 5});
  add_zeros(writer, "blk.3.ffn_up.weight", TensorType::kF32, {4});
  add_zeros(writer, "blk.x.ffn_up_exps.weight", TensorType::kF32, {4, 2, 2});
  add_zeros(writer, "blk.3.ffn_upp_exps.weight", TensorType::kF32, {4, 2, 2});
  writer.write(folder / "m.gguf");
  const ModelSummary summary = summarize(ModelFile::open(folder / "m.gguf"));
  ASSERT_EQ(summary.expert_layers.size(), 1u);
  const ExpertLayer& layer = summary.expert_layers[0];
  EXPECT_EQ(layer.layer, 12u);
  EXPECT_EQ(layer.n_experts, 5u);
  ASSERT_EQ(layer.tensors.size(), 2u);
  EXPECT_EQ(layer.tensors[0].part, "gate_up");
  EXPECT_EQ(layer.tensors[0].slab_bytes, 64u * 64 / 32 * 18);
  EXPECT_EQ(layer.slab_bytes, 64u * 64 / 32 * 18 + 32 * 64 / 32 * 34);
  EXPECT_EQ(summary.dense_bytes, 4u * (64 * 5 + 4 + 16 + 16));
}

TEST(Summary, LayerThatDisagreesOnExpertsIsRefused) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  add_zeros(writer, "blk.0.ffn_up_exps.weight", TensorType::kF32, {4, 2, 8});
  add_zeros(writer, "blk.0.ffn_down_exps.weight", TensorType::kF32, {2, 4, 7});
  writer.write(folder / "m.gguf");
  try {
    summarize(ModelFile::open(folder / "m.gguf"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), (folder / "m.gguf") +
                                ": tensor blk.0.ffn_down_exps.weight: dimension 2 (experts) is 7, wanted 8 like the "
                                "layer's other experts");
  }
}

}  // namespace
}  // namespace outrider::format

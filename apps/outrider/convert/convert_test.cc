// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include "convert/quantize_file.h"
#include "convert/random_blocks.h"
#include "convert/synth_model.h"
#include "convert/synth_tokenizer.h"
#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/format/gguf_writer.h"
#include "outrider/numerics/dequant.h"
#include "outrider/numerics/quantize.h"

namespace outrider::apps {
namespace {

using format::TensorType;

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "outrider-convert-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::byte> data_of(const format::ModelFile& model, const format::Tensor& tensor) {
  std::vector<std::byte> bytes;
  format::from_tensor(
      model, tensor)([&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

std::vector<float> values_of(const format::ModelFile& model, const format::Tensor& tensor) {
  std::vector<float> values(tensor.n_elems());
  numerics::dequantize(tensor.type, data_of(model, tensor).data(), values.data(), values.size());
  return values;
}

constexpr auto ignore = [](uint64_t, uint64_t) {};

std::vector<float> random_values(Random& random, size_t n) {
  std::vector<float> values(n);
  for (float& v : values) v = random.uniform(-0.1F, 0.1F);
  return values;
}

// A file with one tensor of each kind the rules speak of. Rows of 256, and one of 96.
void write_sample(const std::string& path, uint64_t seed = 1) {
  Random random(seed);
  format::Metadata metadata;
  metadata.set_string("general.architecture", "qwen3moe");
  metadata.set_string("general.name", "sample");
  format::GgufWriter writer(metadata);
  const auto f32 = [&](const std::string& name, std::vector<uint64_t> dims) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    writer.add(name, TensorType::kF32, dims, format::from_values(random_values(random, n)));
  };
  f32("token_embd.weight", {256, 500});
  f32("blk.0.attn_norm.weight", {256});
  f32("blk.0.attn_q.weight", {256, 64});
  f32("blk.0.ffn_gate_inp.weight", {256, 4});
  f32("blk.0.ffn_gate_exps.weight", {256, 96, 4});
  f32("blk.0.ffn_down_exps.weight", {96, 256, 4});
  f32("blk.0.odd.weight", {40, 3});
  f32("blk.0.ffn_down_exps.bias", {256, 4});
  f32("output.weight", {256, 300});
  const std::vector<float> norm = random_values(random, 256);
  std::vector<std::byte> norm_bf16(512);
  numerics::quantize(TensorType::kBF16, norm.data(), norm_bf16.data(), 256);
  writer.add("output_norm.weight", TensorType::kBF16, {256}, format::from_memory(norm_bf16));
  writer.write(path);
}

std::map<std::string, TensorType> types_in(const format::ModelFile& model) {
  std::map<std::string, TensorType> types;
  for (const format::Tensor& tensor : model.tensors) types[tensor.name] = tensor.type;
  return types;
}

TEST(QuantizeFile, EachTensorGetsTheTypeOfItsKind) {
  const Folder folder;
  write_sample(folder / "in.gguf");
  QuantizeOptions options;
  options.types = {TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};
  const QuantizeSummary summary =
      quantize_file(format::ModelFile::open(folder / "in.gguf"), folder / "out.gguf", options, ignore);
  const auto out = format::ModelFile::open(folder / "out.gguf");
  const std::map<std::string, TensorType> want = {{"token_embd.weight", TensorType::kQ8_0},
                                                  {"blk.0.attn_norm.weight", TensorType::kF32},
                                                  {"blk.0.attn_q.weight", TensorType::kQ8_0},
                                                  {"blk.0.ffn_gate_inp.weight", TensorType::kF32},
                                                  {"blk.0.ffn_gate_exps.weight", TensorType::kQ4_K},
                                                  {"blk.0.ffn_down_exps.weight", TensorType::kQ5_0},
                                                  {"blk.0.odd.weight", TensorType::kF16},
                                                  {"blk.0.ffn_down_exps.bias", TensorType::kF32},
                                                  {"output.weight", TensorType::kQ6_K},
                                                  {"output_norm.weight", TensorType::kF32}};
  EXPECT_EQ(types_in(out), want);
  EXPECT_EQ(summary.n_tensors, 10U);
  EXPECT_EQ(summary.n_quantized, 7U);
  EXPECT_EQ(summary.n_fallback, 2U);
  EXPECT_EQ(out.metadata.require_string("general.name"), "sample");
  EXPECT_EQ(out.metadata.require_uint("general.quantization_version"), 2U);
  EXPECT_EQ(out.metadata.require_uint("general.file_type"), 7U);  // Q8_0 holds most elements here
  EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf.partial"));
}

TEST(QuantizeFile, EachTensorHoldsItsOwnRowsQuantised) {
  const Folder folder;
  write_sample(folder / "in.gguf");
  QuantizeOptions options;
  options.types = {TensorType::kQ4_0, TensorType::kQ4_0, TensorType::kQ4_0};
  const auto in = format::ModelFile::open(folder / "in.gguf");
  quantize_file(in, folder / "out.gguf", options, ignore);
  const auto out = format::ModelFile::open(folder / "out.gguf");
  for (const format::Tensor& tensor : out.tensors) {
    const std::vector<float> source = values_of(in, in.require(tensor.name));
    std::vector<std::byte> want(tensor.n_bytes);
    numerics::quantize(tensor.type, source.data(), want.data(), source.size());
    EXPECT_EQ(data_of(out, tensor), want) << tensor.name;
  }
}

TEST(QuantizeFile, SameBytesForAnyNumberOfThreads) {
  const Folder folder;
  Random random(7);
  format::Metadata metadata;
  metadata.set_string("general.architecture", "llama");
  format::GgufWriter writer(metadata);
  writer.add("a.weight", TensorType::kF32, {512, 1500}, format::from_values(random_values(random, 512 * 1500)));
  writer.write(folder / "in.gguf");
  const auto in = format::ModelFile::open(folder / "in.gguf");
  QuantizeOptions options;
  std::string first;
  for (const uint32_t n_threads : {1U, 2U, 3U}) {
    options.n_threads = n_threads;
    uint64_t last = 0;
    quantize_file(in, folder / "out.gguf", options, [&](uint64_t done, uint64_t total) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      last = done;
    });
    EXPECT_EQ(last, in.total_tensor_bytes());
    if (n_threads == 1) first = contents(folder / "out.gguf");
    EXPECT_EQ(contents(folder / "out.gguf"), first) << n_threads;
  }
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantizeFile, RefusesToQuantiseTwiceUnlessToldTo) {
  const Folder folder;
  write_sample(folder / "in.gguf");
  QuantizeOptions options;
  quantize_file(format::ModelFile::open(folder / "in.gguf"), folder / "q8.gguf", options, ignore);
  const auto q8 = format::ModelFile::open(folder / "q8.gguf");
  options.types = {TensorType::kQ4_0, TensorType::kQ4_0, TensorType::kQ4_0};
  EXPECT_EQ(error_of([&] { quantize_file(q8, folder / "q4.gguf", options, ignore); }),
            folder /
                "q8.gguf: token_embd.weight: type q8_0 would be quantised again to q4_0, which loses twice "
                "(--allow-requantize to do it)");
  EXPECT_FALSE(std::filesystem::exists(folder / "q4.gguf"));
  options.allow_requantize = true;
  quantize_file(q8, folder / "q4.gguf", options, ignore);
  EXPECT_EQ(format::ModelFile::open(folder / "q4.gguf").require("output.weight").type, TensorType::kQ4_0);
}

TEST(QuantizeFile, NanInATensorIsToldByNameAndLeavesNoFile) {
  const Folder folder;
  Random random(3);
  format::Metadata metadata;
  metadata.set_string("general.architecture", "llama");
  format::GgufWriter writer(metadata);
  std::vector<float> values = random_values(random, 64 * 10);
  values[321] = std::numeric_limits<float>::quiet_NaN();
  values[500] = std::numeric_limits<float>::infinity();
  writer.add("a.weight", TensorType::kF32, {64, 10}, format::from_values(values));
  writer.write(folder / "in.gguf");
  EXPECT_EQ(
      error_of([&] { quantize_file(format::ModelFile::open(folder / "in.gguf"), folder / "out.gguf", {}, ignore); }),
      folder / "in.gguf: a.weight: element 321 is NaN or infinite, wanted a number");
  EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf.partial"));
}

TEST(TensorRules, RowsThatDoNotFitFallBack) {
  EXPECT_EQ(fitting_type(TensorType::kQ4_K, 2048), TensorType::kQ4_K);
  EXPECT_EQ(fitting_type(TensorType::kQ4_K, 1408), TensorType::kQ5_0);
  EXPECT_EQ(fitting_type(TensorType::kQ5_K, 1408), TensorType::kQ5_1);
  EXPECT_EQ(fitting_type(TensorType::kQ6_K, 1408), TensorType::kQ8_0);
  EXPECT_EQ(fitting_type(TensorType::kQ2_K, 1408), TensorType::kQ4_0);
  EXPECT_EQ(fitting_type(TensorType::kIQ4_XS, 2880), TensorType::kIQ4_NL);
  EXPECT_EQ(fitting_type(TensorType::kQ4_0, 40), TensorType::kF16);
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (!info.is_weight) continue;
    for (const uint64_t row : {32U, 64U, 96U, 128U, 160U, 256U}) {
      EXPECT_EQ(row % format::type_info(fitting_type(info.type, row)).block_elems, 0U) << info.name << ' ' << row;
    }
  }
}

TEST(RandomBlocks, EveryTypeHasTheWantedSpreadNoMeanAndOnlyFiniteValues) {
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (!info.is_weight) continue;
    SCOPED_TRACE(info.name);
    constexpr uint64_t kElems = 256 * 1024;
    constexpr float kRms = 0.02F;
    const uint64_t n_blocks = kElems / info.block_elems;
    std::vector<std::byte> blocks(n_blocks * info.block_bytes);
    RandomBlocks(info.type, kRms).fill(blocks.data(), n_blocks, 5);
    std::vector<float> values(kElems);
    numerics::dequantize(info.type, blocks.data(), values.data(), kElems);
    double sum = 0, power = 0;
    for (const float v : values) {
      ASSERT_TRUE(std::isfinite(v));
      sum += static_cast<double>(v);
      power += static_cast<double>(v) * static_cast<double>(v);
    }
    const double rms = std::sqrt(power / kElems);
    // MXFP4 scales are powers of two: up to sqrt(2) off. NVFP4 scales here are about 3.5 steps of its subnormals: up to
    // half a step, a seventh. The others differ by sampling only.
    const double slack = info.type == TensorType::kMXFP4 ? 1.42 : info.type == TensorType::kNVFP4 ? 1.17 : 1.1;
    EXPECT_LT(rms, 0.02 * slack);
    EXPECT_GT(rms, 0.02 / slack);
    // The mean code of a format may be off zero, with a random sign a block: six sigma of as many draws as blocks.
    EXPECT_LT(std::fabs(sum / kElems),
              6 * rms / std::sqrt(static_cast<double>(kElems / std::max(info.block_elems, 1U))));
  }
}

uint64_t n_params(const Geometry& geometry) {
  uint64_t total = 0;
  for (const SynthTensor& tensor : synth_tensors(geometry)) {
    uint64_t n = 1;
    for (const uint64_t dim : tensor.dims) n *= dim;
    total += n;
  }
  return total;
}

// ../shared/spec/architectures-core.md sections 11 and 11.1: published parameter totals and tensor counts.
TEST(Geometries, ParametersAndTensorCountsAreThePublishedOnes) {
  struct Published {
    const char* name;
    double billions;
    size_t n_tensors;
  };
  const Published published[] = {
      {"mixtral-8x7b", 46.703, 323},      {"mixtral-8x22b", 140.62, 563},         {"olmoe-1b-7b", 6.919, 195},
      {"qwen1.5-moe-a2.7b", 14.316, 411}, {"qwen2-57b-a14b", 57.409, 479},        {"qwen3-30b-a3b", 30.532, 579},
      {"qwen3-235b-a22b", 235.09, 1131},  {"qwen3-coder-480b-a35b", 480.15, 747}, {"glm-4.5-air", 110.47, 803},
      {"glm-4.5", 358.34, 1761},          {"gpt-oss-20b", 20.915, 459},           {"gpt-oss-120b", 116.83, 687},
      {"deepseek-v2-lite", 15.706, 404},  {"deepseek-v2", 235.74, 1019},          {"deepseek-v3", 671.03, 1086},
      {"kimi-k2", 1026.41, 1096}};
  for (const Published& want : published) {
    const Geometry* geometry = find_geometry(want.name);
    ASSERT_NE(geometry, nullptr) << want.name;
    EXPECT_EQ(synth_tensors(*geometry).size(), want.n_tensors) << want.name;
    EXPECT_NEAR(static_cast<double>(n_params(*geometry)) * 1e-9, want.billions, want.billions * 2e-4) << want.name;
  }
  EXPECT_EQ(geometries().size(), std::size(published) + 1);  // and s24, which is nobody's model
}

TEST(Geometries, ABeginningThatOnlyOneHasIsEnough) {
  EXPECT_EQ(find_geometry("qwen3-235b"), find_geometry("qwen3-235b-a22b"));
  EXPECT_EQ(find_geometry("olmoe"), find_geometry("olmoe-1b-7b"));
  EXPECT_EQ(find_geometry("glm-4.5")->n_layers, 92U);  // the whole name comes before a longer one
  EXPECT_EQ(find_geometry("qwen3"), nullptr);
  EXPECT_EQ(find_geometry("nobody"), nullptr);
}

TEST(Geometries, CutsThatLeaveNothingSensibleAreRefused) {
  const Geometry& glm = *find_geometry("glm-4.5");
  EXPECT_EQ(error_of([&] { cut_geometry(glm, 3, 0, 0); }),
            "--layers 3: glm-4.5 has 3 dense layers first, wanted at least 4");
  EXPECT_EQ(error_of([&] { cut_geometry(glm, 0, 0, 100); }), "--vocab 100: wanted at least 320");
  EXPECT_EQ(cut_geometry(glm, 0, 4, 0).n_used, 4U);
  EXPECT_EQ(cut_geometry(*find_geometry("deepseek-v3"), 0, 10, 0).n_groups, 0U);
}

SynthOptions small_synth(const char* name, uint32_t n_experts = 24) {
  SynthOptions options;
  options.geometry = *find_geometry(name);
  options.geometry.d_model = 64;
  options.geometry.n_heads = 4;
  options.geometry.n_kv_heads = 2;
  options.geometry.head_dim = 32;
  options.geometry.n_rot = 0;
  options.geometry.expert_ff = options.geometry.dense_ff = 96;
  if (options.geometry.shared_ff != 0) options.geometry.shared_ff = 96;
  options.geometry = cut_geometry(options.geometry, options.geometry.n_leading_dense + 1, n_experts, kMinSynthVocab);
  options.types = {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ8_0};
  return options;
}

TEST(Synth, SameSeedSameBytesForAnyNumberOfThreadsAndAnotherSeedOthers) {
  const Folder folder;
  SynthOptions options = small_synth("qwen3-30b-a3b", 300);
  write_synth(folder / "a.gguf", options, ignore);
  options.n_threads = 3;
  write_synth(folder / "b.gguf", options, ignore);
  EXPECT_EQ(contents(folder / "a.gguf"), contents(folder / "b.gguf"));
  options.seed = 2;
  write_synth(folder / "c.gguf", options, ignore);
  EXPECT_NE(contents(folder / "a.gguf"), contents(folder / "c.gguf"));
}

TEST(Synth, FilesOpenWithTheRightTypesAndFiniteVariedWeights) {
  const Folder folder;
  for (const char* name :
       {"mixtral-8x7b", "olmoe", "qwen1.5-moe", "qwen3-30b", "glm-4.5-air", "glm-4.5", "gpt-oss-20b"}) {
    SCOPED_TRACE(name);
    const SynthOptions options = small_synth(name);
    write_synth(folder / "m.gguf", options, ignore);
    const auto model = format::ModelFile::open(folder / "m.gguf");
    EXPECT_EQ(model.tensors.size(), synth_tensors(options.geometry).size());
    EXPECT_EQ(model.metadata.require_string("general.architecture"), options.geometry.arch);
    EXPECT_EQ(model.metadata.find_strings("tokenizer.ggml.tokens")->size(), kMinSynthVocab);
    for (const format::Tensor& tensor : model.tensors) {
      const bool f32 = stays_f32(tensor.name, tensor.n_dims);
      EXPECT_EQ(tensor.type, f32                             ? TensorType::kF32
                             : is_routed_expert(tensor.name) ? TensorType::kQ4_0
                                                             : TensorType::kQ8_0)
          << tensor.name;
      const std::vector<float> values = values_of(model, tensor);
      float low = values[0], high = values[0];
      for (const float v : values) {
        ASSERT_TRUE(std::isfinite(v)) << tensor.name;
        low = std::min(low, v);
        high = std::max(high, v);
      }
      EXPECT_LT(low, high) << tensor.name;
      if (tensor.name.ends_with("_norm.weight")) {
        EXPECT_GT(low, 0.5F) << tensor.name;
      }
      if (tensor.name.ends_with("exp_probs_b.bias")) {
        EXPECT_LT(low * high, 0.0F) << tensor.name;
      }
    }
  }
}

TEST(Synth, PiecesOfATensorDiffer) {
  const Folder folder;
  SynthOptions options = small_synth("qwen3-30b-a3b", 64);
  options.geometry.expert_ff = 2048;  // 64 * 2048 * 36 bytes: several pieces
  write_synth(folder / "m.gguf", options, ignore);
  const auto model = format::ModelFile::open(folder / "m.gguf");
  const std::vector<std::byte> up = data_of(model, model.require("blk.0.ffn_up_exps.weight"));
  const uint64_t slab = up.size() / 64;
  for (uint64_t a = 0; a < 64; ++a) {
    for (uint64_t b = 0; b < a; ++b) {
      ASSERT_NE(std::memcmp(up.data() + a * slab, up.data() + b * slab, 64), 0) << a << ' ' << b;
    }
  }
  EXPECT_NE(data_of(model, model.require("blk.0.ffn_gate_exps.weight")), up);
}

}  // namespace
}  // namespace outrider::apps

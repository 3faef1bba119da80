// SPDX-License-Identifier: Apache-2.0
// Loading of models: every key and every shape checked, NextN variants, expert count override, refusals in one line.
#include "outrider/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "temp_model.h"

namespace outrider {
namespace {

using format::ModelFile;
using test::error_of;
using test::TempModel;
using test::TinyModel;

TinyModel glm(uint32_t n_nextn = 0) {
  TinyModel t;
  t.arch = "glm4moe";
  t.n_layers = 3;
  t.n_leading_dense = 1;
  t.n_shared = 1;
  t.sigmoid = true;
  t.n_rot = 8;
  t.qkv_bias = true;
  t.n_nextn = n_nextn;
  return t;
}

TinyModel mixtral() {
  TinyModel t;
  t.arch = "llama";
  return t;
}

void reindex(ModelFile& file) {
  file.index.clear();
  for (uint32_t i = 0; i < file.tensors.size(); ++i) file.index[file.tensors[i].name] = i;
}

void remove_tensor(ModelFile& file, const std::string& name) {
  std::erase_if(file.tensors, [&](const format::Tensor& t) { return t.name == name; });
  reindex(file);
}

std::string greedy_digest(const model::Model& model) {
  engine::EngineOptions options;
  options.context = 32;
  options.isa = best_isa();
  const std::vector<int32_t> ids = {5, 9, 33, 2, 71};
  return test::run_digest(model, options, ids, 4);
}

TEST(ModelLoad, UnknownArchitectureListsTheKnownOnes) {
  const TempModel temp(mixtral());
  ModelFile file = ModelFile::open(temp.path());
  file.metadata.set_string("general.architecture", "mamba\n2");
  EXPECT_EQ(error_of([&] { model::load(std::move(file)); }),
            temp.path() +
                ": key general.architecture is \"mamba\\x0a2\", wanted one of glm4moe, llama, olmoe, qwen2moe, qwen3, "
                "qwen3moe");
}

TEST(ModelLoad, EveryKeyIsChecked) {
  struct Case {
    const char* key;
    std::function<void(format::Metadata&)> edit;
    const char* want;
  };
  const std::vector<Case> cases = {
      {"block_count 0", [](auto& m) { m.set_uint("glm4moe.block_count", 0); },
       "key glm4moe.block_count is 0, wanted 1..4096"},
      {"width", [](auto& m) { m.set_uint("glm4moe.embedding_length", 1U << 30); },
       "key glm4moe.embedding_length is 1073741824, wanted 1..16777216"},
      {"heads", [](auto& m) { m.set_uint("glm4moe.attention.head_count", 0); },
       "key glm4moe.attention.head_count is 0, wanted 1..16384"},
      {"kv heads", [](auto& m) { m.set_uint("glm4moe.attention.head_count_kv", 3); },
       "key glm4moe.attention.head_count_kv is 3, wanted a divisor of the 4 query heads"},
      {"heads by block",
       [](auto& m) {
         m.set_ints("glm4moe.attention.head_count", {4, 4, 2});
       },
       "key glm4moe.attention.head_count is 4 for block 0 and 2 for block 2, wanted one value for all blocks"},
      {"eps", [](auto& m) { m.set_real("glm4moe.attention.layer_norm_rms_epsilon", NAN); },
       "key glm4moe.attention.layer_norm_rms_epsilon is nan, wanted 0..1"},
      {"rotary", [](auto& m) { m.set_uint("glm4moe.rope.dimension_count", 17); },
       "key glm4moe.rope.dimension_count is 17, wanted 2..16"},
      {"odd rotary", [](auto& m) { m.set_uint("glm4moe.rope.dimension_count", 7); },
       "key glm4moe.rope.dimension_count is 7, wanted an even number"},
      {"base", [](auto& m) { m.set_real("glm4moe.rope.freq_base", 0); },
       "key glm4moe.rope.freq_base is 0, wanted 0.001..1000000000000000"},
      {"scaling", [](auto& m) { m.set_string("glm4moe.rope.scaling.type", "longrope"); },
       "key glm4moe.rope.scaling.type is \"longrope\", wanted none, linear or yarn"},
      {"causal", [](auto& m) { m.set_bool("glm4moe.attention.causal", false); },
       "key glm4moe.attention.causal is false, wanted true: only causal models are supported"},
      {"experts", [](auto& m) { m.set_uint("glm4moe.expert_count", 1026); },
       "key glm4moe.expert_count is 1026, wanted 0..1025"},
      {"no experts", [](auto& m) { m.set_uint("glm4moe.expert_count", 0), m.set_uint("glm4moe.expert_used_count", 0); },
       "key glm4moe.expert_count is missing or 0, wanted 1..1025"},
      {"used", [](auto& m) { m.set_uint("glm4moe.expert_used_count", 9); },
       "key glm4moe.expert_used_count is 9, wanted 1..8"},
      {"used 0", [](auto& m) { m.set_uint("glm4moe.expert_used_count", 0); },
       "key glm4moe.expert_used_count is 0, wanted 1..8"},
      {"groups", [](auto& m) { m.set_uint("glm4moe.expert_group_count", 3); },
       "key glm4moe.expert_group_count is 3, wanted a divisor of the 8 experts, with two or more in a group"},
      {"groups used",
       [](auto& m) { m.set_uint("glm4moe.expert_group_count", 4), m.set_uint("glm4moe.expert_group_used_count", 4); },
       "key glm4moe.expert_group_used_count is 4, wanted 1..3"},
      {"gating", [](auto& m) { m.set_uint("glm4moe.expert_gating_func", 5); },
       "key glm4moe.expert_gating_func is 5, wanted 0..4"},
      {"scale", [](auto& m) { m.set_real("glm4moe.expert_weights_scale", -1); },
       "key glm4moe.expert_weights_scale is -1, wanted 0..1000000"},
      {"nextn", [](auto& m) { m.set_uint("glm4moe.nextn_predict_layers", 3); },
       "key glm4moe.nextn_predict_layers is 3, wanted 0..2"},
      {"dense", [](auto& m) { m.set_uint("glm4moe.leading_dense_block_count", 4); },
       "key glm4moe.leading_dense_block_count is 4, wanted 0..3"},
  };
  const TempModel temp(glm());
  for (const Case& c : cases) {
    ModelFile file = ModelFile::open(temp.path());
    c.edit(file.metadata);
    EXPECT_EQ(error_of([&] { model::load(std::move(file)); }), temp.path() + ": " + c.want) << c.key;
  }
}

// Every tensor of every golden case: of another shape it is refused by name; missing it is refused, or it is one of the
// optional ones.
TEST(ModelLoad, EveryTensorIsChecked) {
  for (const auto& [name, tiny] : test::golden_cases()) {
    const TempModel temp(tiny);
    const ModelFile whole = ModelFile::open(temp.path());
    const model::Model loaded = model::open(temp.path());
    EXPECT_TRUE(loaded.notes.empty()) << name << ": " << loaded.notes[0];
    for (const format::Tensor& tensor : whole.tensors) {
      if (tensor.name.find("nextn") != std::string::npos) continue;
      const bool in_nextn = tiny.n_nextn > 0 && tensor.name.starts_with("blk." + std::to_string(tiny.n_layers) + ".");
      ModelFile wrong = whole;
      format::Tensor& edited = wrong.tensors[whole.index.at(tensor.name)];
      edited.dims[edited.n_dims - 1] += 1;
      const std::string shape_error = error_of([&] { model::load(std::move(wrong)); });
      if (tensor.name == "token_embd.weight" && tiny.tied) {
        EXPECT_EQ(shape_error, "");  // its rows are the vocabulary, and nothing else tells how many there are
      } else if (!in_nextn) {
        EXPECT_NE(shape_error.find("has shape ["), std::string::npos)
            << name << " " << tensor.name << ": " << shape_error;
      } else {
        EXPECT_EQ(shape_error, "");  // the trunk loads all the same
      }
      ModelFile lacking = whole;
      remove_tensor(lacking, tensor.name);
      const std::string error = error_of([&] { model::load(std::move(lacking)); });
      const bool optional = in_nextn || tensor.name == "output.weight" || tensor.name == "rope_freqs.weight" ||
                            tensor.name.find("attn_q.bias") != std::string::npos ||
                            tensor.name.find("attn_k.bias") != std::string::npos ||
                            tensor.name.find("attn_v.bias") != std::string::npos ||
                            (tiny.arch == "llama" && tensor.name.find("ffn_gate_exps") != std::string::npos);
      if (optional) {
        EXPECT_EQ(error, "") << name;
      } else {
        std::string wanted = tensor.name;  // without the fused matrix the three separate ones are looked for
        if (const size_t at = wanted.find("attn_qkv"); at != std::string::npos) wanted.replace(at, 8, "attn_q");
        EXPECT_EQ(error, temp.path() + ": tensor " + wanted + " is missing") << name;
      }
    }
  }
}

TEST(ModelLoad, TypesThatCarryNoWeightsAreRefused) {
  const TempModel temp(mixtral());
  ModelFile file = ModelFile::open(temp.path());
  file.tensors[file.index.at("blk.0.attn_q.weight")].type = format::TensorType::kI32;
  EXPECT_EQ(error_of([&] { model::load(std::move(file)); }),
            temp.path() + ": tensor blk.0.attn_q.weight has type i32, wanted a weight type");
  ModelFile norm = ModelFile::open(temp.path());
  norm.tensors[norm.index.at("output_norm.weight")].type = format::TensorType::kQ8_0;
  EXPECT_EQ(error_of([&] { model::load(std::move(norm)); }),
            temp.path() + ": tensor output_norm.weight has type q8_0, wanted f32, f16 or bf16");
}

TEST(ModelLoad, VocabularyLargerThanTheEmbeddingIsRefused) {
  const TempModel temp(mixtral());
  ModelFile file = ModelFile::open(temp.path());
  file.metadata.set_strings("tokenizer.ggml.tokens", std::vector<std::string>(97, "x"));
  EXPECT_EQ(
      error_of([&] { model::load(std::move(file)); }),
      temp.path() + ": key tokenizer.ggml.tokens has 97 entries, wanted at most the 96 rows of token_embd.weight");
}

TEST(ModelLoad, OldMixtralFilesAreRefusedClearly) {
  const TempModel temp(mixtral());
  ModelFile file = ModelFile::open(temp.path());
  for (const char* part : {"gate", "up", "down"})
    remove_tensor(file, std::string("blk.0.ffn_") + part + "_exps.weight");
  format::Tensor single;
  single.name = "blk.0.ffn_gate.0.weight";
  single.n_dims = 2;
  single.dims = {64, 32, 1, 1};
  file.tensors.push_back(single);
  reindex(file);
  EXPECT_EQ(error_of([&] { model::load(std::move(file)); }),
            temp.path() +
                ": tensor blk.0.ffn_gate.0.weight holds a single expert (an old layout), wanted stacked experts in "
                "blk.0.ffn_up_exps.weight; convert the model again");
}

TEST(ModelLoad, UnusedTensorsAreNoted) {
  format::GgufWriter writer = test::build(mixtral());
  writer.add("blk.0.extra.weight", format::TensorType::kF32, {4}, format::from_values(std::vector<float>(4)));
  const TempModel temp(writer);
  const model::Model model = model::open(temp.path());
  ASSERT_EQ(model.notes.size(), 1U);
  EXPECT_EQ(model.notes[0], "1 of 24 tensors are not used, the first is blk.0.extra.weight");
}

// GGUF-6: the key says 1 or 0, the tensors are there or not. The trunk loads and gives the same bits each time.
TEST(ModelNextn, TrunkRunsTheSameInAllFourVariants) {
  const TempModel neither(glm());
  const std::string want = greedy_digest(model::open(neither.path()));

  const TempModel both(glm(1));
  const model::Model with = model::open(both.path());
  EXPECT_EQ(with.spec.n_layers, 3U);
  ASSERT_EQ(with.nextn.size(), 1U);
  EXPECT_TRUE(with.notes.empty());
  EXPECT_EQ(with.nextn[0].embedding, with.embedding);
  EXPECT_EQ(with.nextn[0].head.weight, with.head.weight);
  EXPECT_NE(with.nextn[0].head_norm, with.output_norm);
  EXPECT_TRUE(with.nextn[0].layer.is_moe);
  EXPECT_EQ(greedy_digest(with), want);

  TinyModel silent = glm(1);
  silent.announce_nextn = 0;
  const TempModel tensors_only(silent);
  const model::Model probed = model::open(tensors_only.path());
  EXPECT_EQ(probed.spec.n_layers, 3U);
  EXPECT_EQ(probed.nextn.size(), 1U);
  ASSERT_EQ(probed.notes.size(), 1U);
  EXPECT_EQ(probed.notes[0], "key glm4moe.nextn_predict_layers is 0 but 1 NextN block(s) are there");
  EXPECT_EQ(greedy_digest(probed), want);

  ModelFile file = ModelFile::open(both.path());
  std::erase_if(file.tensors, [](const format::Tensor& t) { return t.name.starts_with("blk.3."); });
  reindex(file);
  ModelFile again = file;
  const model::Model key_only = model::load(std::move(file));
  EXPECT_EQ(key_only.spec.n_layers, 3U);
  EXPECT_TRUE(key_only.nextn.empty());
  ASSERT_EQ(key_only.notes.size(), 1U);
  EXPECT_EQ(key_only.notes[0],
            "NextN block 3 is not usable: " + both.path() + ": tensor blk.3.attn_norm.weight is missing");
  EXPECT_EQ(greedy_digest(key_only), want);

  // Demanded, a missing block is an error.
  EXPECT_EQ(error_of([&] { model::load(std::move(again), {.experts_used = {}, .require_nextn = true}); }),
            both.path() + ": tensor blk.3.attn_norm.weight is missing");
  EXPECT_EQ(error_of([&] { model::open(neither.path(), {.experts_used = {}, .require_nextn = true}); }),
            neither.path() + ": holds no NextN block (key glm4moe.nextn_predict_layers is 0 or missing)");
}

TEST(ModelNextn, OwnEmbeddingHeadAndMissingNorm) {
  TinyModel tiny = glm(1);
  tiny.nextn_own_embedding = true;
  tiny.nextn_own_head = true;
  tiny.nextn_own_norm = false;
  const TempModel temp(tiny);
  const model::Model model = model::open(temp.path());
  ASSERT_EQ(model.nextn.size(), 1U);
  EXPECT_EQ(model.nextn[0].embedding->name, "blk.3.nextn.embed_tokens.weight");
  EXPECT_EQ(model.nextn[0].head.weight->name, "blk.3.nextn.shared_head_head.weight");
  EXPECT_EQ(model.nextn[0].head_norm, model.output_norm);
}

// MOE-6: a valid number of experts per token gives what a file written with it gives, and moves the cache minimum.
TEST(ModelExpertsUsed, OverrideEqualsAFileWrittenWithIt) {
  TinyModel tiny = glm();
  const TempModel temp(tiny);
  for (const uint32_t n_used : {1U, 2U, 5U, 8U}) {
    tiny.n_used = n_used;
    const TempModel written(tiny);
    const model::Model overridden = model::open(temp.path(), {.experts_used = n_used});
    EXPECT_EQ(engine::minimum_slots(overridden), n_used);
    EXPECT_EQ(greedy_digest(overridden), greedy_digest(model::open(written.path()))) << n_used;
  }
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{9}, INT64_MAX}) {
    EXPECT_EQ(error_of([&] { model::open(temp.path(), {.experts_used = bad}); }),
              fmt::format("{}: experts per token set to {}, wanted 1..8", temp.path(), bad));
  }
  TinyModel dense = mixtral();
  dense.n_experts = 0;
  dense.n_used = 0;
  const TempModel no_experts(dense);
  EXPECT_EQ(error_of([&] { model::open(no_experts.path(), {.experts_used = 1}); }),
            no_experts.path() + ": experts per token set to 1, but the model has no experts");
}

// The width of an early qwen2moe file is feed_forward_length by the file's own number of experts, whatever the
// override.
TEST(ModelExpertsUsed, OverrideDoesNotMoveTheExpertWidth) {
  TinyModel tiny;
  tiny.arch = "qwen2moe";
  tiny.n_shared = 2;
  tiny.dense_ff = 64;
  const TempModel temp(tiny);
  ModelFile file = ModelFile::open(temp.path());
  file.metadata.set_uint("qwen2moe.expert_feed_forward_length", 0);
  file.metadata.set_uint("qwen2moe.expert_shared_feed_forward_length", 0);
  const model::Model model = model::load(std::move(file), {.experts_used = 4});
  EXPECT_EQ(model.spec.expert_ff, 32U);
  EXPECT_EQ(model.spec.shared_ff, 64U);
  EXPECT_EQ(model.spec.router.n_used, 4U);
}

}  // namespace
}  // namespace outrider

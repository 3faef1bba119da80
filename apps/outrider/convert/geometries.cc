// SPDX-License-Identifier: Apache-2.0
#include "convert/geometries.h"

namespace outrider::apps {
namespace {

// deepseek2: ranks 512 and 64, YaRN over 4096; fields that all rows share.
constexpr Geometry deepseek2(Geometry g) {
  g.arch = "deepseek2";
  g.n_kv_heads = g.n_heads;
  g.n_rot = 64;
  g.kv_lora_rank = 512;
  g.shared_ff = g.n_shared * g.expert_ff;
  g.selection_bias = g.sigmoid;
  g.weights_norm = g.sigmoid;
  return g;
}

constexpr Geometry qwen3moe(Geometry g) {
  g.arch = "qwen3moe";
  g.qk_norm = true;
  if (g.rope_base == 0) g.rope_base = 1e6F;
  g.eps = 1e-6F;
  return g;
}

constexpr Geometry glm4moe(Geometry g) {
  g.arch = "glm4moe";
  g.n_nextn = 1;
  g.n_rot = 64;
  g.n_shared = 1;
  g.shared_ff = g.expert_ff;
  g.sigmoid = g.weights_norm = g.selection_bias = g.qkv_bias = true;
  g.rope_base = 1e6F;
  g.eps = 1e-5F;
  return g;
}

constexpr Geometry gpt_oss(Geometry g) {
  g.arch = "gpt-oss";
  g.d_model = g.expert_ff = g.dense_ff = 2880;
  g.n_heads = 64;
  g.n_kv_heads = 8;
  g.head_dim = 64;
  g.n_used = 4;
  g.n_vocab = 201088;
  g.n_context = 131072;
  g.rope_base = 150000.0F;
  g.eps = 1e-5F;
  g.yarn_factor = 32.0F;
  g.sliding_window = 128;
  g.qkv_bias = true;
  return g;
}

constexpr Geometry kGeometries[] = {
    {.name = "mixtral-8x7b",
     .arch = "llama",
     .n_layers = 32,
     .d_model = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .n_experts = 8,
     .n_used = 2,
     .expert_ff = 14336,
     .dense_ff = 14336,
     .n_vocab = 32000,
     .n_context = 32768,
     .rope_base = 1e6F,
     .eps = 1e-5F},
    {.name = "mixtral-8x22b",
     .arch = "llama",
     .n_layers = 56,
     .d_model = 6144,
     .n_heads = 48,
     .n_kv_heads = 8,
     .head_dim = 128,
     .n_experts = 8,
     .n_used = 2,
     .expert_ff = 16384,
     .dense_ff = 16384,
     .n_vocab = 32000,
     .n_context = 65536,
     .rope_base = 1e6F,
     .eps = 1e-5F},
    {.name = "olmoe-1b-7b",
     .arch = "olmoe",
     .n_layers = 16,
     .d_model = 2048,
     .n_heads = 16,
     .n_kv_heads = 16,
     .head_dim = 128,
     .n_experts = 64,
     .n_used = 8,
     .expert_ff = 1024,
     .dense_ff = 1024,
     .n_vocab = 50304,
     .n_context = 4096,
     .rope_base = 1e4F,
     .eps = 1e-5F,
     .qk_norm = true},
    {.name = "qwen1.5-moe-a2.7b",
     .arch = "qwen2moe",
     .n_layers = 24,
     .d_model = 2048,
     .n_heads = 16,
     .n_kv_heads = 16,
     .head_dim = 128,
     .n_experts = 60,
     .n_used = 4,
     .expert_ff = 1408,
     .dense_ff = 5632,
     .n_shared = 1,
     .shared_ff = 5632,
     .n_vocab = 151936,
     .n_context = 8192,
     .rope_base = 1e6F,
     .eps = 1e-6F,
     .qkv_bias = true},
    {.name = "qwen2-57b-a14b",
     .arch = "qwen2moe",
     .n_layers = 28,
     .d_model = 3584,
     .n_heads = 28,
     .n_kv_heads = 4,
     .head_dim = 128,
     .n_experts = 64,
     .n_used = 8,
     .expert_ff = 2560,
     .dense_ff = 18944,
     .n_shared = 1,
     .shared_ff = 20480,
     .n_vocab = 151936,
     .n_context = 131072,
     .rope_base = 1e6F,
     .eps = 1e-6F,
     .qkv_bias = true},
    qwen3moe({.name = "qwen3-30b-a3b",
              .n_layers = 48,
              .d_model = 2048,
              .n_heads = 32,
              .n_kv_heads = 4,
              .head_dim = 128,
              .n_experts = 128,
              .n_used = 8,
              .expert_ff = 768,
              .dense_ff = 6144,
              .n_vocab = 151936,
              .n_context = 40960}),
    qwen3moe({.name = "qwen3-235b-a22b",
              .n_layers = 94,
              .d_model = 4096,
              .n_heads = 64,
              .n_kv_heads = 4,
              .head_dim = 128,
              .n_experts = 128,
              .n_used = 8,
              .expert_ff = 1536,
              .dense_ff = 12288,
              .n_vocab = 151936,
              .n_context = 40960}),
    qwen3moe({.name = "qwen3-coder-480b-a35b",
              .n_layers = 62,
              .d_model = 6144,
              .n_heads = 96,
              .n_kv_heads = 8,
              .head_dim = 128,
              .n_experts = 160,
              .n_used = 8,
              .expert_ff = 2560,
              .dense_ff = 8192,
              .n_vocab = 151936,
              .n_context = 262144,
              .rope_base = 1e7F}),
    // The small model of the project's baseline: the head shape and vocabulary give its published size of 2.67 GiB.
    qwen3moe({.name = "s24",
              .n_layers = 24,
              .d_model = 1024,
              .n_heads = 16,
              .n_kv_heads = 4,
              .head_dim = 64,
              .n_experts = 128,
              .n_used = 8,
              .expert_ff = 512,
              .dense_ff = 3072,
              .n_vocab = 32000,
              .n_context = 32768}),
    glm4moe({.name = "glm-4.5-air",
             .n_layers = 46,
             .d_model = 4096,
             .n_heads = 96,
             .n_kv_heads = 8,
             .head_dim = 128,
             .n_experts = 128,
             .n_used = 8,
             .expert_ff = 1408,
             .dense_ff = 10944,
             .n_leading_dense = 1,
             .n_vocab = 151552,
             .n_context = 131072,
             .weights_scale = 1.0F}),
    glm4moe({.name = "glm-4.5",
             .n_layers = 92,
             .d_model = 5120,
             .n_heads = 96,
             .n_kv_heads = 8,
             .head_dim = 128,
             .n_experts = 160,
             .n_used = 8,
             .expert_ff = 1536,
             .dense_ff = 12288,
             .n_leading_dense = 3,
             .n_vocab = 151552,
             .n_context = 131072,
             .weights_scale = 2.5F,
             .qk_norm = true}),
    gpt_oss({.name = "gpt-oss-20b", .n_layers = 24, .n_experts = 32}),
    gpt_oss({.name = "gpt-oss-120b", .n_layers = 36, .n_experts = 128}),
    deepseek2({.name = "deepseek-v2-lite",
               .n_layers = 27,
               .d_model = 2048,
               .n_heads = 16,
               .head_dim = 128,
               .n_experts = 64,
               .n_used = 6,
               .expert_ff = 1408,
               .dense_ff = 10944,
               .n_shared = 2,
               .n_leading_dense = 1,
               .n_vocab = 102400,
               .n_context = 163840,
               .rope_base = 1e4F,
               .eps = 1e-6F,
               .weights_scale = 1.0F,
               .v_head_dim = 128,
               .yarn_factor = 40.0F,
               .yarn_log_multiplier = 0.0707F}),
    deepseek2({.name = "deepseek-v2",
               .n_layers = 60,
               .d_model = 5120,
               .n_heads = 128,
               .head_dim = 128,
               .n_experts = 160,
               .n_used = 6,
               .expert_ff = 1536,
               .dense_ff = 12288,
               .n_shared = 2,
               .n_leading_dense = 1,
               .n_vocab = 102400,
               .n_context = 163840,
               .rope_base = 1e4F,
               .eps = 1e-6F,
               .weights_scale = 16.0F,
               .n_groups = 8,
               .n_groups_used = 3,
               .q_lora_rank = 1536,
               .v_head_dim = 128,
               .yarn_factor = 40.0F,
               .yarn_log_multiplier = 0.0707F}),
    deepseek2({.name = "deepseek-v3",
               .n_layers = 61,
               .d_model = 7168,
               .n_heads = 128,
               .head_dim = 128,
               .n_experts = 256,
               .n_used = 8,
               .expert_ff = 2048,
               .dense_ff = 18432,
               .n_shared = 1,
               .n_leading_dense = 3,
               .n_vocab = 129280,
               .n_context = 163840,
               .rope_base = 1e4F,
               .eps = 1e-6F,
               .weights_scale = 2.5F,
               .sigmoid = true,
               .n_groups = 8,
               .n_groups_used = 4,
               .q_lora_rank = 1536,
               .v_head_dim = 128,
               .yarn_factor = 40.0F,
               .yarn_log_multiplier = 0.1F}),
    deepseek2({.name = "kimi-k2",
               .n_layers = 61,
               .d_model = 7168,
               .n_heads = 64,
               .head_dim = 128,
               .n_experts = 384,
               .n_used = 8,
               .expert_ff = 2048,
               .dense_ff = 18432,
               .n_shared = 1,
               .n_leading_dense = 1,
               .n_vocab = 163840,
               .n_context = 131072,
               .rope_base = 5e4F,
               .eps = 1e-6F,
               .weights_scale = 2.827F,
               .sigmoid = true,
               .q_lora_rank = 1536,
               .v_head_dim = 128,
               .yarn_factor = 32.0F,
               .yarn_log_multiplier = 0.1F}),
};

}  // namespace

std::span<const Geometry> geometries() noexcept { return kGeometries; }

const Geometry* find_geometry(std::string_view name) noexcept {
  const Geometry* found = nullptr;
  for (const Geometry& geometry : kGeometries) {
    if (geometry.name == name) return &geometry;
    if (!geometry.name.starts_with(name)) continue;
    if (found != nullptr) return nullptr;
    found = &geometry;
  }
  return found;
}

}  // namespace outrider::apps

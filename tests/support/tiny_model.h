// SPDX-License-Identifier: Apache-2.0
// Tiny models with random weights for tests and goldens: any supported architecture and its variants, the same bytes
// for the same description everywhere. Norms are not all ones, biases not zero, selection biases of both signs, so that
// a forgotten one shows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "outrider/format/gguf_writer.h"

namespace outrider::test {

struct TinyModel {
  std::string arch = "qwen3moe";
  uint32_t n_layers = 2;                 // trunk
  uint32_t n_nextn = 0;                  // glm4moe: NextN blocks after the trunk
  uint32_t announce_nextn = UINT32_MAX;  // nextn_predict_layers as written; UINT32_MAX: n_nextn
  uint32_t d_model = 64, n_heads = 4, n_kv_heads = 2, head_dim = 16;
  uint32_t n_rot = 0;                                                 // 0: head_dim, key left out
  uint32_t dense_ff = 96, expert_ff = 32, n_experts = 8, n_used = 2;  // n_experts 0: dense
  uint32_t n_leading_dense = 0, n_shared = 0;
  uint32_t n_vocab = 96, context = 256;
  bool tied = false;
  bool qk_norm = false;  // per head; olmoe: full width
  bool qkv_bias = false;
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool sigmoid = false;      // glm4moe: expert_gating_func; its selection bias is always there
  bool weights_norm = true;  // glm4moe key
  float weights_scale = 1;   // glm4moe key
  uint32_t n_groups = 0, n_groups_used = 0;
  double rope_base = 10000;
  std::string rope_scaling;  // "", "linear", "yarn"
  double rope_factor = 1;
  uint32_t original_context = 0;
  double attn_factor = 1;   // of the rotary magnitude
  bool rope_freqs = false;  // llama
  bool ungated = false;     // llama: experts without a gate
  // glm4moe NextN variants
  bool nextn_own_embedding = false, nextn_own_head = false, nextn_own_norm = true;
  format::TensorType type = format::TensorType::kF32;  // of all matrices but the routers
  format::TensorType expert_type = format::TensorType::kF32;
  uint64_t seed = 1;
  // Last word on each F32 tensor's values before they are stored: (name, values).
  std::function<void(const std::string&, std::vector<float>&)> edit;
};

// A small MoE model with norms on queries and keys.
inline TinyModel tiny_moe() {
  TinyModel tiny;
  tiny.qk_norm = true;
  return tiny;
}

// The writer holding the model, for callers that change metadata, add tensors or write a split set.
format::GgufWriter build(const TinyModel& tiny);
void write_tiny_model(const TinyModel& tiny, const std::string& path);

struct TinyCase {
  std::string name;
  TinyModel model;
};
// The cases whose logits are compared with llama.cpp's (tests/golden/archs).
std::vector<TinyCase> golden_cases();
// The token ids that each of them is run on.
std::vector<int32_t> golden_ids(const TinyModel& tiny);

}  // namespace outrider::test

// SPDX-License-Identifier: Apache-2.0
// Shapes of published mixture-of-experts models, as data, for `outrider synth`.
// Source: the models' public configurations, collected in ../shared/spec/architectures-core.md section 11.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace outrider::apps {

// Zero means "this model has no such thing".
struct Geometry {
  std::string_view name = {};  // as given to --like
  std::string_view arch = {};  // general.architecture
  uint32_t n_layers = 0;       // trunk; NextN blocks come after
  uint32_t n_nextn = 0;
  uint32_t d_model = 0;
  uint32_t n_heads = 0, n_kv_heads = 0;
  uint32_t head_dim = 0;  // deepseek2: the part without position, n
  uint32_t n_rot = 0;     // 0: head_dim
  uint32_t n_experts = 0, n_used = 0, expert_ff = 0;
  uint32_t dense_ff = 0;
  uint32_t n_shared = 0, shared_ff = 0;  // shared_ff: total width
  uint32_t n_leading_dense = 0;
  uint32_t n_vocab = 0, n_context = 0;
  float rope_base = 0, eps = 0;
  float weights_scale = 0;
  bool sigmoid = false, weights_norm = false;  // written for glm4moe and deepseek2 only: others fix them
  bool selection_bias = false;                 // exp_probs_b.bias
  bool qk_norm = false, qkv_bias = false;
  uint32_t n_groups = 0, n_groups_used = 0;
  uint32_t q_lora_rank = 0, kv_lora_rank = 0, v_head_dim = 0;  // deepseek2
  float yarn_factor = 0, yarn_log_multiplier = 0;              // over an original context of 4096
  uint32_t sliding_window = 0;                                 // gpt-oss
};

std::span<const Geometry> geometries() noexcept;

// By name or by a beginning that only one name has. nullptr otherwise.
const Geometry* find_geometry(std::string_view name) noexcept;

}  // namespace outrider::apps

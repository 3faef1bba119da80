// SPDX-License-Identifier: Apache-2.0
// The buffers a pass works in, sized for `chunk` rows: laid out by one function that counts (for the plan) or hands out
// pointers (for the engine), so that the two cannot drift apart.
#pragma once

#include <cstdint>

#include "outrider/engine/device.h"
#include "outrider/engine/engine.h"
#include "outrider/model/model.h"

namespace outrider::engine {

struct WorkBuffers {
  // C = chunk, P = C * experts per token (pairs), W = n_wave_pairs, A = kMaxAheadRows.
  // Device memory that lasts through a pass.
  float* x = nullptr;               // (C, d_model): the residual stream
  Rows normed;                      // (C, d_model): input of attention, of the FFN; then scratch of the experts' sum
  float* projected = nullptr;       // (C, d_model): output of attention, of a dense FFN, of the shared expert
  float* cos_sin = nullptr;         // (C, n_rot)
  float* router_logits = nullptr;   // (C, n_experts)
  float* shared_gate = nullptr;     // (C)
  float* ahead_x = nullptr;         // (A, d_model): the state, as far as it is known, that a guess is made from
  Rows ahead_in;                    // (A, d_model)
  float* ahead_logits = nullptr;    // (A, n_experts)
  Rows head_in;                     // (logit_rows, d_model)
  float* guessed_logits = nullptr;  // (n_vocab): of a head that is done while the next pass has begun (TokenAhead)
  // Device memory that phases share, one group at a time: attention; a resident FFN; the experts; the head (its logits
  // last until the next pass).
  float* q = nullptr;           // (C, n_heads, dk)
  float* k = nullptr;           // (C, n_kv_heads, dk)
  float* v = nullptr;           // (C, n_kv_heads, dv)
  Rows attended;                // (C, n_heads * dv)
  Rows ffn_hidden;              // (C, max(dense_ff, shared_ff))
  float* ffn_up = nullptr;      // the same shape
  Rows expert_hidden;           // (W, expert_ff)
  float* expert_up = nullptr;   // (W, expert_ff)
  float* expert_out = nullptr;  // (P, d_model)
  float* logits = nullptr;      // (logit_rows, n_vocab)
  uint32_t n_wave_pairs = 0;
  // Host memory that lasts through a pass.
  uint32_t* ids = nullptr;            // (C, n_used)
  float* weights = nullptr;           // (C, n_used)
  uint32_t* ahead_ids = nullptr;      // (A, router_width)
  float* ahead_weights = nullptr;     // (A, router_width)
  uint32_t* ahead_pair_of = nullptr;  // (A, n_used): as pair_of and weights, of the experts that are computed
  float* ahead_mix = nullptr;         // (A, n_used)
  uint8_t* is_computed = nullptr;     // (n_experts): of the layer's demand
  uint8_t* has_hidden = nullptr;      // (n_experts): of those not computed whole, the hidden rows are
  uint32_t* pair_row = nullptr;       // (P)
  uint32_t* pair_of = nullptr;        // (P): pair of (row, rank)
  uint32_t* expert_begin = nullptr;   // (n_experts + 1): first pair of each expert
  uint32_t* expert_fill = nullptr;    // (n_experts): scratch of the grouping
  uint32_t* demanded = nullptr;       // (n_experts): distinct experts of the pass
  uint32_t* uses = nullptr;           // (n_experts)
  ExpertJob* jobs = nullptr;          // (n_experts + 1)
  RowPlace* places = nullptr;         // (C)
  int32_t* tokens = nullptr;          // (C)
  uint32_t* wanted = nullptr;         // (C): rows that want logits

  // Lays all buffers out from `base` on and returns the bytes they take; with base = nullptr only the count means
  // anything. `options` are resolved.
  static uint64_t lay_out(const model::ModelSpec& spec, const EngineOptions& options, std::byte* base,
                          WorkBuffers& out) noexcept;
};

// The KV cache of all layers and sequences, likewise.
struct KvLayout {
  uint64_t k_row_bytes = 0, v_row_bytes = 0;
  uint64_t k_head_stride = 0, v_head_stride = 0;  // context positions of one head
  uint64_t layer_bytes = 0;                       // keys, then values, of all sequences
  uint64_t k_bytes = 0;                           // of them keys
  uint64_t total_bytes = 0;
  kernels::KvType type = kernels::KvType::kF16;
};
KvLayout kv_layout(const model::ModelSpec& spec, const EngineOptions& options) noexcept;

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// The tensors of each architecture (../shared/spec/architectures-core.md section 11.1).
#include <algorithm>

#include "convert/synth_model.h"
#include "convert/synth_tokenizer.h"
#include "outrider/base/error.h"

namespace outrider::apps {
namespace {

class Inventory {
 public:
  explicit Inventory(const Geometry& geometry) : g_(geometry) {}

  std::vector<SynthTensor> build() {
    add("token_embd.weight", {g_.d_model, g_.n_vocab}, SynthKind::kEmbedding);
    for (uint32_t block = 0; block < g_.n_layers + g_.n_nextn; ++block) {
      prefix_ = "blk." + std::to_string(block) + ".";
      add("attn_norm.weight", {g_.d_model}, SynthKind::kNorm);
      if (g_.kv_lora_rank != 0) {
        latent_attention();
      } else {
        attention();
      }
      const bool post = g_.arch == "glm4moe" || g_.arch == "gpt-oss";
      add(post ? "post_attention_norm.weight" : "ffn_norm.weight", {g_.d_model}, SynthKind::kNorm);
      if (block < g_.n_leading_dense) {
        dense_ffn();
      } else {
        expert_ffn();
      }
      if (block >= g_.n_layers) nextn();
    }
    prefix_.clear();
    add("output_norm.weight", {g_.d_model}, SynthKind::kNorm);
    add("output.weight", {g_.d_model, g_.n_vocab});
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, std::vector<uint64_t> dims, SynthKind kind = SynthKind::kMatrix) {
    tensors_.push_back({prefix_ + name, std::move(dims), kind});
  }

  void attention() {
    const uint64_t q = uint64_t{g_.n_heads} * g_.head_dim;
    const uint64_t kv = uint64_t{g_.n_kv_heads} * g_.head_dim;
    add("attn_q.weight", {g_.d_model, q});
    add("attn_k.weight", {g_.d_model, kv});
    add("attn_v.weight", {g_.d_model, kv});
    if (g_.qkv_bias) {
      add("attn_q.bias", {q}, SynthKind::kBias);
      add("attn_k.bias", {kv}, SynthKind::kBias);
      add("attn_v.bias", {kv}, SynthKind::kBias);
    }
    add("attn_output.weight", {q, g_.d_model});
    if (g_.arch == "gpt-oss") {
      add("attn_output.bias", {g_.d_model}, SynthKind::kBias);
      add("attn_sinks.weight", {g_.n_heads}, SynthKind::kSink);
    }
    if (g_.qk_norm) {  // olmoe norms the concatenated heads, the others each head
      add("attn_q_norm.weight", {g_.arch == "olmoe" ? q : g_.head_dim}, SynthKind::kNorm);
      add("attn_k_norm.weight", {g_.arch == "olmoe" ? kv : g_.head_dim}, SynthKind::kNorm);
    }
  }

  void latent_attention() {
    const uint64_t q = uint64_t{g_.n_heads} * (g_.head_dim + g_.n_rot);
    if (g_.q_lora_rank != 0) {
      add("attn_q_a.weight", {g_.d_model, g_.q_lora_rank});
      add("attn_q_a_norm.weight", {g_.q_lora_rank}, SynthKind::kNorm);
      add("attn_q_b.weight", {g_.q_lora_rank, q});
    } else {
      add("attn_q.weight", {g_.d_model, q});
    }
    add("attn_kv_a_mqa.weight", {g_.d_model, g_.kv_lora_rank + g_.n_rot});
    add("attn_kv_a_norm.weight", {g_.kv_lora_rank}, SynthKind::kNorm);
    add("attn_k_b.weight", {g_.head_dim, g_.kv_lora_rank, g_.n_heads});
    add("attn_v_b.weight", {g_.kv_lora_rank, g_.v_head_dim, g_.n_heads});
    add("attn_output.weight", {uint64_t{g_.n_heads} * g_.v_head_dim, g_.d_model});
  }

  void dense_ffn() {
    add("ffn_gate.weight", {g_.d_model, g_.dense_ff});
    add("ffn_up.weight", {g_.d_model, g_.dense_ff});
    add("ffn_down.weight", {g_.dense_ff, g_.d_model});
  }

  void expert_ffn() {
    const bool biased = g_.arch == "gpt-oss";
    add("ffn_gate_inp.weight", {g_.d_model, g_.n_experts}, SynthKind::kRouter);
    if (biased) add("ffn_gate_inp.bias", {g_.n_experts}, SynthKind::kBias);
    if (g_.selection_bias) add("exp_probs_b.bias", {g_.n_experts}, SynthKind::kSelectionBias);
    add("ffn_gate_exps.weight", {g_.d_model, g_.expert_ff, g_.n_experts});
    add("ffn_up_exps.weight", {g_.d_model, g_.expert_ff, g_.n_experts});
    add("ffn_down_exps.weight", {g_.expert_ff, g_.d_model, g_.n_experts});
    if (biased) {
      add("ffn_gate_exps.bias", {g_.expert_ff, g_.n_experts}, SynthKind::kBias);
      add("ffn_up_exps.bias", {g_.expert_ff, g_.n_experts}, SynthKind::kBias);
      add("ffn_down_exps.bias", {g_.d_model, g_.n_experts}, SynthKind::kBias);
    }
    if (g_.shared_ff == 0) return;
    if (g_.arch == "qwen2moe") add("ffn_gate_inp_shexp.weight", {g_.d_model}, SynthKind::kRouter);
    add("ffn_gate_shexp.weight", {g_.d_model, g_.shared_ff});
    add("ffn_up_shexp.weight", {g_.d_model, g_.shared_ff});
    add("ffn_down_shexp.weight", {g_.shared_ff, g_.d_model});
  }

  void nextn() {
    add("nextn.eh_proj.weight", {uint64_t{2} * g_.d_model, g_.d_model});
    add("nextn.enorm.weight", {g_.d_model}, SynthKind::kNorm);
    add("nextn.hnorm.weight", {g_.d_model}, SynthKind::kNorm);
    add("nextn.shared_head_norm.weight", {g_.d_model}, SynthKind::kNorm);
    add("nextn.embed_tokens.weight", {g_.d_model, g_.n_vocab}, SynthKind::kEmbedding);
    add("nextn.shared_head_head.weight", {g_.d_model, g_.n_vocab});
  }

  const Geometry& g_;
  std::string prefix_;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

std::vector<SynthTensor> synth_tensors(const Geometry& geometry) { return Inventory(geometry).build(); }

Geometry cut_geometry(const Geometry& geometry, uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab) {
  Geometry cut = geometry;
  if (n_layers != 0) {
    if (n_layers <= geometry.n_leading_dense) {
      fail(ErrorKind::kBadArgument, "--layers {}: {} has {} dense layers first, wanted at least {}", n_layers,
           geometry.name, geometry.n_leading_dense, geometry.n_leading_dense + 1);
    }
    cut.n_layers = n_layers;
  }
  if (n_experts != 0) {
    cut.n_experts = n_experts;
    cut.n_used = std::min(geometry.n_used, n_experts);
    // Groups need equal parts and fewer kept than there are.
    if (n_experts % std::max(1U, geometry.n_groups) != 0 || n_experts <= geometry.n_groups)
      cut.n_groups = cut.n_groups_used = 0;
  }
  if (n_vocab != 0) {
    if (n_vocab < kMinSynthVocab)
      fail(ErrorKind::kBadArgument, "--vocab {}: wanted at least {}", n_vocab, kMinSynthVocab);
    cut.n_vocab = n_vocab;
  }
  return cut;
}

}  // namespace outrider::apps

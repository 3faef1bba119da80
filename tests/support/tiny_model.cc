// SPDX-License-Identifier: Apache-2.0
#include "tiny_model.h"

#include <cmath>

#include "outrider/base/random.h"
#include "outrider/numerics/quantize.h"

namespace outrider::test {

namespace {

using format::TensorType;

class Builder {
 public:
  explicit Builder(const TinyModel& tiny) : tiny_(tiny), writer_(metadata()) {}

  format::GgufWriter finish() {
    matrix("token_embd.weight", tiny_.d_model, tiny_.n_vocab, 1, tiny_.type, 1.0F);
    norm("output_norm.weight", tiny_.d_model);
    if (!tiny_.tied) matrix("output.weight", tiny_.d_model, tiny_.n_vocab, 1, tiny_.type);
    if (tiny_.rope_freqs) values("rope_freqs.weight", {rot() / 2}, 1.5F, 0.5F);
    for (uint32_t i = 0; i < tiny_.n_layers + tiny_.n_nextn; ++i) layer(i);
    for (uint32_t i = tiny_.n_layers; i < tiny_.n_layers + tiny_.n_nextn; ++i) nextn(i);
    return std::move(writer_);
  }

 private:
  bool glm() const { return tiny_.arch == "glm4moe"; }
  uint32_t rot() const { return tiny_.n_rot != 0 ? tiny_.n_rot : tiny_.head_dim; }

  format::Metadata metadata() const {
    format::Metadata m;
    const TinyModel& t = tiny_;
    const std::string a = t.arch + ".";
    m.set_string("general.architecture", t.arch);
    m.set_string("general.name", "tiny " + t.arch);
    m.set_uint(a + "context_length", t.context);
    m.set_uint(a + "embedding_length", t.d_model);
    m.set_uint(a + "block_count", t.n_layers + t.n_nextn);
    m.set_uint(a + "feed_forward_length",
               t.arch == "olmoe" || (t.arch == "llama" && t.n_experts > 0) ? t.expert_ff : t.dense_ff);
    m.set_uint(a + "attention.head_count", t.n_heads);
    m.set_uint(a + "attention.head_count_kv", t.n_kv_heads);
    m.set_uint(a + "attention.key_length", t.head_dim);
    m.set_uint(a + "attention.value_length", t.head_dim);
    m.set_real(a + "attention.layer_norm_rms_epsilon", 1e-5);
    m.set_real(a + "rope.freq_base", t.rope_base);
    m.set_uint(a + "rope.dimension_count", rot());
    m.set_uint(a + "vocab_size", t.n_vocab);
    if (!t.rope_scaling.empty()) {
      m.set_string(a + "rope.scaling.type", t.rope_scaling);
      m.set_real(a + "rope.scaling.factor", t.rope_factor);
      if (t.original_context != 0) m.set_uint(a + "rope.scaling.original_context_length", t.original_context);
    }
    if (t.attn_factor != 1) m.set_real(a + "rope.scaling.attn_factor", t.attn_factor);
    if (t.n_experts > 0) {
      m.set_uint(a + "expert_count", t.n_experts);
      m.set_uint(a + "expert_used_count", t.n_used);
      if (t.arch != "olmoe" && t.arch != "llama") m.set_uint(a + "expert_feed_forward_length", t.expert_ff);
      if (t.arch == "qwen2moe") m.set_uint(a + "expert_shared_feed_forward_length", t.expert_ff * t.n_shared);
      if (t.n_groups > 0) {
        m.set_uint(a + "expert_group_count", t.n_groups);
        m.set_uint(a + "expert_group_used_count", t.n_groups_used);
      }
    }
    if (glm()) {
      m.set_uint(a + "expert_shared_count", t.n_shared);
      m.set_uint(a + "leading_dense_block_count", t.n_leading_dense);
      m.set_uint(a + "expert_gating_func", t.sigmoid ? 2 : 1);
      m.set_bool(a + "expert_weights_norm", t.weights_norm);
      m.set_real(a + "expert_weights_scale", t.weights_scale);
    }
    const uint32_t announced = t.announce_nextn == UINT32_MAX ? t.n_nextn : t.announce_nextn;
    if (announced > 0) m.set_uint(a + "nextn_predict_layers", announced);
    m.set_string("tokenizer.ggml.model", "none");
    return m;
  }

  // Each tensor draws from its own stream, so adding one changes no other.
  Random stream(const std::string& name) const {
    uint64_t hash = 0xCBF29CE484222325ULL ^ tiny_.seed;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    return Random(hash);
  }

  void store(const std::string& name, std::vector<uint64_t> dims, TensorType type, std::vector<float> v) {
    if (tiny_.edit) tiny_.edit(name, v);
    std::vector<std::byte> bytes(format::row_bytes(type, dims[0]) * (v.size() / dims[0]));
    const uint64_t row = format::row_bytes(type, dims[0]);
    for (uint64_t r = 0; r < v.size() / dims[0]; ++r) {
      numerics::quantize(type, v.data() + r * dims[0], bytes.data() + r * row, dims[0]);
    }
    writer_.add(name, type, std::move(dims), format::from_memory(std::move(bytes)));
  }

  void values(const std::string& name, std::vector<uint64_t> dims, float center, float spread) {
    Random random = stream(name);
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    std::vector<float> v(n);
    for (float& x : v) x = random.uniform(center - spread, center + spread);
    store(name, std::move(dims), TensorType::kF32, std::move(v));
  }

  void norm(const std::string& name, uint64_t n) { values(name, {n}, 1.0F, 0.5F); }
  void bias(const std::string& name, uint64_t n) { values(name, {n}, 0.0F, 0.3F); }

  void matrix(const std::string& name, uint64_t in, uint64_t out, uint64_t stack, TensorType type,
              float amplitude = 0) {
    if (amplitude == 0) amplitude = std::sqrt(3.0F / static_cast<float>(in));
    Random random = stream(name);
    std::vector<float> v(in * out * stack);
    for (float& x : v) x = random.uniform(-amplitude, amplitude);
    std::vector<uint64_t> dims = {in, out};
    if (stack > 1 || name.find("_exps") != std::string::npos) dims.push_back(stack);
    store(name, std::move(dims), type, std::move(v));
  }

  void attention(const std::string& p) {
    const uint64_t d = tiny_.d_model, q = uint64_t{tiny_.n_heads} * tiny_.head_dim,
                   kv = uint64_t{tiny_.n_kv_heads} * tiny_.head_dim;
    norm(p + "attn_norm.weight", d);
    if (tiny_.fused_qkv) {
      matrix(p + "attn_qkv.weight", d, q + 2 * kv, 1, tiny_.type);
    } else {
      matrix(p + "attn_q.weight", d, q, 1, tiny_.type);
      matrix(p + "attn_k.weight", d, kv, 1, tiny_.type);
      matrix(p + "attn_v.weight", d, kv, 1, tiny_.type);
    }
    if (tiny_.qkv_bias) {
      bias(p + "attn_q.bias", q);
      bias(p + "attn_k.bias", kv);
      bias(p + "attn_v.bias", kv);
    }
    if (tiny_.qk_norm) {
      norm(p + "attn_q_norm.weight", tiny_.arch == "olmoe" ? q : tiny_.head_dim);
      norm(p + "attn_k_norm.weight", tiny_.arch == "olmoe" ? kv : tiny_.head_dim);
    }
    matrix(p + "attn_output.weight", q, d, 1, tiny_.type);
  }

  void swiglu(const std::string& p, const std::string& suffix, uint64_t ff) {
    matrix(p + "ffn_gate" + suffix + ".weight", tiny_.d_model, ff, 1, tiny_.type);
    matrix(p + "ffn_up" + suffix + ".weight", tiny_.d_model, ff, 1, tiny_.type);
    matrix(p + "ffn_down" + suffix + ".weight", ff, tiny_.d_model, 1, tiny_.type);
  }

  void moe(const std::string& p) {
    const uint64_t d = tiny_.d_model, ff = tiny_.expert_ff, n = tiny_.n_experts;
    // A router of larger spread than 1/sqrt(d): distinct scores, so that rounding does not change a choice.
    matrix(p + "ffn_gate_inp.weight", d, n, 1, TensorType::kF32, 0.6F);
    if (glm()) values(p + "exp_probs_b.bias", {n}, 0.0F, 0.15F);
    if (tiny_.fused_gate_up) {
      matrix(p + "ffn_gate_up_exps.weight", d, 2 * ff, n, tiny_.expert_type);
    } else {
      if (!tiny_.ungated) matrix(p + "ffn_gate_exps.weight", d, ff, n, tiny_.expert_type);
      matrix(p + "ffn_up_exps.weight", d, ff, n, tiny_.expert_type);
    }
    matrix(p + "ffn_down_exps.weight", ff, d, n, tiny_.expert_type);
    if (tiny_.n_shared > 0) {
      swiglu(p, "_shexp", ff * tiny_.n_shared);
      if (tiny_.arch == "qwen2moe") values(p + "ffn_gate_inp_shexp.weight", {d}, 0.0F, 0.3F);
    }
  }

  void layer(uint32_t i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    attention(p);
    norm(p + (glm() ? "post_attention_norm.weight" : "ffn_norm.weight"), tiny_.d_model);
    if (tiny_.n_experts == 0 || i < tiny_.n_leading_dense) {
      swiglu(p, "", tiny_.dense_ff);
    } else {
      moe(p);
    }
  }

  void nextn(uint32_t i) {
    const std::string p = "blk." + std::to_string(i) + ".nextn.";
    matrix(p + "eh_proj.weight", 2ULL * tiny_.d_model, tiny_.d_model, 1, tiny_.type);
    norm(p + "enorm.weight", tiny_.d_model);
    norm(p + "hnorm.weight", tiny_.d_model);
    if (tiny_.nextn_own_norm) norm(p + "shared_head_norm.weight", tiny_.d_model);
    if (tiny_.nextn_own_embedding) matrix(p + "embed_tokens.weight", tiny_.d_model, tiny_.n_vocab, 1, tiny_.type, 1.0F);
    if (tiny_.nextn_own_head) matrix(p + "shared_head_head.weight", tiny_.d_model, tiny_.n_vocab, 1, tiny_.type);
  }

  const TinyModel& tiny_;
  format::GgufWriter writer_;
};

}  // namespace

format::GgufWriter build(const TinyModel& tiny) { return Builder(tiny).finish(); }

void write_tiny_model(const TinyModel& tiny, const std::string& path) { build(tiny).write(path); }

std::vector<TinyCase> golden_cases() {
  std::vector<TinyCase> cases;
  const auto add = [&cases](std::string name, const std::function<void(TinyModel&)>& set) {
    TinyModel tiny;
    tiny.seed = 100 + cases.size();
    set(tiny);
    cases.push_back({std::move(name), std::move(tiny)});
  };
  const auto llama = [](TinyModel& t) { t.arch = "llama"; };
  const auto dense = [](TinyModel& t) { t.n_experts = 0, t.n_used = 0; };
  const auto glm = [](TinyModel& t) {
    t.arch = "glm4moe", t.n_layers = 3, t.n_leading_dense = 1, t.n_shared = 1, t.sigmoid = true, t.n_rot = 8,
    t.qkv_bias = true;
    t.weights_scale = 1.7F, t.n_used = 3;
  };
  add("llama-dense", [&](TinyModel& t) { llama(t), dense(t); });
  add("llama-dense-tied-freqs", [&](TinyModel& t) { llama(t), dense(t), t.tied = true, t.rope_freqs = true; });
  add("mixtral", [&](TinyModel& t) { llama(t); });
  add("mixtral-linear", [&](TinyModel& t) { llama(t), t.rope_scaling = "linear", t.rope_factor = 4; });
  add("mixtral-yarn",
      [&](TinyModel& t) { llama(t), t.rope_scaling = "yarn", t.rope_factor = 8, t.original_context = 32; });
  add("mixtral-fused-qkv-bias", [&](TinyModel& t) { llama(t), t.fused_qkv = true, t.qkv_bias = true; });
  add("olmoe", [](TinyModel& t) { t.arch = "olmoe", t.n_kv_heads = 4, t.qk_norm = true; });
  add("qwen2moe", [](TinyModel& t) { t.arch = "qwen2moe", t.qkv_bias = true, t.n_shared = 2, t.rope_base = 1e6; });
  add("qwen3-dense", [&](TinyModel& t) { t.arch = "qwen3", dense(t), t.qk_norm = true, t.head_dim = 32; });
  add("qwen3moe", [](TinyModel& t) { t.qk_norm = true, t.head_dim = 32, t.rope_base = 1e6; });
  add("qwen3moe-tied-129",
      [](TinyModel& t) { t.qk_norm = true, t.tied = true, t.n_experts = 129, t.n_used = 8, t.expert_ff = 4; });
  add("glm4moe", [&](TinyModel& t) { glm(t); });
  add("glm4moe-qknorm-tied", [&](TinyModel& t) { glm(t), t.qk_norm = true, t.tied = true, t.n_shared = 2; });
  add("glm4moe-softmax-nonorm", [&](TinyModel& t) { glm(t), t.sigmoid = false, t.weights_norm = false; });
  add("glm4moe-groups", [&](TinyModel& t) { glm(t), t.n_experts = 16, t.n_groups = 4, t.n_groups_used = 2; });
  add("glm4moe-nextn", [&](TinyModel& t) { glm(t), t.n_nextn = 1; });
  add("mixtral-ungated", [&](TinyModel& t) { llama(t), t.ungated = true; });
  add("mixtral-attn-factor", [&](TinyModel& t) { llama(t), t.attn_factor = 1.4; });
  add("qwen3moe-yarn-attn-factor", [](TinyModel& t) {
    t.qk_norm = true, t.rope_scaling = "yarn", t.rope_factor = 4, t.original_context = 16, t.attn_factor = 0.8;
  });
  add("glm4moe-fused-qkv", [&](TinyModel& t) { glm(t), t.fused_qkv = true, t.qk_norm = true, t.n_used = 8; });
  return cases;
}

std::vector<int32_t> golden_ids(const TinyModel& tiny) {
  Random random(tiny.seed * 7919);
  std::vector<int32_t> ids(24);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(tiny.n_vocab));
  return ids;
}

}  // namespace outrider::test

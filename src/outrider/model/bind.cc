// SPDX-License-Identifier: Apache-2.0
// Finds the tensor of each role and checks its shape and type (../shared/spec/architectures-core.md, sections 1.3, 1.4,
// 5, 7 and 8.1). Shapes are compared without trailing ones, as writers differ.
#include <algorithm>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/model/arch.h"

namespace outrider::model {
namespace {

using format::Tensor;
using format::TensorType;

class Binder {
 public:
  Binder(Model& model, const ArchRules& rules)
      : file_(model.file), spec_(model.spec), rules_(rules), used_(model.file.tensors.size(), false) {}

  // nullptr when the file has no such tensor.
  const Tensor* find(const std::string& name) {
    const Tensor* tensor = file_.find(name);
    if (tensor != nullptr) used_[static_cast<size_t>(tensor - file_.tensors.data())] = true;
    return tensor;
  }

  const Tensor* find_matrix(const std::string& name, uint64_t k, uint64_t n, uint64_t n_experts = 1) {
    const Tensor* tensor = find(name);
    if (tensor == nullptr) return nullptr;
    check_shape(*tensor, k, n, n_experts);
    if (!format::type_info(tensor->type).is_weight) {
      fail(ErrorKind::kBadFile, "{}: tensor {} has type {}, wanted a weight type", file_.path_of(*tensor), name,
           format::type_info(tensor->type).name);
    }
    return tensor;
  }

  const Tensor* require_matrix(const std::string& name, uint64_t k, uint64_t n, uint64_t n_experts = 1) {
    file_.require(name);
    return find_matrix(name, k, n, n_experts);
  }

  // Norms, biases and factors: few numbers, kept as f32 once loaded.
  const Tensor* find_vector(const std::string& name, uint64_t n) {
    const Tensor* tensor = find(name);
    if (tensor == nullptr) return nullptr;
    check_shape(*tensor, n, 1, 1);
    if (tensor->type != TensorType::kF32 && tensor->type != TensorType::kF16 && tensor->type != TensorType::kBF16) {
      fail(ErrorKind::kBadFile, "{}: tensor {} has type {}, wanted f32, f16 or bf16", file_.path_of(*tensor), name,
           format::type_info(tensor->type).name);
    }
    return tensor;
  }

  const Tensor* require_vector(const std::string& name, uint64_t n) {
    file_.require(name);
    return find_vector(name, n);
  }

  // `stem`.weight, and .bias and .scale where they are.
  Linear linear(const std::string& stem, uint32_t n_rows, uint32_t k, bool with_bias = true) {
    Linear result{.weight = require_matrix(stem + ".weight", k, n_rows), .n_rows = n_rows, .k = k};
    if (with_bias) result.bias = find_vector(stem + ".bias", n_rows);
    result.scale = find_vector(stem + ".scale", 1);
    find(stem + ".input_scale");  // for engines that quantise activations to NVFP4; not used here
    return result;
  }

  Layer layer(uint32_t block, bool is_moe) {
    Layer result;
    result.is_moe = is_moe;
    result.moe_idx = is_moe ? block - spec_.n_leading_dense : 0;
    const std::string prefix = "blk." + std::to_string(block) + ".";
    result.attn_norm = require_vector(prefix + "attn_norm.weight", spec_.d_model);
    bind_qkv(prefix, result);
    result.attn_output = linear(prefix + "attn_output", spec_.d_model, spec_.n_heads * spec_.dv, rules_.output_bias);
    bind_qk_norm(prefix, result);
    result.ffn_norm = require_vector(prefix + std::string(rules_.ffn_norm) + ".weight", spec_.d_model);
    if (is_moe) {
      bind_experts(prefix, result);
    } else {
      result.dense = ffn(prefix, "", spec_.dense_ff);
    }
    return result;
  }

  NextnBlock nextn(uint32_t block, const Model& model) {
    NextnBlock result;
    result.layer = layer(block, spec_.is_moe());
    const std::string prefix = "blk." + std::to_string(block) + ".nextn.";
    const uint32_t d = spec_.d_model;
    result.eh_proj = linear(prefix + "eh_proj", d, 2 * d);
    result.enorm = require_vector(prefix + "enorm.weight", d);
    result.hnorm = require_vector(prefix + "hnorm.weight", d);
    result.head_norm = find_vector(prefix + "shared_head_norm.weight", d);
    if (result.head_norm == nullptr) result.head_norm = model.output_norm;
    result.embedding = find_matrix(prefix + "embed_tokens.weight", d, spec_.n_vocab);
    if (result.embedding == nullptr) result.embedding = model.embedding;
    result.head = model.head;
    if (file_.find(prefix + "shared_head_head.weight") != nullptr) {
      result.head = linear(prefix + "shared_head_head", spec_.n_vocab, d);
    }
    return result;
  }

  void note_unused(std::vector<std::string>& notes) const {
    const auto n_unused = std::count(used_.begin(), used_.end(), false);
    if (n_unused == 0) return;
    const auto first = std::find(used_.begin(), used_.end(), false) - used_.begin();
    notes.push_back(fmt::format("{} of {} tensors are not used, the first is {}", n_unused, used_.size(),
                                printable(file_.tensors[static_cast<size_t>(first)].name)));
  }

 private:
  void check_shape(const Tensor& tensor, uint64_t a, uint64_t b, uint64_t c) const {
    if (tensor.dims[0] == a && tensor.dims[1] == b && tensor.dims[2] == c && tensor.dims[3] == 1) return;
    std::string got;
    for (uint32_t i = 0; i < std::max(1U, tensor.n_dims); ++i)
      got += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.dims[i]);
    const std::string wanted = c > 1   ? fmt::format("{}, {}, {}", a, b, c)
                               : b > 1 ? fmt::format("{}, {}", a, b)
                                       : fmt::format("{}", a);
    fail(ErrorKind::kBadFile, "{}: tensor {} has shape [{}], wanted [{}]", file_.path_of(tensor),
         printable(tensor.name), got, wanted);
  }

  // One fused matrix (rows of q, k, v in this order) or three. Without a fused bias the separate ones hold (spec 1.4).
  void bind_qkv(const std::string& prefix, Layer& layer) {
    const uint32_t q_rows = spec_.n_heads * spec_.dk;
    const uint32_t k_rows = spec_.n_kv_heads * spec_.dk;
    const uint32_t v_rows = spec_.n_kv_heads * spec_.dv;
    if (file_.find(prefix + "attn_qkv.weight") == nullptr) {
      layer.q = linear(prefix + "attn_q", q_rows, spec_.d_model);
      layer.k = linear(prefix + "attn_k", k_rows, spec_.d_model);
      layer.v = linear(prefix + "attn_v", v_rows, spec_.d_model);
      return;
    }
    const Linear fused = linear(prefix + "attn_qkv", q_rows + k_rows + v_rows, spec_.d_model);
    const auto slice = [&](uint32_t begin, uint32_t n_rows, const char* bias_stem) {
      Linear part = fused;
      part.row_begin = begin;
      part.n_rows = n_rows;
      part.bias_begin = begin;
      if (part.bias == nullptr) {
        part.bias = find_vector(prefix + bias_stem + ".bias", n_rows);
        part.bias_begin = 0;
      }
      return part;
    };
    layer.q = slice(0, q_rows, "attn_q");
    layer.k = slice(q_rows, k_rows, "attn_k");
    layer.v = slice(q_rows + k_rows, v_rows, "attn_v");
  }

  void bind_qk_norm(const std::string& prefix, Layer& layer) {
    if (spec_.qk_norm == QkNorm::kNone) return;
    const bool full = spec_.qk_norm == QkNorm::kFullWidth;
    const std::string q_name = prefix + "attn_q_norm.weight";
    const std::string k_name = prefix + "attn_k_norm.weight";
    const bool any = file_.find(q_name) != nullptr || file_.find(k_name) != nullptr;
    if (!any && !rules_.qk_norm_required) return;
    layer.q_norm = require_vector(q_name, full ? spec_.n_heads * spec_.dk : spec_.dk);
    layer.k_norm = require_vector(k_name, full ? spec_.n_kv_heads * spec_.dk : spec_.dk);
  }

  FfnWeights ffn(const std::string& prefix, const std::string& suffix, uint32_t width) {
    return {.gate = linear(prefix + "ffn_gate" + suffix, width, spec_.d_model),
            .up = linear(prefix + "ffn_up" + suffix, width, spec_.d_model),
            .down = linear(prefix + "ffn_down" + suffix, spec_.d_model, width)};
  }

  const Tensor* expert_scale(const std::string& stem) {
    find(stem + ".input_scale");
    return find_vector(stem + ".scale", spec_.router.n_experts);
  }

  void refuse_single_experts(const std::string& prefix) const {
    for (const char* part : {"ffn_gate.0.weight", "ffn_up.0.weight", "ffn_down.0.weight"}) {
      if (const Tensor* tensor = file_.find(prefix + part)) {
        fail(ErrorKind::kBadFile,
             "{}: tensor {} holds a single expert (an old layout), wanted stacked experts in {}ffn_up_exps.weight; "
             "convert the model again",
             file_.path_of(*tensor), tensor->name, prefix);
      }
    }
  }

  void bind_experts(const std::string& prefix, Layer& layer) {
    const uint32_t d = spec_.d_model;
    const uint32_t n = spec_.router.n_experts;
    const uint32_t ff = spec_.expert_ff;
    refuse_single_experts(prefix);
    layer.router = linear(prefix + "ffn_gate_inp", n, d, false);
    if (rules_.selection_bias) layer.selection_bias = require_vector(prefix + "exp_probs_b.bias", n);
    ExpertStacks& experts = layer.experts;
    experts.gate_up = find_matrix(prefix + "ffn_gate_up_exps.weight", d, 2ULL * ff, n);
    if (experts.gate_up != nullptr) {
      experts.gate_up_scale = expert_scale(prefix + "ffn_gate_up_exps");
    } else {
      experts.up = require_matrix(prefix + "ffn_up_exps.weight", d, ff, n);
      experts.up_scale = expert_scale(prefix + "ffn_up_exps");
      experts.gate = rules_.gate_optional ? find_matrix(prefix + "ffn_gate_exps.weight", d, ff, n)
                                          : require_matrix(prefix + "ffn_gate_exps.weight", d, ff, n);
      if (experts.gate != nullptr) experts.gate_scale = expert_scale(prefix + "ffn_gate_exps");
    }
    experts.down = require_matrix(prefix + "ffn_down_exps.weight", ff, d, n);
    experts.down_scale = expert_scale(prefix + "ffn_down_exps");
    if (spec_.shared_ff == 0) return;
    layer.shared = ffn(prefix, "_shexp", spec_.shared_ff);
    if (rules_.shared_gate) layer.shared_gate = linear(prefix + "ffn_gate_inp_shexp", 1, d, false);
  }

  const format::ModelFile& file_;
  const ModelSpec& spec_;
  const ArchRules& rules_;
  std::vector<bool> used_;
};

// Splits the blocks into trunk and NextN. The key is believed where it is there; without it, blocks at the end that
// hold NextN tensors are NextN blocks all the same (bug-log GGUF-6: the extra layer never runs in the trunk).
void split_blocks(Model& model) {
  ModelSpec& spec = model.spec;
  const uint32_t n_blocks = spec.n_layers;
  if (spec.n_nextn == 0) {
    while (spec.n_layers > 1 &&
           model.file.find(fmt::format("blk.{}.nextn.eh_proj.weight", spec.n_layers - 1)) != nullptr) {
      --spec.n_layers;
    }
    if (spec.n_layers < n_blocks) {
      model.notes.push_back(fmt::format("key {}.nextn_predict_layers is 0 but {} NextN block(s) are there", spec.arch,
                                        n_blocks - spec.n_layers));
    }
    spec.n_nextn = n_blocks - spec.n_layers;
  } else {
    spec.n_layers = n_blocks - spec.n_nextn;
  }
  spec.n_leading_dense = spec.is_moe() ? std::min(spec.n_leading_dense, spec.n_layers) : spec.n_layers;
}

void bind_nextn(Model& model, Binder& binder, bool required) {
  const ModelSpec& spec = model.spec;
  for (uint32_t block = spec.n_layers; block < spec.n_layers + spec.n_nextn; ++block) {
    try {
      model.nextn.push_back(binder.nextn(block, model));
    } catch (const Error& error) {
      if (required) throw;
      model.notes.push_back(fmt::format("NextN block {} is not usable: {}", block, error.what()));
      return;  // a later block is fed by this one
    }
  }
  if (required && model.nextn.empty()) {
    fail(ErrorKind::kBadFile, "{}: holds no NextN block (key {}.nextn_predict_layers is 0 or missing)",
         model.file.metadata.source(), spec.arch);
  }
}

}  // namespace

void bind(Model& model, const ArchRules& rules, const LoadOptions& options) {
  ModelSpec& spec = model.spec;
  const Tensor& embedding = model.file.require("token_embd.weight");
  constexpr uint64_t kMaxVocab = INT32_MAX;
  if (embedding.dims[1] < 1 || embedding.dims[1] > kMaxVocab) {
    fail(ErrorKind::kBadFile, "{}: tensor token_embd.weight has {} rows, wanted 1..{}", model.file.path_of(embedding),
         embedding.dims[1], kMaxVocab);
  }
  spec.n_vocab = static_cast<uint32_t>(embedding.dims[1]);
  const auto* tokens = model.file.metadata.find_strings("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->size() > spec.n_vocab) {
    fail(ErrorKind::kBadFile,
         "{}: key tokenizer.ggml.tokens has {} entries, wanted at most the {} rows of token_embd.weight",
         model.file.metadata.source(), tokens->size(), spec.n_vocab);
  }
  split_blocks(model);

  Binder binder(model, rules);
  model.embedding = binder.require_matrix("token_embd.weight", spec.d_model, spec.n_vocab);
  model.output_norm = binder.require_vector("output_norm.weight", spec.d_model);
  model.tied_head = model.file.find("output.weight") == nullptr;
  model.head = model.tied_head ? Linear{.weight = model.embedding, .n_rows = spec.n_vocab, .k = spec.d_model}
                               : binder.linear("output", spec.n_vocab, spec.d_model);
  if (rules.rope_freqs) model.rope_freqs = binder.find_vector("rope_freqs.weight", spec.rope.n_rot / 2);
  for (uint32_t block = 0; block < spec.n_layers; ++block) {
    model.layers.push_back(binder.layer(block, block >= spec.n_leading_dense));
  }
  bind_nextn(model, binder, options.require_nextn);
  binder.note_unused(model.notes);
}

}  // namespace outrider::model

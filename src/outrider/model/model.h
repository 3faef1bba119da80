// SPDX-License-Identifier: Apache-2.0
// What a model is, as plain data: hyper-parameters and, for each role in a layer, the tensor that plays it. load()
// reads both from a GGUF directory through the architecture table (arch.h), checks every number and every shape, and
// reads no weight. The engine runs any Model with one layer code; nothing below this module knows an architecture's
// name. Sources: ../shared/spec/architectures-core.md, sections 1-8. Errors: Error(kBadFile) or Error(kBadArgument),
// one line naming file, key or tensor, value and what was wanted. Threads: immutable after load().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/format/gguf.h"
#include "outrider/kernels/rope/rope.h"
#include "outrider/kernels/router/router.h"

namespace outrider::model {

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,    // over each head's dk values, one weight vector for all heads, before rotary
  kFullWidth,  // over all heads at once, before the split (olmoe)
};

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn };

struct RopeSpec {
  uint32_t n_rot = 0;  // the first n_rot of a head's dk values rotate
  kernels::RopePairing pairing = kernels::RopePairing::kHalves;
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;              // context extension; the angle is multiplied by 1 / factor
  uint32_t original_context = 0;  // YaRN's trained length
  double attn_factor = 1;         // multiplies the rotary magnitude
  double beta_fast = 32, beta_slow = 1;
};

// Hyper-parameters. Widths are in elements.
struct ModelSpec {
  std::string arch;
  std::string name;       // general.name, or empty
  uint32_t n_layers = 0;  // trunk layers: block_count - n_nextn
  uint32_t n_nextn = 0;   // as the file announces; Model::nextn holds those that are there
  uint32_t d_model = 0;
  uint32_t n_vocab = 0;  // rows of token_embd
  uint32_t context_length = 0;
  uint32_t n_heads = 0, n_kv_heads = 0;
  uint32_t dk = 0, dv = 0;
  float eps = 1e-5F;
  float attention_scale = 0;
  RopeSpec rope;
  QkNorm qk_norm = QkNorm::kNone;  // how a q/k norm acts where its tensors are present
  kernels::RouterSpec router;      // n_experts = 0: a dense model
  uint32_t expert_ff = 0;
  uint32_t shared_ff = 0;        // 0: no shared expert
  uint32_t dense_ff = 0;         // 0: no dense layer
  uint32_t n_leading_dense = 0;  // layers before the first MoE layer (n_layers in a dense model)

  bool is_moe() const noexcept { return router.n_experts > 0; }
};

// A linear map y = scale * (W x) + bias, whose W is `n_rows` rows of `weight` from `row_begin` on (a slice of a fused
// tensor, or all of it).
struct Linear {
  const format::Tensor* weight = nullptr;  // (n_rows of dims[1], k = dims[0])
  uint64_t row_begin = 0;
  uint32_t n_rows = 0, k = 0;
  const format::Tensor* bias = nullptr;  // (n_rows) from bias_begin on, or nullptr
  uint64_t bias_begin = 0;
  const format::Tensor* scale = nullptr;  // one factor (NVFP4 side tensor), or nullptr
  explicit operator bool() const noexcept { return weight != nullptr; }
};

// silu(gate x) * (up x), then down. `gate` may be empty: silu(up x).
struct FfnWeights {
  Linear gate, up, down;
  explicit operator bool() const noexcept { return static_cast<bool>(down); }
};

// Expert stacks [in, out, n_experts]: gate + up + down, or gate_up (gate rows first) + down, or up + down.
struct ExpertStacks {
  const format::Tensor* gate = nullptr;
  const format::Tensor* up = nullptr;
  const format::Tensor* gate_up = nullptr;
  const format::Tensor* down = nullptr;
  // One factor per expert (NVFP4 side tensors), or nullptr.
  const format::Tensor* gate_scale = nullptr;
  const format::Tensor* up_scale = nullptr;
  const format::Tensor* gate_up_scale = nullptr;
  const format::Tensor* down_scale = nullptr;
};

struct Layer {
  bool is_moe = false;
  uint32_t moe_idx = 0;                       // position among the MoE layers, when is_moe
  const format::Tensor* attn_norm = nullptr;  // (d_model)
  Linear q, k, v, attn_output;
  const format::Tensor* q_norm = nullptr;  // (dk) or (n_heads * dk), see QkNorm; both or neither
  const format::Tensor* k_norm = nullptr;
  const format::Tensor* ffn_norm = nullptr;        // (d_model)
  FfnWeights dense;                                // a dense layer
  Linear router;                                   // MoE: (n_experts, d_model)
  const format::Tensor* selection_bias = nullptr;  // (n_experts)
  ExpertStacks experts;
  FfnWeights shared;
  Linear shared_gate;  // one row: the shared output is multiplied by sigmoid(row . x)
};

// A NextN (MTP) block: a whole decoder layer and what feeds and follows it.
struct NextnBlock {
  Layer layer;
  Linear eh_proj;  // (d_model, 2 d_model): embedding first, hidden second
  const format::Tensor* enorm = nullptr;
  const format::Tensor* hnorm = nullptr;
  const format::Tensor* head_norm = nullptr;  // own, or output_norm
  const format::Tensor* embedding = nullptr;  // own, or the trunk's
  Linear head;                                // own, or the trunk's
};

struct LoadOptions {
  std::optional<int64_t> experts_used;  // experts per token instead of the file's number; 1..n_experts
  bool require_nextn = false;           // a missing NextN block is an error instead of a note
};

struct Model {
  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  Model(const Model&) = delete;  // tensor pointers point into `file`
  Model& operator=(const Model&) = delete;

  format::ModelFile file;
  ModelSpec spec;
  std::vector<Layer> layers;                  // n_layers
  std::vector<NextnBlock> nextn;              // bound and checked; never run as a layer of the trunk
  const format::Tensor* embedding = nullptr;  // (n_vocab, d_model)
  const format::Tensor* output_norm = nullptr;
  Linear head;  // (n_vocab, d_model); the embedding when `tied_head`
  bool tied_head = false;
  const format::Tensor* rope_freqs = nullptr;  // (n_rot / 2) divisors of the angle, or nullptr
  std::vector<std::string> notes;              // one line each: what was missing or ignored without harm

  uint32_t n_moe_layers() const noexcept { return spec.is_moe() ? spec.n_layers - spec.n_leading_dense : 0; }
  // Bytes of one expert (gate, up and down together) of a MoE layer.
  uint64_t slab_bytes(uint32_t moe_idx) const noexcept;
  // Bytes of all expert stacks of the trunk.
  uint64_t expert_bytes() const noexcept;
};

// Takes the directory over. Throws for an unknown architecture (listing the known ones), a missing or wrong key, a
// missing tensor, a shape that does not agree with the keys, or a weight type that cannot be multiplied with.
Model load(format::ModelFile file, const LoadOptions& options = {});

// format::ModelFile::open and load.
Model open(const std::string& path, const LoadOptions& options = {});

// Names of the supported architectures, in the order of the table.
std::vector<std::string_view> architecture_names();

}  // namespace outrider::model

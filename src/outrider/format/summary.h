// SPDX-License-Identifier: Apache-2.0
// What a model file holds, counted: bytes by tensor type, and the geometry of its experts. The base of `outrider
// inspect`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "outrider/format/gguf.h"

namespace outrider::format {

// One stacked tensor of a layer's experts, blk.N.ffn_{gate,up,down,gate_up}_exps.weight.
struct ExpertTensor {
  std::string_view part;  // "gate", "up", "down" or "gate_up"
  TensorType type = TensorType::kF32;
  uint64_t slab_bytes = 0;  // of one expert
};

struct ExpertLayer {
  uint32_t layer = 0;
  uint64_t n_experts = 0;
  uint64_t slab_bytes = 0;            // of one expert, all parts
  bool is_nextn = false;              // a drafting layer: the file has blk.N.nextn.* tensors
  std::vector<ExpertTensor> tensors;  // in the order gate, up, gate_up, down
};

struct TypeTotal {
  TensorType type = TensorType::kF32;
  uint64_t n_tensors = 0;
  uint64_t n_elems = 0;
  uint64_t dense_bytes = 0;
  uint64_t expert_bytes = 0;
};

struct ModelSummary {
  std::vector<ExpertLayer> expert_layers;  // by rising layer
  std::vector<TypeTotal> types;            // those that occur, by falling bytes
  uint64_t dense_bytes = 0;
  uint64_t expert_bytes = 0;
};

// Throws Error(kBadFile) when the stacked tensors of a layer disagree on the number of experts.
ModelSummary summarize(const ModelFile& model);

}  // namespace outrider::format

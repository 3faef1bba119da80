// SPDX-License-Identifier: Apache-2.0
#include "convert/tensor_rules.h"

namespace outrider::apps {

using format::TensorType;

bool stays_f32(std::string_view name, uint32_t n_dims) noexcept {
  if (n_dims <= 1 || !name.ends_with(".weight") || name.ends_with("_norm.weight")) return true;
  return name.find("ffn_gate_inp") != std::string_view::npos;
}

bool is_routed_expert(std::string_view name) noexcept { return name.find("_exps.") != std::string_view::npos; }

TensorType fitting_type(TensorType type, uint64_t row_elems) noexcept {
  if (row_elems % format::type_info(type).block_elems == 0) return type;
  if (row_elems % 32 != 0) return TensorType::kF16;
  switch (type) {
    case TensorType::kQ4_K:
      return TensorType::kQ5_0;
    case TensorType::kQ5_K:
      return TensorType::kQ5_1;
    case TensorType::kQ6_K:
      return TensorType::kQ8_0;
    case TensorType::kIQ1_S:
    case TensorType::kIQ1_M:
    case TensorType::kIQ2_XXS:
    case TensorType::kIQ2_XS:
    case TensorType::kIQ2_S:
    case TensorType::kIQ3_XXS:
    case TensorType::kIQ3_S:
    case TensorType::kIQ4_XS:
      return TensorType::kIQ4_NL;
    case TensorType::kNVFP4:
      return TensorType::kMXFP4;
    default:
      return TensorType::kQ4_0;  // Q2_K, Q3_K, TQ1_0, TQ2_0, Q1_0, Q2_0
  }
}

uint32_t file_type_of(TensorType type) noexcept {
  switch (type) {
    case TensorType::kF32:
      return 0;
    case TensorType::kF16:
      return 1;
    case TensorType::kQ4_0:
      return 2;
    case TensorType::kQ4_1:
      return 3;
    case TensorType::kQ8_0:
      return 7;
    case TensorType::kQ5_0:
      return 8;
    case TensorType::kQ5_1:
      return 9;
    case TensorType::kQ2_K:
      return 21;  // the S variants: no tensor is given a larger type than asked for
    case TensorType::kQ3_K:
      return 11;
    case TensorType::kQ4_K:
      return 14;
    case TensorType::kQ5_K:
      return 16;
    case TensorType::kQ6_K:
      return 18;
    case TensorType::kIQ2_XXS:
      return 19;
    case TensorType::kIQ2_XS:
      return 20;
    case TensorType::kIQ3_XXS:
      return 23;
    case TensorType::kIQ1_S:
      return 24;
    case TensorType::kIQ4_NL:
      return 25;
    case TensorType::kIQ3_S:
      return 26;
    case TensorType::kIQ2_S:
      return 28;
    case TensorType::kIQ4_XS:
      return 30;
    case TensorType::kIQ1_M:
      return 31;
    case TensorType::kBF16:
      return 32;
    case TensorType::kTQ1_0:
      return 36;
    case TensorType::kTQ2_0:
      return 37;
    case TensorType::kMXFP4:
      return 38;
    case TensorType::kNVFP4:
      return 39;
    case TensorType::kQ1_0:
      return 40;
    default:
      return 1024;  // "guessed", value 0: Q2_0 and types that only carry data have no number of their own
  }
}

std::string type_names(bool (*wanted)(TensorType) noexcept) {
  std::string names;
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (!wanted(info.type)) continue;
    if (!names.empty()) names += ", ";
    names += info.name;
  }
  return names;
}

}  // namespace outrider::apps

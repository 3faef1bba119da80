// SPDX-License-Identifier: Apache-2.0
// Which type a tensor is stored in: the rules that `quantize` and `synth` share
// (../shared/spec/architectures-core.md sections 1.3 and trap T20).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "outrider/format/tensor_type.h"

namespace outrider::apps {

// What the user asked for.
struct TypeChoice {
  format::TensorType dense = format::TensorType::kQ8_0;
  format::TensorType experts = format::TensorType::kQ8_0;  // routed experts: names with "_exps."
  format::TensorType output =
      format::TensorType::kQ8_0;  // output.weight, and token_embd.weight when it is the head too
};

// True for tensors that are always F32: 1-D, norms, routers, and all whose name does not end in ".weight".
bool stays_f32(std::string_view name, uint32_t n_dims) noexcept;

bool is_routed_expert(std::string_view name) noexcept;

// `type`, or the type that takes its place when rows of `row_elems` are not whole blocks of it: a 32-block type of
// about the same size, and F16 for rows that are not a multiple of 32 either.
format::TensorType fitting_type(format::TensorType type, uint64_t row_elems) noexcept;

// The value of general.file_type for a file whose dominant type is `type`.
uint32_t file_type_of(format::TensorType type) noexcept;

// Names of the types for which `wanted` holds, in table order, comma-separated: for error texts and help.
std::string type_names(bool (*wanted)(format::TensorType) noexcept);

}  // namespace outrider::apps

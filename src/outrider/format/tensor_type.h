// SPDX-License-Identifier: Apache-2.0
// The one table of GGUF tensor types: id, name, elements and bytes of a block. Everything that loops over types loops
// over this table. Source: ggml.h ids and ggml-common.h block sizes (../shared/spec/gguf-and-quants.md section 4).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outrider::format {

// Values are the ids stored in files.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  // as printed and as given on the command line (any case)
  uint32_t block_elems;   // elements a block holds; rows are whole blocks
  uint32_t block_bytes;
  bool is_weight;  // can be multiplied with (false: integer and f64 types, which only carry data)
};

inline constexpr std::array<TypeInfo, 33> kTensorTypes = {{
    {TensorType::kF32, "f32", 1, 4, true},
    {TensorType::kF16, "f16", 1, 2, true},
    {TensorType::kQ4_0, "q4_0", 32, 18, true},
    {TensorType::kQ4_1, "q4_1", 32, 20, true},
    {TensorType::kQ5_0, "q5_0", 32, 22, true},
    {TensorType::kQ5_1, "q5_1", 32, 24, true},
    {TensorType::kQ8_0, "q8_0", 32, 34, true},
    {TensorType::kQ2_K, "q2_k", 256, 84, true},
    {TensorType::kQ3_K, "q3_k", 256, 110, true},
    {TensorType::kQ4_K, "q4_k", 256, 144, true},
    {TensorType::kQ5_K, "q5_k", 256, 176, true},
    {TensorType::kQ6_K, "q6_k", 256, 210, true},
    {TensorType::kIQ2_XXS, "iq2_xxs", 256, 66, true},
    {TensorType::kIQ2_XS, "iq2_xs", 256, 74, true},
    {TensorType::kIQ3_XXS, "iq3_xxs", 256, 98, true},
    {TensorType::kIQ1_S, "iq1_s", 256, 50, true},
    {TensorType::kIQ4_NL, "iq4_nl", 32, 18, true},
    {TensorType::kIQ3_S, "iq3_s", 256, 110, true},
    {TensorType::kIQ2_S, "iq2_s", 256, 82, true},
    {TensorType::kIQ4_XS, "iq4_xs", 256, 136, true},
    {TensorType::kI8, "i8", 1, 1, false},
    {TensorType::kI16, "i16", 1, 2, false},
    {TensorType::kI32, "i32", 1, 4, false},
    {TensorType::kI64, "i64", 1, 8, false},
    {TensorType::kF64, "f64", 1, 8, false},
    {TensorType::kIQ1_M, "iq1_m", 256, 56, true},
    {TensorType::kBF16, "bf16", 1, 2, true},
    {TensorType::kTQ1_0, "tq1_0", 256, 54, true},
    {TensorType::kTQ2_0, "tq2_0", 256, 66, true},
    {TensorType::kMXFP4, "mxfp4", 32, 17, true},
    {TensorType::kNVFP4, "nvfp4", 64, 36, true},
    {TensorType::kQ1_0, "q1_0", 128, 18, true},
    {TensorType::kQ2_0, "q2_0", 64, 18, true},
}};

// nullptr when the id is unknown, removed or internal to ggml (9, 15).
constexpr const TypeInfo* find_type(uint32_t id) noexcept {
  for (const TypeInfo& info : kTensorTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

constexpr const TypeInfo& type_info(TensorType type) noexcept { return *find_type(static_cast<uint32_t>(type)); }

// By name, any case; nullopt when unknown.
std::optional<TensorType> parse_tensor_type(std::string_view name) noexcept;

// Bytes of one row of `n_elems` elements. n_elems is a multiple of block_elems (checked by the reader).
constexpr uint64_t row_bytes(TensorType type, uint64_t n_elems) noexcept {
  const TypeInfo& info = type_info(type);
  return n_elems / info.block_elems * info.block_bytes;
}

}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
// One function per weight type, grouped by family into dequant_*.cc; dequant.cc has the table. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>

#include "outrider/numerics/dequant.h"

namespace outrider::numerics::internal {

void dequantize_f32(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_f16(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_bf16(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

void dequantize_q4_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q4_1(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q5_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q5_1(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q8_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

void dequantize_iq4_nl(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq4_xs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_mxfp4(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_nvfp4(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

void dequantize_q2_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q3_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q4_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q5_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q6_k(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

void dequantize_iq1_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq1_m(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq2_xxs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq2_xs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq2_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq3_xxs(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_iq3_s(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

void dequantize_tq1_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_tq2_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q1_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;
void dequantize_q2_0(const std::byte* blocks, float* out, uint64_t n_elems) noexcept;

// Calls body(block, out of the block) for each block of format B.
template <typename B, typename Body>
inline void for_each_block(const std::byte* blocks, float* out, uint64_t n_elems, Body body) noexcept {
  for (uint64_t i = 0; i < n_elems; i += B::kElems, blocks += B::kBytes, out += B::kElems) body(blocks, out);
}

}  // namespace outrider::numerics::internal

// SPDX-License-Identifier: Apache-2.0
// The packed layout of weights: the bytes of a file in the order in which the lanes of the law read them
// (docs/cuda.md). Four rows ("a quad") lie together. Of each eight blocks of 32 elements there comes 16 bytes a block
// (32 for Q8_0), then, for the whole quad, what is above four bits (Q5_K 4 bytes, Q6_K 8), then the scale of each block
// (2 bytes, or 1), then the scales of each 256 elements. Within eight blocks the order is row, block: thread 8 * row +
// block of a warp reads consecutive bytes. Rows beyond the last of a quad are zeros.
#pragma once

#include <cstdint>

#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {

// How a type is packed: bytes of a block of 32 in each plane, and of 256 elements in the last.
struct PackedShape {
  uint32_t codes = 0, above = 0, scale = 0, super = 0;
  bool is_signed = false;  // scales of one byte are int8
};
constexpr PackedShape packed_shape(format::TensorType type) noexcept {
  switch (type) {
    case format::TensorType::kQ4_0:
    case format::TensorType::kIQ4_NL:
      return {16, 0, 2, 0};
    case format::TensorType::kMXFP4:
      return {16, 0, 1, 0};
    case format::TensorType::kQ8_0:
      return {32, 0, 2, 0};
    case format::TensorType::kQ4_K:
      return {16, 0, 2, 4};
    case format::TensorType::kQ5_K:
      return {16, 4, 2, 4};
    case format::TensorType::kQ6_K:
      return {16, 8, 2, 2};
    case format::TensorType::kIQ4_XS:
      return {16, 0, 1, 2, true};
    default:
      return {};
  }
}
inline constexpr uint32_t kQuad = 4;  // rows that lie together

// Where the planes of a quad begin, and its size.
struct PackedPlaces {
  uint32_t above, scale, super, n_bytes;
};
constexpr PackedPlaces packed_places(PackedShape s, uint32_t n_blocks) noexcept {
  PackedPlaces at{};
  at.above = kQuad * n_blocks * s.codes;
  at.scale = at.above + kQuad * n_blocks * s.above;
  at.super = at.scale + kQuad * n_blocks * s.scale;
  at.n_bytes = (at.super + kQuad * (n_blocks / 8) * s.super + 15) / 16 * 16;
  return at;
}

void pack_matrices(const PackArgs& args, cudaStream_t stream);

// X(unit, name, tensor type)
#define OUTRIDER_CUDA_PACKED(X) \
  X(Q4_0, q4_0, kQ4_0)          \
  X(Q8_0, q8_0, kQ8_0)          \
  X(Q4K, q4_k, kQ4_K)           \
  X(Q5K, q5_k, kQ5_K)           \
  X(Q6K, q6_k, kQ6_K) X(Mxfp4, mxfp4, kMXFP4) X(Iq4Nl, iq4_nl, kIQ4_NL) X(Iq4Xs, iq4_xs, kIQ4_XS)

#define OUTRIDER_DECLARE(unit, name, type)                                                               \
  void packed_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream); \
  void packed_gated_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream);
OUTRIDER_CUDA_PACKED(OUTRIDER_DECLARE)
#undef OUTRIDER_DECLARE

}  // namespace outrider::cuda

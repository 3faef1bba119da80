// SPDX-License-Identifier: Apache-2.0
// The one table of integer product kernels on the device: type, row kernels, tiles. Dispatch, test and bench loop over
// it.
#pragma once

#include <cstdint>
#include <span>

#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {

// What a kernel gets, by value.
struct ProductParams {
  ProductJob job;
  const ProductJob* jobs;
  const int8_t* q;
  const float* d;
  const int32_t* sum32;
  const int16_t* sum16;
  const float* f32;
  uint64_t f32_stride;
  const uint32_t* token_rows;
  float* out;
  uint64_t out_stride;
  QuantizedRows hidden;
  float* handed;  // hidden values on their way from gate and up to down
  void* image;    // of ImagePiece, or nullptr: no wide tiles
  float alpha, limit;
  uint32_t n_rows, k, n_blocks, row_bytes;  // of packed weights, bytes of four rows
  bool ahead;
  bool beside;
  bool is_image_made;  // else it is to be filled
};

using ExpertKernel = void (*)(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream);
using ProductKernel = void (*)(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream);

struct ProductVariant {
  format::TensorType type;
  ProductKernel rows;   // any number of tokens, best up to kMostRowTokens
  ProductKernel gated;  // the same with gate, up and SwiGLU
  ProductKernel tiles;  // many tokens
  ExpertKernel give;    // an expert layer of few tokens: gate, up and SwiGLU
  ExpertKernel take;    // and down, which runs beside it
};
// Every type with an integer unit once; all exact.
std::span<const ProductVariant> product_variants() noexcept;

// X(tensor type, file): one file a type for products, one a family for expert layers.
// clang-format off
#define OUTRIDER_CUDA_UNITS(X)                                                                                 \
  X(kQ4_0, q4_0)                                                                                               \
  X(kQ4_1, q4_1)                                                                                               \
  X(kQ5_0, q5_0)                                                                                               \
  X(kQ5_1, q5_1)                                                                                               \
  X(kQ8_0, q8_0) X(kQ2_K, q2_k) X(kQ3_K, q3_k) X(kQ4_K, q4_k) X(kQ5_K, q5_k) X(kQ6_K, q6_k) X(kIQ4_NL, iq4_nl) \
      X(kIQ4_XS, iq4_xs) X(kMXFP4, mxfp4)
// clang-format on

#define OUTRIDER_DECLARE(type, name)                                                                    \
  void rows_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream);  \
  void gated_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream); \
  void tiles_##name(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream); \
  void give_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream);                       \
  void take_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream);
OUTRIDER_CUDA_UNITS(OUTRIDER_DECLARE)
#undef OUTRIDER_DECLARE

// Whether the table has a row for `type`.
constexpr bool is_integer_type(format::TensorType type) noexcept {
  switch (type) {
#define OUTRIDER_CASE(type, name) case format::TensorType::type:
    OUTRIDER_CUDA_UNITS(OUTRIDER_CASE)
#undef OUTRIDER_CASE
    return true;
    default:
      return false;
  }
}

// Fills p.image from the activations of all jobs (token_image.cuh).
void make_token_image(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream);

// Float products, any weight type.
void float_product(const ProductArgs& args, const ProductParams& p, cudaStream_t stream);

}  // namespace outrider::cuda

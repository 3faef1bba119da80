// SPDX-License-Identifier: Apache-2.0
// Products by the float law for the types without an integer unit, and embedding rows of every type. A warp is the 32
// lanes of the law: thread l takes elements l, l + 32, ... of a row in rising order.
#include "outrider/cuda/device/elements.cuh"
#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kTokensAtOnce = 4;  // each element is widened once for this many

template <TensorType kType>
__global__ void __launch_bounds__(kWarps* kWarp)
    float_rows_kernel(const __grid_constant__ ProductParams p, const __grid_constant__ Codebooks books) {
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (row >= p.n_rows) return;
  const uint8_t* weights = reinterpret_cast<const uint8_t*>(job.weights) + static_cast<uint64_t>(row) * p.row_bytes;
  for (uint32_t begin = 0; begin < job.n_pairs; begin += kTokensAtOnce) {
    const float* x[kTokensAtOnce];
    float sums[kTokensAtOnce] = {};
#pragma unroll
    for (uint32_t t = 0; t < kTokensAtOnce; ++t) {
      const uint32_t pair = job.pair_begin + (begin + t < job.n_pairs ? begin + t : begin);
      x[t] = p.f32 + (p.token_rows != nullptr ? p.token_rows[pair] : pair) * p.f32_stride;
    }
    for (uint32_t i = lane; i < p.k; i += kWarp) {
      const float w = row_element<kType>(weights, i, books);
#pragma unroll
      for (uint32_t t = 0; t < kTokensAtOnce; ++t) sums[t] = __fmaf_rn(w, x[t][i], sums[t]);
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokensAtOnce; ++t) {
      const float sum = fold32(sums[t]);
      if (lane == 0 && begin + t < job.n_pairs) p.out[(job.pair_begin + begin + t) * p.out_stride + row] = sum;
    }
  }
}

template <TensorType kType>
void launch_float_rows(const ProductArgs& args, const ProductParams& p, cudaStream_t stream) {
  if constexpr (!is_integer_type(kType)) {
    const dim3 grid((p.n_rows + kWarps - 1) / kWarps, args.n_jobs);
    float_rows_kernel<kType><<<grid, kWarps * kWarp, 0, stream>>>(p, args.codebooks);
  }
}

template <TensorType kType>
__global__ void embed_kernel(const uint8_t* weights, uint64_t row_bytes, uint32_t k, const int32_t* tokens,
                             const __grid_constant__ Codebooks books, float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= k) return;
  const uint8_t* row = weights + static_cast<uint64_t>(tokens[blockIdx.y]) * row_bytes;
  out[static_cast<uint64_t>(blockIdx.y) * k + i] = row_element<kType>(row, i, books);
}

}  // namespace

void float_product(const ProductArgs& args, const ProductParams& p, cudaStream_t stream) {
  switch (args.type) {
#define OUTRIDER_CASE(type)                               \
  case TensorType::type:                                  \
    launch_float_rows<TensorType::type>(args, p, stream); \
    break;
    OUTRIDER_CUDA_TYPES(OUTRIDER_CASE)
#undef OUTRIDER_CASE
    default:
      break;
  }
  check_launch("float_rows_kernel");
}

void embed(format::TensorType type, const std::byte* weights, uint32_t k, const int32_t* tokens, uint32_t n_tokens,
           const Codebooks& codebooks, float* out, cudaStream_t stream) {
  if (n_tokens == 0 || k == 0) return;
  const uint64_t row_bytes = format::row_bytes(type, k);
  const dim3 grid((k + 255) / 256, n_tokens);
  const auto* bytes = reinterpret_cast<const uint8_t*>(weights);
  switch (type) {
#define OUTRIDER_CASE(type)                                                                                \
  case TensorType::type:                                                                                   \
    embed_kernel<TensorType::type><<<grid, 256, 0, stream>>>(bytes, row_bytes, k, tokens, codebooks, out); \
    break;
    OUTRIDER_CUDA_TYPES(OUTRIDER_CASE)
#undef OUTRIDER_CASE
    default:
      break;
  }
  check_launch("embed_kernel");
}

}  // namespace outrider::cuda

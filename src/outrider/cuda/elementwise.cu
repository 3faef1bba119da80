// SPDX-License-Identifier: Apache-2.0
// Residual adds, the combine of experts in rank order, greedy argmax.
#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void add_kernel(float* y, const float* x, uint64_t n) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = __fadd_rn(y[i], x[i]);
}

__global__ void combine_kernel(const __grid_constant__ CombineArgs args) {
  const uint32_t j = blockIdx.x * kThreads + threadIdx.x;
  if (j >= args.d_model) return;
  const uint64_t row = blockIdx.y;
  const uint64_t d = args.d_model;
  float sum = 0;
#pragma unroll 4
  for (uint32_t rank = 0; rank < args.n_used; ++rank) {
    const uint64_t at = row * args.n_used + rank;
    sum = __fmaf_rn(args.weights[at], args.expert_out[args.pair_of[at] * d + j], sum);
  }
  if (args.shared != nullptr) {
    const float shared = args.shared[row * d + j];
    sum = args.shared_gate != nullptr ? __fmaf_rn(sigmoid_f32(args.shared_gate[row]), shared, sum)
                                      : __fadd_rn(sum, shared);
  }
  args.x[row * d + j] = __fadd_rn(args.x[row * d + j], sum);
}

constexpr uint32_t kArgmaxThreads = 1024;
constexpr uint32_t kArgmaxAtOnce = 16;

// Whether candidate (a, i) beats (b, j); an index of n is no candidate.
__device__ __forceinline__ bool beats(float a, uint32_t i, float b, uint32_t j, uint32_t n) {
  if (i == n) return false;
  return j == n || a > b || (a == b && i < j);
}

__global__ void __launch_bounds__(kArgmaxThreads)
    argmax_kernel(const float* x, uint64_t row_stride, uint32_t n, uint32_t* index) {
  __shared__ float values[kArgmaxThreads / kWarp];
  __shared__ uint32_t indices[kArgmaxThreads / kWarp];
  x += blockIdx.x * row_stride;
  float value = 0;
  uint32_t best = n;
  for (uint32_t begin = threadIdx.x; begin < n; begin += kArgmaxAtOnce * kArgmaxThreads) {
    float candidates[kArgmaxAtOnce];  // all read before the first is compared; NaN never wins
#pragma unroll
    for (uint32_t u = 0; u < kArgmaxAtOnce; ++u) {
      const uint32_t i = begin + u * kArgmaxThreads;
      candidates[u] = i < n ? x[i] : __uint_as_float(0x7FC00000U);
    }
#pragma unroll
    for (uint32_t u = 0; u < kArgmaxAtOnce; ++u) {
      if (best == n ? candidates[u] == candidates[u] : candidates[u] > value) {
        value = candidates[u];
        best = begin + u * kArgmaxThreads;
      }
    }
  }
  const auto reduce = [&]() {
    for (uint32_t step = 16; step >= 1; step /= 2) {
      const float other_value = __shfl_xor_sync(kAllLanes, value, step);
      const uint32_t other = __shfl_xor_sync(kAllLanes, best, step);
      if (beats(other_value, other, value, best, n)) value = other_value, best = other;
    }
  };
  reduce();
  if (threadIdx.x % kWarp == 0) values[threadIdx.x / kWarp] = value, indices[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  value = values[threadIdx.x];
  best = indices[threadIdx.x];
  reduce();
  if (threadIdx.x == 0) index[blockIdx.x] = best;
}

}  // namespace

void add(float* y, const float* x, uint64_t n, cudaStream_t stream) {
  if (n == 0) return;
  add_kernel<<<static_cast<uint32_t>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(y, x, n);
  check_launch("add_kernel");
}

void combine(const CombineArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.d_model == 0) return;
  combine_kernel<<<dim3((args.d_model + kThreads - 1) / kThreads, args.n_rows), kThreads, 0, stream>>>(args);
  check_launch("combine_kernel");
}

void argmax(const float* x, uint64_t row_stride, uint32_t n, uint32_t n_rows, uint32_t* index, cudaStream_t stream) {
  if (n_rows == 0) return;
  argmax_kernel<<<n_rows, kArgmaxThreads, 0, stream>>>(x, row_stride, n, index);
  check_launch("argmax_kernel");
}

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// Everything that ends in the activation format of the products: conversion of rows, SwiGLU, RMS norm. A warp makes a
// block of 32; a block of activations never crosses warps.
#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kWarps = 8;

__global__ void quantize_act_kernel(const float* x, uint64_t x_stride, uint32_t n_blocks, QuantizedRows out) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t b = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (b >= n_blocks) return;
  const float value = x[blockIdx.y * x_stride + b * 32 + lane];
  quantize_block(value, lane, static_cast<uint64_t>(blockIdx.y) * n_blocks + b, out);
}

__global__ void activate_kernel(const __grid_constant__ ActivateArgs args) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t b = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (b >= args.n / 32) return;
  const uint64_t at = static_cast<uint64_t>(blockIdx.y) * args.n + b * 32 + lane;
  const float up = args.up[at];
  const float value = args.gate != nullptr ? swiglu_f32(args.gate[at], up, args.alpha, args.limit) : silu_f32(up);
  if (args.out != nullptr) args.out[at] = value;
  if (args.hidden.q != nullptr) {
    quantize_block(value, lane, static_cast<uint64_t>(blockIdx.y) * (args.n / 32) + b, args.hidden);
  }
}

constexpr uint32_t kNormThreads = 256;
constexpr uint32_t kNormSpan = 4096;  // elements that the summing warp finds in shared memory at once

// The sum of squares is 32 chains, one a lane of warp 0; the other warps only fetch and scale.
__global__ void __launch_bounds__(kNormThreads) rms_norm_kernel(const __grid_constant__ RmsNormArgs args) {
  __shared__ float span[kNormSpan];
  __shared__ float factor;
  const float* x = args.x + blockIdx.x * args.x_stride;
  float* y = args.y + blockIdx.x * args.y_stride;
  float sum = 0;
  for (uint32_t begin = 0; begin < args.n; begin += kNormSpan) {
    const uint32_t n = args.n - begin < kNormSpan ? args.n - begin : kNormSpan;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += kNormThreads) span[i] = x[begin + i];
    __syncthreads();
    if (threadIdx.x < kWarp) {
#pragma unroll 8
      for (uint32_t i = threadIdx.x; i < n; i += kWarp) sum = __fmaf_rn(span[i], span[i], sum);
    }
  }
  if (threadIdx.x < kWarp) {
    const float mean = __fdiv_rn(fold32(sum), static_cast<float>(args.n));
    if (threadIdx.x == 0) factor = __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(mean, args.eps)));
  }
  __syncthreads();
  const float r = factor;
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t i = threadIdx.x; i < args.n; i += kNormThreads) {
    float value = __fmul_rn(args.n <= kNormSpan ? span[i] : x[i], r);
    if (args.weight != nullptr) value = __fmul_rn(args.weight[i], value);
    y[i] = value;
    if (args.quantized.q != nullptr) {  // n is a multiple of 32, so the warp is whole
      quantize_block(value, lane, static_cast<uint64_t>(blockIdx.x) * (args.n / 32) + i / 32, args.quantized);
    }
  }
}

}  // namespace

void quantize_act(const float* x, uint64_t x_stride, uint32_t n_rows, uint32_t k, const QuantizedRows& out,
                  cudaStream_t stream) {
  if (n_rows == 0 || k < 32) return;
  const dim3 grid((k / 32 + kWarps - 1) / kWarps, n_rows);
  quantize_act_kernel<<<grid, kWarps * kWarp, 0, stream>>>(x, x_stride, k / 32, out);
  check_launch("quantize_act_kernel");
}

void activate(const ActivateArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n == 0) return;
  const dim3 grid((args.n / 32 + kWarps - 1) / kWarps, args.n_rows);
  activate_kernel<<<grid, kWarps * kWarp, 0, stream>>>(args);
  check_launch("activate_kernel");
}

void rms_norm(const RmsNormArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n == 0) return;
  rms_norm_kernel<<<args.n_rows, kNormThreads, 0, stream>>>(args);
  check_launch("rms_norm_kernel");
}

}  // namespace outrider::cuda

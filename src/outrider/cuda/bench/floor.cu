// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/bench/floor.h"

#include "outrider/cuda/device/overlap.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kThreads = 64;

__global__ void __launch_bounds__(kThreads) floor_kernel(const __grid_constant__ FloorArgs args) {
  extern __shared__ __align__(16) uint8_t shared[];
  let_next_launch_start();
  if (args.way != FloorWay::kAhead) wait_for_launch_before();
  const auto* from = reinterpret_cast<const uint8_t*>(args.from) + static_cast<uint64_t>(blockIdx.x) * args.block_bytes;
#pragma unroll 8
  for (uint32_t at = threadIdx.x * 16; at < args.block_bytes; at += kThreads * 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared + at))),
        "l"(from + at)
        : "memory");
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  if (args.way == FloorWay::kAhead) wait_for_launch_before();
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  args.out[blockIdx.x * kThreads + threadIdx.x] = reinterpret_cast<const uint32_t*>(shared)[threadIdx.x];
}

}  // namespace

void read_floor(const FloorArgs& args, uint32_t n_blocks, cudaStream_t stream) {
  cuda_check(cudaFuncSetAttribute(floor_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(args.block_bytes)),
             "cudaFuncSetAttribute(floor_kernel)", args.block_bytes);
  if (args.way == FloorWay::kAfter) {
    floor_kernel<<<n_blocks, kThreads, args.block_bytes, stream>>>(args);
    return check_launch("floor_kernel");
  }
  launch_behind(floor_kernel, {dim3(n_blocks), kThreads, args.block_bytes, 1, true}, args, stream,
                "cudaLaunchKernelEx(floor_kernel)");
}

}  // namespace outrider::cuda

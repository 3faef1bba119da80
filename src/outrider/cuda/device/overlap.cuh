// SPDX-License-Identifier: Apache-2.0
// Launches that may start while the one before them on the stream runs (programmatic dependent launch, compute
// capability 9.0 and up; elsewhere they start when it is done).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

// The launch after this one may start, up to its own wait_for_launch_before().
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until here nothing may be read that a launch before this one wrote, and nothing written.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether the current device overlaps launches and has clusters of blocks.
inline bool has_overlap() {
  int device = 0;
  int major = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  return major >= 9;
}

inline uint32_t multiprocessors() {
  int device = 0;
  int n = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return static_cast<uint32_t>(n);
}

struct LaunchShape {
  dim3 grid;
  uint32_t n_threads, shared_bytes;
  uint32_t cluster = 1;  // blocks side by side in x; more than 1 needs has_overlap()
  // As much of the L1 as can be is shared memory. Blocks of two launches are on a multiprocessor together only where it
  // is divided alike for both; kernels that read the same bytes often want the L1 instead.
  bool wants_shared = false;
};

// The kernel must call wait_for_launch_before(). `name` is for errors.
template <typename Kernel, typename Params>
void launch_behind(Kernel kernel, const LaunchShape& shape, const Params& params, cudaStream_t stream,
                   const char* name) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid, config.blockDim = dim3(shape.n_threads), config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  if (shape.wants_shared) {
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "cudaFuncSetAttribute(carveout)");
  }
  config.attrs = attributes, config.numAttrs = !has_overlap() ? 0 : shape.cluster > 1 ? 2 : 1;
  cuda_check(cudaLaunchKernelEx(&config, kernel, params), name, shape.shared_bytes);
}

}  // namespace
}  // namespace outrider::cuda

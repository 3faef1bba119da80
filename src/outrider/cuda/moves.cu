// SPDX-License-Identifier: Apache-2.0
// Slabs of weights from host memory: batched copies, and a kernel that reads pinned memory itself. Which wins at which
// size and how they share the link: docs/cuda.md "Moves".
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kAtOnce = 4;  // 16-byte reads in flight a thread: the link's latency is over a microsecond

__global__ void __launch_bounds__(kThreads) gather_kernel(const Move* moves) {
  const Move move = moves[blockIdx.y];
  const auto* from = reinterpret_cast<const uint4*>(move.from);
  auto* to = reinterpret_cast<uint4*>(move.to);
  const uint64_t n = move.n_bytes / 16;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += kAtOnce * step) {
    uint4 pieces[kAtOnce];
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      if (i + u * step < n) pieces[u] = __ldcs(from + i + u * step);
    }
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      if (i + u * step < n) to[i + u * step] = pieces[u];
    }
  }
}

constexpr uint32_t kBatch = 256;  // copies a call

}  // namespace

void copy_batch(const Move* moves, uint32_t n, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  for (uint32_t begin = 0; begin < n; begin += kBatch) {
    void* to[kBatch];
    const void* from[kBatch];
    size_t sizes[kBatch];
    uint32_t count = 0;
    for (; count < kBatch && begin + count < n; ++count) {
      to[count] = moves[begin + count].to;
      from[count] = moves[begin + count].from;
      sizes[count] = moves[begin + count].n_bytes;
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
    cuda_check(cudaMemcpyBatchAsync(to, from, sizes, count, &attributes, &first, 1, stream), "cudaMemcpyBatchAsync",
               count);
  }
#else
  for (uint32_t i = 0; i < n; ++i) copy_to_device(moves[i].to, moves[i].from, moves[i].n_bytes, stream);
#endif
}

void gather(const Move* moves, uint32_t n, uint32_t n_blocks, cudaStream_t stream) {
  if (n == 0) return;
  gather_kernel<<<dim3(n_blocks, n), kThreads, 0, stream>>>(moves);
  check_launch("gather_kernel");
}

}  // namespace outrider::cuda

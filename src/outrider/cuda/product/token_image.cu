// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/product/token_image.cuh"
#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {
namespace {

// A block of threads makes one place of a piece, a thread a token of it.
__global__ void __launch_bounds__(kImageTokens) token_image_kernel(const __grid_constant__ ProductParams p) {
  let_next_launch_start();
  wait_for_launch_before();
  const uint32_t n_steps = gridDim.x / (kImagePasses * kImageUsed);
  const uint32_t used = blockIdx.x % kImageUsed;
  const uint32_t pass = blockIdx.x / kImageUsed % kImagePasses;
  const uint32_t step = blockIdx.x / (kImagePasses * kImageUsed);
  const uint32_t block = image_block(step, pass, used);
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.z] : p.job;
  const uint32_t i = threadIdx.x;
  const uint32_t pair = blockIdx.y * kImageTokens + i;
  if (block >= p.n_blocks || pair >= job.n_pairs) return;
  const uint32_t row = p.token_rows != nullptr ? p.token_rows[job.pair_begin + pair] : job.pair_begin + pair;
  const uint64_t from = static_cast<uint64_t>(row) * p.n_blocks + block;
  ImagePiece& to =
      static_cast<ImagePiece*>(p.image)[image_piece(blockIdx.z, gridDim.y, blockIdx.y, n_steps, step, pass)];
  const auto* codes = reinterpret_cast<const int4*>(p.q + from * 32);
  *reinterpret_cast<int4*>(to.codes[2 * used][i]) = codes[0];
  *reinterpret_cast<int4*>(to.codes[2 * used + 1][i]) = codes[1];
  const uint32_t at = token_place(i);
  to.d[used][at] = p.d[from];
  if (p.sum32 != nullptr) to.sum32[used][at] = p.sum32[from];
  if (p.sum16 != nullptr) to.sum16[used][at] = reinterpret_cast<const int32_t*>(p.sum16)[from];
}

}  // namespace

void make_token_image(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  if (p.n_blocks == 0) return;
  const dim3 grid(image_steps(p.n_blocks) * kImagePasses * kImageUsed, image_groups(most_pairs), n_jobs);
  launch_behind(token_image_kernel, {grid, kImageTokens, 0}, p, stream, "token_image_kernel");
}

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// Head vectors between projection and attention: QK norm, rotation, the KV cache rows. A warp a head.
#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kWarps = 4;

__global__ void rope_kernel(const __grid_constant__ RopeArgs args) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (head >= args.n_heads) return;
  float* x = args.x + blockIdx.y * args.row_stride + static_cast<uint64_t>(head) * args.width;
  if (args.norm != nullptr) {
    float sum = 0;
    for (uint32_t i = lane; i < args.width; i += kWarp) sum = __fmaf_rn(x[i], x[i], sum);
    const float mean = __fdiv_rn(fold32(sum), static_cast<float>(args.width));
    const float r = __fdiv_rn(1.0F, __fsqrt_rn(__fadd_rn(mean, args.eps)));
    for (uint32_t i = lane; i < args.width; i += kWarp) x[i] = __fmul_rn(args.norm[i], __fmul_rn(x[i], r));
    __syncwarp();
  }
  const float* cos_sin = args.cos_sin + static_cast<uint64_t>(blockIdx.y) * args.n_rot;
  const bool interleaved = args.pairing == kernels::RopePairing::kInterleaved;
  for (uint32_t i = lane; i < args.n_rot / 2; i += kWarp) {
    float* first = x + (interleaved ? 2 * i : i);
    float* second = interleaved ? first + 1 : first + args.n_rot / 2;
    const float c = cos_sin[2 * i];
    const float s = cos_sin[2 * i + 1];
    const float a = *first;
    const float b = *second;
    *first = __fmaf_rn(a, c, -__fmul_rn(b, s));
    *second = __fmaf_rn(a, s, __fmul_rn(b, c));
  }
}

// One block of 32 by a warp: f16 d, then 32 int8.
__device__ void store_q8_0(float x, uint32_t lane, std::byte* block) {
  const uint32_t amax_bits = __reduce_max_sync(kAllLanes, __float_as_uint(x) & 0x7FFFFFFFU);
  const bool is_finite = amax_bits < 0x7F800000U;
  const float amax = __uint_as_float(amax_bits);
  const uint16_t d = is_finite ? f32_to_f16(__fdiv_rn(amax, 127.0F)) : uint16_t{0x7E00};
  int32_t q = 0;
  if (is_finite && d != 0) q = __float2int_rn(__fmul_rn(x, __fdiv_rn(127.0F, amax)));
  reinterpret_cast<int8_t*>(block)[2 + lane] = static_cast<int8_t>(q);
  if (lane == 0) *reinterpret_cast<uint16_t*>(block) = d;
}

__global__ void store_kv_kernel(const __grid_constant__ StoreKvArgs args, uint64_t row_bytes) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t head = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (head >= args.n_heads) return;
  const float* x = args.x + blockIdx.y * args.row_stride + static_cast<uint64_t>(head) * args.width;
  std::byte* row = args.cache + (args.position + static_cast<uint64_t>(blockIdx.y)) * args.stride + head * row_bytes;
  for (uint32_t i = lane; i < args.width; i += kWarp) {
    switch (args.type) {
      case kernels::KvType::kF16:
        reinterpret_cast<uint16_t*>(row)[i] = f32_to_f16(x[i]);
        break;
      case kernels::KvType::kF32:
        reinterpret_cast<float*>(row)[i] = x[i];
        break;
      case kernels::KvType::kQ8_0:
        store_q8_0(x[i], lane, row + i / 32 * 34);
        break;  // width is a multiple of 32
    }
  }
}

}  // namespace

void rope(const RopeArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_heads == 0) return;
  rope_kernel<<<dim3((args.n_heads + kWarps - 1) / kWarps, args.n_rows), kWarps * kWarp, 0, stream>>>(args);
  check_launch("rope_kernel");
}

void store_kv(const StoreKvArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_heads == 0) return;
  store_kv_kernel<<<dim3((args.n_heads + kWarps - 1) / kWarps, args.n_rows), kWarps * kWarp, 0, stream>>>(
      args, kernels::kv_row_bytes(args.type, args.width));
  check_launch("store_kv_kernel");
}

}  // namespace outrider::cuda

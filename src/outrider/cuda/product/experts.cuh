// SPDX-License-Identifier: Apache-2.0
// An expert layer of few tokens, which is all latency, as two launches of which the second does not wait for the first
// to end. The first makes gate, up and SwiGLU; the second asks for the weights of down at once and takes the hidden
// values as they are stored: the memory they come in is filled with a pattern that no value has, so a value is its own
// signal and costs one trip to the L2 after the store. Each block of the second makes the activation codes of its
// expert's hidden values itself, so that nothing else has to be brought together.
// No block waits for one that may not have started: the second launch begins when all blocks of the first have
// (programmatic dependent launch), or when the first is done.
#pragma once

#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/product/warp_rows.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kNotYet = 0xFFFFFFFFU;  // what no hidden value is: a NaN goes as another NaN
// Warps of a block, of which the launch chooses the number. With 72 registers a multiprocessor holds the largest block
// of both launches, but not two of the second: blocks go wherever there is room, and it would be the last to end.
constexpr uint32_t kMostGiveWarps = 13;
constexpr uint32_t kMostTakeWarps = 16;
constexpr uint32_t kTakeRegisters = 72;

// The rows of both launches, see RowShape; the warps are the launch's. Gate and up: rows of at most kWholeRow blocks
// come in one piece, others by a ring.
constexpr uint32_t kWholeRow = 64;
using TakeShape = RowShape<2, 0, 24, 2>;
using WholeShape = RowShape<2, 0, kWholeRow, 1>;
template <typename Unit>
using RingShape = RowShape<2, 0, Unit::kBytes == 34 || Unit::kBytes == 210 ? 16 : 32, Unit::kBytes == 34 ? 2 : 3>;

// The job, past the L1: the launch before may have written it while this block was being started.
__device__ __forceinline__ ProductJob read_job(const ProductJob* job) {
  ProductJob read;
  const auto* words = reinterpret_cast<const uint64_t*>(job);
  read.weights = reinterpret_cast<const std::byte*>(__ldcg(reinterpret_cast<const unsigned long long*>(words)));
  read.gate = reinterpret_cast<const std::byte*>(__ldcg(reinterpret_cast<const unsigned long long*>(words + 1)));
  const uint2 pairs = __ldcg(reinterpret_cast<const uint2*>(words + 2));
  read.pair_begin = pairs.x, read.n_pairs = pairs.y;
  return read;
}

template <typename Unit, typename Shape>
__global__ void __launch_bounds__(kMostGiveWarps* kWarp, 2)
    give_hidden_kernel(const __grid_constant__ ProductParams p) {
  extern __shared__ __align__(16) uint8_t shared[];
  if (!p.ahead) wait_for_launch_before();
  let_next_launch_start();
  const ProductJob job = read_job(p.jobs + blockIdx.y);
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row = (blockIdx.x * (blockDim.x / kWarp) + warp) * kRowsAtOnce + group;
  using Work = WarpRows<Unit, 1, Shape>;
  Work work{p, {}, nullptr, j, {}};
  work.ring = shared + warp * ring_bytes<Unit, Shape>(p.n_blocks) + group % 2 * Work::kPlaces.odd +
              group / 2 * Work::kPlaces.pair;
  work.state = Work::One::make_state(j, hidden_zero(work.ring));
  set_rows<Work, true>(work, p, job, row);
  if (job.n_pairs != 0) work.start();
  const auto row_of_x = [&](uint32_t i) {
    const uint32_t pair = job.pair_begin + i;
    return p.token_rows != nullptr && i < job.n_pairs ? p.token_rows[pair] : pair;
  };
  uint32_t x_row = row_of_x(0);
  if (p.ahead) wait_for_launch_before();
  for (uint32_t i = 0; i < job.n_pairs; ++i) {
    const uint32_t pair = job.pair_begin + i;
    const uint32_t tokens[1] = {x_row * p.n_blocks};
    x_row = row_of_x(i + 1);
    const Touched touched = touch_acts<Work::kForm>(p, tokens[0], lane);
    float lanes[2][1] = {};
    work.run(tokens, lanes);
    touched.keep();
    if (i + 1 < job.n_pairs && !Work::holds_rows(p.n_blocks)) work.start();
    const float up = fold8(lanes[0][0]);
    const float gate = fold8(lanes[1][0]);
    float value = swiglu_f32(gate, up, p.alpha, p.limit);
    if (__float_as_uint(value) == kNotYet) value = __uint_as_float(0x7FC00000U);
    if (j == 0 && row < p.n_rows) {
      asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p.handed + static_cast<uint64_t>(pair) * p.n_rows + row),
                   "f"(value)
                   : "memory");
    }
  }
}

__device__ __forceinline__ float look(const float* p) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(p) : "memory");
  return value;
}
// This lane's values of blocks warp, warp + n_warps, ... below n_blocks, kAtOnce of them, when all have come.
constexpr uint32_t kTakenAtOnce = 4;
__device__ __forceinline__ void take(const float* x, uint32_t first, uint32_t n_warps, uint32_t n_blocks, uint32_t lane,
                                     float (&values)[kTakenAtOnce]) {
  bool is_there = true;
  do {
    is_there = true;
#pragma unroll
    for (uint32_t i = 0; i < kTakenAtOnce; ++i) {
      const uint32_t block = first + i * n_warps;
      values[i] = block < n_blocks ? look(x + 32 * block + lane) : 0.0F;
    }
#pragma unroll
    for (uint32_t i = 0; i < kTakenAtOnce; ++i) is_there = is_there && __float_as_uint(values[i]) != kNotYet;
  } while (!__all_sync(kAllLanes, is_there));
}

__host__ __device__ constexpr uint32_t acts_bytes(uint32_t n_blocks) { return (n_blocks * (32 + 12) + 15) / 16 * 16; }

template <typename Unit, typename Shape>
__global__ void __maxnreg__(kTakeRegisters) take_hidden_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kStreams = Shape::kStreams;
  extern __shared__ __align__(16) uint8_t shared[];
  let_next_launch_start();
  const ProductJob job = read_job(p.jobs + blockIdx.y);
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t n_warps = blockDim.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row = (blockIdx.x * n_warps + warp) * kRowsAtOnce * kStreams + group;
  QuantizedRows codes;
  codes.q = reinterpret_cast<int8_t*>(shared);
  codes.d = reinterpret_cast<float*>(shared + p.n_blocks * 32);
  codes.sum32 = reinterpret_cast<int32_t*>(shared + p.n_blocks * 36);
  codes.sum16 = reinterpret_cast<int16_t*>(shared + p.n_blocks * 40);
  ProductParams own = p;
  own.q = codes.q, own.d = codes.d, own.sum32 = codes.sum32, own.sum16 = codes.sum16;
  using Work = WarpRows<Unit, 1, Shape>;
  Work work{own, {}, nullptr, j, {}};
  work.ring = shared + acts_bytes(p.n_blocks) + warp * ring_bytes<Unit, Shape>(p.n_blocks) +
              group % 2 * Work::kPlaces.odd + group / 2 * Work::kPlaces.pair;
  work.state = Work::One::make_state(j, hidden_zero(work.ring));
  set_rows<Work, false>(work, p, job, row);
  if (job.n_pairs != 0) work.start();
  const float* const handed = p.handed + static_cast<uint64_t>(job.pair_begin) * p.k;
  for (uint32_t i = 0; i < job.n_pairs; ++i) {
    const float* x = handed + static_cast<uint64_t>(i) * p.k;
    if (i != 0) __syncthreads();  // the codes of the pair before are used up
    for (uint32_t first = warp; first < p.n_blocks; first += kTakenAtOnce * n_warps) {
      float values[kTakenAtOnce];
      take(x, first, n_warps, p.n_blocks, lane, values);
#pragma unroll
      for (uint32_t u = 0; u < kTakenAtOnce; ++u) {
        if (first + u * n_warps < p.n_blocks) quantize_block(values[u], lane, first + u * n_warps, codes);
      }
    }
    __syncthreads();
    float lanes[kStreams][1] = {};
    work.run({0}, lanes);
    if (i + 1 < job.n_pairs && !Work::holds_rows(p.n_blocks)) work.start();
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      const float sum = fold8(lanes[m][0]);
      const uint32_t own_row = row + m * kRowsAtOnce;
      if (j == 0 && own_row < p.n_rows) p.out[(job.pair_begin + i) * p.out_stride + own_row] = sum;
    }
  }
  wait_for_launch_before();  // the launch after this one counts on all before
}

// Warps a block: as even over the multiprocessors as it gets, and no more than fit.
inline uint32_t expert_warps(uint32_t n_rows, uint32_t rows_a_warp, uint32_t n_jobs, uint32_t least, uint32_t most,
                             uint32_t shared_a_warp, uint32_t shared_besides) {
  int device = 0;
  int most_shared = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  const uint32_t n_sm = multiprocessors();
  uint32_t best = least;
  uint32_t best_span = ~0U;  // warps that the fullest multiprocessor gets
  for (uint32_t warps = least; warps <= most; ++warps) {
    if (warps != least && shared_besides + warps * shared_a_warp > static_cast<uint32_t>(most_shared)) break;
    const uint32_t n_blocks = (n_rows + warps * rows_a_warp - 1) / (warps * rows_a_warp) * n_jobs;
    const uint32_t span = (n_blocks + n_sm - 1) / n_sm * warps;
    if (span <= best_span) best = warps, best_span = span;
  }
  return best;
}
// Where there are more warps than a multiprocessor has at once, small blocks come out even.
inline bool is_long(uint32_t n_rows, uint32_t rows_a_warp, uint32_t n_jobs) {
  constexpr uint64_t kMostAtOnce = 32;
  return uint64_t{n_rows / rows_a_warp} * n_jobs > kMostAtOnce * multiprocessors();
}

template <typename Unit, bool kGated, typename Shape>
void hand_over(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  constexpr uint32_t kRows = kRowsAtOnce * (kGated ? 1 : Shape::kStreams);
  constexpr uint32_t kLeast = kGated ? 2 : 4;
  const uint32_t ring = ring_bytes<Unit, Shape>(p.n_blocks);
  const uint32_t besides = kGated ? 0 : acts_bytes(p.n_blocks);
  const uint32_t warps =
      is_long(p.n_rows, kRows, n_jobs)
          ? kLeast
          : expert_warps(p.n_rows, kRows, n_jobs, kLeast, kGated ? kMostGiveWarps : kMostTakeWarps, ring, besides);
  const uint32_t shared = besides + warps * ring;
  const auto kernel = [] {
    if constexpr (kGated) return give_hidden_kernel<Unit, Shape>;
    if constexpr (!kGated) return take_hidden_kernel<Unit, Shape>;
  }();
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
             "cudaFuncSetAttribute(hidden_kernel)", shared);
  const LaunchShape shape{dim3((p.n_rows + kRows * warps - 1) / (kRows * warps), n_jobs), warps * kWarp, shared, 1,
                          true};
  launch_behind(kernel, shape, p, stream, "cudaLaunchKernelEx(hidden_kernel)");
}
template <typename Unit>
void give(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  // Whole rows of Q8_0 would leave no room for the blocks of the second launch.
  const bool is_whole = p.n_blocks <= kWholeRow && (Unit::kBytes != 34 || is_long(p.n_rows, kRowsAtOnce, n_jobs));
  if (is_whole) return hand_over<Unit, true, WholeShape>(p, n_jobs, stream);
  hand_over<Unit, true, RingShape<Unit>>(p, n_jobs, stream);
}

}  // namespace
}  // namespace outrider::cuda

// The two launchers of a type: variants.h names them.
#define OUTRIDER_EXPERTS(unit, name)                                               \
  void give_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    give<Unit##unit>(p, n_jobs, stream);                                           \
  }                                                                                \
  void take_##name(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) { \
    hand_over<Unit##unit, false, TakeShape>(p, n_jobs, stream);                    \
  }

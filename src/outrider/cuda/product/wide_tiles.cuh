// SPDX-License-Identifier: Apache-2.0
// Tiles for more than 64 tokens on compute capability 9.0, with scratch memory: 64 rows by 128 tokens a block of 256
// threads, gone over twice as in tiles.cuh. Two warpgroups make the even and the odd lanes of the law, two each at
// once, so a thread keeps 128 accumulators, 64 sums on their way and what they meet, in 247 registers: more warps with
// fewer registers were slower, as f32 instructions and tensor cores exclude each other (docs/cuda.md). Both operands of
// wgmma come from shared memory. All copies are bulk copies, which cost their threads little: the activations lie in
// scratch memory as they lie here (token_image.cuh), one copy a step by one thread; a row of weights is one copy a
// step.
#pragma once

#include "outrider/cuda/device/bulk_copy.cuh"
#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/product/tile_memory.cuh"
#include "outrider/cuda/product/warpgroup.cuh"

namespace outrider::cuda {
namespace {

constexpr uint32_t kWideThreads = 256;  // two warpgroups

template <typename Unit>
struct WideMemory {
  static constexpr uint32_t kTokens = kImageTokens;
  // Codes lie in pieces of 16 a row, then by row: what wgmma takes without a swizzle.
  static constexpr uint32_t kBlockOfW = 2 * 16 * kTileRows;
  static constexpr uint32_t kBlockOfX = 2 * 16 * kTokens;
  static constexpr uint32_t kFactorRows = kTileRows;
  static constexpr uint32_t kFactorTokens = kTokens;
  static constexpr uint32_t kFactors = factors_of<Unit>();
  static constexpr uint32_t kFactorBytes = kUsed * kFactorRows * 4;  // of one kind
  static constexpr uint32_t kStepBytes = kImageStepBlocks / Unit::kSubs * Unit::kBytes;
  static constexpr uint32_t kRawStride = ((kStepBytes + 31) / 16 | 1U) * 16;
  struct Stage {
    uint8_t x[kUsed * kBlockOfX];  // this and the factors as in ImagePiece
    float x_d[kUsed][kFactorTokens];
    int32_t x_sums[Unit::kHasMin ? kUsed : 1][Unit::kHasMin ? kFactorTokens : 4];
    uint8_t w[kUsed * kBlockOfW];
    uint8_t raw[kTileRows * kRawStride];
    float factors[kFactors][kUsed][kFactorRows];  // d, scale0, scale1, d_min, min0, min1: those the type has
  };
  Stage stages[2];
  float odd[kTileRows * kTokens];                      // the sums 1 + 5 of the first pass
  uint8_t zeros[Unit::kHalves ? 16 * kTileRows : 16];  // codes of a half that takes no part
  uint64_t x_here[2], raw_here[2];                     // barriers
};

// Where the factor of a row lies: the two rows of a thread (g, g + 8) side by side.
__device__ __forceinline__ uint32_t wide_row_place(uint32_t row) { return row / 16 * 16 + row % 8 * 2 + row % 16 / 8; }

__device__ __forceinline__ float2 load_shared2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
  return v;
}

template <typename Unit>
struct WideTile {
  using Memory = WideMemory<Unit>;
  using Stage = typename Memory::Stage;
  using Kinds = FactorKinds<Unit>;
  static constexpr uint32_t kSets = Unit::kHalves ? 2 : 1;       // of sums a product
  static constexpr uint32_t kColumns = Unit::kHalves ? 32 : 64;  // of a product
  static constexpr uint32_t kGroups = kImageTokens / 8;
  using Lane = float[kGroups][4];

  const ProductParams& p;
  Memory& memory;
  uint32_t base;  // shared address of the memory
  uint32_t row_begin, n_tokens, tid;
  uint32_t odd;  // the warpgroup: 0 makes the even lanes of the law, 1 the odd ones

  // The first eight threads of a warp copy a row each: bulk copies are issued by one thread after the other, and two
  // warps would keep the others waiting with 32 each (131 us for 113, Q4_0 8192x4096, 256 tokens).
  static constexpr uint32_t kCopied = kTileRows * kWarp / kWideThreads;
  const uint8_t* copied_row;
  uint32_t decoded_low;  // address of the row tid % 64, which this thread decodes, modulo 2^32
  const ImagePiece* pieces;
  uint32_t n_steps;  // of a pass; steps are counted over both

  __device__ __forceinline__ WideTile(const ProductParams& p_in, Memory& memory_in, uint32_t base_in,
                                      uint32_t row_begin_in, uint32_t n_tokens_in, const std::byte* weights,
                                      uint32_t n_steps_in)
      : p(p_in),
        memory(memory_in),
        base(base_in),
        row_begin(row_begin_in),
        n_tokens(n_tokens_in),
        tid(threadIdx.x),
        odd(__shfl_sync(kAllLanes, threadIdx.x / 128, 0)),
        pieces(static_cast<const ImagePiece*>(p_in.image) +
               image_piece(blockIdx.z, gridDim.y, blockIdx.y, n_steps_in, 0, 0)),
        n_steps(n_steps_in) {
    const auto row_at = [&](uint32_t row) {
      const uint32_t own_row = row_begin_in + row < p.n_rows ? row_begin_in + row : p.n_rows - 1;
      return reinterpret_cast<const uint8_t*>(weights) + static_cast<uint64_t>(own_row) * p.row_bytes;
    };
    copied_row = row_at(tid / kWarp * kCopied + tid % kCopied);
    decoded_low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row_at(tid % kTileRows)));
  }
  __device__ __forceinline__ uint32_t pass_of(uint32_t n) const { return n >= n_steps ? 1 : 0; }
  __device__ __forceinline__ uint32_t step_of(uint32_t n) const { return n >= n_steps ? n - n_steps : n; }
  __device__ __forceinline__ uint32_t stage_at(uint32_t n) const {
    return base + n % 2 * static_cast<uint32_t>(sizeof(Stage));
  }
  __device__ __forceinline__ uint32_t x_here(uint32_t n) const {
    return base + static_cast<uint32_t>(offsetof(Memory, x_here)) + n % 2 * 8;
  }
  __device__ __forceinline__ uint32_t raw_here(uint32_t n) const {
    return base + static_cast<uint32_t>(offsetof(Memory, raw_here)) + n % 2 * 8;
  }

  __device__ __forceinline__ void copy_weights(uint32_t n) const {
    if (tid % kWarp >= kCopied || n >= 2 * n_steps) return;
    const uint32_t offset = step_of(n) * Memory::kStepBytes;
    const uint32_t left = p.row_bytes - offset;
    const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(copied_row) + offset) & 15U;
    const uint32_t n_bytes = (skew + (left < Memory::kStepBytes ? left : Memory::kStepBytes) + 15) & ~15U;
    arrive_expecting(raw_here(n), n_bytes);
    copy_bulk(stage_at(n) + static_cast<uint32_t>(offsetof(Stage, raw)) +
                  (tid / kWarp * kCopied + tid % kCopied) * Memory::kRawStride,
              copied_row + offset - skew, n_bytes, raw_here(n));
  }
  // By one thread.
  __device__ __forceinline__ void copy_activations(uint32_t n) const {
    if (n >= 2 * n_steps) return;
    constexpr uint32_t kCodesAndD = sizeof(ImagePiece::codes) + sizeof(ImagePiece::d);
    static_assert(offsetof(Stage, x_d) == offsetof(ImagePiece, d) && kUsed == kImageUsed);
    const ImagePiece& from = pieces[step_of(n) * kImagePasses + pass_of(n)];
    arrive_expecting(x_here(n), kCodesAndD + (Unit::kHasMin ? sizeof(Stage::x_sums) : 0));
    copy_bulk(stage_at(n), &from, kCodesAndD, x_here(n));
    if constexpr (Unit::kHasMin) {
      copy_bulk(stage_at(n) + static_cast<uint32_t>(offsetof(Stage, x_sums)), Unit::kHalves ? from.sum16 : from.sum32,
                sizeof(Stage::x_sums), x_here(n));
    }
  }
  // Makes the codes and factors of a step: two blocks a thread.
  __device__ __forceinline__ void decode(uint32_t n) const {
    if (n >= 2 * n_steps) return;
    wait_barrier(raw_here(n), n / 2 % 2);
    extern __shared__ __align__(16) uint8_t shared[];
    Stage& stage = *reinterpret_cast<Stage*>(shared + n % 2 * static_cast<uint32_t>(sizeof(Stage)));
    const uint8_t* raw =
        stage.raw + tid % kTileRows * Memory::kRawStride + ((decoded_low + step_of(n) * Memory::kStepBytes) & 15U);
#pragma unroll
    for (uint32_t used = tid / kTileRows; used < kUsed; used += kWideThreads / kTileRows) {
      const uint32_t block = image_block(step_of(n), pass_of(n), used);
      if (block < p.n_blocks) decode_block(stage, raw, used, block % kImageStepBlocks);
    }
    hand_over();
  }
  __device__ __forceinline__ void decode_block(Stage& stage, const uint8_t* raw, uint32_t used, uint32_t b) const {
    const uint32_t r = tid % kTileRows;
    BlockCodes codes;
    Unit::load(raw + b / Unit::kSubs * Unit::kBytes, b % Unit::kSubs, codes);
    uint8_t* to = stage.w + r * 16 + used * Memory::kBlockOfW;
    *reinterpret_cast<int4*>(to) = make_int4(codes.words[0], codes.words[1], codes.words[2], codes.words[3]);
    *reinterpret_cast<int4*>(to + Memory::kBlockOfW / 2) =
        make_int4(codes.words[4], codes.words[5], codes.words[6], codes.words[7]);
    const uint32_t at = wide_row_place(r);
    store_factors<Unit>(stage.factors, used, at, codes);
  }

  // The factors of a block for this thread's two rows.
  struct Factors {
    float d[2], scale0[2], scale1[2], d_min[2], min0[2], min1[2];
  };
  static __device__ __forceinline__ void load_factor(uint32_t at, uint32_t which, float (&out)[2]) {
    const float2 v = load_shared2(at + which * Memory::kFactorBytes);
    out[0] = v.x, out[1] = v.y;
  }
  __device__ __forceinline__ void load_factors(uint32_t stage, uint32_t used, Factors& out) const {
    const uint32_t at = stage + static_cast<uint32_t>(offsetof(Stage, factors)) +
                        (used * kTileRows + tid % 128 / kWarp * 16 + tid % kWarp / 4 * 2) * 4;
    load_factor(at, 0, out.d);
    if constexpr (has_scale<Unit>()) load_factor(at, Kinds::kScale0, out.scale0);
    if constexpr (Unit::kHalves) load_factor(at, Kinds::kScale1, out.scale1);
    if constexpr (Unit::kHasMin) {
      load_factor(at, Kinds::kDMin, out.d_min);
      load_factor(at, Kinds::kMin0, out.min0);
      if constexpr (Unit::kHalves) load_factor(at, Kinds::kMin1, out.min1);
    }
  }

  // isum as f32: exact, as every partial product and sum is below 2^24.
  using Sums = int32_t[kSets][kColumns / 2];
  static __device__ __forceinline__ float isum(const Sums& sums, const Factors& f, uint32_t r, uint32_t i) {
    float sum = __int2float_rn(sums[0][i]);
    if constexpr (has_scale<Unit>()) sum = __fmul_rn(f.scale0[r], sum);
    if constexpr (Unit::kHalves) sum = __fmaf_rn(f.scale1[r], __int2float_rn(sums[kSets - 1][i]), sum);
    return sum;
  }
  static __device__ __forceinline__ float msum(int32_t packed, const Factors& f, uint32_t r) {
    if constexpr (Unit::kHalves) {
      const float low = __int2float_rn(static_cast<int16_t>(packed & 0xFFFF));
      return __fmaf_rn(f.min1[r], __int2float_rn(packed >> 16), __fmul_rn(f.min0[r], low));
    }
    return __fmul_rn(f.min0[r], __int2float_rn(packed));
  }

  // Starts the sums of 64 rows by kColumns tokens. Halves of a block get sums of their own: the other half of the codes
  // is zeros then.
  __device__ __forceinline__ void start(uint32_t stage, uint32_t used, uint32_t column, Sums& sums) const {
    constexpr uint32_t kPieceX = Memory::kBlockOfX / 2;
    constexpr uint32_t kPieceW = Memory::kBlockOfW / 2;
    const uint32_t x = stage + 2 * used * kPieceX + column * 16;
    const uint32_t w = stage + static_cast<uint32_t>(offsetof(Stage, w)) + 2 * used * kPieceW;
    begin_products();
    if constexpr (Unit::kHalves) {
      const uint32_t zeros = base + static_cast<uint32_t>(offsetof(Memory, zeros));
      wide_mma(sums[0], operand(w, zeros - w), operand(x, kPieceX));
      wide_mma(sums[kSets - 1], operand(w + kPieceW, zeros - w - kPieceW), operand(x + kPieceX, kPieceX));
    } else {
      wide_mma(sums[0], operand(w, kPieceW), operand(x, kPieceX));
    }
    commit_products();
  }
  // Adds them to the lane.
  __device__ __forceinline__ void join(uint32_t stage, uint32_t used, uint32_t column, Sums& sums, const Factors& f,
                                       Lane& sum) const {
    arrived(sums[0]);
    if constexpr (Unit::kHalves) arrived(sums[kSets - 1]);
    const uint32_t at =
        stage + static_cast<uint32_t>(offsetof(Stage, x_d)) + (used * kImageTokens + column + tid % 4 * 4) * 4;
#pragma unroll
    for (uint32_t pair = 0; pair < kColumns / 16; ++pair) {
      const float4 x_d = load_shared4(at + 64 * pair);
      const float da[4] = {x_d.x, x_d.y, x_d.z, x_d.w};
      int32_t packed[4] = {};
      if constexpr (Unit::kHasMin) {
        constexpr uint32_t kAcross = offsetof(Stage, x_sums) - offsetof(Stage, x_d);
        const float4 v = load_shared4(at + kAcross + 64 * pair);
        packed[0] = __float_as_int(v.x), packed[1] = __float_as_int(v.y);
        packed[2] = __float_as_int(v.z), packed[3] = __float_as_int(v.w);
      }
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t r = e % 4 / 2;
        const uint32_t i = e / 4 * 2 + e % 2;
        float& lane = sum[column / 8 + 2 * pair + e / 4][e % 4];
        lane = __fmaf_rn(isum(sums, f, r, 8 * pair + e), __fmul_rn(f.d[r], da[i]), lane);
        if constexpr (Unit::kHasMin) lane = __fmaf_rn(msum(packed[i], f, r), __fmul_rn(f.d_min[r], da[i]), lane);
      }
    }
  }
  // The blocks of a step join the two lanes of this warpgroup. Products i and i + 1 are on their way while i is waited
  // for; all of them end before the next step, which the compiler wants to see.
  __device__ __forceinline__ void multiply(uint32_t n, Lane (&lanes)[2]) const {
    constexpr uint32_t kBlocks = kUsed / 2;
    const uint32_t stage = stage_at(n);
    if (image_block(step_of(n), pass_of(n), kUsed - 1) < p.n_blocks) {
      multiply_blocks<kBlocks>(stage, 0, lanes[0], lanes[1]);
      return;
    }
#pragma unroll 1
    for (uint32_t u = 0; u < kBlocks; u += 2) {
      if (image_block(step_of(n), pass_of(n), 2 * u + odd) >= p.n_blocks) return;
      multiply_blocks<1>(stage, u, lanes[0], lanes[0]);
      if (image_block(step_of(n), pass_of(n), 2 * u + 2 + odd) >= p.n_blocks) return;
      multiply_blocks<1>(stage, u + 1, lanes[1], lanes[1]);
    }
  }
  // Places 2 u + odd from u = `begin`: the first, third joins lane `a`, the second, fourth lane `b`.
  template <uint32_t kBlocks>
  __device__ __forceinline__ void multiply_blocks(uint32_t stage, uint32_t begin, Lane& a, Lane& b) const {
    constexpr uint32_t kProducts = kImageTokens / kColumns;  // of a block
    const uint32_t first = 2 * begin + odd;
    Sums sums[2];
    start(stage, first, 0, sums[0]);
    start(stage, first, kColumns, sums[1]);
#pragma unroll
    for (uint32_t u = 0; u < kBlocks; ++u) {
      Factors factors;
      load_factors(stage, first + 2 * u, factors);
#pragma unroll
      for (uint32_t i = 0; i < kProducts; ++i) {
        const uint32_t after = u * kProducts + i + 2;
        if (after <= kBlocks * kProducts) {
          wait_products<1>();
        } else {
          wait_products<0>();
        }
        join(stage, first + 2 * u, i * kColumns, sums[i % 2], factors, u % 2 == 0 ? a : b);
        if (after < kBlocks * kProducts) {
          start(stage, first + 2 * (after / kProducts), after % kProducts * kColumns, sums[i % 2]);
        }
      }
    }
  }

  // The sums 0 + 4 and 1 + 5 of the first pass wait for 2 + 6 and 3 + 7: even ones where the result will be, odd ones
  // in shared memory, where they cross to the even ones in the end.
  __device__ __forceinline__ float4& kept(uint32_t j) const {
    return reinterpret_cast<float4*>(memory.odd)[(tid % 128 / kWarp * kGroups + j) * kWarp + tid % kWarp];
  }
  __device__ __forceinline__ void keep_odd(const Lane& sum) const {
#pragma unroll
    for (uint32_t j = 0; j < kGroups; ++j) kept(j) = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
  }
  __device__ __forceinline__ void add_kept(Lane& sum) const {
#pragma unroll
    for (uint32_t j = 0; j < kGroups; ++j) {
      const float4 v = kept(j);
      sum[j][0] = __fadd_rn(v.x, sum[j][0]), sum[j][1] = __fadd_rn(v.y, sum[j][1]);
      sum[j][2] = __fadd_rn(v.z, sum[j][2]), sum[j][3] = __fadd_rn(v.w, sum[j][3]);
    }
  }
  // After a pass: lanes 0 and 4, 1 and 5, then 2 and 6, 3 and 7, are those of one thread.
  __device__ __forceinline__ void finish(uint32_t pass, uint32_t pair_begin, Lane (&lanes)[2]) const {
#pragma unroll
    for (uint32_t j = 0; j < kGroups; ++j) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) lanes[0][j][e] = __fadd_rn(lanes[0][j][e], lanes[1][j][e]);
    }
    if (odd == 0) {
      if (pass == 0) return store(pair_begin, lanes[0]);
      add_stored(pair_begin, lanes[0]);
    } else {
      if (pass != 0) add_kept(lanes[0]);
      keep_odd(lanes[0]);
    }
    if (pass == 0) return;
    __syncthreads();
    if (odd != 0) return;
    add_kept(lanes[0]);
    store(pair_begin, lanes[0]);
  }
  __device__ __forceinline__ uint32_t first_row() const { return row_begin + tid % 128 / kWarp * 16 + tid % kWarp / 4; }
  __device__ __forceinline__ void store(uint32_t pair_begin, const Lane& sum) const {
    const uint32_t r = first_row();
#pragma unroll
    for (uint32_t j = 0; j < kGroups; ++j) {
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t i = 8 * j + 2 * (tid % 4) + k;
        if (i >= n_tokens) continue;
        float* out = p.out + (pair_begin + i) * p.out_stride + r;
        if (r < p.n_rows) out[0] = sum[j][k];
        if (r + 8 < p.n_rows) out[8] = sum[j][2 + k];
      }
    }
  }
  // Without branches, so that reads do not wait for each other.
  __device__ __forceinline__ void add_stored(uint32_t pair_begin, Lane& sum) const {
    const uint32_t r = first_row();
#pragma unroll
    for (uint32_t j = 0; j < kGroups; j += 2) {
      float stored[8];
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t i = 8 * (j + e / 4) + 2 * (tid % 4) + e % 2;
        const uint32_t row = r + e % 4 / 2 * 8;
        stored[e] = i < n_tokens && row < p.n_rows ? p.out[(pair_begin + i) * p.out_stride + row] : 0.0F;
      }
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) sum[j + e / 4][e % 4] = __fadd_rn(stored[e], sum[j + e / 4][e % 4]);
    }
  }
};

template <typename Unit>
__global__ void __launch_bounds__(kWideThreads, 1) wide_tiles_kernel(const __grid_constant__ ProductParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(16) uint8_t shared[];
  using Memory = WideMemory<Unit>;
  auto& memory = *reinterpret_cast<Memory*>(shared);
  const uint32_t tid = threadIdx.x;
  const uint32_t base = shared_address(shared);
  if (tid < 2) {
    init_barrier(base + static_cast<uint32_t>(offsetof(Memory, x_here)) + 8 * tid, 1);
    init_barrier(base + static_cast<uint32_t>(offsetof(Memory, raw_here)) + 8 * tid, kTileRows);
  }
  if (tid < sizeof memory.zeros / 4) reinterpret_cast<uint32_t*>(memory.zeros)[tid] = 0;
  hand_over();
  let_next_launch_start();
  wait_for_launch_before();
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.z] : p.job;
  const uint32_t token_begin = blockIdx.y * kImageTokens;
  if (token_begin >= job.n_pairs) return;
  const uint32_t n_tokens = job.n_pairs - token_begin < kImageTokens ? job.n_pairs - token_begin : kImageTokens;
  const uint32_t n_steps = image_steps(p.n_blocks);
  const WideTile<Unit> tile(p, memory, base, blockIdx.x * kTileRows, n_tokens, job.weights, n_steps);
  __syncthreads();  // barriers
  tile.copy_weights(0);
  tile.copy_weights(1);
  if (tid == 0) tile.copy_activations(0);
  tile.decode(0);
  uint32_t n = 0;
#pragma unroll 1
  for (uint32_t pass = 0; pass < kImagePasses; ++pass) {
    typename WideTile<Unit>::Lane lanes[2] = {};
#pragma unroll 1
    for (uint32_t end = n + n_steps; n < end; ++n) {
      wait_barrier(tile.x_here(n), n / 2 % 2);
      __syncthreads();  // codes of this step are written, nobody reads those of the one before
      tile.copy_weights(n + 2);
      if (tid == 0) tile.copy_activations(n + 1);
      if (tile.odd == 0) tile.decode(n + 1);  // one of the two, so that the f32 units have work
      tile.multiply(n, lanes);
      if (tile.odd != 0) tile.decode(n + 1);
    }
    tile.finish(pass, job.pair_begin + token_begin, lanes);
  }
#else
  __trap();  // src/outrider/cuda/CMakeLists.txt refuses to build for 90 without the a
#endif
}

// Whether the current device runs wide tiles.
inline bool has_wide_tiles() {
  int device = 0;
  int major = 0;
  int minor = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major == 9 && minor == 0;
}

template <typename Unit>
void wide_tiles(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  constexpr uint32_t kShared = sizeof(WideMemory<Unit>);
  static_assert(kShared <= 227 * 1024);
  if (!p.is_image_made) make_token_image(p, n_jobs, most_pairs, stream);
  const auto kernel = wide_tiles_kernel<Unit>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "cudaFuncSetAttribute(wide_tiles_kernel)", kShared);
  const dim3 grid((p.n_rows + kTileRows - 1) / kTileRows, image_groups(most_pairs), n_jobs);
  launch_behind(kernel, {grid, kWideThreads, kShared}, p, stream, "wide_tiles_kernel");
}

}  // namespace
}  // namespace outrider::cuda

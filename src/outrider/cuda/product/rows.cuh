// SPDX-License-Identifier: Apache-2.0
// Row kernels: few tokens, so the time is that of reading the weights once. Eight threads have a row, and are the eight
// lanes of the law: thread j takes blocks j, j + 8, ... in rising order, so no sum crosses threads before the fold. A
// thread works on several rows four apart ("streams"), so that activations are read once for all of them. The rows come
// through shared memory in rings private to each warp: 16-byte cp.async whatever the block size (18, 34, 210 bytes),
// enough bytes in flight, and no barrier in the loop. A launch may begin to read weights before the launch before it is
// done (ProductArgs::ahead). docs/cuda.md has the numbers behind each choice.
#pragma once

#include "outrider/cuda/device/overlap.cuh"
#include "outrider/cuda/device/quantize.cuh"
#include "outrider/cuda/device/row_units.cuh"
#include "outrider/cuda/product/variants.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kRowsAtOnce = 4;  // of one stream, a warp

// How a kernel is cut: rows a thread works on at once (gate and up of one row where gated), warps of a block of
// threads, blocks of a row in one stage of a ring, most stages. A type, because nvcc cannot name kernels of value
// parameters.
template <uint32_t kStreamsIn, uint32_t kWarpsIn, uint32_t kChunkIn, uint32_t kStagesIn>
struct RowShape {
  static constexpr uint32_t kStreams = kStreamsIn, kWarps = kWarpsIn, kChunk = kChunkIn, kStages = kStagesIn;
};

// Gated blocks, one or (where the device has clusters) two together, make 32 rows: one block of the activations that
// the next product reads. kShort: rows of at most 24 blocks, as of an expert's down; they and gated rows come in one
// piece, because such launches are all latency. Several tokens decode once and read many activations: more streams.
template <typename Unit, uint32_t kTokens, bool kGated, bool kShort>
constexpr auto shape_of() {
  constexpr bool kLarge = Unit::kBytes / Unit::kSubs > 20;
  if constexpr (kTokens == 1 && kGated) {
    constexpr uint32_t kChunk = Unit::kBytes == 34 ? 16 : Unit::kBytes == 17 ? 32 : 64;
    constexpr uint32_t kStages = kChunk == 16 ? 3 : 64 / kChunk;
    return RowShape<2, 4, kChunk, kStages>{};
  } else if constexpr (kTokens == 1 && kShort) {
    return RowShape<2, 2, 24, 1>{};
  } else if constexpr (kTokens == 1) {
    return RowShape<1, 1, 32, 2>{};
  } else if constexpr (kGated) {
    constexpr uint32_t kChunk = kLarge ? 16 : 32;
    return RowShape<2, 8, kChunk, 2>{};
  } else if constexpr (kTokens == 2) {
    return RowShape<2, 2, 16, 2>{};
  } else if constexpr (kTokens == 4 && Unit::kBytes != 34 && Unit::kBytes != 210) {
    return RowShape<2, 2, 16, 3>{};
  } else {
    constexpr uint32_t kWarps = Unit::kBytes == 136 ? 1 : 4;
    constexpr uint32_t kChunk = Unit::kBytes == 34 && kTokens == 8 ? 8 : 16;
    return RowShape<4, kWarps, kChunk, 2>{};
  }
}

// Where the four rows of a stream lie in a stage, in bytes: row g at g % 2 * odd + g / 2 * pair. Chosen by counting:
// the eight threads of a row read words 4.5, 8.5, ... apart, and these distances keep 32 threads on as many banks as
// the type allows (18 and 34 bytes: all).
struct RowPlaces {
  uint32_t odd, pair, n_bytes;
};
constexpr uint32_t words_up_to(uint32_t least, uint32_t bank, uint32_t period) {
  while (least % period != bank) least += 4;
  return least;
}
template <typename Unit>
constexpr RowPlaces places_of(uint32_t chunk) {
  const uint32_t words = (chunk / Unit::kSubs * Unit::kBytes + 15 + 4 + 15) / 16 * 4;  // misaligned ends, one word more
  const bool by_four = Unit::kBytes == 34 || Unit::kSubs != 1;
  const uint32_t odd = words_up_to(words, by_four ? 4 : 8, by_four ? 8 : 16);
  const uint32_t pair = words_up_to(odd + words, 16, 32);
  return {4 * odd, 4 * pair, 4 * (pair + odd + words)};
}

template <typename Unit, typename Shape>
__host__ __device__ constexpr uint32_t chunks_of(uint32_t n_blocks) {
  return (n_blocks + Shape::kChunk - 1) / Shape::kChunk;
}
// A ring has no more stages than a row has chunks, so that short rows leave room for more blocks of threads.
template <typename Unit, typename Shape>
__host__ __device__ constexpr uint32_t ring_bytes(uint32_t n_blocks) {
  constexpr uint32_t kStageBytes = Shape::kStreams * places_of<Unit>(Shape::kChunk).n_bytes;
  const uint32_t n_chunks = chunks_of<Unit, Shape>(n_blocks);
  return (n_chunks < Shape::kStages ? n_chunks : Shape::kStages) * kStageBytes;
}

// Bytes from row to row of a stage in shared memory: room for n_bytes and their misaligned ends, and a row's eight
// blocks continue the banks of the row before, so that 32 threads read as if their blocks lay side by side.
constexpr uint32_t ring_stride(uint32_t n_bytes, uint32_t bytes_of_eight_blocks) {
  const uint32_t wanted_bank = bytes_of_eight_blocks / 4 / 4 * 4 % 32;
  uint32_t words = (n_bytes + 32 + 15) / 16 * 4;
  while (words % 32 != wanted_bank) words += 4;
  return words * 4;
}

__device__ __forceinline__ void copy_async16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Writes to the same place in the shared memory of the cluster's first block.
__device__ __forceinline__ void store_in_first_block(float* to, float value) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(address) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#endif
}
// The barrier of all threads of the blocks that share 32 rows, in two halves: a block's shared memory may be written
// from outside once all have arrived once.
template <uint32_t kParts>
__device__ __forceinline__ void arrive_parts() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kParts != 1) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
template <uint32_t kParts>
__device__ __forceinline__ void wait_parts() {
  if constexpr (kParts == 1) {
    __syncthreads();
  } else {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
  }
}

// Copies the first n_bytes of at most kMost of a row to `to`, where they start at (address mod 16), by eight threads.
// `from` and `to` are the row's plus 16 * j.
template <uint32_t kMost>
__device__ __forceinline__ void copy_row(uint8_t* to, const uint8_t* from, uint32_t n_bytes, uint32_t j) {
  const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
  const uint8_t* aligned = from - skew;
  const auto left = static_cast<int32_t>(skew + n_bytes - 16 * j);  // for this thread
  if (n_bytes == kMost) {
#pragma unroll
    for (uint32_t at = 0; at < kMost + 15; at += 16 * 8) {
      if (at + 16 * 8 <= kMost || static_cast<int32_t>(at) < left) copy_async16(to + at, aligned + at);
    }
  } else {
#pragma unroll 1
    for (uint32_t at = 0; static_cast<int32_t>(at) < left; at += 16 * 8) copy_async16(to + at, aligned + at);
  }
}

// The activations from a block on.
struct ActsAt {
  const int4* q;
  const float* d;
  const void* sums;
  template <ActForm kForm>
  static __device__ __forceinline__ ActsAt of(const ProductParams& p, uint32_t block) {
    ActsAt at{};
    at.q = reinterpret_cast<const int4*>(p.q) + block * uint64_t{2};
    at.d = p.d + block;
    if constexpr (kForm == ActForm::kSum16) at.sums = reinterpret_cast<const short2*>(p.sum16) + block;
    if constexpr (kForm == ActForm::kSum32) at.sums = p.sum32 + block;
    return at;
  }
};

// Block `i` after those.
template <ActForm kForm>
__device__ __forceinline__ void load_acts(const ActsAt& at, uint32_t i, BlockActs& a) {
  const int4 low = at.q[2 * i];
  const int4 high = at.q[2 * i + 1];
  a.q[0] = low.x, a.q[1] = low.y, a.q[2] = low.z, a.q[3] = low.w;
  a.q[4] = high.x, a.q[5] = high.y, a.q[6] = high.z, a.q[7] = high.w;
  a.d = at.d[i];
  if constexpr (kForm == ActForm::kSum16) {
    const short2 sums = static_cast<const short2*>(at.sums)[i];
    a.sum0 = sums.x, a.sum1 = sums.y;
  } else if constexpr (kForm == ActForm::kSum32) {
    a.sum0 = static_cast<const int32_t*>(at.sums)[i];
  }
}
// Puts the codes in the order that the form names.
template <ActForm kForm>
__device__ __forceinline__ void arrange_acts(BlockActs& a) {
  if constexpr (kForm == ActForm::kPaired) {
    int32_t paired[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      paired[2 * i] = __byte_perm(a.q[i], a.q[4 + i], 0x5140);
      paired[2 * i + 1] = __byte_perm(a.q[i], a.q[4 + i], 0x7362);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) a.q[i] = paired[i];
  }
}

// Reads a word of each line of a token's first 4096 activations and gives it to nobody: one trip to the L2 for all of
// them, where the blocks in turn would take one for each batch.
struct Touched {
  int32_t q, rest;
  __device__ __forceinline__ void keep() const { asm volatile("" ::"r"(q), "r"(rest)); }
};
template <ActForm kForm>
__device__ __forceinline__ Touched touch_acts(const ProductParams& p, uint32_t block, uint32_t lane) {
  Touched touched{0, 0};
  if (4 * lane < p.n_blocks) {
    const ActsAt at = ActsAt::of<kForm>(p, block + 4 * lane);
    touched.q = at.q->x;
    if (lane % 8 == 0) touched.rest = __float_as_int(*at.d);
    if constexpr (kForm == ActForm::kSum16 || kForm == ActForm::kSum32) {
      if (lane % 8 == 1) touched.rest = *static_cast<const int32_t*>(at.sums);
    }
  }
  return touched;
}

// The products of this thread's rows with kTokens tokens: its lane of each.
template <typename Unit, uint32_t kTokens, typename Shape>
struct WarpRows {
  using One = OneToken<Unit>;
  static constexpr uint32_t kStreams = Shape::kStreams;
  static constexpr uint32_t kChunkBytes = Shape::kChunk / Unit::kSubs * Unit::kBytes;
  static constexpr uint32_t kStepBytes = 8 / Unit::kSubs * Unit::kBytes;  // of eight blocks
  static constexpr bool kSteady = kChunkBytes % 16 == 0;                  // all chunks of a row lie alike
  static constexpr RowPlaces kPlaces = places_of<Unit>(Shape::kChunk);
  static constexpr uint32_t kStageBytes = kStreams * kPlaces.n_bytes;
  static constexpr ActForm kForm = kTokens == 1     ? One::kActs
                                   : !Unit::kHasMin ? ActForm::kPlain
                                   : Unit::kHalves  ? ActForm::kSum16
                                                    : ActForm::kSum32;
  const ProductParams& p;
  const uint8_t* rows[kStreams];
  uint8_t* ring;  // of the warp, and there of this thread's first row
  uint32_t j;     // lane of the law
  typename One::State state;

  __device__ __forceinline__ void issue(uint32_t slot, uint32_t chunk, uint32_t n_chunks) const {
    if (chunk < n_chunks) {
      const uint32_t offset = chunk * kChunkBytes;
      const uint32_t left = p.row_bytes - offset;
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        copy_row<kChunkBytes>(ring + slot * kStageBytes + m * kPlaces.n_bytes + 16 * j, rows[m] + 16 * j + offset,
                              left < kChunkBytes ? left : kChunkBytes, j);
      }
    }
    commit_async();
  }
  // Fills the ring, or as much as a row has.
  __device__ __forceinline__ void start() const {
    const uint32_t n_chunks = chunks_of<Unit, Shape>(p.n_blocks);
#pragma unroll
    for (uint32_t c = 0; c < Shape::kStages; ++c) issue(c, c, n_chunks);
  }

  // Where this thread's first block of a chunk is, from the beginning of its stage.
  struct Places {
    uint32_t offset[kStreams];
  };
  __device__ __forceinline__ Places places(uint32_t chunk) const {
    Places places;
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      const uint32_t first = (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(rows[m])) + chunk * kChunkBytes) & 15U;
      places.offset[m] = first + m * kPlaces.n_bytes + (Unit::kSubs == 1 ? j * Unit::kBytes : 0);
    }
    return places;
  }

  // After start().
  __device__ __forceinline__ void run(const uint32_t (&tokens)[kTokens], float (&lanes)[kStreams][kTokens]) const {
    const uint32_t n_chunks = chunks_of<Unit, Shape>(p.n_blocks);
    Places at = places(0);
    uint32_t slot = 0;
    for (uint32_t c = 0; c < n_chunks; ++c) {
      if constexpr (!kSteady) at = places(c);
      const uint8_t* stage = ring + slot * kStageBytes;
      if constexpr (kTokens == 1) {
        compute_one(stage, at, c * Shape::kChunk, tokens[0], lanes);
      } else {
        wait_for_stage();
        compute(stage, at, c * Shape::kChunk, tokens, lanes);
      }
      __syncwarp();  // everyone is done with the slot
      issue(slot, c + Shape::kStages, n_chunks);
      slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
    }
  }
  static __device__ __forceinline__ void wait_for_stage() {
    wait_async<Shape::kStages - 1>();
    __syncwarp();  // everyone's part of the chunk is there
  }

  // The activations are asked for before the weights are waited for, and for two blocks at once.
  __device__ __forceinline__ void compute_one(const uint8_t* stage, const Places& at, uint32_t first, uint32_t token,
                                              float (&lanes)[kStreams][1]) const {
    const ActsAt acts_at = ActsAt::of<kForm>(p, token + first + j);
    if (first + Shape::kChunk <= p.n_blocks) {
      if constexpr (One::kRound == 8 && kChunkBytes % 8 == 0) {
        if (p.row_bytes % 16 == 0) {  // then every chunk begins at a multiple of 8, and the shifts are constants
          Places even;
#pragma unroll
          for (uint32_t m = 0; m < kStreams; ++m) even.offset[m] = at.offset[m] & ~7U;
          return compute_whole(stage, even, acts_at, lanes);
        }
      }
      return compute_whole(stage, at, acts_at, lanes);
    }
    wait_for_stage();
#pragma unroll 1
    for (uint32_t i = 0; first + 8 * i + j < p.n_blocks; ++i) {
      BlockActs acts;
      load_acts<kForm>(acts_at, 8 * i, acts);
      join_one(stage, at, i, acts, lanes);
    }
  }
  __device__ __forceinline__ void compute_whole(const uint8_t* stage, const Places& at, const ActsAt& acts_at,
                                                float (&lanes)[kStreams][1]) const {
    constexpr uint32_t kSteps = Shape::kChunk / 8;
    constexpr uint32_t kBatch = kSteps % 2 == 0 ? 2 : 1;
    BlockActs acts[kBatch];
#pragma unroll
    for (uint32_t u = 0; u < kBatch; ++u) load_acts<kForm>(acts_at, 8 * u, acts[u]);
    wait_for_stage();
#pragma unroll
    for (uint32_t i = 0; i < kSteps; i += kBatch) {
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) {
        if (i != 0) load_acts<kForm>(acts_at, 8 * (i + u), acts[u]);
      }
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) join_one(stage, at, i + u, acts[u], lanes);
    }
  }
  __device__ __forceinline__ void join_one(const uint8_t* stage, const Places& at, uint32_t i, BlockActs& acts,
                                           float (&lanes)[kStreams][1]) const {
    arrange_acts<kForm>(acts);
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      const uint32_t offset = at.offset[m] + i * kStepBytes;
      const uint32_t skip = offset % One::kRound;
      lanes[m][0] = One::join(stage + (offset - skip), 8 * skip, state, acts, lanes[m][0]);
    }
  }

  __device__ __forceinline__ void compute(const uint8_t* stage, const Places& at, uint32_t first,
                                          const uint32_t (&tokens)[kTokens], float (&lanes)[kStreams][kTokens]) const {
    // Batches without a branch, so that the reads of all their blocks are under way at once; then what is left.
    constexpr uint32_t kBatch = kTokens <= 2 ? 2 : 1;
    uint32_t i = 0;
    for (; i + kBatch <= Shape::kChunk / 8 && first + 8 * (i + kBatch) <= p.n_blocks; i += kBatch) {
#pragma unroll
      for (uint32_t u = 0; u < kBatch; ++u) join_block(stage, at, first, i + u, tokens, lanes);
    }
    for (; i < Shape::kChunk / 8 && first + 8 * i + j < p.n_blocks; ++i) join_block(stage, at, first, i, tokens, lanes);
  }

  // This thread's block of the i-th eight of a chunk joins its lanes.
  __device__ __forceinline__ void join_block(const uint8_t* stage, const Places& at, uint32_t first, uint32_t i,
                                             const uint32_t (&tokens)[kTokens],
                                             float (&lanes)[kStreams][kTokens]) const {
    BlockCodes codes[kStreams];
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) {
      Unit::load(stage + at.offset[m] + i * kStepBytes, Unit::kSubs == 1 ? 0 : j, codes[m]);
    }
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      BlockActs acts;
      load_acts<kForm>(ActsAt::of<kForm>(p, tokens[t] + first + 8 * i + j), 0, acts);
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) lanes[m][t] = join<Unit>(codes[m], acts, lanes[m][t]);
    }
  }
};

template <typename Unit, uint32_t kTokens, bool kGated, typename Shape>
__global__ void __launch_bounds__(Shape::kWarps* kWarp) rows_kernel(const __grid_constant__ ProductParams p) {
  constexpr uint32_t kStreams = Shape::kStreams;
  constexpr uint32_t kRowsPerWarp = kRowsAtOnce * (kGated ? 1 : kStreams);
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ float tile[kGated ? kTokens : 1][kWarp];
  constexpr uint32_t kParts = kGated ? 8 / Shape::kWarps : 1;  // blocks, one cluster, that make 32 rows together
  arrive_parts<kParts>();
  let_next_launch_start();
  if (!p.ahead) wait_for_launch_before();
  const ProductJob job = p.jobs != nullptr ? p.jobs[blockIdx.y] : p.job;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t group = lane / 8;
  const uint32_t j = lane % 8;
  const uint32_t row = (blockIdx.x * Shape::kWarps + warp) * kRowsPerWarp + group;  // of stream 0
  using Work = WarpRows<Unit, kTokens, Shape>;
  Work work{p, {}, nullptr, j, {}};
  work.ring = shared + warp * ring_bytes<Unit, Shape>(p.n_blocks) + group % 2 * Work::kPlaces.odd +
              group / 2 * Work::kPlaces.pair;
  work.state = Work::One::make_state(j, static_cast<uint32_t>(__cvta_generic_to_shared(work.ring)) >> 24);
#pragma unroll
  for (uint32_t m = 0; m < kStreams; ++m) {
    const uint32_t own = row + (kGated ? 0 : m * kRowsAtOnce);
    const auto* base = reinterpret_cast<const uint8_t*>(kGated && m == 1 ? job.gate : job.weights);
    work.rows[m] = base + static_cast<uint64_t>(own < p.n_rows ? own : p.n_rows - 1) * p.row_bytes;
  }
  if (job.n_pairs != 0) work.start();

  for (uint32_t begin = 0; begin < job.n_pairs || begin == 0; begin += kTokens) {
    uint32_t tokens[kTokens];  // first activation block of each
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
      const uint32_t pair = job.pair_begin + (begin + t < job.n_pairs ? begin + t : begin);
      tokens[t] = (p.token_rows != nullptr && begin < job.n_pairs ? p.token_rows[pair] : pair) * p.n_blocks;
    }
    if (p.ahead && begin == 0) wait_for_launch_before();
    if (job.n_pairs == 0) return;
    const Touched touched = touch_acts < kTokens == 1 ? Work::kForm : ActForm::kPlain > (p, tokens[0], lane);
    float lanes[kStreams][kTokens] = {};
    work.run(tokens, lanes);
    touched.keep();
    if (begin + kTokens < job.n_pairs) work.start();
    float mine[kStreams] = {};  // thread j keeps token j
#pragma unroll
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        const float sum = fold8(lanes[m][t]);
        if (t == j) mine[m] = sum;
      }
    }
    const bool is_mine = j < kTokens && begin + j < job.n_pairs;
    const uint64_t pair = job.pair_begin + begin + j;
    if constexpr (!kGated) {
#pragma unroll
      for (uint32_t m = 0; m < kStreams; ++m) {
        const uint32_t own = row + m * kRowsAtOnce;
        if (is_mine && own < p.n_rows) p.out[pair * p.out_stride + own] = mine[m];
      }
    } else {
      const uint32_t in_tile = (blockIdx.x % kParts * Shape::kWarps + warp) * kRowsPerWarp + group;
      wait_parts<kParts>();  // the tile is free
      if (is_mine) {
        const float value = swiglu_f32(mine[kStreams - 1], mine[0], p.alpha, p.limit);
        if constexpr (kParts == 1) {
          tile[j][in_tile] = value;
        } else {
          store_in_first_block(&tile[j][in_tile], value);
        }
        if (p.out != nullptr) p.out[pair * p.out_stride + row] = value;
      }
      arrive_parts<kParts>();
      wait_parts<kParts>();
      if (p.hidden.q != nullptr && blockIdx.x % kParts == 0 && warp < kTokens && begin + warp < job.n_pairs) {
        const uint64_t first = (job.pair_begin + begin + warp) * static_cast<uint64_t>(p.n_rows / 32);
        quantize_block(tile[warp][lane], lane, first + blockIdx.x / kParts, p.hidden);
      }
      arrive_parts<kParts>();
    }
  }
}

template <typename Unit, uint32_t kTokens, bool kGated, typename Shape>
void launch_rows(Shape, const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  constexpr uint32_t kRows = Shape::kWarps * kRowsAtOnce * (kGated ? 1 : Shape::kStreams);
  const uint32_t shared = Shape::kWarps * ring_bytes<Unit, Shape>(p.n_blocks);
  const auto kernel = rows_kernel<Unit, kTokens, kGated, Shape>;
  if (shared > 47 * 1024) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
               "cudaFuncSetAttribute(rows_kernel)", shared);
  }
  const LaunchShape shape{dim3((p.n_rows + kRows - 1) / kRows, n_jobs), Shape::kWarps * kWarp, shared,
                          kGated ? 8 / Shape::kWarps : 1};
  launch_behind(kernel, shape, p, stream, "cudaLaunchKernelEx(rows_kernel)");
}

constexpr uint32_t kShortRow = 24;  // blocks

template <typename Unit, uint32_t kTokens, bool kGated, bool kShort = false>
void launch_rows(const ProductParams& p, uint32_t n_jobs, cudaStream_t stream) {
  launch_rows<Unit, kTokens, kGated>(shape_of<Unit, kTokens, kGated, kShort>(), p, n_jobs, stream);
}

template <typename Unit, bool kGated>
void rows(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  if (most_pairs <= 1) {
    if constexpr (kGated) {
      if (!has_overlap()) return launch_rows<Unit, 1, true>(RowShape<2, 8, 16, 2>{}, p, n_jobs, stream);
    } else if (p.n_blocks <= kShortRow) {
      return launch_rows<Unit, 1, false, true>(p, n_jobs, stream);
    }
    return launch_rows<Unit, 1, kGated>(p, n_jobs, stream);
  }
  if (most_pairs <= 2) return launch_rows<Unit, 2, kGated>(p, n_jobs, stream);
  if (most_pairs <= 4) return launch_rows<Unit, 4, kGated>(p, n_jobs, stream);
  return launch_rows<Unit, 8, kGated>(p, n_jobs, stream);
}

}  // namespace
}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// What a warp of the row kernels does: rows through a ring of shared memory, times one or a few tokens. Eight threads
// have a row, and are the eight lanes of the law: thread j takes blocks j, j + 8, ... in rising order, so no sum
// crosses threads before the fold. A thread works on several rows four apart ("streams"), so that activations are read
// once for all of them. The rings are private to each warp: 16-byte cp.async whatever the block size (18, 34, 210
// bytes), enough bytes in flight, and no barrier in the loop.
#pragma once

#include "outrider/cuda/device/async_copy.cuh"
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

// Copies kBytes of a row to `to`, where they start at (address mod 16), by eight threads. `from` and `to` are the row's
// plus 16 * j.
template <uint32_t kBytes>
__device__ __forceinline__ void copy_chunk(uint8_t* to, const uint8_t* from, uint32_t j) {
  const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
  const uint8_t* aligned = from - skew;
  const auto left = static_cast<int32_t>(skew + kBytes - 16 * j);  // for this thread
#pragma unroll
  for (uint32_t at = 0; at < kBytes + 15; at += 16 * 8) {
    if (at + 16 * 8 <= kBytes || static_cast<int32_t>(at) < left) copy_async16(to + at, aligned + at);
  }
}
// The same for the first n_bytes of at most kMost.
template <uint32_t kMost>
__device__ __forceinline__ void copy_row(uint8_t* to, const uint8_t* from, uint32_t n_bytes, uint32_t j) {
  if (n_bytes == kMost) return copy_chunk<kMost>(to, from, j);
  const auto skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15U);
  const auto left = static_cast<int32_t>(skew + n_bytes - 16 * j);
#pragma unroll 1
  for (uint32_t at = 0; static_cast<int32_t>(at) < left; at += 16 * 8) copy_async16(to + at, from - skew + at);
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

// Whether the activations of a stage are read, and put in order, once for the four rows of a warp, a thread a block,
// and lie in shared memory beside its ring.
struct CommonActs {
  int32_t q[8 * kWarp];  // in pieces of kPiece words, a piece of all blocks together
  float d[kWarp];
  int32_t sums[kWarp];
};
template <typename Unit, uint32_t kTokens, typename Shape>
constexpr bool shares_acts() {
  return kTokens == 1 && Shape::kStreams == 1 && Shape::kChunk == kWarp && Unit::kBytes != 34;
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
  static constexpr uint32_t kPiece = kForm == ActForm::kPaired ? 4 : 2;
  static constexpr bool kShares = shares_acts<Unit, kTokens, Shape>();
  const ProductParams& p;
  const uint8_t* rows[kStreams];
  uint8_t* ring;  // of the warp, and there of this thread's first row
  uint32_t j;     // lane of the law
  typename One::State state;
  CommonActs* common = nullptr;  // of the warp, where kShares

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
  // Whether the ring keeps whole rows, so that other tokens need no second start().
  static __device__ __forceinline__ bool holds_rows(uint32_t n_blocks) {
    return chunks_of<Unit, Shape>(n_blocks) <= Shape::kStages;
  }
  // Fills the ring, or as much as a row has.
  __device__ __forceinline__ void start() const {
    const uint32_t n_chunks = chunks_of<Unit, Shape>(p.n_blocks);
#pragma unroll
    for (uint32_t c = 0; c < Shape::kStages; ++c) issue(c, c, n_chunks);
  }

  // Whether the rows of a warp, `first` and those after it, can be copied as one piece of memory: whole rows in one
  // stage, all of 16-byte pieces of their own.
  static __device__ __forceinline__ bool are_together(const ProductParams& p, uint32_t first) {
    return p.row_bytes % 16 == 0 && p.n_blocks <= Shape::kChunk && first + kRowsAtOnce * kStreams <= p.n_rows;
  }
  // start() for such rows, which begin at `from`, into the ring of the warp: full lines of memory, where rows of 432 or
  // 816 bytes one by one begin and end within lines.
  static __device__ __forceinline__ void start_together(const ProductParams& p, uint8_t* ring, const uint8_t* from,
                                                        uint32_t lane) {
    static_assert(Shape::kStages == 1 && kChunkBytes <= 1024 && kRowsAtOnce * kStreams <= 8);
    const uint32_t in_row = p.row_bytes / 16;
    const uint32_t reciprocal = 65536 / in_row + 1;  // exact for fewer than 512 pieces in rows of at most 64
    const uint32_t n = kRowsAtOnce * kStreams * in_row;
#pragma unroll 4
    for (uint32_t i = lane; i < n; i += kWarp) {
      const uint32_t row = i * reciprocal >> 16;
      const uint32_t group = row % kRowsAtOnce;
      uint8_t* to = ring + row / kRowsAtOnce * kPlaces.n_bytes + group % 2 * kPlaces.odd + group / 2 * kPlaces.pair;
      copy_async16(to + 16 * (i - row * in_row), from + 16 * i);
    }
    commit_async();
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
    const uint32_t n_whole = p.n_blocks / Shape::kChunk;
    Places at = places(0);
    uint32_t slot = 0;
    [[maybe_unused]] BlockActs acts;  // of the chunk after this one
    if constexpr (kShares) acts = load_common(tokens[0], 0, n_whole);
    [[maybe_unused]] const uint8_t* next = rows[0] + 16 * j + Shape::kStages * kChunkBytes;
    for (uint32_t c = 0; c < n_chunks; ++c) {
      if constexpr (!kSteady) at = places(c);
      const uint8_t* stage = ring + slot * kStageBytes;
      if constexpr (kShares) {
        if (c < n_whole) {
          store_common(acts);
          acts = load_common(tokens[0], c + 1, n_whole);
          wait_for_stage();  // and for everyone's common activations
          compute_common(stage, at, lanes);
        } else {
          compute_rest(stage, at, c * Shape::kChunk, tokens[0], lanes);
        }
      } else if constexpr (kTokens == 1) {
        compute_one(stage, at, c * Shape::kChunk, tokens[0], lanes);
      } else {
        wait_for_stage();
        compute(stage, at, c * Shape::kChunk, tokens, lanes);
      }
      __syncwarp();  // everyone is done with the slot
      if (kStreams == 1 && c + Shape::kStages < n_whole) {
        copy_chunk<kChunkBytes>(ring + slot * kStageBytes + 16 * j, next, j);
        commit_async();
        next += kChunkBytes;
      } else {
        issue(slot, c + Shape::kStages, n_chunks);
      }
      slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
    }
  }

  static __device__ __forceinline__ void wait_for_stage() {
    wait_async<Shape::kStages - 1>();
    __syncwarp();  // everyone's part of the chunk is there
  }

  // Common activations of a chunk: asked for by a thread a block, stored in order, used by the threads of four rows.
  __device__ __forceinline__ BlockActs load_common(uint32_t token, uint32_t chunk, uint32_t n_whole) const {
    BlockActs acts{};
    if (chunk < n_whole) {
      load_acts<kForm>(ActsAt::of<kForm>(p, token + chunk * Shape::kChunk + threadIdx.x % kWarp), 0, acts);
    }
    return acts;
  }
  __device__ __forceinline__ void store_common(BlockActs acts) const {
    arrange_acts<kForm>(acts);
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (uint32_t i = 0; i < 8; i += kPiece) {
      int32_t* to = common->q + i * kWarp + lane * kPiece;
      if constexpr (kPiece == 4) {
        *reinterpret_cast<int4*>(to) = make_int4(acts.q[i], acts.q[i + 1], acts.q[i + 2], acts.q[i + 3]);
      } else {
        *reinterpret_cast<int2*>(to) = make_int2(acts.q[i], acts.q[i + 1]);
      }
    }
    common->d[lane] = acts.d;
    if constexpr (kForm == ActForm::kSum32) common->sums[lane] = acts.sum0;
    if constexpr (kForm == ActForm::kSum16) common->sums[lane] = (acts.sum0 & 0xFFFF) | acts.sum1 << 16;
  }
  __device__ __forceinline__ void compute_common(const uint8_t* stage, const Places& at,
                                                 float (&lanes)[kStreams][1]) const {
    if constexpr (One::kRound == 8 && kChunkBytes % 8 == 0) {
      if (p.row_bytes % 16 == 0) return compute_common_at(stage, even(at), lanes);
    }
    compute_common_at(stage, at, lanes);
  }
  __device__ __forceinline__ void compute_common_at(const uint8_t* stage, const Places& at,
                                                    float (&lanes)[kStreams][1]) const {
#pragma unroll
    for (uint32_t i = 0; i < Shape::kChunk / 8; ++i) {
      BlockActs acts;
#pragma unroll
      for (uint32_t u = 0; u < 8; u += kPiece) {
        const int32_t* from = common->q + u * kWarp + (8 * i + j) * kPiece;
        if constexpr (kPiece == 4) {
          const int4 four = *reinterpret_cast<const int4*>(from);
          acts.q[u] = four.x, acts.q[u + 1] = four.y, acts.q[u + 2] = four.z, acts.q[u + 3] = four.w;
        } else {
          const int2 two = *reinterpret_cast<const int2*>(from);
          acts.q[u] = two.x, acts.q[u + 1] = two.y;
        }
      }
      acts.d = common->d[8 * i + j];
      if constexpr (kForm == ActForm::kSum32) acts.sum0 = common->sums[8 * i + j];
      if constexpr (kForm == ActForm::kSum16) {
        const int32_t sums = common->sums[8 * i + j];
        acts.sum0 = static_cast<int16_t>(sums), acts.sum1 = sums >> 16;
      }
      join_one(stage, at, i, acts, lanes);
    }
  }
  // Where rows are multiples of 16 bytes every chunk begins at a multiple of 8, and the shifts are constants.
  __device__ __forceinline__ Places even(const Places& at) const {
    Places even;
#pragma unroll
    for (uint32_t m = 0; m < kStreams; ++m) even.offset[m] = at.offset[m] & ~7U;
    return even;
  }

  // The activations are asked for before the weights are waited for, and for two blocks at once.
  __device__ __forceinline__ void compute_one(const uint8_t* stage, const Places& at, uint32_t first, uint32_t token,
                                              float (&lanes)[kStreams][1]) const {
    const ActsAt acts_at = ActsAt::of<kForm>(p, token + first + j);
    if (first + Shape::kChunk <= p.n_blocks) {
      if constexpr (One::kRound == 8 && kChunkBytes % 8 == 0) {
        if (p.row_bytes % 16 == 0) return compute_whole(stage, even(at), acts_at, lanes);
      }
      return compute_whole(stage, at, acts_at, lanes);
    }
    compute_rest(stage, at, first, token, lanes);
  }
  // The end of a row.
  __device__ __forceinline__ void compute_rest(const uint8_t* stage, const Places& at, uint32_t first, uint32_t token,
                                               float (&lanes)[kStreams][1]) const {
    const ActsAt acts_at = ActsAt::of<kForm>(p, token + first + j);
    wait_for_stage();
#pragma unroll 1
    for (uint32_t i = 0; first + 8 * i + j < p.n_blocks; ++i) {
      BlockActs acts;
      load_acts<kForm>(acts_at, 8 * i, acts);
      arrange_acts<kForm>(acts);
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
      for (uint32_t u = 0; u < kBatch; ++u) {
        arrange_acts<kForm>(acts[u]);
        join_one(stage, at, i + u, acts[u], lanes);
      }
    }
  }
  __device__ __forceinline__ void join_one(const uint8_t* stage, const Places& at, uint32_t i, const BlockActs& acts,
                                           float (&lanes)[kStreams][1]) const {
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

// 0, but the compiler cannot know: of a shared address, bits above all memory there is and below the place of the block
// in its cluster.
__device__ __forceinline__ uint32_t hidden_zero(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared)) >> 20 & 15U;
}

// Where the rows of a thread begin, of which `row` is the first; rows after the last are the last.
template <typename Work, bool kGated>
__device__ __forceinline__ void set_rows(Work& work, const ProductParams& p, const ProductJob& job, uint32_t row) {
#pragma unroll
  for (uint32_t m = 0; m < Work::kStreams; ++m) {
    const uint32_t own = row + (kGated ? 0 : m * kRowsAtOnce);
    const auto* base = reinterpret_cast<const uint8_t*>(kGated && m == 1 ? job.gate : job.weights);
    work.rows[m] = base + static_cast<uint64_t>(own < p.n_rows ? own : p.n_rows - 1) * p.row_bytes;
  }
}

}  // namespace
}  // namespace outrider::cuda

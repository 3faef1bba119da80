// SPDX-License-Identifier: Apache-2.0
// Weights of a file to the packed layout (packed.h): a thread a block of 32 elements.
#include "outrider/cuda/device/units.cuh"
#include "outrider/cuda/product/packed.h"

namespace outrider::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostMatrices = 16;  // a launch

struct PackParams {
  PackedMatrix matrices[kMostMatrices];
  uint32_t n_rows, n_blocks, row_bytes;
};

// What is packed of a block of 32.
struct PackedParts {
  uint32_t words[8];
  uint32_t above[2];
  uint32_t scale, super;
};

// Low and high nibbles of eight words of codes.
__device__ __forceinline__ void join_nibbles(const uint32_t (&codes)[8], PackedParts& to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to.words[i] = codes[i] | codes[4 + i] << 4;
}
// The nibbles of four bytes side by side.
__device__ __forceinline__ uint32_t close_up(uint32_t bytes) {
  const uint32_t pairs = (bytes | bytes >> 4) & 0x00FF00FFU;
  return (pairs | pairs >> 8) & 0xFFFFU;
}
// Four elements a half, for tables.
__device__ __forceinline__ void in_order(const uint32_t (&qs)[4], PackedParts& to) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to.words[i] = close_up(qs[2 * i] & 0x0F0F0F0FU) | close_up(qs[2 * i + 1] & 0x0F0F0F0FU) << 16;
    to.words[2 + i] = close_up((qs[2 * i] >> 4) & 0x0F0F0F0FU) | close_up((qs[2 * i + 1] >> 4) & 0x0F0F0F0FU) << 16;
  }
}
__device__ __forceinline__ uint32_t half_bits(const uint8_t* p) { return *reinterpret_cast<const uint16_t*>(p); }

template <typename Unit>
struct FromFile;

template <>
struct FromFile<UnitQ4_0> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t, PackedParts& to) {
    uint32_t qs[4];
    load_words<4, UnitQ4_0::kAlign>(p + UnitQ4_0::kQs, qs);
#pragma unroll
    for (int i = 0; i < 4; ++i) to.words[i] = qs[i];
    to.scale = half_bits(p + UnitQ4_0::kD);
  }
};
template <>
struct FromFile<UnitQ8_0> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t, PackedParts& to) {
    load_words<8, UnitQ8_0::kAlign>(p + UnitQ8_0::kQs, to.words);
    to.scale = half_bits(p + UnitQ8_0::kD);
  }
};
template <>
struct FromFile<UnitIq4Nl> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t, PackedParts& to) {
    uint32_t qs[4];
    load_words<4, UnitIq4Nl::kAlign>(p + UnitIq4Nl::kQs, qs);
    in_order(qs, to);
    to.scale = half_bits(p + UnitIq4Nl::kD);
  }
};
template <>
struct FromFile<UnitMxfp4> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t, PackedParts& to) {
    uint32_t qs[4];
    load_words<4, UnitMxfp4::kAlign>(p + UnitMxfp4::kQs, qs);
    in_order(qs, to);
    to.scale = p[UnitMxfp4::kE];
  }
};
template <>
struct FromFile<UnitIq4Xs> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t sub, PackedParts& to) {
    using U = UnitIq4Xs;
    uint32_t qs[4];
    load_words<4, U::kAlign>(p + U::kQs + 16 * sub, qs);
    in_order(qs, to);
    const uint32_t low = (p[U::kScalesL + sub / 2] >> (4 * (sub % 2))) & 15U;
    const uint32_t high = (half_bits(p + U::kScalesH) >> (2 * sub)) & 3U;
    to.scale = (low | high << 4) - 32;
    to.super = half_bits(p + U::kD);
  }
};
// Q4_K and Q5_K but for the fifth bits.
template <typename Unit>
__device__ __forceinline__ void read_k4(const uint8_t* p, uint32_t sub, PackedParts& to) {
  uint32_t qs[8];
  load_words<8, Unit::kAlign>(p + Unit::kQs + 32 * (sub / 2), qs);
#pragma unroll
  for (int i = 0; i < 8; ++i) qs[i] = (qs[i] >> (4 * (sub % 2))) & 0x0F0F0F0FU;
  join_nibbles(qs, to);
  BlockCodes codes;
  load_k4_scale(p + Unit::kScales, sub, codes);
  to.scale = static_cast<uint32_t>(codes.scale0) | static_cast<uint32_t>(codes.min0) << 8;
  to.super = half_bits(p + Unit::kD) | half_bits(p + Unit::kDmin) << 16;
}
template <>
struct FromFile<UnitQ4K> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t sub, PackedParts& to) {
    read_k4<UnitQ4K>(p, sub, to);
  }
};
template <>
struct FromFile<UnitQ5K> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t sub, PackedParts& to) {
    read_k4<UnitQ5K>(p, sub, to);
    uint32_t qh[8];
    load_words<8, UnitQ5K::kAlign>(p + UnitQ5K::kQh, qh);
    to.above[0] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) to.above[0] |= ((qh[i] >> sub) & 0x01010101U) << i;
  }
};
template <>
struct FromFile<UnitQ6K> {
  static __device__ __forceinline__ void read(const uint8_t* p, uint32_t sub, PackedParts& to) {
    using U = UnitQ6K;
    const uint32_t quarter = sub % 4;
    uint32_t ql[8];
    uint32_t qh[8];
    load_words<8, U::kAlign>(p + U::kQl + 64 * (sub / 4) + 32 * (quarter % 2), ql);
    load_words<8, U::kAlign>(p + U::kQh + 32 * (sub / 4), qh);
    to.above[0] = to.above[1] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ql[i] = (ql[i] >> (4 * (quarter / 2))) & 0x0F0F0F0FU;
      to.above[i / 4] |= ((qh[i] >> (2 * quarter)) & 0x03030303U) << (2 * (i % 4));
    }
    join_nibbles(ql, to);
    to.scale = half_bits(p + U::kScales + 2 * sub);
    to.super = half_bits(p + U::kD);
  }
};

// The lowest kBytes of up to four words.
template <uint32_t kBytes>
__device__ __forceinline__ void write(uint8_t* to, const uint32_t* words) {
  if constexpr (kBytes == 16) *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  if constexpr (kBytes == 8) *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  if constexpr (kBytes == 4) *reinterpret_cast<uint32_t*>(to) = words[0];
  if constexpr (kBytes == 2) *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(words[0]);
  if constexpr (kBytes == 1) *to = static_cast<uint8_t>(words[0]);
}

template <typename Unit, format::TensorType kType>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackParams p) {
  constexpr PackedShape kShape = packed_shape(kType);
  const uint32_t n = (p.n_rows + kQuad - 1) / kQuad * kQuad * p.n_blocks;
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const PackedMatrix& matrix = p.matrices[blockIdx.y];
  const uint32_t row = i / p.n_blocks;
  const uint32_t block = i % p.n_blocks;
  PackedParts parts{};
  if (row < p.n_rows) {
    const auto* from = reinterpret_cast<const uint8_t*>(matrix.from) + static_cast<uint64_t>(row) * p.row_bytes;
    FromFile<Unit>::read(from + static_cast<uint64_t>(block / Unit::kSubs) * Unit::kBytes, block % Unit::kSubs, parts);
  }
  const PackedPlaces places = packed_places(kShape, p.n_blocks);
  auto* quad = reinterpret_cast<uint8_t*>(matrix.to) + static_cast<uint64_t>(row / kQuad) * places.n_bytes;
  const uint32_t step = block / 8;
  const uint32_t width = p.n_blocks - 8 * step < 8 ? p.n_blocks - 8 * step : 8;
  const uint32_t place = row % kQuad * width + block % 8;
#pragma unroll
  for (uint32_t c = 0; c < kShape.codes / 16; ++c) {
    write<16>(quad + step * 32 * kShape.codes + c * width * 64 + place * 16, parts.words + 4 * c);
  }
  write<kShape.above>(quad + places.above + (step * 32 + place) * kShape.above, parts.above);
  write<kShape.scale>(quad + places.scale + (step * 32 + place) * kShape.scale, &parts.scale);
  if (block % 8 == 0) write<kShape.super>(quad + places.super + (step * 4 + row % kQuad) * kShape.super, &parts.super);
}

template <typename Unit, format::TensorType kType>
void launch_pack(const PackParams& p, uint32_t n_matrices, cudaStream_t stream) {
  const uint32_t n = (p.n_rows + kQuad - 1) / kQuad * kQuad * p.n_blocks;
  pack_kernel<Unit, kType><<<dim3((n + kThreads - 1) / kThreads, n_matrices), kThreads, 0, stream>>>(p);
  check_launch("pack_kernel");
}

}  // namespace

void pack_matrices(const PackArgs& args, cudaStream_t stream) {
  PackParams p{};
  p.n_rows = args.n_rows, p.n_blocks = args.k / 32;
  p.row_bytes = static_cast<uint32_t>(format::row_bytes(args.type, args.k));
  for (uint32_t first = 0; first < args.n_matrices; first += kMostMatrices) {
    const uint32_t n = args.n_matrices - first < kMostMatrices ? args.n_matrices - first : kMostMatrices;
    for (uint32_t i = 0; i < n; ++i) p.matrices[i] = args.matrices[first + i];
    switch (args.type) {
#define OUTRIDER_CASE(unit, name, type)                              \
  case format::TensorType::type:                                     \
    launch_pack<Unit##unit, format::TensorType::type>(p, n, stream); \
    break;
      OUTRIDER_CUDA_PACKED(OUTRIDER_CASE)
#undef OUTRIDER_CASE
      default:
        break;
    }
  }
}

}  // namespace outrider::cuda

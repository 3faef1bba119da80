// SPDX-License-Identifier: Apache-2.0
// The scalar specification of the float products: F32, F16, BF16, and every type without an integer product, which is
// dequantised a block at a time.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "outrider/kernels/matmul/matmul_variants.h"
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/dequant.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kMostElems = 256;  // of a block

float fold(float (&acc)[kLanes]) noexcept {
  for (uint32_t half = kLanes / 2; half >= 1; half /= 2) {
    for (uint32_t j = 0; j < half; ++j) acc[j] += acc[j + half];
  }
  return acc[0];
}

// `dot(row, x)` is the product of one weight row and one token's activations.
template <typename Dot>
void run(const MatmulArgs& args, Dot dot) noexcept {
  for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
    const std::byte* row = args.weights.data + r * args.weights.row_bytes;
    for (uint32_t i = 0; i < args.n_tokens; ++i) {
      const uint64_t token = args.token_rows != nullptr ? args.token_rows[i] : i;
      args.out[i * args.out_stride + r] = dot(row, args.x.f32 + token * args.x.f32_stride);
    }
  }
}

// `weight(row, i)` is element i of the row as f32.
template <typename Weight>
void run_plain(const MatmulArgs& args, Weight weight) noexcept {
  const uint32_t k = args.weights.k;
  run(args, [k, weight](const std::byte* row, const float* x) {
    float acc[kLanes] = {};
    for (uint32_t i = 0; i < k; ++i) acc[i % kLanes] = std::fma(weight(row, i), x[i], acc[i % kLanes]);
    return fold(acc);
  });
}

}  // namespace

void matmul_f32_ref(const MatmulArgs& args) noexcept {
  run_plain(args, [](const std::byte* row, uint64_t i) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  });
}

void matmul_f16_ref(const MatmulArgs& args) noexcept {
  run_plain(args, [](const std::byte* row, uint64_t i) { return numerics::load_f16(row + 2 * i); });
}

void matmul_bf16_ref(const MatmulArgs& args) noexcept {
  run_plain(args,
            [](const std::byte* row, uint64_t i) { return numerics::bf16_to_f32(numerics::load_u16(row + 2 * i)); });
}

void matmul_generic_ref(const MatmulArgs& args) noexcept {
  const format::TypeInfo& info = format::type_info(args.weights.type);
  const numerics::DequantizeFn dequantize = numerics::dequantize_fn(args.weights.type);
  const uint32_t k = args.weights.k;
  run(args, [&info, dequantize, k](const std::byte* row, const float* x) {
    float acc[kLanes] = {};
    float w[kMostElems];
    for (uint32_t begin = 0; begin < k; begin += info.block_elems, row += info.block_bytes) {
      dequantize(row, w, info.block_elems);
      for (uint32_t i = 0; i < info.block_elems; ++i) {
        float& lane = acc[(begin + i) % kLanes];
        lane = std::fma(w[i], x[begin + i], lane);
      }
    }
    return fold(acc);
  });
}

}  // namespace outrider::kernels

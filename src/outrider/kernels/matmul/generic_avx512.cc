// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/float_avx512-inl.h"
#include "outrider/numerics/dequant.h"

namespace outrider::kernels {

// A block is dequantised once for up to kTokens tokens.
void matmul_generic_avx512(const MatmulArgs& args) noexcept {
  constexpr uint32_t kTokens = 16;
  const BlockShape block = block_shape(args.weights.type);
  const numerics::DequantizeFn dequantize = numerics::dequantize_fn(args.weights.type);
  for (uint32_t first = 0; first < args.n_tokens; first += kTokens) {
    const uint32_t n = args.n_tokens - first < kTokens ? args.n_tokens - first : kTokens;
    const float* x[kTokens];
    for (uint32_t t = 0; t < n; ++t) x[t] = x_of(args, first + t);
    for (uint32_t r = args.row_begin; r < args.row_end; ++r) {
      const std::byte* p = args.weights.data + r * args.weights.row_bytes;
      alignas(64) float w[kMostBlockElems];
      FloatLanes lanes[kTokens] = {};
      for (uint32_t begin = 0; begin < args.weights.k; begin += block.elems, p += block.bytes) {
        dequantize(p, w, block.elems);
        for (uint32_t t = 0; t < n; ++t) {
          FloatLanes sum = lanes[t];
          for (uint32_t i = 0; i < block.elems; i += 32) {
            join_32<StoredF32>(&sum, 1, reinterpret_cast<const uint8_t*>(w + i), &x[t], begin + i);
          }
          lanes[t] = sum;
        }
      }
      for (uint32_t t = 0; t < n; ++t) args.out[(first + t) * args.out_stride + r] = fold_32(lanes[t]);
    }
  }
}

}  // namespace outrider::kernels

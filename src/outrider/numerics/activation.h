// SPDX-License-Identifier: Apache-2.0
// The one activation format of every quantised product (design.md section 5, docs/numerics.md "Activations").
// A row of k elements (k a multiple of 32) is cut into blocks of 32; per block b, in f32:
//   amax = max |x|;  scale = 127 / amax;  q_i = int8(round-to-nearest-even(x_i * scale));  d_b = amax / 127
// (amax = 0: q and d are 0). sum32[b] is the exact sum of the 32 q, sum16[2b] and sum16[2b+1] those of its halves.
// A row that holds a NaN or an infinity gives d_b = NaN in that block, so that the fault shows in the output.
#pragma once

#include <cstdint>

namespace outrider::numerics {

inline constexpr uint32_t kActivationBlock = 32;

// Views over n_tokens rows; row t starts at t * k (q), t * k / 32 (d, sum32), t * k / 16 (sum16), t * f32_stride (f32).
struct Activations {
  const float* f32 = nullptr;      // (n_tokens, f32_stride)
  uint64_t f32_stride = 0;         // elements from row to row, >= k
  const int8_t* q = nullptr;       // (n_tokens, k)
  const float* d = nullptr;        // (n_tokens, k / 32)
  const int32_t* sum32 = nullptr;  // (n_tokens, k / 32)
  const int16_t* sum16 = nullptr;  // (n_tokens, k / 16)
  uint32_t k = 0;
};

}  // namespace outrider::numerics

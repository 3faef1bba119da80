// SPDX-License-Identifier: Apache-2.0
// The integer product unit of each quantised weight type: what one 32-element block adds to its lane. The law that
// every variant of matmul.h follows; docs/numerics.md "Products" repeats this table.
//
// A row of k elements is cut into blocks b = 0, 1, ..., k/32 - 1 of 32; in 256-element formats b = 8 * superblock +
// sub. With the activations q, d_a, s = sum32, and s0, s1 = sum16 of the block's halves (elements 0-15 and 16-31):
//   isum = the exact int32 of the table;  acc[b mod 8] = fma(float(isum), d_w * d_a, acc[b mod 8])
//   types with mins, right after:         acc[b mod 8] = fma(float(msum), d_m * d_a, acc[b mod 8])
// d_w * d_a and d_m * d_a are f32 products, rounded once. acc starts at +0. At the end the 8 lanes fold
// 0+4, 1+5, 2+6, 3+7, then 0+2, 1+3, then 0+1. c is the code as stored (unsigned), dot(..) the sum over the block of
// its argument times q, dot0 and dot1 the sums over the halves.
//
//   type    isum                                d_w      msum                     d_m    largest |isum|
//   Q4_0    dot(c - 8)                          d                                         32,512
//   Q4_1    dot(c)                              d        s                        m       60,960
//   Q5_0    dot(c - 16)                         d                                         65,024
//   Q5_1    dot(c)                              d        s                        m      125,984
//   Q8_0    dot(c), c signed                    d                                        520,192
//   IQ4_NL  dot(KV4[c])                         d                                        516,128
//   MXFP4   dot(KV_FP4[c])                      2^(e-128)                                 48,768
//   Q2_K    sc0 * dot0(c) + sc1 * dot1(c)       d        mn0 * s0 + mn1 * s1      -dmin  182,880
//   Q3_K    sc0 * dot0(c - 4) + sc1 * dot1(..)  d                                        520,192
//   Q4_K    sc * dot(c)                         d        mn * s                   -dmin  3,840,480
//   Q5_K    sc * dot(c)                         d        mn * s                   -dmin  7,936,992
//   Q6_K    sc0 * dot0(c - 32) + sc1 * dot1(..) d                                        16,646,144
//   IQ4_XS  (sc - 32) * dot(KV4[c])             d                                        16,516,096
//
// sc and mn are the block's sub-scales as integers: 4 bits per half in Q2_K, 6 bits less 32 per half in Q3_K, 6 bits
// per block in Q4_K and Q5_K, int8 per half in Q6_K, 6 bits per block in IQ4_XS. KV4 and KV_FP4 are
// numerics::kIq4Values and kFp4Values. All |isum| and |msum| are below 2^24 because |q| <= 127, so float(isum) and
// float(msum) are exact, and partial sums may be kept in f32 as well. d and m are f16 widened exactly; MXFP4's e = 255
// gives 2^127 (numerics). When a scale is NaN or infinite the result is NaN or infinite by IEEE rules; which NaN is not
// part of the law.
//
// F32, F16, BF16 and the types without a row above (the weight dequantised to f32 by numerics/dequant.h): element i
// joins lane i mod 32, lane = fma(w_i, x_i, lane), rising i from +0; lanes fold 16, 8, 4, 2, 1.
#pragma once

#include <cstdint>

namespace outrider::kernels {

inline constexpr uint32_t kBlockLanes = 8;
inline constexpr uint32_t kProductBlock = 32;

}  // namespace outrider::kernels

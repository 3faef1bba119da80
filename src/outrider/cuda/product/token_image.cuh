// SPDX-License-Identifier: Apache-2.0
// The activations of a product as wide tiles copy them: one piece of memory for 128 tokens and the 8 blocks of a step,
// laid out as it lies in shared memory, so that a step is one or two bulk copies by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::cuda {

inline constexpr uint32_t kImageTokens = 128;
inline constexpr uint32_t kImageUsed = 8;
inline constexpr uint32_t kImagePasses = 2;
inline constexpr uint32_t kImageStepBlocks = kImageUsed * kImagePasses;

struct ImagePiece {
  int8_t codes[2 * kImageUsed][kImageTokens][16];  // by 16 codes, then by token
  float d[kImageUsed][kImageTokens];               // tokens in the order of token_place()
  int32_t sum32[kImageUsed][kImageTokens];
  int32_t sum16[kImageUsed][kImageTokens];  // both halves
};

// The block that place `used` of a piece holds. The first of two passes takes the lanes 0, 1, 4, 5 of the law, the
// other 2, 3, 6, 7: those whose sums fold first.
constexpr uint32_t image_block(uint32_t step, uint32_t pass, uint32_t used) {
  return step * kImageStepBlocks + 2 * pass + used / 4 * 8 + used % 4 / 2 * 4 + used % 2;
}
// Where the factor of a token lies: those of a thread of mma or wgmma, tokens 2t, 2t + 1 of two neighbouring groups of
// eight, side by side.
constexpr uint32_t token_place(uint32_t token) {
  return token / 16 * 16 + token % 8 / 2 * 4 + token % 16 / 8 * 2 + token % 2;
}
constexpr uint32_t image_steps(uint32_t n_blocks) { return (n_blocks + kImageStepBlocks - 1) / kImageStepBlocks; }
constexpr uint32_t image_groups(uint32_t n_tokens) { return (n_tokens + kImageTokens - 1) / kImageTokens; }
// Pieces stand by job, group of 128 tokens, step, pass.
constexpr uint64_t image_piece(uint32_t job, uint32_t n_groups, uint32_t group, uint32_t n_steps, uint32_t step,
                               uint32_t pass) {
  return ((static_cast<uint64_t>(job) * n_groups + group) * n_steps + step) * kImagePasses + pass;
}

}  // namespace outrider::cuda

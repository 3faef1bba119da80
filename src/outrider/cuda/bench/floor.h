// SPDX-License-Identifier: Apache-2.0
// Launches that only read: what share of the copy rate is left to a kernel of that many bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace outrider::cuda {

enum class FloorWay : uint8_t {
  kAfter,   // a launch begins when the one before is done
  kBehind,  // it begins earlier, but reads then
  kAhead,   // it reads as soon as there is room, and ends after the one before
};
struct FloorArgs {
  const std::byte* from = nullptr;  // block_bytes for each block of threads, side by side
  uint32_t block_bytes = 0;         // a multiple of 16
  uint32_t* out = nullptr;          // a word for each thread
  FloorWay way = FloorWay::kAfter;
};
void read_floor(const FloorArgs& args, uint32_t n_blocks, cudaStream_t stream);

}  // namespace outrider::cuda

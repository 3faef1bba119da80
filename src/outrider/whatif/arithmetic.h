// SPDX-License-Identifier: Apache-2.0
// Loops that keep the multiply units of one core busy and touch no memory: the ceiling for any kernel of an instruction
// set. Products are counted as multiply-adds (MAC), int8 x int8 into int32 and f32 fma.
#pragma once

#include <cstdint>
#include <span>

#include "outrider/base/isa.h"

namespace outrider::whatif {

struct ArithmeticLoop {
  Isa isa;
  uint64_t macs_per_round;                    // of one round of the loop
  uint64_t (*run)(uint64_t rounds) noexcept;  // the value keeps the work alive
};

// By rising instruction set; not all of them run on this processor.
std::span<const ArithmeticLoop> int8_loops() noexcept;
std::span<const ArithmeticLoop> f32_loops() noexcept;

uint64_t int8_loop_avx2(uint64_t rounds) noexcept;
uint64_t int8_loop_avx512(uint64_t rounds) noexcept;
uint64_t f32_loop_avx2(uint64_t rounds) noexcept;
uint64_t f32_loop_avx512(uint64_t rounds) noexcept;
inline constexpr uint32_t kAccumulators = 12;  // independent, more than latency times ports

}  // namespace outrider::whatif

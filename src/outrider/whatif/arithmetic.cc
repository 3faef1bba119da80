// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/arithmetic.h"

#include <array>

namespace outrider::whatif {
namespace {

#if defined(__x86_64__)
constexpr std::array<ArithmeticLoop, 2> kInt8 = {
    {{Isa::kAvx2, 32 * kAccumulators, int8_loop_avx2}, {Isa::kAvx512, 64 * kAccumulators, int8_loop_avx512}}};
constexpr std::array<ArithmeticLoop, 2> kF32 = {
    {{Isa::kAvx2, 8 * kAccumulators, f32_loop_avx2}, {Isa::kAvx512, 16 * kAccumulators, f32_loop_avx512}}};
#else
constexpr std::array<ArithmeticLoop, 0> kInt8 = {};
constexpr std::array<ArithmeticLoop, 0> kF32 = {};
#endif

}  // namespace

std::span<const ArithmeticLoop> int8_loops() noexcept { return kInt8; }
std::span<const ArithmeticLoop> f32_loops() noexcept { return kF32; }

}  // namespace outrider::whatif

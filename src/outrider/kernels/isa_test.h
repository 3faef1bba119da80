// SPDX-License-Identifier: Apache-2.0
// For tests that run once per instruction set: TEST_P(IsaTest, ...) is skipped, by name, where the processor lacks it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "outrider/base/cpu.h"

namespace outrider::kernels {

class IsaTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam())) GTEST_SKIP() << "this processor lacks " << isa_name(GetParam());
  }
};

inline std::string isa_test_name(const ::testing::TestParamInfo<Isa>& info) {
  return std::string(isa_name(info.param));
}

// Equal bits, any NaN equal to any NaN (payloads are not part of the law). Names the first difference.
inline ::testing::AssertionResult same_bits(std::span<const float> want, std::span<const float> got) {
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan = std::isnan(want[i]) && std::isnan(got[i]);
    if (!both_nan && std::bit_cast<uint32_t>(want[i]) != std::bit_cast<uint32_t>(got[i])) {
      return ::testing::AssertionFailure()
             << "index " << i << " of " << want.size() << ": want " << want[i] << " got " << got[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline constexpr double kUnit = 0x1p-24;  // largest relative error of one f32 rounding

}  // namespace outrider::kernels

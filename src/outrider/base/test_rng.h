// SPDX-License-Identifier: Apache-2.0
// Seeds for tests: fixed by default, or from OUTRIDER_TEST_SEED, and printed when a test fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "outrider/base/random.h"

namespace outrider {

class TestRng : public Random {
 public:
  explicit TestRng(uint64_t salt = 1) : TestRng(salt, base_seed()) {}

 private:
  static uint64_t base_seed() {
    const char* text = std::getenv("OUTRIDER_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261129;
  }
  TestRng(uint64_t salt, uint64_t base)
      : Random(base * 0x9E3779B97F4A7C15ULL + salt),
        trace_(__FILE__, __LINE__, "OUTRIDER_TEST_SEED=" + std::to_string(base) + " salt " + std::to_string(salt)) {}
  ::testing::ScopedTrace trace_;
};

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace outrider::observe {
namespace {

TEST(Digest, DependsOnEveryBitAndOnTheBordersOfRows) {
  const std::array<float, 4> row = {0.0F, 1.5F, -2.25F, INFINITY};
  Digest a;
  Digest b;
  a.add(row);
  b.add(row);
  EXPECT_EQ(a.hex(), b.hex());
  EXPECT_EQ(a.hex().size(), 32U);

  std::array<float, 4> negative_zero = row;
  negative_zero[0] = -0.0F;  // equal as a number, other bits
  Digest c;
  c.add(negative_zero);
  EXPECT_NE(a.hex(), c.hex());

  Digest split;
  split.add(std::span(row).first(2));
  split.add(std::span(row).last(2));
  EXPECT_NE(a.hex(), split.hex());
}

TEST(Digest, GoesOnAfterHex) {
  const std::array<float, 2> row = {1.0F, 2.0F};
  Digest a;
  Digest b;
  const std::string empty = a.hex();
  a.add(row);
  b.add(row);
  EXPECT_NE(a.hex(), empty);
  a.add(row);
  b.add(row);
  EXPECT_EQ(a.hex(), b.hex());
}

}  // namespace
}  // namespace outrider::observe

// SPDX-License-Identifier: Apache-2.0
#include "outrider/numerics/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/numerics/dequant.h"

namespace outrider::numerics {
namespace {

using format::TensorType;

std::vector<TensorType> types_made() {
  std::vector<TensorType> types;
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (can_quantize(info.type)) types.push_back(info.type);
  }
  return types;
}

std::vector<std::byte> quantized(TensorType type, const std::vector<float>& x) {
  std::vector<std::byte> blocks(format::row_bytes(type, x.size()));
  quantize(type, x.data(), blocks.data(), x.size());
  return blocks;
}

std::vector<float> dequantized(TensorType type, const std::vector<std::byte>& blocks) {
  const format::TypeInfo& info = format::type_info(type);
  std::vector<float> y(blocks.size() / info.block_bytes * info.block_elems);
  dequantize(type, blocks.data(), y.data(), y.size());
  return y;
}

double relative_rmse(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += difference * difference;
    power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(error / power);
}

// Bell-shaped (a sum of four uniform draws) without a library function, so that it is the same data everywhere.
std::vector<float> bell(Random& random, size_t n) {
  std::vector<float> x(n);
  for (float& v : x) {
    v = static_cast<float>((random.uniform() + random.uniform() + random.uniform() + random.uniform() - 2.0) * 0.03);
  }
  return x;
}

uint64_t fnv1a(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint8_t>(b)) * 0x100000001B3ULL;
  return hash;
}

// What ggml_quantize_chunk of llama.cpp v0.5.0 (libggml-base.so of node-llama-cpp 3.22.1, no importance matrix) makes
// of 64 rows of 1,024 bell() values, seed 20261129: relative RMSE and, where our rule is the same, a hash of the bytes.
struct Peer {
  TensorType type;
  double relative_rmse;
  std::optional<uint64_t> bytes_hash;
};
const Peer kPeer[] = {
    {TensorType::kQ4_0, 0.081553, 0x74C133B525B841D8ULL}, {TensorType::kQ4_1, 0.075056, 0x418F70C984D39E67ULL},
    {TensorType::kQ5_0, 0.040426, 0xFD9FD36023CCCB79ULL}, {TensorType::kQ5_1, 0.036397, 0xC959EFE069840291ULL},
    {TensorType::kQ8_0, 0.005061, 0x242E6DAC7072945CULL}, {TensorType::kMXFP4, 0.111872, 0xFE835C657D98AC88ULL},
    {TensorType::kQ2_K, 0.285939, std::nullopt},          {TensorType::kQ3_K, 0.145439, std::nullopt},
    {TensorType::kQ4_K, 0.068566, std::nullopt},          {TensorType::kQ5_K, 0.034624, std::nullopt},
    {TensorType::kQ6_K, 0.016985, std::nullopt},          {TensorType::kIQ4_NL, 0.073738, std::nullopt},
    {TensorType::kIQ4_XS, 0.074254, std::nullopt},
};

TEST(Quantize, RuleFormatsGiveGgmlsBytes) {
  Random random(20261129);
  const std::vector<float> x = bell(random, 65536);
  for (const Peer& peer : kPeer) {
    if (peer.bytes_hash) {
      EXPECT_EQ(fnv1a(quantized(peer.type, x)), *peer.bytes_hash) << format::type_info(peer.type).name;
    }
  }
}

TEST(Quantize, ErrorIsNoLargerThanGgmls) {
  Random random(20261129);
  const std::vector<float> x = bell(random, 65536);
  for (const Peer& peer : kPeer) {
    const double error = relative_rmse(x, dequantized(peer.type, quantized(peer.type, x)));
    EXPECT_LE(error, peer.relative_rmse + 5e-7) << format::type_info(peer.type).name;  // printed to six places
  }
}

TEST(Quantize, EveryTypeMadeHasAPeerFigureOrIsAPlainFloat) {
  for (const TensorType type : types_made()) {
    const bool has_peer =
        std::any_of(std::begin(kPeer), std::end(kPeer), [&](const Peer& p) { return p.type == type; });
    EXPECT_NE(has_peer, format::type_info(type).block_elems == 1) << format::type_info(type).name;
  }
  EXPECT_EQ(types_made().size(), std::size(kPeer) + 3);
  EXPECT_FALSE(can_quantize(TensorType::kIQ2_XXS));
  EXPECT_FALSE(can_quantize(TensorType::kI32));
}

// |x - y| for one block of 32 of the rule formats, from the rounding alone: `steps` * step, and the rounding of the f16
// scale (relative 2^-11) on the largest code.
TEST(Quantize, RuleFormatsKeepEachElementWithinItsStep) {
  struct Bound {
    TensorType type;
    double codes;  // step = span / codes
    bool affine;   // span = high - low, else the largest magnitude
    double steps;  // a signed format lacks the code opposite to its extreme: up to one step there
  };
  const Bound bounds[] = {{TensorType::kQ4_0, 8, false, 1.0},
                          {TensorType::kQ5_0, 16, false, 1.0},
                          {TensorType::kQ8_0, 127, false, 0.5},
                          {TensorType::kQ4_1, 15, true, 0.5},
                          {TensorType::kQ5_1, 31, true, 0.5}};
  TestRng rng;
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> x = bell(rng, 32);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const double largest = std::max(std::fabs(*low), std::fabs(*high));
    for (const Bound& bound : bounds) {
      const double span = bound.affine ? static_cast<double>(*high) - static_cast<double>(*low) : largest;
      const double limit =
          span / bound.codes * bound.steps * (1 + 0x1p-10) + (span + (bound.affine ? largest : 0)) * 0x1p-11;
      const std::vector<float> y = dequantized(bound.type, quantized(bound.type, x));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::fabs(x[i] - y[i]), limit)
            << format::type_info(bound.type).name << " element " << i << " x " << x[i];
      }
    }
  }
}

TEST(Quantize, SymmetricRuleFormatsAreIdempotent) {
  TestRng rng;
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0,
                                TensorType::kQ5_0, TensorType::kQ8_0, TensorType::kMXFP4}) {
    const std::vector<std::byte> once = quantized(type, bell(rng, 32 * 500));
    EXPECT_EQ(quantized(type, dequantized(type, once)), once) << format::type_info(type).name;
  }
}

TEST(Quantize, BlocksAreIndependentAndRepeatable) {
  TestRng rng;
  for (const TensorType type : types_made()) {
    const format::TypeInfo& info = format::type_info(type);
    const std::vector<float> x = bell(rng, 4 * info.block_elems);
    const std::vector<std::byte> all = quantized(type, x);
    for (size_t block = 0; block < 4; ++block) {
      const std::vector<float> part(x.begin() + static_cast<std::ptrdiff_t>(block * info.block_elems),
                                    x.begin() + static_cast<std::ptrdiff_t>((block + 1) * info.block_elems));
      const std::vector<std::byte> one = quantized(type, part);
      EXPECT_EQ(std::memcmp(one.data(), all.data() + block * info.block_bytes, info.block_bytes), 0) << info.name;
    }
  }
}

TEST(Quantize, ZerosStayZeroAndConstantsStayClose) {
  for (const TensorType type : types_made()) {
    const format::TypeInfo& info = format::type_info(type);
    for (const float y : dequantized(type, quantized(type, std::vector<float>(256, 0.0F))))
      EXPECT_EQ(y, 0.0F) << info.name;
    for (const float c : {0.75F, -0.75F}) {  // a value of every format's code set up to its scale, e.g. 6 / 8 in MXFP4
      for (const float y : dequantized(type, quantized(type, std::vector<float>(256, c)))) {
        // Two roundings of scales to f16 (2^-11 each), one sub-scale at an end of its range.
        EXPECT_NEAR(y, c, 0.75 * 0x1p-9) << info.name;
      }
    }
  }
}

// One element far from the rest, all sizes of numbers: the blocks always decode to finite values.
TEST(Quantize, AnyFiniteInputDecodesToFiniteValues) {
  TestRng rng;
  for (const TensorType type : types_made()) {
    if (type == TensorType::kF16 || type == TensorType::kBF16) continue;  // overflow to infinity is their rounding rule
    for (const float magnitude : {1e-45F, 1e-38F, 1e-30F, 1e-15F, 1e-8F, 1.0F, 1e4F, 1e8F, 1e30F, 3e38F}) {
      for (const float rest : {0.0F, 1e-3F, 1.0F}) {
        std::vector<float> x = bell(rng, 256);
        for (float& v : x) v = std::clamp(v * 10.0F, -1.0F, 1.0F) * magnitude * rest;
        x[rng.below(256)] = magnitude;
        x[rng.below(256)] = -magnitude;
        for (const float y : dequantized(type, quantized(type, x))) {
          ASSERT_TRUE(std::isfinite(y)) << format::type_info(type).name << ' ' << magnitude << ' ' << rest;
        }
      }
    }
  }
}

}  // namespace
}  // namespace outrider::numerics

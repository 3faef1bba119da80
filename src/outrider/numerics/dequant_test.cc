// SPDX-License-Identifier: Apache-2.0
#include "outrider/numerics/dequant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/numerics/blocks.h"
#include "outrider/numerics/iq_grids.h"

namespace outrider::numerics {
namespace {

using format::TensorType;

std::vector<std::byte> bytes_from_hex(const std::string& hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<float> dequantized(TensorType type, const std::vector<std::byte>& blocks) {
  const format::TypeInfo& info = format::type_info(type);
  std::vector<float> y(blocks.size() / info.block_bytes * info.block_elems);
  dequantize(type, blocks.data(), y.data(), y.size());
  return y;
}

// p_i = (37 i + 11) mod 256, the pattern of the spec's vectors.
std::vector<std::byte> pattern_block(TensorType type) {
  std::vector<std::byte> block(format::type_info(type).block_bytes);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>((37 * i + 11) % 256);
  return block;
}

void put_u16(std::vector<std::byte>& block, uint32_t offset, uint16_t value) {
  std::memcpy(block.data() + offset, &value, sizeof value);
}

TEST(Dequant, GoldenBlocksGiveGgmlsBits) {
  std::ifstream file(OUTRIDER_SOURCE_DIR "/tests/golden/dequant/dequant.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::set<uint32_t> seen;
  for (const auto& entry : golden.at("types")) {
    const auto id = entry.at("id").get<uint32_t>();
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const format::TypeInfo* info = format::find_type(id);
    ASSERT_NE(info, nullptr);
    ASSERT_EQ(info->block_elems, entry.at("block_elements").get<uint32_t>());
    ASSERT_EQ(info->block_bytes, entry.at("block_bytes").get<uint32_t>());
    const std::vector<float> y = dequantized(info->type, bytes_from_hex(entry.at("data").get<std::string>()));
    const auto words = entry.at("f32").get<std::string>();
    ASSERT_EQ(y.size() * 8, words.size());
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::stoul(words.substr(8 * i, 8), nullptr, 16)) << "element " << i;
    }
    seen.insert(id);
  }
  EXPECT_EQ(seen.size(), 27U);
}

struct SpecVector {
  TensorType type;
  std::array<float, 6> first;
  float last;
  double sum, weighted_sum;  // of y_i and of (i + 1) y_i
};

// ../shared/spec/gguf-and-quants.md section 6.11.
const SpecVector kSpecVectors[] = {
    {TensorType::kQ4_0, {-3, 2, 7, -4, 1, 6}, 0, -21, -518},
    {TensorType::kQ4_1, {15.5, 4.5, 9.5, 14.5, 3.5, 8.5}, 12.5, 261, 4247},
    {TensorType::kQ5_0, {9, -2, 3, -8, 13, -14}, 1, 15, 112},
    {TensorType::kQ5_1, {19.5, 24.5, 29.5, 18.5, 23.5, 12.5}, 5.5, 521, 8165},
    {TensorType::kQ8_0, {85, 122, -97, -60, -23, 14}, -48, -176, -8080},
    {TensorType::kIQ4_NL, {-35, 25, 113, -49, 13, 89}, 1, -257, -6919},
    {TensorType::kMXFP4, {0, 6, -2, -12, 4, -1}, 6, 25, 638},
    {TensorType::kNVFP4, {-6, 2, -0.5, -4, 1.5, 0}, 0.0068359375F, -21.4248046875, -861.3037109375},
    {TensorType::kQ1_0, {1, -1, 1, -1, 1, -1}, 1, 0, -532},
    {TensorType::kQ2_0, {0, 0, 0, 0, 1, 1}, 1, 30, 813},
    {TensorType::kQ2_K, {33, 0, 11, 22, 33, 0}, 4.5, 2059, 243130},
    {TensorType::kQ3_K, {81, -108, 27, -54, 81, -108}, 42, 958, 177145},
    {TensorType::kQ4_K, {315.5, -25.5, 129.5, 284.5, 439.5, 98.5}, 48.5, 54440, 7572840},
    {TensorType::kQ5_K, {811.5, -25.5, 625.5, 284.5, 935.5, 98.5}, 108.5, 116216, 16027448},
    {TensorType::kQ6_K, {-1431, 1696, 583, -530, -1643, 1484}, -60, 4612, 784420},
    {TensorType::kIQ4_XS, {65, -1, -69, 83, 10, -53}, -16, -11005, -2091134},
    {TensorType::kTQ1_0, {-1, -1, -1, 0, 0, 1}, -1, -2, -131},
    {TensorType::kTQ2_0, {2, -1, 0, 1, 2, -1}, -1, 129, 17245},
};

// The pattern block with d = 1.0 and dmin or m = 0.5; MXFP4: e = 128; NVFP4: scales 38 40 3C 07.
std::vector<std::byte> spec_block(TensorType type) {
  std::vector<std::byte> block = pattern_block(type);
  constexpr uint16_t kOne = 0x3C00, kHalf = 0x3800;
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      put_u16(block, 0, kOne);
      put_u16(block, 2, kHalf);
      break;
    case TensorType::kQ2_K:
      put_u16(block, Q2_K::kD, kOne);
      put_u16(block, Q2_K::kDmin, kHalf);
      break;
    case TensorType::kQ3_K:
      put_u16(block, Q3_K::kD, kOne);
      break;
    case TensorType::kQ6_K:
      put_u16(block, Q6_K::kD, kOne);
      break;
    case TensorType::kTQ1_0:
      put_u16(block, TQ1_0::kD, kOne);
      break;
    case TensorType::kTQ2_0:
      put_u16(block, TQ2_0::kD, kOne);
      break;
    case TensorType::kMXFP4:
      block[0] = std::byte{128};
      break;
    case TensorType::kNVFP4:
      block[0] = std::byte{0x38};
      block[1] = std::byte{0x40};
      block[2] = std::byte{0x3C};
      block[3] = std::byte{0x07};
      break;
    default:
      put_u16(block, 0, kOne);
  }
  return block;
}

TEST(Dequant, PatternBlocksGiveTheSpecsVectors) {
  for (const SpecVector& want : kSpecVectors) {
    SCOPED_TRACE(format::type_info(want.type).name);
    const std::vector<float> y = dequantized(want.type, spec_block(want.type));
    for (size_t i = 0; i < want.first.size(); ++i) EXPECT_EQ(y[i], want.first[i]) << i;
    EXPECT_EQ(y.back(), want.last);
    double weighted_sum = 0;
    for (size_t i = 0; i < y.size(); ++i) weighted_sum += static_cast<double>(i + 1) * static_cast<double>(y[i]);
    EXPECT_EQ(std::accumulate(y.begin(), y.end(), 0.0), want.sum);
    EXPECT_EQ(weighted_sum, want.weighted_sum);
  }
}

constexpr uint32_t kGroups[4] = {0, 1, 5, 31};

float pattern_scale(TensorType type) { return load_f16(pattern_block(type).data()); }

TEST(Dequant, Iq2PatternUnpacksToTheSpecsIndicesSignsAndScales) {
  struct Unpacked {
    uint32_t index, signs, s;
  };
  const auto check = [](TensorType type, const auto& grid, const std::array<Unpacked, 4>& want) {
    SCOPED_TRACE(format::type_info(type).name);
    const std::vector<float> y = dequantized(type, pattern_block(type));
    for (size_t n = 0; n < 4; ++n) {
      const float scale = pattern_scale(type) * (0.5F + static_cast<float>(want[n].s)) * 0.25F;
      for (uint32_t j = 0; j < 8; ++j) {
        const float sign = ((want[n].signs >> j) & 1U) != 0 ? -1.0F : 1.0F;
        EXPECT_EQ(y[8 * kGroups[n] + j], scale * sign * static_cast<float>(grid[want[n].index][j])) << n << ' ' << j;
      }
    }
  };
  check(TensorType::kIQ2_XXS, kIq2XxsGrid, {{{85, 105, 5}, {122, 29, 5}, {162, 108, 8}, {220, 130, 7}}});
  check(TensorType::kIQ2_XS, kIq2XsGrid, {{{85, 189, 5}, {159, 226, 5}, {199, 246, 10}, {75, 184, 9}}});
  check(TensorType::kIQ2_S, kIq2SGrid, {{{341, 245, 13}, {378, 26, 13}, {526, 174, 2}, {720, 112, 12}}});
}

TEST(Dequant, Iq3PatternUnpacksToTheSpecsIndicesSignsAndScales) {
  struct Unpacked {
    uint32_t even, odd, signs, s;
  };
  const auto check = [](TensorType type, const auto& grid, float step, float base,
                        const std::array<Unpacked, 4>& want) {
    SCOPED_TRACE(format::type_info(type).name);
    const std::vector<float> y = dequantized(type, pattern_block(type));
    for (size_t n = 0; n < 4; ++n) {
      const float scale = pattern_scale(type) * (base + step * static_cast<float>(want[n].s));
      for (uint32_t j = 0; j < 8; ++j) {
        const float sign = ((want[n].signs >> j) & 1U) != 0 ? -1.0F : 1.0F;
        const int8_t value = grid[j < 4 ? want[n].even : want[n].odd][j % 4];
        EXPECT_EQ(y[8 * kGroups[n] + j], scale * sign * static_cast<float>(value)) << n << ' ' << j;
      }
    }
  };
  check(TensorType::kIQ3_XXS, kIq3XxsGrid, 0.5F, 0.25F,
        {{{85, 122, 149, 0}, {159, 196, 245, 0}, {199, 236, 156, 9}, {75, 112, 135, 1}}});
  check(TensorType::kIQ3_S, kIq3SGrid, 2.0F, 1.0F,
        {{{341, 122, 189, 13}, {415, 196, 226, 13}, {199, 492, 118, 5}, {75, 368, 56, 12}}});
}

TEST(Dequant, Iq1PatternUnpacksToTheSpecsIndicesScalesAndShifts) {
  struct Unpacked {
    uint32_t index, s;
    bool negative;
  };
  const auto check = [](TensorType type, float d, const std::array<Unpacked, 4>& want) {
    SCOPED_TRACE(format::type_info(type).name);
    const std::vector<float> y = dequantized(type, pattern_block(type));
    for (size_t n = 0; n < 4; ++n) {
      const float scale = d * static_cast<float>(2 * want[n].s + 1);
      for (uint32_t j = 0; j < 8; ++j) {
        const float value = static_cast<float>(kIq1Grid[want[n].index][j]) + (want[n].negative ? -0.125F : 0.125F);
        EXPECT_EQ(y[8 * kGroups[n] + j], scale * value) << n << ' ' << j;
      }
    }
  };
  check(TensorType::kIQ1_S, pattern_scale(TensorType::kIQ1_S),
        {{{1365, 1, false}, {1658, 1, false}, {1806, 6, false}, {208, 2, false}}});
  check(TensorType::kIQ1_M, f16_to_f32(0xFB62), {{{779, 3, true}, {560, 3, true}, {1988, 3, true}, {1414, 7, true}}});
}

TEST(Dequant, GridsHaveTheSpecsFirstAndLastEntries) {
  using Eight = std::array<int8_t, 8>;
  using Four = std::array<int8_t, 4>;
  const Eight lowest = {8, 8, 8, 8, 8, 8, 8, 8};
  const Eight highest = {43, 43, 43, 43, 43, 43, 43, 43};
  EXPECT_EQ(kIq2XxsGrid.front(), lowest);
  EXPECT_EQ(kIq2XsGrid.front(), lowest);
  EXPECT_EQ(kIq2SGrid.front(), lowest);
  EXPECT_EQ(kIq2XxsGrid[1], (Eight{43, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(kIq2XxsGrid[2], (Eight{25, 25, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(kIq2XxsGrid.back(), (Eight{8, 25, 8, 8, 25, 43, 43, 43}));
  EXPECT_EQ(kIq2XsGrid.back(), highest);
  EXPECT_EQ(kIq2SGrid.back(), highest);
  EXPECT_EQ(kIq3XxsGrid.front(), (Four{4, 4, 4, 4}));
  EXPECT_EQ(kIq3XxsGrid.back(), (Four{4, 28, 52, 62}));
  EXPECT_EQ(kIq3SGrid.front(), (Four{1, 1, 1, 1}));
  EXPECT_EQ(kIq3SGrid.back(), (Four{1, 1, 15, 15}));
  EXPECT_EQ(kIq1Grid.front(), (Eight{-1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(kIq1Grid.back(), (Eight{1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Dequant, ScaleBytesAtTheirLimitsFollowTheReference) {
  EXPECT_EQ(std::bit_cast<uint32_t>(e8m0_half(0)), 0x00200000U);  // 2^-128
  EXPECT_EQ(std::bit_cast<uint32_t>(e8m0_half(1)), 0x00400000U);
  EXPECT_EQ(e8m0_half(2), 0x1p-126F);
  EXPECT_EQ(e8m0_half(128), 1.0F);
  EXPECT_EQ(e8m0_half(255), 0x1p127F);
  EXPECT_EQ(ue4m3_half(0), 0.0F);
  EXPECT_EQ(ue4m3_half(1), 0x1p-10F);
  EXPECT_EQ(ue4m3_half(0x38), 0.5F);
  EXPECT_EQ(ue4m3_half(0x7E), 224.0F);
  EXPECT_EQ(ue4m3_half(0x7F), 0.0F);
  EXPECT_EQ(ue4m3_half(0xB8), 0.5F);
}

TEST(Dequant, SevenBitSignCodesGiveBytesWithAnEvenNumberOfOnes) {
  for (uint32_t code = 0; code < 128; ++code) {
    EXPECT_EQ(even_signs(code) & 127U, code);
    EXPECT_EQ(std::popcount(even_signs(code)) % 2, 0) << code;
  }
}

// Any bytes are a block: nothing outside it is read, wherever it lies, and any run of blocks equals its single blocks.
TEST(Dequant, BlocksMayLieAtAnyAddressAndStandAlone) {
  TestRng rng;
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (!info.is_weight) continue;
    SCOPED_TRACE(info.name);
    constexpr uint32_t kBlocks = 3;
    std::vector<std::byte> blocks(kBlocks * info.block_bytes);
    for (std::byte& b : blocks) b = static_cast<std::byte>(rng.next_u64());
    const std::vector<float> y = dequantized(info.type, blocks);
    for (uint32_t shift = 0; shift < 4; ++shift) {
      std::vector<std::byte> moved(shift + info.block_bytes);  // ends with the block, for the address sanitizer
      for (uint32_t block = 0; block < kBlocks; ++block) {
        std::memcpy(moved.data() + shift, blocks.data() + block * info.block_bytes, info.block_bytes);
        std::vector<float> one(info.block_elems);
        dequantize_fn(info.type)(moved.data() + shift, one.data(), info.block_elems);
        EXPECT_EQ(std::memcmp(one.data(), y.data() + block * info.block_elems, one.size() * sizeof(float)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace outrider::numerics

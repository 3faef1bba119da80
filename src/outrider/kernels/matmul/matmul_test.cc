// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/matmul/matmul.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/kernels/matmul/matmul_variants.h"
#include "outrider/kernels/quantize_act/quantize_act.h"
#include "outrider/numerics/dequant.h"
#include "outrider/numerics/test_blocks.h"

namespace outrider::kernels {
namespace {

using format::TensorType;
using format::TypeInfo;

using numerics::kNoField;
using numerics::put_f16;
using numerics::ScaleFields;

// A weight matrix and activations for it, at an unaligned address, with both activation forms filled in.
struct Problem {
  Problem(TensorType type, uint32_t n_rows_in, uint32_t k_in, uint32_t n_tokens_in, Random& rng,
          bool has_faults = false)
      : n_rows(n_rows_in), k(k_in), n_tokens(n_tokens_in), f32_stride(k_in + 3) {
    const TypeInfo& info = format::type_info(type);
    const uint64_t row_bytes = format::row_bytes(type, k);
    bytes.resize(n_rows * row_bytes + 64);
    std::byte* data = bytes.data() + 1 + rng.below(15);
    for (uint64_t b = 0; b < n_rows * row_bytes / info.block_bytes; ++b) {
      std::byte* block = data + b * info.block_bytes;
      numerics::random_block(info, rng, block);
      if (has_faults && rng.below(20) == 0) numerics::put_fault(info, rng, block);
    }
    weights = {type, data, row_bytes, n_rows, k};
    f32.resize(n_tokens * f32_stride);
    for (float& x : f32) x = static_cast<float>(rng.normal());
    const uint32_t padded = k / 32 * 32;
    q.resize(n_tokens * padded + 1);
    d.resize(n_tokens * (padded / 32) + 1);
    sum32.resize(n_tokens * (padded / 32) + 1);
    sum16.resize(n_tokens * (padded / 16) + 1);
    for (uint64_t t = 0; t < n_tokens; ++t) {
      choose_quantize_act(Isa::kScalar)(&f32[t * f32_stride], padded, &q[t * padded], &d[t * (padded / 32)],
                                        &sum32[t * (padded / 32)], &sum16[t * (padded / 16)]);
    }
  }

  MatmulArgs args(uint32_t row_begin, uint32_t row_end, uint32_t count, const uint32_t* token_rows, float* out) const {
    return {weights,    row_begin, row_end, {f32.data(), f32_stride, q.data(), d.data(), sum32.data(), sum16.data(), k},
            token_rows, count,     out,     n_rows + 2U};
  }

  uint32_t n_rows, k, n_tokens;
  uint64_t f32_stride;
  std::vector<std::byte> bytes;
  Weights weights;
  std::vector<float> f32, d;
  std::vector<int8_t> q;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
};

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

MatmulFn reference(TensorType type) { return choose_matmul(Isa::kScalar, type); }

constexpr float kUntouched = -12345.5F;

// Runs `fn` over part of the problem and compares with `want` (all rows of all tokens, by the reference).
void expect_reference_bits(const Problem& problem, const std::vector<float>& want, MatmulFn fn, uint32_t row_begin,
                           uint32_t row_end, uint32_t count, const uint32_t* token_rows) {
  const uint64_t stride = problem.n_rows + 2U;
  std::vector<float> got(count * stride + 1, kUntouched);
  fn(problem.args(row_begin, row_end, count, token_rows, got.data()));
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t token = token_rows != nullptr ? token_rows[i] : i;
    for (uint32_t r = 0; r < stride; ++r) {
      const float expected = r >= row_begin && r < row_end ? want[token * stride + r] : kUntouched;
      ASSERT_TRUE(same_bits(expected, got[i * stride + r]))
          << "k " << problem.k << " rows " << row_begin << ".." << row_end << " tokens " << count << " gathered "
          << (token_rows != nullptr) << ": row " << r << " token " << i << " want " << expected << " got "
          << got[i * stride + r];
    }
  }
}

class MatmulVariants : public testing::TestWithParam<MatmulVariant> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam().needs)) GTEST_SKIP() << "this processor lacks " << isa_name(GetParam().needs);
  }
};

// Row lengths: none, every remainder of a group, real ones. The scalar rows only show that slices and gathering hold.
std::vector<uint32_t> lengths(const TypeInfo& info, Isa needs) {
  if (needs == Isa::kScalar) return {0, info.block_elems, 2 * info.block_elems, 512};
  std::vector<uint32_t> ks = {0};
  for (uint32_t n = 1; n <= 9; ++n) ks.push_back(n * info.block_elems);
  if (info.block_elems == 1) ks.insert(ks.end(), {15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257});
  for (const uint32_t k : {256U, 512U, 2048U, 7168U}) {
    if (k % info.block_elems == 0) ks.push_back(k);
  }
  return ks;
}

// Bytes between two pages that nobody may touch: right behind the first or right before the second.
class Fenced {
 public:
  Fenced(const std::byte* data, uint64_t n_bytes, bool at_end)
      : page_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))), inner_((n_bytes + page_ - 1) / page_ * page_) {
    void* memory = ::mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OUTRIDER_CHECK(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    if (inner_ > 0) OUTRIDER_CHECK(::mprotect(memory_ + page_, inner_, PROT_READ | PROT_WRITE) == 0);
    data_ = memory_ + page_ + (at_end ? inner_ - n_bytes : 0);
    std::memcpy(data_, data, n_bytes);
  }
  ~Fenced() { ::munmap(memory_, inner_ + 2 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  const std::byte* data() const noexcept { return data_; }

 private:
  const uint64_t page_, inner_;
  std::byte *memory_ = nullptr, *data_ = nullptr;
};

// Loads that begin early or end late stay within the matrix: a file's first and last bytes have nothing beside them.
TEST_P(MatmulVariants, ReadNothingBesideTheWeights) {
  const auto& [type, needs, fn] = GetParam();
  TestRng rng(static_cast<uint64_t>(type) + 500);
  const uint32_t block = format::type_info(type).block_elems;
  for (const uint32_t k : {block, 3 * block, 768U}) {
    for (const uint32_t n_rows : {1U, 3U, 19U}) {
      Problem problem(type, n_rows, k, 9, rng);
      std::vector<float> want(9 * (n_rows + 2));
      reference(type)(problem.args(0, n_rows, 9, nullptr, want.data()));
      const std::byte* open = problem.weights.data;
      for (const bool at_end : {false, true}) {
        const Fenced fenced(open, n_rows * problem.weights.row_bytes, at_end);
        problem.weights.data = fenced.data();
        for (const uint32_t count : {1U, 4U, 9U}) expect_reference_bits(problem, want, fn, 0, n_rows, count, nullptr);
      }
    }
  }
}

TEST_P(MatmulVariants, HaveTheBitsOfTheReference) {
  const auto& [type, needs, fn] = GetParam();
  TestRng rng(static_cast<uint64_t>(type));
  constexpr uint32_t kRows = 19;
  for (const uint32_t k : lengths(format::type_info(type), needs)) {
    const uint32_t n_rows = k > 2048 ? 3 : kRows;
    const Problem problem(type, n_rows, k, 17, rng);
    std::vector<float> want(17 * (n_rows + 2));
    reference(type)(problem.args(0, n_rows, 17, nullptr, want.data()));
    const uint32_t token_rows[17] = {16, 0, 3, 3, 7, 1, 15, 2, 4, 9, 16, 5, 6, 8, 10, 11, 12};
    for (const uint32_t count : {0U, 1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 10U, 15U, 17U}) {
      expect_reference_bits(problem, want, fn, 0, n_rows, count, nullptr);
      expect_reference_bits(problem, want, fn, 0, n_rows, count, token_rows);
      const auto begin = static_cast<uint32_t>(rng.below(n_rows));
      const auto end = begin + static_cast<uint32_t>(rng.below(n_rows - begin + 1));
      expect_reference_bits(problem, want, fn, begin, end, count, token_rows);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows of a few blocks share groups, sixteen rows at a time; rows of 512 and 768 elements are those of small experts.
TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceOnShortRows) {
  const auto& [type, needs, fn] = GetParam();
  if (needs == Isa::kScalar) return;
  TestRng rng(5000 + static_cast<uint64_t>(type));
  constexpr uint32_t kRows = 49;
  constexpr uint32_t kTokens = 8;
  for (const uint32_t k : {32U, 64U, 96U, 128U, 160U, 256U, 512U, 768U}) {
    if (k % format::type_info(type).block_elems != 0) continue;
    for (const bool has_faults : {false, true}) {
      const Problem problem(type, kRows, k, kTokens, rng, has_faults);
      std::vector<float> want(kTokens * (kRows + 2));
      reference(type)(problem.args(0, kRows, kTokens, nullptr, want.data()));
      for (uint32_t n_rows = 1; n_rows <= 17; ++n_rows) {
        const auto begin = static_cast<uint32_t>(rng.below(kRows - n_rows + 1));
        for (uint32_t count = 1; count <= kTokens; ++count) {
          expect_reference_bits(problem, want, fn, begin, begin + n_rows, count, nullptr);
        }
      }
      expect_reference_bits(problem, want, fn, 1, kRows, 1, nullptr);
      if (HasFatalFailure()) return;
    }
  }
}

// Tiles hold at most 64 tokens and 8 to 32 rows, and 2,048 elements of a row at a time.
TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceForMoreTokensThanATile) {
  const auto& [type, needs, fn] = GetParam();
  TestRng rng(3000 + static_cast<uint64_t>(type));
  constexpr uint32_t kRows = 34;
  constexpr uint32_t kTokens = 67;
  const uint32_t block = format::type_info(type).block_elems;
  for (const uint32_t k : {block <= 32 ? 96U : 2 * block, block <= 32 ? 4448U : 4352U}) {
    const Problem problem(type, kRows, k, kTokens, rng);
    std::vector<float> want(kTokens * (kRows + 2));
    reference(type)(problem.args(0, kRows, kTokens, nullptr, want.data()));
    for (const uint32_t count : {32U, 33U, 67U}) expect_reference_bits(problem, want, fn, 0, kRows, count, nullptr);
    if (HasFatalFailure()) return;
  }
}

// One token's activations fit the row kernels' buffers up to 16,384 elements; longer rows go by tiles. Those of AVX2
// lay out the activations of a few tokens at a time once, those of longer rows for each panel.
TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceOnVeryLongRows) {
  const auto& [type, needs, fn] = GetParam();
  TestRng rng(4000 + static_cast<uint64_t>(type));
  constexpr uint32_t kMost = 16384;
  const uint32_t block = format::type_info(type).block_elems;
  for (const uint32_t k : {kMost, kMost + block, kMost + 256, kMost + 256 + block, 2 * kMost}) {
    constexpr uint32_t kTokens = 7;
    const Problem problem(type, 2, k, kTokens, rng);
    std::vector<float> want(kTokens * 4);
    reference(type)(problem.args(0, 2, kTokens, nullptr, want.data()));
    for (const uint32_t count : {1U, kTokens}) expect_reference_bits(problem, want, fn, 0, 2, count, nullptr);
  }
}

TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceWithFaultyScales) {
  const auto& [type, needs, fn] = GetParam();
  TestRng rng(1000 + static_cast<uint64_t>(type));
  for (int round = 0; round < 4; ++round) {
    constexpr uint32_t kRows = 33;
    const Problem problem(type, kRows, 512, 9, rng, true);
    std::vector<float> want(9 * (kRows + 2));
    reference(type)(problem.args(0, kRows, 9, nullptr, want.data()));
    for (const uint32_t count : {1U, 4U, 9U}) expect_reference_bits(problem, want, fn, 0, kRows, count, nullptr);
  }
}

// Products that underflow leave lanes at -0; elements that do not exist must not join them as +0 would.
TEST_P(MatmulVariants, LeaveLanesAloneThatHaveNoElement) {
  const auto& [type, needs, fn] = GetParam();
  if (type != TensorType::kF32 && type != TensorType::kBF16) return;
  TestRng rng(4);
  for (const uint32_t k : {33U, 47U, 49U, 95U}) {
    Problem problem(type, 2, k, 4, rng);
    auto* data = const_cast<std::byte*>(problem.weights.data);
    const uint32_t tiny = std::bit_cast<uint32_t>(-0x1p-100F);
    const uint64_t width = problem.weights.row_bytes / k;
    for (uint64_t i = 0; i < 2ULL * k; ++i) {
      std::memcpy(data + i * width, reinterpret_cast<const std::byte*>(&tiny) + 4 - width, width);
    }
    std::fill(problem.f32.begin(), problem.f32.end(), 0x1p-100F);
    std::vector<float> want(4 * 4);
    reference(type)(problem.args(0, 2, 4, nullptr, want.data()));
    ASSERT_EQ(std::bit_cast<uint32_t>(want[0]), 0x80000000U);
    for (const uint32_t count : {1U, 4U}) expect_reference_bits(problem, want, fn, 0, 2, count, nullptr);
  }
}

// Codes and sub-scales at their limits, all signs of the activations equal: the sums that would saturate or wrap first.
TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceAtExtremes) {
  const auto& [type, needs, fn] = GetParam();
  const TypeInfo& info = format::type_info(type);
  TestRng rng(2000 + static_cast<uint64_t>(type));
  for (const uint8_t fill : {0x00, 0xFF, 0x80, 0x7F, 0x88, 0x77, 0x08, 0xF0}) {
    for (const int8_t activation : {127, -127}) {
      Problem problem(type, 17, 512, 5, rng);
      std::vector<std::byte>& bytes = problem.bytes;
      const ScaleFields fields = numerics::scale_fields(type);
      if (info.block_elems == 1 || activation_form(type) == ActivationForm::kFloat) continue;
      std::byte* data = const_cast<std::byte*>(problem.weights.data);
      ASSERT_GE(data, bytes.data());
      std::fill_n(data, 17 * problem.weights.row_bytes, static_cast<std::byte>(fill));
      for (uint64_t b = 0; b < 17 * problem.weights.row_bytes / info.block_bytes; ++b) {
        if (fields.d != kNoField) put_f16(data + b * info.block_bytes + fields.d, 1.0F);
        if (fields.min != kNoField) put_f16(data + b * info.block_bytes + fields.min, 1.0F);
        if (type == TensorType::kMXFP4) data[b * info.block_bytes] = std::byte{128};
      }
      std::fill(problem.q.begin(), problem.q.end(), activation);
      std::fill(problem.sum32.begin(), problem.sum32.end(), 32 * activation);
      std::fill(problem.sum16.begin(), problem.sum16.end(), static_cast<int16_t>(16 * activation));
      std::vector<float> want(5 * 19);
      reference(type)(problem.args(0, 17, 5, nullptr, want.data()));
      for (const uint32_t count : {1U, 5U}) expect_reference_bits(problem, want, fn, 0, 17, count, nullptr);
    }
  }
}

// Products of signed codes with the sign moved to q: codes of both signs up to -128, all products of a row alike in
// sign and as large as they can be, or of any sign. Two of -128 * 127 just fit an int16.
TEST_P(MatmulVariants, HaveTheBitsOfTheReferenceWithSignedCodesAtTheirLimits) {
  const auto& [type, needs, fn] = GetParam();
  if (type != TensorType::kQ8_0) return;
  constexpr uint32_t kRows = 33;
  constexpr uint32_t kK = 512;
  constexpr uint32_t kTokens = 9;
  TestRng rng(6000);
  for (const int alike : {0, 1, -1}) {
    Problem problem(type, kRows, kK, kTokens, rng);
    std::vector<bool> is_negative(kK);
    for (uint32_t i = 0; i < kK; ++i) is_negative[i] = rng.below(2) == 0;
    auto* data = const_cast<std::byte*>(problem.weights.data);
    for (uint32_t at = 0; at < kRows * kK; ++at) {
      std::byte* block = data + at / 32 * 34;
      if (at % 32 == 0) put_f16(block, 1.0F);
      const bool negative = alike == 0 ? rng.below(2) == 0 : is_negative[at % kK];
      block[2 + at % 32] = static_cast<std::byte>(negative ? -128 : 127 - static_cast<int>(rng.below(2)));
    }
    for (uint32_t at = 0; at < kTokens * kK; ++at) {
      const bool negative = alike == 0 ? rng.below(2) == 0 : is_negative[at % kK] == (alike > 0);
      problem.q[at] = static_cast<int8_t>(negative ? -127 : 127);
    }
    for (uint32_t half = 0; half < kTokens * kK / 16; ++half) {
      problem.sum16[half] = std::accumulate(&problem.q[16 * half], &problem.q[16 * half] + 16, int16_t{0});
      if (half % 2 == 1) problem.sum32[half / 2] = problem.sum16[half - 1] + problem.sum16[half];
    }
    std::vector<float> want(kTokens * (kRows + 2));
    reference(type)(problem.args(0, kRows, kTokens, nullptr, want.data()));
    for (const uint32_t count : {1U, 4U, 5U, 6U, 7U, 8U, kTokens}) {
      expect_reference_bits(problem, want, fn, 0, kRows, count, nullptr);
    }
  }
}

TEST_P(MatmulVariants, AreChosenWhenTheirIsaIsForced) {
  EXPECT_EQ(choose_matmul(GetParam().needs, GetParam().type), GetParam().fn);
}

INSTANTIATE_TEST_SUITE_P(All, MatmulVariants, testing::ValuesIn(matmul_variants().begin(), matmul_variants().end()),
                         [](const testing::TestParamInfo<MatmulVariant>& variant) {
                           return std::string(format::type_info(variant.param.type).name) + "_" +
                                  std::string(isa_name(variant.param.needs));
                         });

// The scalar reference against the plain meaning of the formats: a dot product in double of the dequantised weights
// and the dequantised activations. Bound: each of a lane's n terms and the fold round once relative to the sum of
// magnitudes so far, d_w * d_a rounds once, and a weight of the affine types was rounded once by dequantising.
TEST(Matmul, ReferenceIsTheDotProductWithinItsBound) {
  TestRng rng(7);
  for (const TypeInfo& info : format::kTensorTypes) {
    if (!info.is_weight) continue;
    for (const uint32_t k : {256U, 2048U}) {
      constexpr uint32_t kRows = 6;
      constexpr uint32_t kTokens = 3;
      const Problem problem(info.type, kRows, k, kTokens, rng);
      std::vector<float> got(kTokens * (kRows + 2));
      reference(info.type)(problem.args(0, kRows, kTokens, nullptr, got.data()));
      const ScaleFields fields = numerics::scale_fields(info.type);
      for (uint32_t r = 0; r < kRows; ++r) {
        std::vector<std::byte> row(problem.weights.data + r * problem.weights.row_bytes,
                                   problem.weights.data + (r + 1) * problem.weights.row_bytes);
        std::vector<float> w(k), product(k);
        numerics::dequantize(info.type, row.data(), w.data(), k);
        for (uint64_t b = 0; fields.min != kNoField && b < row.size() / info.block_bytes; ++b) {
          put_f16(&row[b * info.block_bytes + fields.min], 0.0F);
        }
        numerics::dequantize(info.type, row.data(), product.data(), k);
        for (uint32_t t = 0; t < kTokens; ++t) {
          double sum = 0, magnitude = 0;
          for (uint32_t i = 0; i < k; ++i) {
            const double x = activation_form(info.type) == ActivationForm::kFloat
                                 ? static_cast<double>(problem.f32[t * problem.f32_stride + i])
                                 : static_cast<double>(problem.q[t * k + i]) * problem.d[t * (k / 32) + i / 32];
            sum += w[i] * x;
            magnitude += (std::fabs(product[i]) + std::fabs(static_cast<double>(w[i]) - product[i])) * std::fabs(x);
          }
          const double n_roundings =
              activation_form(info.type) == ActivationForm::kFloat ? k / 32 + 5 : 2 * k / 256 + 3 + 2;
          const double bound = magnitude * n_roundings * 0x1.01p-24;
          const double error = std::fabs(got[t * (kRows + 2) + r] - sum);
          EXPECT_LE(error, bound) << info.name << " k " << k << " row " << r << " token " << t;
        }
      }
    }
  }
}

TEST(Matmul, EveryWeightTypeHasAVariantOnEveryIsa) {
  for (const TypeInfo& info : format::kTensorTypes) {
    for (const Isa isa : kAllIsas) EXPECT_EQ(choose_matmul(isa, info.type) != nullptr, info.is_weight) << info.name;
  }
}

}  // namespace
}  // namespace outrider::kernels

// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/sketch/sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/test_rng.h"
#include "outrider/kernels/isa_test.h"
#include "outrider/kernels/sketch/largest_scores.h"
#include "outrider/kernels/sketch/sketch_variants.h"

namespace outrider::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// A sketch in memory of its exact size, made by one variant from all rows.
struct Made {
  Made(const std::vector<float>& rows, uint32_t k, const SketchVariant& variant, uint32_t n_sample_rows)
      : n_rows(static_cast<uint32_t>(rows.size() / k)), memory(sketch_bytes(n_rows, k), "sketch") {
    std::memset(memory.data(), 0xAB, memory.size());
    sketch = lay_out_sketch(memory.data(), n_rows, k);
    sketch_columns(sketch, rows.data(), n_sample_rows);
    for (uint32_t first = 0; first < n_rows; first += kSketchBlockRows) {
      const uint32_t n = std::min(kSketchBlockRows, n_rows - first);
      variant.block(sketch, first / kSketchBlockRows, rows.data() + uint64_t{first} * k, n);
    }
  }
  bool sign(uint32_t row, uint32_t column) const {
    const uint64_t at = (uint64_t{row} / 32 * (sketch.k / 8) + column / 8) * 32 + row % 32;
    return (sketch.signs[at] >> (column % 8) & 1) != 0;
  }
  uint32_t n_rows;
  AlignedBuffer memory;
  Sketch sketch;
};

std::vector<float> scores_of(const Made& made, const SketchVariant& variant, const std::vector<float>& x) {
  AlignedBuffer tables(sketch_table_bytes(made.sketch.k), "tables");
  sketch_tables(made.sketch, x.data(), tables.data());
  std::vector<float> scores(made.n_rows, 77.0F);
  const uint32_t n_blocks = (made.n_rows + kSketchBlockRows - 1) / kSketchBlockRows;
  variant.scores(made.sketch, tables.data(), 0, n_blocks, scores.data());
  return scores;
}

std::vector<float> normal_numbers(Random& rng, uint64_t n) {
  std::vector<float> v(n);
  for (float& f : v) f = static_cast<float>(rng.normal());
  return v;
}

const SketchVariant& reference() { return sketch_variants().front(); }

// w . direction of row i, in double.
double along(const Made& made, const float* row) {
  double sum = 0;
  for (uint32_t j = 0; j < made.sketch.k; ++j) sum += double{row[j]} * made.sketch.direction[j];
  return sum;
}

TEST(Sketch, SignsAndScalesAreWhatTheHeaderSays) {
  TestRng rng(501);
  constexpr uint32_t kK = 96, kRows = 75;
  std::vector<float> rows = normal_numbers(rng, kK * kRows);
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = rows[i] * static_cast<float>(1 + i % kK % 7) + 2;
  const Made made(rows, kK, reference(), kRows);
  const Sketch& sketch = made.sketch;
  for (const float* part : {sketch.row_scale, sketch.row_along, sketch.direction, sketch.column_scale}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0U);
  }
  std::vector<double> mean(kK), spread(kK);
  double length = 0, square = 0;
  for (uint32_t j = 0; j < kK; ++j) {
    for (uint32_t i = 0; i < kRows; ++i) mean[j] += double{rows[i * kK + j]} / kRows;
    length += mean[j] * mean[j];
  }
  for (uint32_t i = 0; i < kRows; ++i) {
    const double a = along(made, &rows[i * kK]);
    for (uint32_t j = 0; j < kK; ++j) spread[j] += std::pow(rows[i * kK + j] - a * sketch.direction[j], 2) / kRows;
  }
  for (uint32_t j = 0; j < kK; ++j) {
    // Sums of 96 numbers at most, below 32 each and rounded to f32: far below 1e-5 of 1 and 1e-4 of the spread.
    EXPECT_NEAR(sketch.direction[j], mean[j] / std::sqrt(length), 1e-5);
    EXPECT_NEAR(sketch.column_scale[j], std::sqrt(spread[j]), 1e-4 * std::sqrt(spread[j]));
    square += std::pow(sketch.column_scale[j], 2);
  }
  for (uint32_t i = 0; i < kRows; ++i) {
    EXPECT_NEAR(sketch.row_along[i], along(made, &rows[i * kK]), 1e-4);
    double product = 0;
    for (uint32_t j = 0; j < kK; ++j) {
      const float rest = rows[i * kK + j] - sketch.row_along[i] * sketch.direction[j];
      EXPECT_EQ(made.sign(i, j), rest >= 0);
      product += std::fabs(rest) * sketch.column_scale[j];
    }
    EXPECT_NEAR(sketch.row_scale[i], product / square, 1e-5 * product / square);
  }
  for (uint32_t i = kRows; i < 96; ++i) {
    EXPECT_EQ(sketch.row_scale[i], 0);
    EXPECT_EQ(sketch.row_along[i], 0);
    for (uint32_t j = 0; j < kK; ++j) EXPECT_FALSE(made.sign(i, j));
  }
}

TEST(Sketch, ScoresAreTheModelsProductsWithinTheStepsOfTheTables) {
  TestRng rng(502);
  for (const uint32_t k : {32U, 512U, 544U, 2048U}) {
    std::vector<float> rows = normal_numbers(rng, uint64_t{70} * k);
    for (uint32_t i = 0; i < rows.size(); ++i) rows[i] += i % k % 2 == 0 ? 0.5F : 0.0F;
    std::vector<float> x = normal_numbers(rng, k);
    x[k / 2] = 60;  // an outlier: its segment's step is coarse
    const Made made(rows, k, reference(), 70);
    const std::vector<float> scores = scores_of(made, reference(), x);
    const double x_along = along(made, x.data());
    std::vector<double> p(k);
    for (uint32_t j = 0; j < k; ++j) p[j] = made.sketch.column_scale[j] * (x[j] - x_along * made.sketch.direction[j]);
    // An entry is off by half a step, and a step is 1/63 of the largest sum of its segment.
    double bound = 0;
    for (uint32_t begin = 0; begin < k; begin += kSketchSegment) {
      double largest = 0;
      const uint32_t end = std::min(begin + kSketchSegment, k);
      for (uint32_t j = begin; j < end; j += 4) {
        double sum = 0;
        for (uint32_t t = j; t < j + 4; ++t) sum += std::fabs(p[t]);
        largest = std::max(largest, sum);
      }
      bound += largest / 63 / 2 * (end - begin) / 4;
    }
    for (uint32_t i = 0; i < made.n_rows; ++i) {
      double want = 0;
      for (uint32_t j = 0; j < k; ++j) want += made.sign(i, j) ? p[j] : -p[j];
      want = want * made.sketch.row_scale[i] + x_along * made.sketch.row_along[i];
      EXPECT_NEAR(scores[i], want, 1.001 * bound * made.sketch.row_scale[i]) << k << " row " << i;
    }
  }
}

TEST(Sketch, EveryVariantHasTheBitsOfTheReference) {
  TestRng rng(503);
  const float faults[] = {kNan, kInf, -kInf, std::numeric_limits<float>::max(), 1e-44F, -0.0F};
  for (const SketchVariant& variant : sketch_variants()) {
    if (!isa_supported(variant.needs)) GTEST_SKIP() << "no " << isa_name(variant.needs);
    for (const uint32_t k : {32U, 64U, 480U, 512U, 544U, 1056U, 2048U, 7168U}) {
      for (const uint32_t n_rows : {1U, 31U, 32U, 33U, 95U}) {
        for (const bool has_faults : {false, true}) {
          std::vector<float> rows = normal_numbers(rng, uint64_t{n_rows} * k);
          std::vector<float> x = normal_numbers(rng, k);
          for (int i = 0; has_faults && i < 6; ++i) rows[rng.below(rows.size())] = faults[rng.below(6)];
          for (int i = 0; has_faults && i < 3; ++i) x[rng.below(k)] = faults[rng.below(6)];
          const Made want(rows, k, reference(), n_rows);
          const Made got(rows, k, variant, n_rows);
          const std::string where = std::string(isa_name(variant.needs)) + " k " + std::to_string(k) + " rows " +
                                    std::to_string(n_rows) + (has_faults ? " with faults" : "");
          EXPECT_EQ(std::memcmp(want.memory.data(), got.memory.data(), sketch_bytes(n_rows, k)), 0) << where;
          const std::vector<float> want_scores = scores_of(want, reference(), x);
          EXPECT_TRUE(same_bits(want_scores, scores_of(want, variant, x))) << where;
          for (const float score : want_scores) ASSERT_TRUE(std::isfinite(score)) << where;
        }
      }
    }
  }
}

TEST(Sketch, BlocksOfARangeAloneAreWritten) {
  TestRng rng(504);
  constexpr uint32_t kK = 64, kRows = 150;
  const std::vector<float> rows = normal_numbers(rng, kRows * kK), x = normal_numbers(rng, kK);
  const Made made(rows, kK, reference(), kRows);
  const std::vector<float> want = scores_of(made, reference(), x);
  AlignedBuffer tables(sketch_table_bytes(kK), "tables");
  sketch_tables(made.sketch, x.data(), tables.data());
  for (const SketchVariant& variant : sketch_variants()) {
    if (!isa_supported(variant.needs)) continue;
    for (const auto& [begin, end] : {std::pair{0U, 2U}, {1U, 4U}, {4U, 5U}, {3U, 3U}}) {
      std::vector<float> scores(kRows, 77.0F);
      variant.scores(made.sketch, tables.data(), begin, end, scores.data());
      for (uint32_t i = 0; i < kRows; ++i) EXPECT_EQ(scores[i], i / 32 >= begin && i / 32 < end ? want[i] : 77.0F);
    }
  }
}

double correlation(const std::vector<double>& a, const std::vector<float>& b) {
  const double n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n,
               mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

// One bit of a normal number keeps sqrt(2 / pi) = 0.798 of it.
TEST(Sketch, ScoresGoWithTheProducts) {
  TestRng rng(505);
  constexpr uint32_t kK = 512, kRows = 2000;
  std::vector<float> rows = normal_numbers(rng, kRows * kK), x = normal_numbers(rng, kK);
  for (uint32_t i = 0; i < kRows; ++i) {
    for (uint32_t j = 0; j < kK; ++j) {
      float& w = rows[i * kK + j];
      w = (w + static_cast<float>(j % 3) * static_cast<float>(i % 5)) * static_cast<float>(1 + j % 5);
    }
  }
  // A column without anything in it carries nothing.
  for (uint32_t i = 0; i < kRows; ++i) rows[i * kK + 7] = 0;
  const Made made(rows, kK, reference(), 500);
  EXPECT_EQ(made.sketch.column_scale[7], 0);
  std::vector<double> products(kRows);
  for (uint32_t i = 0; i < kRows; ++i) {
    for (uint32_t j = 0; j < kK; ++j) products[i] += double{rows[i * kK + j]} * x[j];
  }
  EXPECT_GT(correlation(products, scores_of(made, reference(), x)), 0.75);
}

TEST(Sketch, NothingButZerosScoresZero) {
  const std::vector<float> rows(64 * 40, 0.0F);
  const Made made(rows, 64, reference(), 40);
  EXPECT_EQ(scores_of(made, reference(), std::vector<float>(64, 1.0F)), std::vector<float>(40, 0.0F));
}

TEST(Sketch, ForcedIsaIsTheOneChosen) {
  for (const SketchVariant& variant : sketch_variants()) {
    EXPECT_EQ(choose_sketch_block(variant.needs), variant.block);
    EXPECT_EQ(choose_sketch_scores(variant.needs), variant.scores);
  }
  EXPECT_EQ(choose_sketch_scores(Isa::kScalar), &sketch_scores_ref);
}

std::vector<uint32_t> largest(const std::vector<float>& scores, uint32_t n) {
  std::vector<uint32_t> ids(n);
  std::vector<uint64_t> scratch(largest_scores_scratch(scores.size(), n));
  ids.resize(largest_scores(scores, ids, scratch));
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<uint32_t> largest_by_sorting(const std::vector<float>& scores, uint32_t n) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -kInf) ids.push_back(i);
  }
  n = std::min(n, static_cast<uint32_t>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + n, ids.end(),
                    [&](uint32_t a, uint32_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
  ids.resize(n);
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(LargestScores, AreThoseOfASort) {
  TestRng rng(506);
  for (const uint32_t n_scores : {0U, 1U, 31U, 32U, 33U, 1000U, 40'000U}) {
    for (const uint32_t n : {0U, 1U, 2U, 17U, 500U, 1000U, 1024U}) {
      for (int kind = 0; kind < 6; ++kind) {
        std::vector<float> scores = normal_numbers(rng, n_scores);
        for (uint32_t i = 0; i < n_scores; ++i) {
          if (kind == 1) scores[i] = static_cast<float>(rng.below(5));  // many ties
          if (kind == 2) scores[i] = static_cast<float>(i);             // the floor rises all the time
          if (kind == 3) scores[i] = -0.0F;                             // nothing but ties
          if (kind == 4 && rng.below(3) != 0) scores[i] = rng.below(2) != 0 ? kNan : -kInf;
          if (kind == 5)
            scores[i] = rng.below(9) == 0 ? kInf : std::floor(scores[i] * 8) - 1e4F * static_cast<float>(i % 2);
        }
        EXPECT_EQ(largest(scores, n), largest_by_sorting(scores, n)) << n << " of " << n_scores << " kind " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

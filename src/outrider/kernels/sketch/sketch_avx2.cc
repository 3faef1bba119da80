// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "outrider/kernels/sketch/sketch-inl.h"
#include "outrider/kernels/sketch/sketch_variants.h"

namespace outrider::kernels {
namespace {

constexpr uint64_t kPrefetchBytes = 4096;

// 32 sums of 16 bits, wrapping: `all` adds pairs of bytes as they lie, row 2i + 256 * row 2i+1, `odd` the rows 2i+1.
struct Sums {
  __m256i all, odd;
};

// Eight columns of 32 rows. Two entries of at most 127 fit a byte.
inline void add_columns(const uint8_t* signs, const std::byte* table, Sums& sums) noexcept {
  const __m256i low_bits = _mm256_set1_epi8(15);
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(signs));
  const __m256i low_table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  const __m256i high_table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table + 16)));
  const __m256i low = _mm256_shuffle_epi8(low_table, _mm256_and_si256(bits, low_bits));
  const __m256i high = _mm256_shuffle_epi8(high_table, _mm256_and_si256(_mm256_srli_epi16(bits, 4), low_bits));
  const __m256i both = _mm256_add_epi8(low, high);
  sums.all = _mm256_add_epi16(sums.all, both);
  sums.odd = _mm256_add_epi16(sums.odd, _mm256_srli_epi16(both, 8));
}

// Eight rows' sums of a segment, less what the entries are too large by, times the step, onto their f32 sums.
inline __m256 add_segment(__m256 sum, __m128i rows, __m256i bias, __m256 step) noexcept {
  const __m256i count = _mm256_sub_epi32(_mm256_cvtepu16_epi32(rows), bias);
  return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(count), step));
}

inline void block_scores(const uint8_t* signs, const std::byte* tables, uint32_t n_groups, const float* row_scale,
                         const float* row_along, float* scores) noexcept {
  const auto* along_and_steps = reinterpret_cast<const float*>(tables + 32 * uint64_t{n_groups});
  const __m256 along = _mm256_broadcast_ss(along_and_steps);
  const float* steps = along_and_steps + 1;
  __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (uint32_t begin = 0; begin < n_groups; begin += kSketchSegment / 8, ++steps) {
    const uint32_t n = n_groups - begin < kSketchSegment / 8 ? n_groups - begin : kSketchSegment / 8;
    Sums sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (uint32_t c = 0; c < n; c += 4, signs += 128, tables += 128) {  // k is a multiple of 32
      _mm_prefetch(signs + kPrefetchBytes, _MM_HINT_T0);
      _mm_prefetch(signs + kPrefetchBytes + 64, _MM_HINT_T0);
      add_columns(signs, tables, sums);
      add_columns(signs + 32, tables + 32, sums);
      add_columns(signs + 64, tables + 64, sums);
      add_columns(signs + 96, tables + 96, sums);
    }
    const __m256i even = _mm256_sub_epi16(sums.all, _mm256_slli_epi16(sums.odd, 8));
    const __m256i rows_0_16 = _mm256_unpacklo_epi16(even, sums.odd);  // rows 0-7 and 16-23
    const __m256i rows_8_24 = _mm256_unpackhi_epi16(even, sums.odd);  // rows 8-15 and 24-31
    const __m256i bias = _mm256_set1_epi32(static_cast<int>(n) * 128);
    const __m256 step = _mm256_broadcast_ss(steps);
    sum[0] = add_segment(sum[0], _mm256_castsi256_si128(rows_0_16), bias, step);
    sum[1] = add_segment(sum[1], _mm256_castsi256_si128(rows_8_24), bias, step);
    sum[2] = add_segment(sum[2], _mm256_extracti128_si256(rows_0_16, 1), bias, step);
    sum[3] = add_segment(sum[3], _mm256_extracti128_si256(rows_8_24, 1), bias, step);
  }
  for (int i = 0; i < 4; ++i) {
    const __m256 rest = _mm256_mul_ps(sum[i], _mm256_load_ps(row_scale + 8 * i));
    _mm256_storeu_ps(scores + 8 * i, _mm256_add_ps(rest, _mm256_mul_ps(along, _mm256_load_ps(row_along + 8 * i))));
  }
}

inline float fold(__m256 sums) noexcept {
  float lanes[8];
  _mm256_storeu_ps(lanes, sums);
  return fold_8_lanes(lanes);
}

inline float dot(const float* a, const float* b, uint32_t k) noexcept {
  __m256 sums = _mm256_setzero_ps();
  for (uint32_t j = 0; j < k; j += 8) {
    sums = _mm256_add_ps(sums, _mm256_mul_ps(_mm256_loadu_ps(a + j), _mm256_loadu_ps(b + j)));
  }
  return fold(sums);
}

}  // namespace

void sketch_block_avx2(const Sketch& sketch, uint32_t block, const float* rows, uint32_t n) noexcept {
  const uint32_t k = sketch.k;
  uint8_t* signs = sketch.signs + uint64_t{block} * (k / 8) * kSketchBlockRows;
  float* row_scale = sketch.row_scale + uint64_t{block} * kSketchBlockRows;
  float* row_along = sketch.row_along + uint64_t{block} * kSketchBlockRows;
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const float square = dot(sketch.column_scale, sketch.column_scale, k);
  for (uint32_t r = 0; r < n; ++r) {
    const float* row = rows + uint64_t{r} * k;
    row_along[r] = or_zero(dot(row, sketch.direction, k));
    const __m256 along = _mm256_set1_ps(row_along[r]);
    uint8_t* out = signs + r;
    __m256 products = _mm256_setzero_ps();
    for (uint32_t j = 0; j < k; j += 8, out += kSketchBlockRows) {
      const __m256 known = _mm256_mul_ps(along, _mm256_load_ps(sketch.direction + j));
      const __m256 rest = _mm256_sub_ps(_mm256_loadu_ps(row + j), known);
      const __m256 scale = _mm256_load_ps(sketch.column_scale + j);
      products = _mm256_add_ps(products, _mm256_mul_ps(_mm256_and_ps(rest, magnitude), scale));
      *out = static_cast<uint8_t>(_mm256_movemask_ps(_mm256_cmp_ps(rest, _mm256_setzero_ps(), _CMP_GE_OQ)));
    }
    row_scale[r] = or_zero(fold(products) / square);
  }
  clear_block_tail(sketch, block, n);
}

void sketch_scores_avx2(const Sketch& sketch, const std::byte* tables, uint32_t block_begin, uint32_t block_end,
                        float* scores) noexcept {
  const uint32_t n_groups = sketch.k / 8;
  for (uint32_t block = block_begin; block < block_end; ++block) {
    const uint8_t* signs = sketch.signs + uint64_t{block} * n_groups * kSketchBlockRows;
    const uint64_t first_row = uint64_t{block} * kSketchBlockRows;
    const float* row_scale = sketch.row_scale + first_row;
    const float* row_along = sketch.row_along + first_row;
    if (sketch.n_rows - first_row >= kSketchBlockRows) {
      block_scores(signs, tables, n_groups, row_scale, row_along, scores + first_row);
    } else {
      float last[kSketchBlockRows];
      block_scores(signs, tables, n_groups, row_scale, row_along, last);
      for (uint64_t r = first_row; r < sketch.n_rows; ++r) scores[r] = last[r - first_row];
    }
  }
}

}  // namespace outrider::kernels

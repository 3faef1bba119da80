// SPDX-License-Identifier: Apache-2.0
// The AVX2 kernel for several tokens: eight rows are the eight int32 of a register, so that block sums need no folding.
// A panel of sixteen rows is unpacked and transposed (tile_pack_avx2-inl.h) and then serves all tokens of the call,
// four at a time: each activation that is spread over a register meets two registers of codes. Products of codes and
// activations are summed as int16 for a whole block where the law's bounds allow it, and one vpmaddwd multiplies the
// sums by the sub-scale and widens them. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/short_rows_avx2-inl.h"
#include "outrider/kernels/matmul/tile_pack_avx2-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileTokens = 64;
constexpr uint32_t kStepTokens = 4;

inline void store_256(void* p, __m256i v) noexcept { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

// What a format with signed codes does without.
template <bool kSigned>
struct TokenSums {
  // What sums of products begin with, two int16: -kOffset times the sums of q 0, 1, 4, 5, 8, ... and of the others; of
  // the halves for SubScale::kHalf.
  int32_t start[2][kStepTokens];
  int32_t sum[kStepTokens];  // with mins: the sum of q as f32; Min::kHalf: of both halves as int16
};
template <>
struct TokenSums<true> {};

// A block of four tokens, ready to be spread.
template <typename Format>
struct TokenUnit : TokenSums<Format::kSigned> {
  // Four q each; for signed codes q, -q, q, -q, ...
  std::conditional_t<Format::kSigned, int64_t, int32_t> quads[8][kStepTokens];
  float d[kStepTokens];
};
constexpr uint32_t kTokenUnits = 1024;  // 192 KiB, signed codes 272: of 64 tokens when k <= 2,048

// How many quads can be summed as int16: sums of (code - offset) * q of every second pair stay below 2^15. They are
// exact then even if a sum without the offset is not: it is off by multiples of 2^16.
template <typename Format>
constexpr uint32_t quads_at_once() noexcept {
  const int most =
      Format::kMostCode - Format::kOffset > Format::kOffset ? Format::kMostCode - Format::kOffset : Format::kOffset;
  const uint32_t n = 32767 / (2 * 127 * static_cast<uint32_t>(most));
  return n >= 8 && !kHalves<Format> ? 8 : n >= 4 ? 4 : 1;
}

template <typename Format>
inline void fill_start(const __m256i (&quads)[4], TokenUnit<Format>& unit) noexcept {
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i sum = _mm256_setzero_si256();
  for (const __m256i& v : quads) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(ones, v));
  const __m256i factor = _mm256_set1_epi16(-Format::kOffset);
  if constexpr (kHalves<Format>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(unit.start), _mm256_mullo_epi16(sum, factor));
  } else {
    const __m128i all = _mm_add_epi16(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(unit.start[0]), _mm_mullo_epi16(all, _mm256_castsi256_si128(factor)));
  }
}

// Blocks [from, to) of four tokens.
template <typename Format>
void fill_units(const ActGroup (&acts)[kStepTokens], uint32_t from, uint32_t to, TokenUnit<Format>* units) noexcept {
  for (uint32_t b = from; b < to; ++b, ++units) {
    __m256i v[kStepTokens];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kStepTokens; ++t) v[t] = load_256(acts[t].q + 32 * b);
    transpose_parts(v);
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      if constexpr (Format::kSigned) {
        const __m256i negative = _mm256_sub_epi8(_mm256_setzero_si256(), v[j]);
        const __m256i low = _mm256_unpacklo_epi8(v[j], negative);  // tokens 0 and 1 of quads j and 4 + j
        const __m256i high = _mm256_unpackhi_epi8(v[j], negative);
        store_256(units->quads[j], _mm256_permute2x128_si256(low, high, 0x20));
        store_256(units->quads[4 + j], _mm256_permute2x128_si256(low, high, 0x31));
      } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(units->quads[j]), _mm256_castsi256_si128(v[j]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(units->quads[4 + j]), _mm256_extracti128_si256(v[j], 1));
      }
    }
    if constexpr (Format::kOffset != 0) fill_start<Format>(v, *units);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kStepTokens; ++t) {
      units->d[t] = acts[t].d[b];
      if constexpr (Format::kMin == Min::kHalf) {
        __builtin_memcpy(&units->sum[t], acts[t].sum16 + 2 * b, 4);
      } else if constexpr (Format::kMin != Min::kNone) {
        const auto sum = static_cast<float>(acts[t].sum32[b]);
        __builtin_memcpy(&units->sum[t], &sum, 4);
      }
    }
  }
}

// Four bytes at p in every element.
inline __m256i spread(const void* p) noexcept {
  int32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return _mm256_set1_epi32(value);
}

inline __m256i spread_64(const void* p) noexcept {
  int64_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return _mm256_set1_epi64x(value);
}

// Keeps sums in the order written: GCC makes trees of long sums, all of whose products then wait in memory.
[[gnu::always_inline]] inline void keep_order(__m256i& sum) noexcept { asm("" : "+x"(sum)); }

// Quads [kFrom, kFrom + quads_at_once()) of a block, summed as int16, times a sub-scale or 1.
template <typename Format, uint32_t kTokens, uint32_t kFrom>
[[gnu::always_inline]] inline void sum_words(const Unit<Format>& unit, const TokenUnit<Format>& token,
                                             __m256i (&isum)[kTokens][2]) noexcept {
  constexpr uint32_t kHalf = kHalves<Format> ? kFrom / 4 : 0;
  constexpr uint32_t kTo = kFrom + quads_at_once<Format>();
  __m256i words[kTokens][2];
#pragma GCC unroll 8
  for (uint32_t quad = kFrom; quad < kTo; ++quad) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m256i q = spread(&token.quads[quad][t]);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < 2; ++i) {
        const __m256i product = _mm256_maddubs_epi16(unit.codes[quad][i], q);
        if (quad != kFrom) {
          words[t][i] = _mm256_add_epi16(words[t][i], product);
        } else if constexpr (Format::kOffset != 0) {
          words[t][i] = _mm256_add_epi16(spread(&token.start[kHalf][t]), product);
        } else {
          words[t][i] = product;
        }
        keep_order(words[t][i]);
      }
    }
  }
#pragma GCC unroll 2
  for (uint32_t i = 0; i < 2; ++i) {
    const __m256i scale = Format::kScale == SubScale::kNone ? _mm256_set1_epi16(1) : unit.sc[kHalf][i];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m256i sum = _mm256_madd_epi16(words[t][i], scale);
      isum[t][i] = kFrom == 0 ? sum : _mm256_add_epi32(isum[t][i], sum);
    }
  }
}

// Signed codes: |code| times q or -q, two products to an int16. A shuffle picks the factor: vpsignb would take the
// pipes that multiply.
template <typename Format, uint32_t kTokens>
[[gnu::always_inline]] inline void sum_signed(const Unit<Format>& unit, const TokenUnit<Format>& token,
                                              __m256i (&isum)[kTokens][2]) noexcept {
#pragma GCC unroll 8
  for (uint32_t quad = 0; quad < 8; ++quad) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m256i q = spread_64(&token.quads[quad][t]);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < 2; ++i) {
        const __m256i words = _mm256_maddubs_epi16(unit.codes[quad][i], _mm256_shuffle_epi8(q, unit.signs[quad][i]));
        const __m256i sum =
            _mm256_madd_epi16(words, Format::kScale == SubScale::kNone ? _mm256_set1_epi16(1) : unit.sc[0][i]);
        isum[t][i] = quad == 0 ? sum : _mm256_add_epi32(isum[t][i], sum);
        keep_order(isum[t][i]);
      }
    }
  }
}

// A block joins its lane of kTokens tokens.
template <typename Format, uint32_t kTokens>
[[gnu::always_inline]] inline void join_unit(const Unit<Format>& unit, const __m256 (&d)[2], const __m256 (&dm)[2],
                                             const TokenUnit<Format>& token, __m256 (*lane)[2]) noexcept {
  __m256i isum[kTokens][2];
  if constexpr (Format::kSigned) {
    sum_signed<Format, kTokens>(unit, token, isum);
  } else {
    sum_words<Format, kTokens, 0>(unit, token, isum);
    if constexpr (quads_at_once<Format>() == 4) sum_words<Format, kTokens, 4>(unit, token, isum);
  }
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) {
    const __m256 d_a = _mm256_castsi256_ps(spread(token.d + t));
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; ++i) {
      __m256 acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[t][i]), _mm256_mul_ps(d[i], d_a), lane[t][i]);
      if constexpr (Format::kMin != Min::kNone) {
        __m256 msum;
        if constexpr (Format::kMin == Min::kHalf) {
          msum = _mm256_cvtepi32_ps(_mm256_madd_epi16(unit.mn[i], spread(token.sum + t)));
        } else {
          msum = _mm256_castsi256_ps(spread(token.sum + t));
          if constexpr (Format::kMin == Min::kBlock) msum = _mm256_mul_ps(_mm256_castsi256_ps(unit.mn[i]), msum);
        }
        acc = _mm256_fmadd_ps(msum, _mm256_mul_ps(dm[i], d_a), acc);
      }
      lane[t][i] = acc;
    }
  }
}

// Lanes of a step of tokens.
using Lanes = __m256[8][kStepTokens][2];

// Asks the second-level cache for the rows of the next panel, a few lines at a time while the products of this one go
// on: so many rows are too many streams for the hardware.
struct Ahead {
  const uint8_t* at;
  const uint8_t* end;
  uint64_t bytes;  // at a time

  void fetch() noexcept {
    const uint8_t* stop = at + bytes < end ? at + bytes : end;
    for (; at < stop; at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
};

// Where the first token of a panel goes.
struct Output {
  float* out;
  uint64_t stride;
  uint32_t n_rows;
};

inline void store_lanes(const Lanes& lanes, uint32_t n_tokens, const Output& output) noexcept {
  const __m256i row = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (uint32_t t = 0; t < n_tokens; ++t) {
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; ++i) {
      const auto l = [&](uint32_t b) { return lanes[b][t][i]; };
      const __m256 even = _mm256_add_ps(_mm256_add_ps(l(0), l(4)), _mm256_add_ps(l(2), l(6)));
      const __m256 odd = _mm256_add_ps(_mm256_add_ps(l(1), l(5)), _mm256_add_ps(l(3), l(7)));
      const __m256 sum = _mm256_add_ps(even, odd);
      float* out = output.out + t * output.stride + 8 * i;
      if (output.n_rows >= 8 * (i + 1)) {
        _mm256_storeu_ps(out, sum);
      } else if (output.n_rows > 8 * i) {
        const __m256i n = _mm256_set1_epi32(static_cast<int>(output.n_rows - 8 * i));
        _mm256_maskstore_ps(out, _mm256_cmpgt_epi32(n, row), sum);
      }
    }
  }
}

// Which blocks of the rows are in a panel.
struct Part {
  uint32_t from, to;
  bool is_first, is_last;
};

// The blocks of a panel join the lanes of kTokens tokens, whose units from block part.from on are at `tokens`.
template <typename Format, uint32_t kTokens>
void join_panel(const Panel<Format>& panel, const Part& part, const TokenUnit<Format>* tokens, Lanes& lanes,
                const Output& output, Ahead& ahead) noexcept {
  if (part.is_first) {
    for (auto& lane : lanes) {
#pragma GCC unroll 4
      for (uint32_t t = 0; t < kTokens; ++t) lane[t][0] = lane[t][1] = _mm256_setzero_ps();
    }
  }
  if (part.is_last) {
    // Stores that wait for lines from memory would fill the store queue, and the products stand behind them.
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) _mm_prefetch(output.out + t * output.stride, _MM_HINT_T0);
  }
  const uint32_t n = part.to - part.from;
  for (uint32_t b = 0; b < n; ++b) {
    if (b % 4 == 0) ahead.fetch();
    const uint32_t head = Format::kBlocksApart ? b : b / 8;
    join_unit<Format, kTokens>(panel.units[b], panel.d[head], panel.dm[head], tokens[b], lanes[b % 8]);
  }
  if (part.is_last) store_lanes(lanes, kTokens, output);
}

// Packs a part of the rows, which then begin behind it.
template <typename Format>
void pack_panel(Rows& rows, const Part& part, Panel<Format>& panel) noexcept {
  const uint32_t n_groups = (part.to - part.from) / 8;
  const uint32_t n_left = (part.to - part.from) % 8;
  for (uint32_t g = 0; g < n_groups; ++g) {
    pack_group<Format>(rows, panel, g);
    for (const uint8_t*& p : rows.row) p += Format::kBytes;
  }
  if (!Format::kBlocksApart || n_left == 0) return;
  uint8_t padded[kTileRows][Format::kBytes] = {};
  for (uint32_t r = 0; r < kTileRows; ++r) {
    __builtin_memcpy(padded[r], rows.row[r], Format::kBytes / 8 * n_left);
    rows.row[r] = padded[r];
  }
  pack_group<Format>(rows, panel, n_groups);
}

// The units of blocks [from, to) of tokens [first, first + n), step by step.
template <typename Format>
void fill_tokens(const MatmulArgs& args, uint32_t first, uint32_t n, uint32_t from, uint32_t to,
                 TokenUnit<Format>* units) noexcept {
  for (uint32_t t = 0; t < n; t += kStepTokens, units += to - from) {
    ActGroup acts[kStepTokens];  // those past the last are the last again
    for (uint32_t i = 0; i < kStepTokens; ++i) acts[i] = act_of(args, first + (t + i < n ? t + i : n - 1));
    fill_units<Format>(acts, from, to, units);
  }
}

inline Ahead ahead_of(const MatmulArgs& args, uint32_t row, uint32_t n_tokens) noexcept {
  const uint32_t n_left = row < args.row_end ? args.row_end - row : 0;
  const auto* at = reinterpret_cast<const uint8_t*>(args.weights.data) + row * args.weights.row_bytes;
  const uint64_t bytes = (n_left < kTileRows ? n_left : kTileRows) * args.weights.row_bytes;
  const uint64_t n_times = uint64_t{(args.weights.k / 32 + 3) / 4} * ((n_tokens + kStepTokens - 1) / kStepTokens);
  return {at, at + bytes, n_times == 0 ? 0 : (bytes / n_times + 63) / 64 * 64};
}

// n_rows <= kTileRows rows from `row` on for tokens [first, first + n), whose units are filled in when they fit whole.
template <typename Format>
[[gnu::noinline]] void run_panels(const MatmulArgs& args, uint32_t row, uint32_t n_rows, uint32_t first, uint32_t n,
                                  TokenUnit<Format>* units, bool is_whole) noexcept {
  const uint32_t n_blocks = args.weights.k / 32;
  Rows rows;  // those past the last are the last again
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint64_t at = row + (r < n_rows ? r : n_rows - 1);
    rows.row[r] = reinterpret_cast<const uint8_t*>(args.weights.data) + at * args.weights.row_bytes;
  }
  Ahead ahead = ahead_of(args, row + kTileRows, n);
  Panel<Format> panel;
  Lanes lanes[kTileTokens / kStepTokens];
  uint32_t from = 0;
  do {
    const uint32_t to = n_blocks - from < kPanelUnits<Format> ? n_blocks : from + kPanelUnits<Format>;
    const Part part = {from, to, from == 0, to == n_blocks};
    if (!is_whole) fill_tokens<Format>(args, first, n, from, to, units);
    pack_panel<Format>(rows, part, panel);
    const uint32_t step_units = is_whole ? n_blocks : to - from;
    const TokenUnit<Format>* tokens = units + (is_whole ? from : 0);
    for (uint32_t t = 0; t < n; t += kStepTokens, tokens += step_units) {
      Lanes& own = lanes[part.is_first && part.is_last ? 0 : t / kStepTokens];
      const Output output = {args.out + (first + t) * args.out_stride + row, args.out_stride, n_rows};
      switch (n - t) {
        case 1:
          join_panel<Format, 1>(panel, part, tokens, own, output, ahead);
          break;
        case 2:
          join_panel<Format, 2>(panel, part, tokens, own, output, ahead);
          break;
        case 3:
          join_panel<Format, 3>(panel, part, tokens, own, output, ahead);
          break;
        default:
          join_panel<Format, 4>(panel, part, tokens, own, output, ahead);
      }
    }
    from = to;
  } while (from < n_blocks);
}

// Few tokens go row by row, more go by tiles. RowFormat is Format with what rows need.
template <typename Format, typename RowFormat>
void run_matmul(const MatmulArgs& args) noexcept {
  constexpr uint32_t kLeastTokens = 5;
  if (args.n_tokens == 0) return;
  if (args.n_tokens < kLeastTokens && args.weights.k <= 256 * kMostRowGroups) {
    run_few_tokens<RowFormat>(args);
    return;
  }
  const uint32_t n_blocks = args.weights.k / 32;
  const uint32_t n_fit = n_blocks == 0 ? kTileTokens : kTokenUnits / n_blocks * kStepTokens;
  const bool is_whole = n_fit >= 8;
  const uint32_t n_most = is_whole && n_fit < kTileTokens ? n_fit : kTileTokens;
  TokenUnit<Format> units[kTokenUnits];
  for (uint32_t first = 0; first < args.n_tokens; first += n_most) {
    const uint32_t n = args.n_tokens - first < n_most ? args.n_tokens - first : n_most;
    if (is_whole) fill_tokens<Format>(args, first, n, 0, n_blocks, units);
    for (uint32_t row = args.row_begin; row < args.row_end; row += kTileRows) {
      const uint32_t n_rows = args.row_end - row < kTileRows ? args.row_end - row : kTileRows;
      run_panels<Format>(args, row, n_rows, first, n, units, is_whole);
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

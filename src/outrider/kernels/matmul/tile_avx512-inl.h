// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI kernel for several tokens: sixteen rows are the sixteen int32 of a register, so that block sums need
// no folding. Rows are unpacked once into a panel (tile_pack_avx512-inl.h) that serves all tokens of the call. Then,
// for a few tokens at a time, the blocks of one lane of matmul_law.h join it one after the other: the lane stays in
// registers. That matters twice on Zen 4: the lanes of many tokens do not fit the first-level cache, and a vector store
// costs the products a cycle. Two tiles share each activation that is spread over a register. Internal linkage.
#pragma once

#include "outrider/kernels/matmul/short_rows_avx512-inl.h"
#include "outrider/kernels/matmul/tile_pack_avx512-inl.h"

namespace outrider::kernels {
namespace {

constexpr uint32_t kTileTokens = 64;
constexpr uint32_t kMostTiles = 2;
constexpr uint32_t kStepTokens = 4;  // times two tiles: eight sums and eight lanes

// What a unit of Panel has for each of kTokens tokens besides codes, ready to be spread:
//   first           kOffset != 0: what sums begin with, -kOffset times the sum of q; of the first halves for kHalf
//                   kMin != kNone: the sum of q as f32; for Min::kHalf the int16 of both halves
//   second          as first, of the second halves
template <uint32_t kTokens>
struct TokenUnit {
  float d[kTokens];
  int32_t first[kTokens], second[kTokens];
};
constexpr uint32_t kTokenUnitWords = 3;

// The tokens of a call, from some group on; kTokens units of a token step lie together.
struct Tokens {
  ActGroup acts[kTileTokens];
  alignas(64) int32_t units[kTileTokens * kPanelUnits * kTokenUnitWords];
};

template <typename Format, uint32_t kTokens>
void fill_units(const ActGroup* acts, uint32_t n_groups, uint32_t n_left, uint32_t stride,
                TokenUnit<kTokens>* units) noexcept {
  for (uint32_t b = 0; b < 8; ++b) {
    for (uint32_t g = 0; g < n_groups + (b < n_left ? 1 : 0); ++g) {
      TokenUnit<kTokens>& unit = units[b * stride + g];
      const uint32_t at = 8 * g + b;
      for (uint32_t t = 0; t < kTokens; ++t) {
        const ActGroup& act = acts[t];
        unit.d[t] = act.d[at];
        if constexpr (Format::kScale == SubScale::kHalf && Format::kOffset != 0) {
          unit.first[t] = -Format::kOffset * act.sum16[2 * at];
          unit.second[t] = -Format::kOffset * act.sum16[2 * at + 1];
        } else if constexpr (Format::kMin == Min::kHalf) {
          __builtin_memcpy(&unit.first[t], act.sum16 + 2 * at, 4);
        } else if constexpr (Format::kMin != Min::kNone) {
          const auto sum = static_cast<float>(act.sum32[at]);
          __builtin_memcpy(&unit.first[t], &sum, 4);
        } else if constexpr (Format::kOffset != 0) {
          unit.first[t] = -Format::kOffset * act.sum32[at];
        }
      }
    }
  }
}

// Four bytes at p in every element.
inline __m512i spread(const void* p) noexcept {
  int32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return _mm512_set1_epi32(value);
}

// dot[i][t] += the products of quads [kFrom, kTo) of a block, whose activations are at q[t] + at.
template <uint32_t kTiles, uint32_t kTokens, uint32_t kFrom, uint32_t kTo>
[[gnu::always_inline]] inline void join_quads(const __m512i (*codes)[kTiles], const int8_t* const (&q)[kTokens],
                                              uint64_t at, __m512i (&dot)[kTiles][kTokens]) noexcept {
#pragma GCC unroll 8
  for (uint32_t quad = kFrom; quad < kTo; ++quad) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
      const __m512i v = spread(q[t] + at + 4 * quad);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTiles; ++i) dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], codes[quad][i], v);
    }
  }
}

template <typename Format>
inline __m512i start_of(const int32_t* p) noexcept {
  return Format::kOffset == 0 ? _mm512_setzero_si512() : spread(p);
}

// A unit of the panel joins its lane. Sub-scales multiply in f32, where a product of 32-bit integers costs three times
// as much (Zen 4): codes, scales and offsets keep every partial sum below 2^24 in the order taken, so all are exact.
template <typename Format, uint32_t kTiles, uint32_t kTokens>
[[gnu::always_inline]] inline void join_block(const Panel<kTiles>& panel, uint32_t unit, uint32_t group,
                                              const int8_t* const (&q)[kTokens], uint64_t at,
                                              const TokenUnit<kTokens>& token,
                                              __m512 (&lane)[kTiles][kTokens]) noexcept {
  __m512i dot[kTiles][kTokens];
  __m512 isum[kTiles][kTokens];
  const __m512i(*codes)[kTiles] = panel.codes[unit];
  constexpr bool kHalves = Format::kScale == SubScale::kHalf;
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kTiles; ++i) dot[i][t] = start_of<Format>(token.first + t);
  }
  join_quads<kTiles, kTokens, 0, kHalves ? 4 : 8>(codes, q, at, dot);
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kTiles; ++i) {
      isum[i][t] = _mm512_cvtepi32_ps(dot[i][t]);
      if constexpr (Format::kScale != SubScale::kNone) isum[i][t] = _mm512_mul_ps(isum[i][t], panel.sc0[unit][i]);
    }
  }
  if constexpr (kHalves) {
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTiles; ++i) dot[i][t] = start_of<Format>(token.second + t);
    }
    join_quads<kTiles, kTokens, 4, 8>(codes, q, at, dot);
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTiles; ++i) {
        isum[i][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][t]), panel.sc1[unit][i], isum[i][t]);
      }
    }
  }
  const uint32_t head = Format::kBlocksApart ? unit : group;
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) {
    const __m512 d_a = _mm512_set1_ps(token.d[t]);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kTiles; ++i) {
      lane[i][t] = _mm512_fmadd_ps(isum[i][t], _mm512_mul_ps(panel.d[head][i], d_a), lane[i][t]);
      if constexpr (Format::kMin != Min::kNone) {
        __m512 msum;
        if constexpr (Format::kMin == Min::kHalf) {
          msum = _mm512_cvtepi32_ps(_mm512_madd_epi16(panel.mn_pair[unit][i], spread(token.first + t)));
        } else {
          msum = _mm512_castsi512_ps(spread(token.first + t));
          if constexpr (Format::kMin == Min::kBlock) msum = _mm512_mul_ps(panel.mn[unit][i], msum);
        }
        lane[i][t] = _mm512_fmadd_ps(msum, _mm512_mul_ps(panel.dm[head][i], d_a), lane[i][t]);
      }
    }
  }
}

using Lanes = __m512[kMostTiles][8];

// Which groups of the rows are in a panel.
struct Part {
  uint32_t n_groups, n_left;  // whole groups; blocks of the group after them
  bool is_first, is_last;
  uint32_t unit_stride() const noexcept { return (n_groups + 1) | 1; }
};

// Asks the second-level cache for the rows of the next tiles, a few lines at a time while the products of these go on:
// all at once would be more than the processor can have under way, and so many rows are too many streams for the
// hardware.
struct Ahead {
  const uint8_t* at;
  const uint8_t* end;
  uint64_t bytes;  // at a time

  void fetch() noexcept {
    const uint8_t* stop = at + bytes < end ? at + bytes : end;
    for (; at < stop; at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
};

// Where the tiles' first token goes.
struct Output {
  float* out;
  uint64_t stride;
  __mmask16 mask[kMostTiles];
};

// Has the lines that a step's results go to brought while its products are computed. They lie a whole row apart, for
// the experts mostly in memory: stores that wait for them fill the store queue, and the products behind them wait, too.
// always_inline: GCC takes a function that only prefetches for one without effects and leaves its calls out.
template <uint32_t kTiles, uint32_t kTokens>
[[gnu::always_inline]] inline void ask_for_output(const Output& output) noexcept {
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (uint32_t i = 0; i < kTiles; ++i) {
      _mm_prefetch(output.out + t * output.stride + i * kTileRows, _MM_HINT_T0);
    }
  }
}

// The blocks of a panel join the lanes of kTokens tokens.
template <typename Format, uint32_t kTiles, uint32_t kTokens>
void join_panel(const Panel<kTiles>& panel, const Part& part, const ActGroup* acts, const void* token_units,
                Lanes* lanes, const Output& output, Ahead& ahead) noexcept {
  const int8_t* q[kTokens];
#pragma GCC unroll 4
  for (uint32_t t = 0; t < kTokens; ++t) q[t] = acts[t].q;
  const auto* units = static_cast<const TokenUnit<kTokens>*>(token_units);
  if (part.is_last) ask_for_output<kTiles, kTokens>(output);
  for (uint32_t b = 0; b < 8; ++b) {
    ahead.fetch();
    __m512 lane[kTiles][kTokens];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTiles; ++i) lane[i][t] = part.is_first ? _mm512_setzero_ps() : lanes[t][i][b];
    }
    const uint32_t n_groups = part.n_groups + (b < part.n_left ? 1 : 0);
    for (uint32_t g = 0; g < n_groups; ++g) {
      const uint32_t unit = b * panel.stride + g;
      join_block<Format, kTiles, kTokens>(panel, unit, g, q, 256 * g + 32 * b, units[unit], lane);
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kTiles; ++i) lanes[t][i][b] = lane[i][t];
    }
  }
  if (!part.is_last) return;
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (uint32_t i = 0; i < kTiles; ++i) {
      const __m512(&l)[8] = lanes[t][i];
      const __m512 even = _mm512_add_ps(_mm512_add_ps(l[0], l[4]), _mm512_add_ps(l[2], l[6]));
      const __m512 odd = _mm512_add_ps(_mm512_add_ps(l[1], l[5]), _mm512_add_ps(l[3], l[7]));
      _mm512_mask_storeu_ps(output.out + t * output.stride + i * kTileRows, output.mask[i], _mm512_add_ps(even, odd));
    }
  }
}

template <uint32_t kN>
struct Count {
  static constexpr uint32_t value = kN;
};

// Cuts n tokens into steps: work(first, Count<number>).
template <typename Work>
void token_steps(uint32_t n, Work work) noexcept {
  static_assert(kStepTokens == 4);
  uint32_t t = 0;
  for (; t + 4 <= n; t += 4) work(t, Count<4>());
  if (n - t == 3) work(t, Count<3>());
  if (n - t == 2) work(t, Count<2>());
  if (n - t == 1) work(t, Count<1>());
}

// The first n_bytes of a group of the rows, zeros after them.
template <typename Format>
Rows padded(const Rows& from, uint32_t n_bytes, uint8_t (&to)[kTileRows][Format::kBytes]) noexcept {
  Rows rows;
  for (uint32_t r = 0; r < kTileRows; ++r) {
    __builtin_memcpy(to[r], from[r], n_bytes);
    __builtin_memset(to[r] + n_bytes, 0, Format::kBytes - n_bytes);
    rows.row[r] = to[r];
  }
  return rows;
}

// Packs a part of the rows, which then begin behind it.
template <typename Format, uint32_t kTiles>
void pack_panel(Rows (&rows)[kTiles], const Part& part, Panel<kTiles>& panel) noexcept {
  panel.stride = part.unit_stride();
  for (uint32_t g = 0; g < part.n_groups; ++g) {
    for (uint32_t i = 0; i < kTiles; ++i) {
      pack_tile<Format, kTiles>(rows[i], {panel, g, i, panel.stride});
      for (const uint8_t*& p : rows[i].row) p += Format::kBytes;
    }
  }
  if (part.n_left == 0) return;
  for (uint32_t i = 0; i < kTiles; ++i) {
    uint8_t padding[kTileRows][Format::kBytes];
    pack_tile<Format, kTiles>(padded<Format>(rows[i], Format::kBytes / 8 * part.n_left, padding),
                              {panel, part.n_groups, i, panel.stride});
  }
}

// The units of n tokens from `first` on for a part that begins with `group`.
template <typename Format>
void fill_tokens(const MatmulArgs& args, uint32_t first, uint32_t n, const Part& part, uint32_t group,
                 Tokens& tokens) noexcept {
  for (uint32_t t = 0; t < n; ++t) tokens.acts[t] = act_at(act_of(args, first + t), group);
  token_steps(n, [&](uint32_t t, auto count) {
    constexpr uint32_t kTokens = decltype(count)::value;
    auto* units = reinterpret_cast<TokenUnit<kTokens>*>(tokens.units + t * kPanelUnits * kTokenUnitWords);
    fill_units<Format, kTokens>(tokens.acts + t, part.n_groups, part.n_left, part.unit_stride(), units);
  });
}

// The part of the rows that begins with `group`; `apart`: rows may end inside a group.
inline Part part_of(const MatmulArgs& args, bool apart, uint32_t group) noexcept {
  const uint32_t all = args.weights.k / 256;
  const uint32_t n = all - group < kPanelGroups ? all - group : kPanelGroups;
  const bool is_last = group + n == all;
  return {n, apart && is_last ? args.weights.k / 32 % 8 : 0, group == 0, is_last};
}

// For the rows from `row` on, while the tiles before them serve n tokens.
inline Ahead ahead_of(const MatmulArgs& args, uint32_t row, uint32_t n) noexcept {
  const uint32_t n_left = row < args.row_end ? args.row_end - row : 0;
  const uint64_t n_rows = n_left < kMostTiles * kTileRows ? n_left : kMostTiles * kTileRows;
  const uint64_t n_panels = (args.weights.k / 256 + kPanelGroups - 1) / kPanelGroups;
  const uint64_t n_times = n_panels * ((n + kStepTokens - 1) / kStepTokens) * 8;
  const auto* at = reinterpret_cast<const uint8_t*>(args.weights.data) + row * args.weights.row_bytes;
  const uint64_t bytes = n_rows * args.weights.row_bytes;
  return {at, at + bytes, n_times == 0 ? 0 : (bytes / n_times + 63) / 64 * 64};
}

// n_rows rows from `row` on, at most kTiles tiles, for n tokens from `first` on. `tokens` is filled in already when one
// panel holds the whole rows.
template <typename Format, uint32_t kTiles>
[[gnu::noinline]] void run_tile(const MatmulArgs& args, uint32_t row, uint32_t n_rows, uint32_t first, uint32_t n,
                                Tokens& tokens) noexcept {
  Rows rows[kTiles];  // those past the last are the last again
  for (uint32_t r = 0; r < kTiles * kTileRows; ++r) {
    const uint64_t at = row + (r < n_rows ? r : n_rows - 1);
    rows[r / kTileRows].row[r % kTileRows] =
        reinterpret_cast<const uint8_t*>(args.weights.data) + at * args.weights.row_bytes;
  }
  Output output = {args.out + first * args.out_stride + row, args.out_stride, {}};
  for (uint32_t i = 0; i < kTiles; ++i) {
    const uint32_t n_own = n_rows - i * kTileRows < kTileRows ? n_rows - i * kTileRows : kTileRows;
    output.mask[i] = static_cast<__mmask16>((1U << n_own) - 1);
  }
  Ahead ahead = ahead_of(args, row + kTiles * kTileRows, n);
  Panel<kTiles> panel;
  Lanes lanes[kTileTokens];
  bool is_last = false;
  for (uint32_t group = 0; !is_last; group += kPanelGroups) {
    const Part part = part_of(args, Format::kBlocksApart, group);
    is_last = part.is_last;
    const bool is_all = part.is_first && part.is_last;
    if (!is_all) fill_tokens<Format>(args, first, n, part, group, tokens);
    pack_panel<Format, kTiles>(rows, part, panel);
    token_steps(n, [&](uint32_t t, auto count) {
      constexpr uint32_t kTokens = decltype(count)::value;
      Output at = output;
      at.out += t * output.stride;
      join_panel<Format, kTiles, kTokens>(panel, part, tokens.acts + t,
                                          tokens.units + t * kPanelUnits * kTokenUnitWords, lanes + (is_all ? 0 : t),
                                          at, ahead);
    });
  }
}

// Few tokens go row by row; more, and very long rows, go by tiles.
template <typename Format>
void run_matmul(const MatmulArgs& args) noexcept {
  if (args.n_tokens <= Format::kFewTokens && args.weights.k < 256 * (kMostRowGroups + 1)) {
    run_few_tokens<Format, Format::kFewTokens>(args);
    return;
  }
  Tokens tokens;
  for (uint32_t first = 0; first < args.n_tokens; first += kTileTokens) {
    const uint32_t n = args.n_tokens - first < kTileTokens ? args.n_tokens - first : kTileTokens;
    const Part part = part_of(args, Format::kBlocksApart, 0);
    if (part.is_last) fill_tokens<Format>(args, first, n, part, 0, tokens);
    for (uint32_t row = args.row_begin; row < args.row_end; row += kMostTiles * kTileRows) {
      const uint32_t n_rows = args.row_end - row < kMostTiles * kTileRows ? args.row_end - row : kMostTiles * kTileRows;
      if (n_rows > kTileRows) {
        run_tile<Format, kMostTiles>(args, row, n_rows, first, n, tokens);
      } else {
        run_tile<Format, 1>(args, row, n_rows, first, n, tokens);
      }
    }
  }
}

}  // namespace
}  // namespace outrider::kernels

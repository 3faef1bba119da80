// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/kernels/attention/attention_variants.h"
#include "outrider/kernels/isa_test.h"
#include "outrider/numerics/float16.h"

namespace outrider::kernels {
namespace {

constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kF32, KvType::kQ8_0};

struct Shape {
  uint32_t dk, dv;
};

// A query and a cache of `n` positions. Rows are an odd number of bytes apart, so that every alignment occurs.
struct Case {
  Case(Random& rng, Shape s, KvType k_type, KvType v_type, uint32_t n, double magnitude = 1)
      : shape(s), q(s.dk), sink(0) {
    for (float& x : q) x = static_cast<float>(rng.normal());
    fill(rng, s.dk, k_type, n, magnitude, k, k_values, args.k_stride);
    fill(rng, s.dv, v_type, n, 1, v, v_values, args.v_stride);
    args.k_type = k_type;
    args.v_type = v_type;
    args.dk = s.dk;
    args.dv = s.dv;
    args.end = n;
    args.scale = 1.0F / std::sqrt(static_cast<float>(s.dk));
    sink = static_cast<float>(rng.normal());
  }

  static void fill(Random& rng, uint32_t width, KvType type, uint32_t n, double magnitude,
                   std::vector<std::byte>& bytes, std::vector<float>& values, uint64_t& stride) {
    stride = kv_row_bytes(type, width) + 3;
    bytes.assign(n * stride, std::byte{0xFF});
    values.resize(static_cast<uint64_t>(n) * width);
    std::vector<float> x(width);
    for (uint32_t p = 0; p < n; ++p) {
      for (float& v : x) v = static_cast<float>(rng.normal() * magnitude);
      std::byte* row = bytes.data() + p * stride;
      store_kv_ref(x.data(), width, type, row);
      for (uint32_t j = 0; j < width; ++j) values[static_cast<uint64_t>(p) * width + j] = read(row, type, j);
    }
  }

  static float read(const std::byte* row, KvType type, uint32_t j) {
    uint16_t half = 0;
    float full = 0;
    switch (type) {
      case KvType::kF16:
        std::memcpy(&half, row + 2 * j, 2);
        return numerics::f16_to_f32(half);
      case KvType::kF32:
        std::memcpy(&full, row + 4 * j, 4);
        return full;
      case KvType::kQ8_0:
        std::memcpy(&half, row + j / 32 * 34, 2);
        return numerics::f16_to_f32(half) * static_cast<float>(static_cast<int8_t>(row[j / 32 * 34 + 2 + j % 32]));
    }
    return 0;
  }

  std::vector<float> run(AttentionFn fn, uint32_t begin, uint32_t end, bool with_sink) const {
    std::vector<float> scratch(attention_scratch_floats(shape.dv), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> out(shape.dv + 1, 1234.0F);
    AttentionArgs a = args;
    a.q = q.data();
    a.k_cache = k.data();
    a.v_cache = v.data();
    a.begin = begin;
    a.end = end;
    a.sink = with_sink ? &sink : nullptr;
    a.scratch = scratch.data();
    a.out = out.data();
    fn(a);
    EXPECT_EQ(out[shape.dv], 1234.0F);
    out.resize(shape.dv);
    return out;
  }

  Shape shape;
  std::vector<float> q;
  std::vector<std::byte> k, v;
  std::vector<float> k_values, v_values;
  float sink;
  AttentionArgs args;
};

class Attention : public IsaTest {};

TEST_P(Attention, HasTheBitsOfTheReference) {
  TestRng rng(141);
  const AttentionFn fn = choose_attention(GetParam());
  for (const KvType k_type : kKvTypes) {
    for (const KvType v_type : kKvTypes) {
      for (const Shape shape : {Shape{32, 32}, Shape{64, 64}, Shape{96, 160}, Shape{192, 128}, Shape{128, 128}}) {
        const Case c(rng, shape, k_type, v_type, 300);
        for (const auto& [begin, end] : {std::pair{0U, 1U},
                                         {0U, 7U},
                                         {0U, 128U},
                                         {0U, 129U},
                                         {0U, 300U},
                                         {5U, 6U},
                                         {127U, 129U},
                                         {100U, 131U},
                                         {128U, 256U},
                                         {131U, 300U}}) {
          EXPECT_TRUE(same_bits(c.run(attention_ref, begin, end, false), c.run(fn, begin, end, false)))
              << "types " << int(k_type) << int(v_type) << " dk " << shape.dk << " [" << begin << ", " << end << ")";
        }
        EXPECT_TRUE(same_bits(c.run(attention_ref, 3, 200, true), c.run(fn, 3, 200, true))) << "with a sink";
      }
    }
  }
}

TEST_P(Attention, HasTheBitsOfTheReferenceForAnyWidth) {
  TestRng rng(142);
  const AttentionFn fn = choose_attention(GetParam());
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const uint32_t width :
         {1U, 2U, 7U, 8U, 15U, 16U, 17U, 31U, 33U, 40U, 48U, 63U, 72U, 80U, 100U, 113U, 256U, 576U}) {
      const Case c(rng, {width, (width * 7) % 130 + 1}, type, type, 150);
      EXPECT_TRUE(same_bits(c.run(attention_ref, 0, 150, false), c.run(fn, 0, 150, false))) << "width " << width;
      EXPECT_TRUE(same_bits(c.run(attention_ref, 141, 150, false), c.run(fn, 141, 150, false))) << "width " << width;
    }
  }
}

// The heads together by fn, against the reference head by head. Every second head has a sink; the others have none, or
// when all are together one that weighs nothing.
void expect_heads_have_the_bits_of_each_alone(Random& rng, const Case& c, AttentionFn fn, uint32_t n_heads,
                                              uint32_t begin, uint32_t end) {
  std::vector<float> q(n_heads * c.shape.dk);
  std::vector<float> sinks(n_heads);
  for (float& x : q) x = static_cast<float>(rng.normal());
  for (float& x : sinks) x = static_cast<float>(rng.normal());
  std::vector<float> scratch(attention_scratch_floats(c.shape.dv) + 1, 1234.0F);
  std::vector<float> want(n_heads * c.shape.dv);
  std::vector<float> got(n_heads * c.shape.dv + 1, 1234.0F);
  AttentionArgs args = c.args;
  args.k_cache = c.k.data();
  args.v_cache = c.v.data();
  args.begin = begin;
  args.end = end;
  args.scratch = scratch.data();
  for (uint32_t h = 0; h < n_heads; ++h) {
    args.q = q.data() + h * c.shape.dk;
    args.sink = h % 2 != 0 ? nullptr : &sinks[h];
    args.out = want.data() + h * c.shape.dv;
    attention_ref(args);
  }
  for (uint32_t h = 1; h < n_heads; h += 2) sinks[h] = -HUGE_VALF;
  args.q = q.data();
  args.sink = sinks.data();
  args.out = got.data();
  args.n_heads = n_heads;
  fn(args);
  EXPECT_TRUE(same_bits(want, got)) << "heads " << n_heads << " types " << int(c.args.k_type) << int(c.args.v_type)
                                    << " dk " << c.shape.dk << " dv " << c.shape.dv << " [" << begin << ", " << end
                                    << ")";
  EXPECT_EQ(got.back(), 1234.0F) << "past the output";
  EXPECT_EQ(scratch.back(), 1234.0F) << "past the scratch";
}

TEST_P(Attention, HeadsTogetherHaveTheBitsOfEachAlone) {
  TestRng rng(148);
  const AttentionFn fn = choose_attention(GetParam());
  for (const KvType type : kKvTypes) {
    for (const Shape shape : {Shape{64, 64}, Shape{128, 96}, Shape{192, 128}, Shape{80, 72}, Shape{19, 33},
                              Shape{96, 80}, Shape{256, 256}}) {
      if (type == KvType::kQ8_0 && (shape.dk % 32 != 0 || shape.dv % 32 != 0)) continue;
      const Case c(rng, shape, type, type, 300);
      for (const uint32_t n_heads : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 16U, 19U}) {
        expect_heads_have_the_bits_of_each_alone(rng, c, fn, n_heads, 90, 300);
      }
    }
  }
}

// Windows and lengths around the eight scores that fold together and the ends of chunks.
TEST_P(Attention, HeadsTogetherHaveTheBitsOfEachAloneForAnyPositions) {
  TestRng rng(149);
  const AttentionFn fn = choose_attention(GetParam());
  const Case c(rng, {128, 128}, KvType::kF16, KvType::kF16, 389);
  for (const uint32_t n_heads : {4U, 7U, 8U}) {
    for (uint32_t n = 1; n <= 17; ++n) expect_heads_have_the_bits_of_each_alone(rng, c, fn, n_heads, 0, n);
    for (const auto& [begin, end] : {std::pair{3U, 5U},
                                     {127U, 129U},
                                     {121U, 128U},
                                     {123U, 261U},
                                     {128U, 256U},
                                     {131U, 384U},
                                     {255U, 389U},
                                     {388U, 389U}}) {
      expect_heads_have_the_bits_of_each_alone(rng, c, fn, n_heads, begin, end);
    }
  }
}

TEST_P(Attention, HeadsTogetherHaveTheBitsOfEachAloneForMixedTypes) {
  TestRng rng(150);
  for (const KvType k_type : kKvTypes) {
    for (const KvType v_type : kKvTypes) {
      const Case c(rng, {128, 64}, k_type, v_type, 150);
      expect_heads_have_the_bits_of_each_alone(rng, c, choose_attention(GetParam()), 5, 0, 150);
    }
  }
}

// Tokens together by fn, against the reference token by token and head by head. Rows of queries and outputs are apart.
void expect_tokens_have_the_bits_of_each_alone(Random& rng, const Case& c, AttentionFn fn, uint32_t n_heads,
                                               uint32_t n_tokens, uint32_t begin, uint32_t end, bool with_sinks) {
  const uint64_t q_stride = n_heads * c.shape.dk + 5;
  const uint64_t out_stride = n_heads * c.shape.dv + 3;
  std::vector<float> q(n_tokens * q_stride);
  std::vector<float> sinks(n_heads);
  for (float& x : q) x = static_cast<float>(rng.normal());
  for (float& x : sinks) x = static_cast<float>(rng.normal());
  std::vector<float> scratch(attention_scratch_floats(c.shape.dv) + 1, 1234.0F);
  std::vector<float> want(n_tokens * out_stride, 1234.0F), got = want;
  AttentionArgs args = c.args;
  args.k_cache = c.k.data();
  args.v_cache = c.v.data();
  args.begin = begin;
  args.scratch = scratch.data();
  for (uint32_t t = 0; t < n_tokens; ++t) {
    args.end = end + t;
    for (uint32_t h = 0; h < n_heads; ++h) {
      args.q = q.data() + t * q_stride + h * c.shape.dk;
      args.sink = with_sinks ? &sinks[h] : nullptr;
      args.out = want.data() + t * out_stride + h * c.shape.dv;
      attention_ref(args);
    }
  }
  args.end = end;
  args.q = q.data();
  args.sink = with_sinks ? sinks.data() : nullptr;
  args.out = got.data();
  args.n_heads = n_heads;
  args.n_tokens = n_tokens;
  args.q_stride = q_stride;
  args.out_stride = out_stride;
  fn(args);
  EXPECT_TRUE(same_bits(want, got)) << "heads " << n_heads << " tokens " << n_tokens << " types " << int(c.args.k_type)
                                    << int(c.args.v_type) << " dk " << c.shape.dk << " dv " << c.shape.dv << " ["
                                    << begin << ", " << end << ")";
  EXPECT_EQ(scratch.back(), 1234.0F) << "past the scratch";
}

// Full tiles of four, tiles of several tokens, rests, and more than a variant takes at once.
constexpr std::pair<uint32_t, uint32_t> kHeadsAndTokens[] = {{1, 2}, {1, 4}, {1, 7},  {1, 33}, {2, 3}, {3, 5}, {4, 2},
                                                             {5, 4}, {6, 3}, {7, 11}, {8, 4},  {8, 5}, {16, 3}};

TEST_P(Attention, TokensTogetherHaveTheBitsOfEachAlone) {
  TestRng rng(152);
  const AttentionFn fn = choose_attention(GetParam());
  for (const KvType k_type : kKvTypes) {
    for (const KvType v_type : kKvTypes) {
      for (const Shape shape :
           {Shape{32, 48}, Shape{64, 64}, Shape{96, 32}, Shape{128, 128}, Shape{192, 128}, Shape{256, 96}}) {
        if (v_type == KvType::kQ8_0 && shape.dv % 32 != 0) continue;
        const Case c(rng, shape, k_type, v_type, 300);
        for (const auto& [n_heads, n_tokens] : {std::pair{8U, 4U}, {1U, 7U}, {3U, 5U}}) {
          expect_tokens_have_the_bits_of_each_alone(rng, c, fn, n_heads, n_tokens, 0, 291, false);
          expect_tokens_have_the_bits_of_each_alone(rng, c, fn, n_heads, n_tokens, 117, 126, true);
        }
      }
    }
  }
}

// Ends of chunks between the tokens: some see nothing of the last chunk.
constexpr std::pair<uint32_t, uint32_t> kWindows[] = {{0, 1},     {0, 9},   {2, 3},     {0, 126}, {120, 125},
                                                      {126, 127}, {0, 128}, {128, 129}, {5, 250}, {250, 254}};

TEST_P(Attention, TokensTogetherHaveTheBitsOfEachAloneForAnyPositions) {
  TestRng rng(153);
  const AttentionFn fn = choose_attention(GetParam());
  for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
    const Case c(rng, {64, 64}, type, type, 300);
    for (const auto& [n_heads, n_tokens] : kHeadsAndTokens) {
      for (const auto& [begin, end] : kWindows) {
        expect_tokens_have_the_bits_of_each_alone(rng, c, fn, n_heads, n_tokens, begin, end, n_tokens % 2 == 0);
      }
    }
  }
}

TEST_P(Attention, TokensTogetherHaveTheBitsOfEachAloneForAnyWidth) {
  TestRng rng(154);
  for (const Shape shape :
       {Shape{1, 1}, Shape{17, 33}, Shape{80, 72}, Shape{160, 96}, Shape{128, 40}, Shape{40, 128}}) {
    const Case c(rng, shape, KvType::kF16, KvType::kF16, 140);
    expect_tokens_have_the_bits_of_each_alone(rng, c, choose_attention(GetParam()), 3, 5, 2, 125, true);
  }
}

// Weights that are subnormal or zero, among others and alone in a vector.
TEST_P(Attention, ScoresFarApartHaveTheBitsOfTheReference) {
  TestRng rng(155);
  const AttentionFn fn = choose_attention(GetParam());
  for (const double magnitude : {10.0, 30.0, 60.0, 300.0}) {
    const Case c(rng, {128, 128}, KvType::kF16, KvType::kF16, 300, magnitude);
    expect_heads_have_the_bits_of_each_alone(rng, c, fn, 8, 0, 300);
    expect_heads_have_the_bits_of_each_alone(rng, c, fn, 5, 40, 150);
    expect_tokens_have_the_bits_of_each_alone(rng, c, fn, 4, 4, 0, 290, true);
  }
}

// What only later tokens see does not reach the earlier ones: not even as zero times NaN.
TEST_P(Attention, FaultsOfLaterPositionsStayWithLaterTokens) {
  TestRng rng(156);
  for (const float fault : {std::nanf(""), HUGE_VALF}) {
    for (const uint32_t at : {60U, 127U, 128U, 130U}) {
      Case c(rng, {64, 64}, KvType::kF32, KvType::kF32, 140);
      std::memcpy(c.v.data() + at * c.args.v_stride + 4 * 5, &fault, 4);
      std::memcpy(c.k.data() + at * c.args.k_stride + 4 * 9, &fault, 4);
      for (const uint32_t n_heads : {1U, 4U}) {
        expect_tokens_have_the_bits_of_each_alone(rng, c, choose_attention(GetParam()), n_heads, 6, 0, at - 1, false);
      }
    }
  }
}

// An infinite key is a weight of zero for some heads and a fault for others, by the sign of the query: the ones that
// fold together do not reach each other.
TEST_P(Attention, FaultsOfHeadsTogetherStayWithTheirHead) {
  TestRng rng(151);
  for (const float fault : {HUGE_VALF, -HUGE_VALF}) {
    for (const uint32_t at : {0U, 77U, 140U, 199U}) {
      Case c(rng, {64, 64}, KvType::kF32, KvType::kF16, 200);
      std::memcpy(c.k.data() + at * c.args.k_stride + 4 * 5, &fault, 4);
      expect_heads_have_the_bits_of_each_alone(rng, c, choose_attention(GetParam()), 8, 0, 200);
    }
  }
}

TEST_P(Attention, FaultsFlowToTheOutput) {
  TestRng rng(143);
  for (const float fault : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const uint32_t at : {0U, 77U, 140U, 199U}) {
      Case c(rng, {64, 64}, KvType::kF32, KvType::kF16, 200);
      float* key = reinterpret_cast<float*>(c.k.data() + at * c.args.k_stride);
      std::memcpy(key + 5, &fault, 4);
      const std::vector<float> out = c.run(choose_attention(GetParam()), 0, 200, false);
      // q . k is the fault, or an infinity of either sign: only -inf among numbers is a weight of zero.
      const bool is_weight_zero = std::isinf(fault) && (fault > 0) != (c.q[5] > 0);
      for (const float o : out) EXPECT_EQ(std::isnan(o), !is_weight_zero) << fault << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Attention, ::testing::ValuesIn(kAllIsas), isa_test_name);

// A score errs by (dk/32 + 6) roundings of scale sum |q k|, s - m by one rounding, exp by one ulp and by the score's
// error; the weighted sums add one rounding per position and four per merge; then e/l: both ends of a quotient count.
void expect_within_bound(const Case& c, uint32_t begin, uint32_t end, bool with_sink) {
  std::vector<double> score(end);
  double top = with_sink ? c.sink : -HUGE_VAL;
  double low = HUGE_VAL;
  double score_error = 0;
  for (uint32_t p = begin; p < end; ++p) {
    double sum = 0, magnitude = 0;
    for (uint32_t j = 0; j < c.shape.dk; ++j) {
      const double term = static_cast<double>(c.q[j]) * c.k_values[static_cast<uint64_t>(p) * c.shape.dk + j];
      sum += term;
      magnitude += std::fabs(term);
    }
    score[p] = c.args.scale * sum;
    score_error = std::max(score_error, (c.shape.dk / 32 + 1 + 6) * kUnit * c.args.scale * magnitude);
    top = std::max(top, score[p]);
    low = std::min(low, score[p]);
  }
  double total = with_sink ? std::exp(c.sink - top) : 0;
  for (uint32_t p = begin; p < end; ++p) total += std::exp(score[p] - top);
  const double n_chunks = (end - 1) / kAttentionChunk - begin / kAttentionChunk + 1 + with_sink;
  const double n_roundings =
      std::min<double>(kAttentionChunk, end - begin) + n_chunks * (4 + 2 * (top - low)) + 2 + (top - low);
  const double relative = 2 * (2 * score_error + n_roundings * kUnit) * 1.01;
  const std::vector<float> out = c.run(attention_ref, begin, end, with_sink);
  for (uint32_t j = 0; j < c.shape.dv; ++j) {
    double want = 0, magnitude = 0;
    for (uint32_t p = begin; p < end; ++p) {
      const double term = std::exp(score[p] - top) / total * c.v_values[static_cast<uint64_t>(p) * c.shape.dv + j];
      want += term;
      magnitude += std::fabs(term);
    }
    EXPECT_LE(std::fabs(out[j] - want), relative * magnitude) << "index " << j << " want " << want << " got " << out[j];
  }
}

TEST(AttentionReference, LiesWithinTheDerivedBoundOfDoubleMath) {
  TestRng rng(144);
  for (const KvType type : kKvTypes) {
    for (const double magnitude : {0.1, 1.0, 10.0}) {
      const Case c(rng, {128, 64}, type, type, 700, magnitude);
      expect_within_bound(c, 0, 1, false);
      expect_within_bound(c, 0, 700, false);
      expect_within_bound(c, 333, 700, true);
    }
  }
}

TEST(AttentionReference, ChunkGridStartsAtPositionZero) {
  // The same history gives the same bits wherever the window begins among positions that carry no weight.
  TestRng rng(145);
  Case c(rng, {32, 32}, KvType::kF32, KvType::kF32, 300);
  for (uint32_t p = 0; p < 140; ++p) {
    for (uint32_t j = 0; j < 32; ++j) {
      const float far = c.q[j] > 0 ? -1e4F : 1e4F;
      std::memcpy(c.k.data() + p * c.args.k_stride + 4 * j, &far, 4);
    }
  }
  const std::vector<float> want = c.run(attention_ref, 140, 300, false);
  for (const uint32_t begin : {0U, 1U, 100U, 128U, 133U})
    EXPECT_TRUE(same_bits(want, c.run(attention_ref, begin, 300, false)));
}

class StoreKv : public IsaTest {};

TEST_P(StoreKv, HasTheBitsOfTheReference) {
  TestRng rng(146);
  const StoreKvFn fn = choose_store_kv(GetParam());
  for (const KvType type : kKvTypes) {
    for (const uint32_t width : {0U, 32U, 64U, 96U, 128U, 576U, 1U, 7U, 17U, 33U, 113U}) {
      if (type == KvType::kQ8_0 && width % 32 != 0) continue;
      for (int round = 0; round < 40; ++round) {
        const double magnitude = std::ldexp(1.0, static_cast<int>(rng.below(60)) - 40);
        std::vector<float> x(width + 1);
        for (float& v : x) v = static_cast<float>(rng.normal() * magnitude);
        if (width > 0 && round % 8 == 1) x[rng.below(width) + 1] = round % 16 == 1 ? std::nanf("") : -HUGE_VALF;
        if (round % 8 == 2) std::fill(x.begin(), x.end(), 0.0F);
        if (round % 8 == 3 && width > 1) {
          for (float& v : x) v = static_cast<float>(static_cast<int>(rng.below(253)) - 126) * 0.5F;  // ties at amax 127
          for (uint32_t b = 1; b < width; b += 32) x[b] = 127;
        }
        std::vector<std::byte> want(kv_row_bytes(type, width) + 2, std::byte{0xAB});
        std::vector<std::byte> got = want;
        store_kv_ref(x.data() + 1, width, type, want.data() + 1);
        fn(x.data() + 1, width, type, got.data() + 1);
        EXPECT_EQ(want, got) << "type " << int(type) << " width " << width << " round " << round;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, StoreKv, ::testing::ValuesIn(kAllIsas), isa_test_name);

TEST(StoreKvReference, Q8FollowsTheFormula) {
  TestRng rng(147);
  for (int round = 0; round < 200; ++round) {
    float x[32];
    float amax = 0;
    for (float& v : x) amax = std::max(amax, std::fabs(v = static_cast<float>(rng.normal() * 3)));
    std::byte row[34];
    store_kv_ref(x, 32, KvType::kQ8_0, row);
    uint16_t d = 0;
    std::memcpy(&d, row, 2);
    EXPECT_EQ(d, numerics::f32_to_f16(amax / 127));
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(int(static_cast<int8_t>(row[2 + i])), int(std::nearbyintf(x[i] * (127 / amax))));
  }
}

TEST(StoreKvReference, Q8ShowsFaultsAndKeepsZeros) {
  for (const float fault : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> x(64, 1.0F);
    x[40] = fault;
    std::vector<std::byte> row(68);
    store_kv_ref(x.data(), 64, KvType::kQ8_0, row.data());
    EXPECT_EQ(Case::read(row.data(), KvType::kQ8_0, 0), numerics::f16_to_f32(numerics::f32_to_f16(1.0F / 127)) * 127);
    EXPECT_TRUE(std::isnan(Case::read(row.data(), KvType::kQ8_0, 33)));
  }
  for (const float tiny : {0.0F, 1e-38F, 1e-6F, -1e-45F}) {
    const std::vector<float> x(32, tiny);
    std::vector<std::byte> row(34, std::byte{1});
    store_kv_ref(x.data(), 32, KvType::kQ8_0, row.data());
    for (const std::byte b : row) EXPECT_EQ(b, std::byte{0}) << tiny;
  }
}

TEST(AttentionVariants, ForcedIsaIsTheOneChosen) {
  for (const AttentionVariant& variant : attention_variants()) EXPECT_EQ(choose_attention(variant.needs), variant.fn);
  for (const StoreKvVariant& variant : store_kv_variants()) EXPECT_EQ(choose_store_kv(variant.needs), variant.fn);
  EXPECT_EQ(choose_attention(Isa::kScalar), &attention_ref);
  EXPECT_EQ(choose_store_kv(Isa::kScalar), &store_kv_ref);
}

}  // namespace
}  // namespace outrider::kernels

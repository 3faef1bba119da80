// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"

namespace outrider::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Everything off but the draw.
SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  o.seed = 42;
  return o;
}

template <typename Edit>
SamplerOptions with(Edit edit) {
  SamplerOptions o = plain();
  edit(o);
  return o;
}

std::vector<float> logs(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double v : p) logits.push_back(static_cast<float>(std::log(v)));
  return logits;
}

std::vector<int32_t> ids(std::span<const Candidate> candidates) {
  std::vector<int32_t> result;
  for (const Candidate& c : candidates) result.push_back(c.id);
  return result;
}

std::vector<int32_t> kept(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options, static_cast<uint32_t>(logits.size()));
  return ids(sampler.candidates(logits));
}

std::vector<int32_t> draws(const SamplerOptions& options, const std::vector<float>& logits, int n) {
  Sampler sampler(options, static_cast<uint32_t>(logits.size()));
  std::vector<int32_t> result;
  for (int i = 0; i < n; ++i) result.push_back(sampler.sample(logits));
  return result;
}

template <typename F>
std::string error_of(ErrorKind kind, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

std::string refusal(const SamplerOptions& options) {
  return error_of(ErrorKind::kBadArgument, [&] { validate(options); });
}

using Ids = std::vector<int32_t>;

// p = 1/2, 1/4, 1/8, 1/16, 1/16 at ids 3, 0, 4, 1, 2.
const std::vector<float> kHalving = logs({0.25, 0.0625, 0.0625, 0.5, 0.125});

TEST(SamplerFilters, TopKKeepsTheLargest) {
  const std::vector<std::pair<int32_t, Ids>> table = {{1, {3}},
                                                      {2, {3, 0}},
                                                      {4, {3, 0, 4, 1}},
                                                      {5, {3, 0, 4, 1, 2}},
                                                      {0, {3, 0, 4, 1, 2}},
                                                      {-1, {3, 0, 4, 1, 2}},
                                                      {1000000, {3, 0, 4, 1, 2}}};
  for (const auto& [k, want] : table) EXPECT_EQ(kept(with([&](auto& o) { o.top_k = k; }), kHalving), want) << k;
}

TEST(SamplerFilters, TopPKeepsUntilTheSumIsReached) {
  const std::vector<std::pair<float, Ids>> table = {{0.0F, {3}},
                                                    {0.4F, {3}},
                                                    {0.6F, {3, 0}},
                                                    {0.8F, {3, 0, 4}},
                                                    {0.9F, {3, 0, 4, 1}},
                                                    {0.99F, {3, 0, 4, 1, 2}},
                                                    {1.0F, {3, 0, 4, 1, 2}},
                                                    {1.5F, {3, 0, 4, 1, 2}}};
  for (const auto& [p, want] : table) EXPECT_EQ(kept(with([&](auto& o) { o.top_p = p; }), kHalving), want) << p;
}

TEST(SamplerFilters, MinPKeepsByRatioToTheLargest) {
  const std::vector<std::pair<float, Ids>> table = {
      {0.0F, {3, 0, 4, 1, 2}}, {0.12F, {3, 0, 4, 1, 2}}, {0.13F, {3, 0, 4}}, {0.3F, {3, 0}}, {0.6F, {3}}, {1.0F, {3}}};
  for (const auto& [p, want] : table) EXPECT_EQ(kept(with([&](auto& o) { o.min_p = p; }), kHalving), want) << p;
  EXPECT_EQ(kept(with([](auto& o) { o.min_p = 1; }), {2, 5, 5, 1}), (Ids{1, 2}));
}

TEST(SamplerFilters, TypicalKeepsNearTheEntropyFirst) {
  // H = 1.875 ln 2; -log2 p = 1, 2, 3, 4, 4 lies 0.875, 0.125, 1.125, 2.125, 2.125 from 1.875: ids 0, 3, 4, 1, 2.
  const std::vector<std::pair<float, Ids>> table = {
      {0.0F, {0}},       {0.2F, {0}},          {0.3F, {3, 0}},           {0.7F, {3, 0}},
      {0.8F, {3, 0, 4}}, {0.9F, {3, 0, 4, 1}}, {0.95F, {3, 0, 4, 1, 2}}, {1.0F, {3, 0, 4, 1, 2}}};
  for (const auto& [p, want] : table) EXPECT_EQ(kept(with([&](auto& o) { o.typical_p = p; }), kHalving), want) << p;
}

TEST(SamplerFilters, EachStepSeesWhatTheOneBeforeKept) {
  // Top-k 2 leaves 2/3 and 1/3: top-p 0.6 then keeps one; over all five it would keep two.
  EXPECT_EQ(kept(with([](auto& o) { o.top_k = 2, o.top_p = 0.6F; }), kHalving), (Ids{3}));
  // Typical 0.2 leaves id 0 alone, which min-p then measures against itself.
  EXPECT_EQ(kept(with([](auto& o) { o.typical_p = 0.2F, o.min_p = 1; }), kHalving), (Ids{0}));
  // A bias acts before top-k, the temperature only on the draw.
  EXPECT_EQ(kept(with([](auto& o) { o.top_k = 1, o.logit_bias = {{1, 5.0F}}; }), kHalving), (Ids{1}));
  EXPECT_EQ(kept(with([](auto& o) { o.temperature = 100, o.min_p = 0.3F; }), kHalving), (Ids{3, 0}));
}

TEST(SamplerFilters, EqualLogitsGoByRisingId) {
  EXPECT_EQ(kept(with([](auto& o) { o.top_k = 3; }), std::vector<float>(1000, 1.0F)), (Ids{0, 1, 2}));
  EXPECT_EQ(kept(plain(), {1, 2, 2, 1, 2}), (Ids{1, 2, 4, 0, 3}));
  EXPECT_EQ(kept(with([](auto& o) { o.top_k = 2; }), {0.0F, -0.0F, 0.0F}), (Ids{0, 1}));
}

// Large vocabularies take the routes that never order everything: they must keep what a plain sort keeps.
TEST(SamplerFilters, LargeVocabulariesEqualAPlainSort) {
  TestRng rng(201);
  const uint32_t n = 20000;
  std::vector<float> logits(n);
  for (const double spread : {0.01, 1.0, 4.0}) {
    for (float& l : logits) l = static_cast<float>(std::round(rng.normal() * spread * 64) / 64);  // many ties
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
    const float top = logits[static_cast<size_t>(order[0])];
    double total = 0;
    for (const float l : logits) total += std::exp(double{l} - top);
    EXPECT_EQ(kept(plain(), logits), order);
    for (const int32_t k : {1, 40, 257, 9999, 19999, 20000}) {
      EXPECT_EQ(kept(with([&](auto& o) { o.top_k = k; }), logits), Ids(order.begin(), order.begin() + k)) << k;
    }
    for (const float p : {0.01F, 0.5F, 0.9F, 0.999F}) {
      size_t n_want = 0;
      for (double sum = 0; sum < p * total; ++n_want)
        sum += std::exp(double{logits[static_cast<size_t>(order[n_want])]} - top);
      EXPECT_EQ(kept(with([&](auto& o) { o.top_p = p; }), logits),
                Ids(order.begin(), order.begin() + ptrdiff_t(n_want)))
          << p;
    }
    const auto n_min_p =
        std::count_if(logits.begin(), logits.end(), [&](float l) { return std::exp(double{l} - top) >= 0.1F; });
    EXPECT_EQ(kept(with([](auto& o) { o.min_p = 0.1F; }), logits), Ids(order.begin(), order.begin() + n_min_p));
    // Draw i walks the ordered list to u_i of the sum, u_i being output i of the mixed seed's stream.
    Random stream(Random(42).next_u64());
    for (const int32_t drawn : draws(plain(), logits, 50)) {
      const double target = stream.uniform() * total;
      size_t at = 0;
      for (double sum = 0; (sum += std::exp(double{logits[static_cast<size_t>(order[at])]} - top)) <= target;) ++at;
      EXPECT_EQ(drawn, order[at]);
    }
  }
}

TEST(SamplerBias, AddsUpBansAndSuppresses) {
  Sampler sampler(with([](auto& o) { o.logit_bias = {{0, 2.0F}, {0, 1.5F}, {2, -kInf}}, o.suppressed = {3}; }), 4);
  const std::vector<float> logits = {1, 2, 3, 4};
  const auto candidates = sampler.candidates(logits);
  ASSERT_EQ(ids(candidates), (Ids{0, 1}));
  EXPECT_EQ(candidates[0].logit, 4.5F);
  EXPECT_EQ(candidates[1].logit, 2.0F);
  SamplerOptions greedy = with([](auto& o) { o.temperature = 0, o.suppressed = {3}, o.logit_bias = {{2, -kInf}}; });
  EXPECT_EQ(draws(greedy, logits, 1), (Ids{1}));
}

TEST(SamplerPenalties, FollowTheirFormulae) {
  SamplerOptions o = with([](auto& s) {
    s.repeat_penalty = 2, s.presence_penalty = 0.25F, s.frequency_penalty = 0.125F, s.repeat_last_n = 4;
  });
  Sampler sampler(o, 5);
  for (const int32_t token : {4, 0, 1, 1, 2}) sampler.accept(token);  // 4 has left the window
  const std::vector<float> logits = {3, 3, -1, 1, 1};
  std::map<int32_t, float> got;
  for (const Candidate& c : sampler.candidates(logits)) got[c.id] = c.logit;
  EXPECT_EQ(got[0], 1.5F - 0.125F - 0.25F);
  EXPECT_EQ(got[1], 1.5F - 2 * 0.125F - 0.25F);
  EXPECT_EQ(got[2], -2.0F - 0.125F - 0.25F);
  EXPECT_EQ(got[3], 1.0F);
  EXPECT_EQ(got[4], 1.0F);
}

TEST(SamplerPenalties, WindowOfNoneAllAndSome) {
  const std::vector<float> logits(10, 1.0F);
  const auto penalised = [&](int32_t last_n) {
    Sampler sampler(with([&](auto& o) { o.presence_penalty = 1, o.repeat_last_n = last_n; }), 10);
    for (int32_t round = 0; round < 100; ++round) {
      for (int32_t token = 0; token < 8; ++token) sampler.accept(token);
    }
    Ids low;
    for (const Candidate& c : sampler.candidates(logits)) {
      if (c.logit < 1) low.push_back(c.id);
    }
    return low;
  };
  EXPECT_EQ(penalised(0), Ids{});
  EXPECT_EQ(penalised(1), (Ids{7}));
  EXPECT_EQ(penalised(3), (Ids{5, 6, 7}));
  EXPECT_EQ(penalised(-1), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SamplerGreedy, TakesTheLowestIdOnTiesWhateverTheFilters) {
  const SamplerOptions greedy =
      with([](auto& o) { o.temperature = 0, o.top_k = 2, o.top_p = 0.1F, o.typical_p = 0.1F, o.min_p = 1; });
  EXPECT_EQ(draws(greedy, {1, 7, 7, 3}, 3), (Ids{1, 1, 1}));
  EXPECT_EQ(draws(with([](auto& o) { o.temperature = 1e-9F; }), {1, 7, 6.999F, 3}, 3), (Ids{1, 1, 1}));
  EXPECT_EQ(draws(with([](auto& o) { o.temperature = 1e-45F; }), {1, 7, 6.999F, 3}, 3), (Ids{1, 1, 1}));
}

// Chi-square of observed counts. 16.27 is the 0.1 % point of 3 degrees of freedom; the seeds are fixed.
double chi_square(const Ids& drawn, const std::vector<double>& p) {
  std::vector<double> counts(p.size());
  for (const int32_t id : drawn) ++counts[static_cast<size_t>(id)];
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * static_cast<double>(drawn.size());
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(SamplerDraws, OffMeansOffAndFourEqualChoicesAreEven) {  // SMP-1
  const std::vector<float> four(4, 0.5F);
  const std::vector<double> even(4, 0.25);
  const auto spread = [&](auto edit) { return chi_square(draws(with(edit), four, 2000), even); };
  EXPECT_LT(spread([](auto& o) { o.top_k = 0; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.top_k = -1; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.top_k = 1000000; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.top_p = 1; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.top_p = 1.5F; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.min_p = 1; }), 16.27);
  EXPECT_LT(spread([](auto& o) { o.temperature = 1e-9F; }), 16.27);
  EXPECT_EQ(draws(with([](auto& o) { o.top_k = 1; }), four, 100), Ids(100, 0));
  EXPECT_EQ(draws(with([](auto& o) { o.top_p = 0; }), four, 100), Ids(100, 0));
  EXPECT_EQ(draws(with([](auto& o) { o.temperature = 0; }), four, 100), Ids(100, 0));
}

TEST(SamplerDraws, FollowTheProbabilitiesAndTheTemperature) {
  const std::vector<double> p = {0.4, 0.3, 0.2, 0.1};
  EXPECT_LT(chi_square(draws(plain(), logs(p), 20000), p), 16.27);
  std::vector<double> squared = {0.16 / 0.3, 0.09 / 0.3, 0.04 / 0.3, 0.01 / 0.3};
  EXPECT_LT(chi_square(draws(with([](auto& o) { o.temperature = 0.5F; }), logs(p), 20000), squared), 16.27);
}

TEST(SamplerSeed, SameSeedSameDrawsAndTheReportedSeedRepeatsARandomRun) {  // SMP-3
  TestRng rng(202);
  std::vector<float> logits(500);
  for (float& l : logits) l = static_cast<float>(rng.normal());
  std::vector<Ids> seen;
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{42}, uint64_t{1} << 31, (uint64_t{1} << 32) - 1, uint64_t{1} << 63, UINT64_MAX}) {
    const SamplerOptions options = with([&](auto& o) { o.seed = seed; });
    EXPECT_EQ(Sampler(options, 5).seed(), seed);
    const Ids first = draws(options, logits, 30);
    EXPECT_EQ(first, draws(options, logits, 30));
    for (const Ids& other : seen) EXPECT_NE(first, other);
    seen.push_back(first);
  }
  const SamplerOptions random = with([](auto& o) { o.seed.reset(); });
  Sampler one(random, 500);
  Ids first;
  for (int i = 0; i < 30; ++i) first.push_back(one.sample(logits));
  EXPECT_EQ(first, draws(with([&](auto& o) { o.seed = one.seed(); }), logits, 30));
  EXPECT_EQ(one.n_draws(), 30U);
}

TEST(SamplerSeed, ADrawDependsOnItsNumberOnly) {
  const std::vector<float> even(1000, 0.0F);
  const std::vector<float> odd = {5, 1, 2};
  const Ids want = draws(plain(), even, 20);
  Sampler sampler(plain(), 1000);
  Sampler company(with([](auto& o) { o.seed = 7; }), 3);
  for (int i = 0; i < 20; ++i) {
    sampler.candidates(even);  // looking is no draw
    EXPECT_THROW(sampler.sample(std::vector<float>(1000, kNan)), Error);
    company.sample(odd);
    EXPECT_EQ(sampler.sample(even), want[static_cast<size_t>(i)]);
  }
}

TEST(SamplerErrors, LogitsThatAreNoNumbersFailTheRequest) {  // SMP-4
  for (const float temperature : {0.0F, 1.0F}) {
    Sampler sampler(with([&](auto& o) { o.temperature = temperature; }), 3);
    const auto message = [&](std::vector<float> logits) {
      return error_of(ErrorKind::kNumeric, [&] { sampler.sample(logits); });
    };
    EXPECT_EQ(message({kNan, kNan, kNan}),
              "the logit of token 0 is nan: wanted a number; the model's output cannot be used");
    EXPECT_EQ(message({1, 2, kNan}), "the logit of token 2 is nan: wanted a number; the model's output cannot be used");
    EXPECT_EQ(message({1, kInf, 3}), "the logit of token 1 is inf: wanted a number; the model's output cannot be used");
    EXPECT_EQ(message({-kInf, -kInf, -kInf}),
              "no token can be chosen: all 3 logits are -infinity after suppression and bias");
    EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, 1, -kInf}), 1);
    Sampler banned(with([&](auto& o) {
                     o.temperature = temperature, o.suppressed = {0, 1}, o.logit_bias = {{2, -kInf}};
                   }),
                   3);
    EXPECT_THROW(banned.sample(std::vector<float>{1, 2, 3}), Error);
  }
}

TEST(SamplerOptionsCheck, NamesFieldValueAndWhatWasWanted) {
  EXPECT_EQ(refusal(SamplerOptions{}), "no error");
  EXPECT_EQ(refusal(with([](auto& o) { o.temperature = kNan; })), "temperature nan: wanted 0 (greedy) or more");
  EXPECT_EQ(refusal(with([](auto& o) { o.temperature = -1; })), "temperature -1: wanted 0 (greedy) or more");
  EXPECT_EQ(refusal(with([](auto& o) { o.temperature = kInf; })), "temperature inf: wanted 0 (greedy) or more");
  EXPECT_EQ(refusal(with([](auto& o) { o.top_p = -0.1F; })), "top_p -0.1: wanted 0 or more (1 is off)");
  EXPECT_EQ(refusal(with([](auto& o) { o.min_p = 1.5F; })), "min_p 1.5: wanted 0 (off) to 1");
  EXPECT_EQ(refusal(with([](auto& o) { o.typical_p = kNan; })), "typical_p nan: wanted 0 or more (1 is off)");
  EXPECT_EQ(refusal(with([](auto& o) { o.repeat_penalty = 0; })), "repeat_penalty 0: wanted 0.001 to 1000 (1 is off)");
  EXPECT_EQ(refusal(with([](auto& o) { o.repeat_last_n = -2; })), "repeat_last_n -2: wanted -1 (all) to 1048576");
  EXPECT_EQ(refusal(with([](auto& o) { o.presence_penalty = kInf; })),
            "presence_penalty inf: wanted -1000 to 1000 (0 is off)");
  EXPECT_EQ(refusal(with([](auto& o) { o.frequency_penalty = kNan; })),
            "frequency_penalty nan: wanted -1000 to 1000 (0 is off)");
  EXPECT_EQ(refusal(with([](auto& o) {
              o.logit_bias = {{7, kNan}};
            })),
            "logit_bias of token 7 is nan: wanted -1e30 to 1e30, or -infinity");
  EXPECT_EQ(error_of(ErrorKind::kBadArgument, [] { Sampler(with([](auto& o) {
                                                             o.logit_bias = {{10, 1.0F}};
                                                           }),
                                                           10); }),
            "logit_bias names token 10: wanted an id from 0 to 9");
  EXPECT_EQ(error_of(ErrorKind::kBadArgument, [] { Sampler(with([](auto& o) { o.suppressed = {-1}; }), 10); }),
            "suppressed names token -1: wanted an id from 0 to 9");
}

TEST(SamplerNumbers, ExtremePenaltiesNeverMakeNan) {
  Sampler sampler(with([](auto& o) {
                    o.repeat_penalty = 0.001F, o.presence_penalty = -1000, o.frequency_penalty = -1000,
                    o.repeat_last_n = -1, o.suppressed = {2}, o.logit_bias = {{0, 1e30F}};
                  }),
                  4);
  for (int i = 0; i < 100; ++i) sampler.accept(i % 3);
  const std::vector<float> logits = {3e38F, 3e38F, 3e38F, -3e38F};
  EXPECT_EQ(ids(sampler.candidates(logits)), (Ids{0, 1, 3}));
  EXPECT_LE(sampler.sample(logits), 1);
}

// What a sampler says of the likeliest tokens before it has all logits.
std::vector<Candidate> some_of(const std::vector<float>& logits, float at_least) {
  std::vector<Candidate> some;
  for (size_t id = logits.size(); id-- > 0;) {
    if (logits[id] >= at_least) some.push_back({static_cast<int32_t>(id), logits[id]});
  }
  return some;
}

TEST(SamplerChoice, IsWhatSampleGivesWhereTheLikeliestHoldAllThatIsKept) {
  TestRng random(3);
  std::vector<SamplerOptions> cases = {SamplerOptions{}, with([](SamplerOptions& o) { o.temperature = 0; }),
                                       with([](SamplerOptions& o) { o.top_k = 20; }),
                                       with([](SamplerOptions& o) { o.top_k = 30, o.typical_p = 0.5F; }),
                                       with([](SamplerOptions& o) {
                                         o.top_k = 25;
                                         o.repeat_penalty = 1.3F;
                                         o.presence_penalty = 0.5F;
                                         o.suppressed = {4, 5, 6};
                                         o.logit_bias = {{7, 2.0F}, {9, -kInf}};
                                       })};
  for (SamplerOptions& options : cases) {
    options.seed = 11;
    Sampler sampler(options, 1000);
    for (int i = 0; i < 50; ++i) {
      std::vector<float> logits(1000);
      for (float& x : logits) x = 4 * random.uniform(-1.0F, 1.0F) + (random.below(50) == 0 ? 5.0F : 0.0F);
      const std::vector<Candidate> likeliest = some_of(logits, 1.5F);
      const int32_t first = sampler.choose(likeliest);
      EXPECT_EQ(sampler.choose(likeliest), first);  // no draw is used
      EXPECT_EQ(sampler.n_draws(), static_cast<uint64_t>(i));
      const int32_t token = sampler.sample(logits);
      EXPECT_EQ(first, token) << i;
      sampler.accept(token);
    }
  }
}

TEST(SamplerChoice, NoneWhereNothingIsPossible) {
  Sampler sampler(with([](SamplerOptions& o) { o.suppressed = {1, 2}; }), 5);
  EXPECT_EQ(sampler.choose({}), -1);
  const std::vector<Candidate> banned = {{1, 3.0F}, {2, 4.0F}}, broken = {{0, kNan}, {3, kInf}, {4, -kInf}};
  EXPECT_EQ(sampler.choose(banned), -1);
  EXPECT_EQ(sampler.choose(broken), -1);
  const std::vector<Candidate> one = {{0, kNan}, {2, 9.0F}, {3, -5.0F}};
  EXPECT_EQ(sampler.choose(one), 3);
}

TEST(SamplerChoice, ShapesScoresBySuppressionBiasAndPenalties) {
  Sampler sampler(with([](SamplerOptions& o) {
                    o.suppressed = {1};
                    o.logit_bias = {{2, 1.5F}, {3, -kInf}};
                    o.presence_penalty = 2;
                  }),
                  5);
  std::vector<float> scores = {1, 2, 3, 4, 5};
  sampler.accept(4);
  sampler.shape(scores);
  EXPECT_EQ(scores, (std::vector<float>{1, -kInf, 4.5F, -kInf, 3}));
}

}  // namespace
}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/base/random.h"
#include "outrider/whatif/trace_summary.h"

namespace outrider::whatif {

namespace {

void validate(const SyntheticSpec& spec) {
  const auto wanted = [](const char* field, double value, double low, double high) {
    if (!(value >= low && value <= high))
      fail(ErrorKind::kBadArgument, "synthetic trace: {} is {}, wanted {}..{}", field, value, low, high);
  };
  wanted("layers", spec.n_layers, 1, 65536);
  wanted("experts", spec.n_experts, 1, 65536);
  wanted("experts used", spec.n_used, 1, spec.n_experts);
  wanted("prompt", spec.n_prompt, 0, 1 << 20);
  wanted("tokens", spec.n_tokens, 0, 1e9);
  wanted("zipf", spec.zipf, 0, 10);
  wanted("recency", spec.recency, 0, 1);
  wanted("topic tokens", spec.topic_tokens, 1, 1e12);
  wanted("topic share", spec.topic_share, 0, 1);
}

using Order = std::vector<uint32_t>;  // experts, most popular first

Order shuffled(uint32_t n, Random& random) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + random.below(n - i)]);
  return order;
}

class LayerRouter {
 public:
  LayerRouter(const SyntheticSpec& spec, std::span<const double> cumulative, uint64_t seed)
      : spec_(spec),
        cumulative_(cumulative),
        random_(seed),
        lasting_(shuffled(spec.n_experts, random_)),
        topic_(lasting_) {}

  void switch_topic() { topic_ = shuffled(spec_.n_experts, random_); }

  // Appends the next token's experts to `ids`.
  void next(std::vector<uint32_t>& ids) {
    token_.clear();
    for (const uint32_t expert : last_) {
      if (random_.uniform() < spec_.recency) token_.push_back(expert);
    }
    // A very skewed draw may keep hitting what is taken; after so many tries the most popular free ones do.
    const uint32_t max_tries = 64 * spec_.n_used;
    for (uint32_t tries = 0; token_.size() < spec_.n_used; ++tries) {
      const bool is_drawn = tries < max_tries;
      const Order& order = is_drawn && random_.uniform() < spec_.topic_share ? topic_ : lasting_;
      const uint32_t expert = order[is_drawn ? draw() : tries - max_tries];
      if (std::ranges::find(token_, expert) == token_.end()) token_.push_back(expert);
    }
    last_ = token_;
    ids.insert(ids.end(), token_.begin(), token_.end());
  }

 private:
  uint32_t draw() {
    const double at = random_.uniform() * cumulative_.back();
    const auto it = std::ranges::upper_bound(cumulative_, at);
    return static_cast<uint32_t>(
        std::min<std::ptrdiff_t>(it - cumulative_.begin(), static_cast<std::ptrdiff_t>(spec_.n_experts) - 1));
  }

  const SyntheticSpec& spec_;
  std::span<const double> cumulative_;
  Random random_;
  Order lasting_, topic_;
  std::vector<uint32_t> last_, token_;
};

double squared_relative(double got, double wanted) {
  const double difference = (got - wanted) / std::max(wanted, 1e-3);
  return difference * difference;
}

double unlikeness(const TraceSummary& got, const TraceSummary& wanted) {
  double sum =
      squared_relative(got.overlap, wanted.overlap) + squared_relative(got.top_eighth_share, wanted.top_eighth_share);
  const size_t n = std::min(got.working_set.size(), wanted.working_set.size());
  for (size_t i = 1; i < n; ++i) sum += squared_relative(got.working_set[i], wanted.working_set[i]);
  return sum;
}

}  // namespace

observe::Trace make_synthetic_trace(const SyntheticSpec& spec) {
  validate(spec);
  observe::TraceHeader header;
  header.model = "synthetic";
  header.source = "synthetic";
  header.n_used = spec.n_used;
  header.layers.assign(spec.n_layers, {.n_experts = spec.n_experts, .slab_bytes = spec.slab_bytes});
  observe::Trace trace(header);
  std::vector<double> cumulative(spec.n_experts);
  double sum = 0;
  for (uint32_t rank = 0; rank < spec.n_experts; ++rank) cumulative[rank] = sum += std::pow(rank + 1.0, -spec.zipf);
  Random random(spec.seed);
  std::vector<LayerRouter> layers;
  for (uint32_t i = 0; i < spec.n_layers; ++i) layers.emplace_back(spec, cumulative, random.next_u64());

  std::vector<std::vector<uint32_t>> ids(spec.n_layers);
  std::vector<observe::TraceRow> rows;
  const uint64_t n_tokens = uint64_t{spec.n_prompt} + spec.n_tokens;
  for (uint64_t token = 0; token < n_tokens; ++token) {
    // All layers change the topic together: it is the text's.
    const bool switches = random.uniform() * spec.topic_tokens < 1;
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      if (switches) layers[i].switch_topic();
      layers[i].next(ids[i]);
    }
    rows.push_back({.sequence = 0, .position = static_cast<uint32_t>(token), .token = 0});
    if (token + 1 < spec.n_prompt) continue;
    trace.begin_step(rows);
    for (uint32_t i = 0; i < spec.n_layers; ++i) {
      trace.add_demand(i, ids[i]);
      ids[i].clear();
    }
    trace.end_step(static_cast<uint32_t>(rows.size()));
    rows.clear();
  }
  return trace;
}

SyntheticSpec fit_synthetic(const observe::Trace& trace, uint64_t seed) {
  const observe::TraceHeader& header = trace.header();
  if (trace.n_tokens() < 16)
    fail(ErrorKind::kBadArgument, "the trace has {} tokens: wanted at least 16 to fit to", trace.n_tokens());
  SyntheticSpec spec;
  spec.n_layers = static_cast<uint32_t>(header.layers.size());
  spec.n_experts = header.layers[0].n_experts;
  spec.n_used = header.n_used;
  spec.slab_bytes = header.layers[0].slab_bytes;
  spec.n_tokens = static_cast<uint32_t>(std::min<uint64_t>(trace.n_tokens(), 1 << 20));
  spec.seed = seed;
  const TraceSummary wanted = summarize(trace);
  SyntheticSpec trial = spec;
  trial.n_layers = std::min(spec.n_layers, 4U);  // layers are alike: a few tell as much
  trial.n_tokens = std::min(spec.n_tokens, 2048U);
  double best = unlikeness(summarize(make_synthetic_trace(trial)), wanted);
  const auto search = [&](double SyntheticSpec::*field, double low, double high, double step, bool is_factor) {
    double best_value = trial.*field;
    for (double value = low; value <= high * 1.0001; value = is_factor ? value * step : value + step) {
      trial.*field = value;
      const double score = unlikeness(summarize(make_synthetic_trace(trial)), wanted);
      if (score < best) {
        best = score;
        best_value = value;
      }
    }
    trial.*field = best_value;
  };
  for (int round = 0; round < 3; ++round) {
    search(&SyntheticSpec::zipf, 0, 2, 0.1, false);
    search(&SyntheticSpec::recency, 0, 0.6, 0.04, false);
    search(&SyntheticSpec::topic_share, 0, 1, 0.125, false);
    search(&SyntheticSpec::topic_tokens, 4, 1024, 2, true);
  }
  spec.zipf = trial.zipf;
  spec.recency = trial.recency;
  spec.topic_share = trial.topic_share;
  spec.topic_tokens = trial.topic_tokens;
  return spec;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "outrider/kernels/sketch/sketch.h"

namespace outrider::whatif {

namespace {

constexpr double kDramShare = 0.80, kDriveShare = 0.90, kArithmeticShare = 0.60;  // what is expected of a peak
// Of the drive, in prefill: a layer's first reads and last products overlap with nothing, and reading takes processor
// time (measured: docs/performance.md, "The plan against a run").
constexpr double kPrefillDriveShare = 0.75;
// Of computing and of reading ahead, what of the shorter one does not fall into the longer one (measured, likewise).
constexpr double kNotHidden = 0.15;

double elems(const model::Linear& linear) noexcept { return static_cast<double>(linear.n_rows) * linear.k; }

double bytes(const model::Linear& linear) noexcept {
  return linear ? static_cast<double>(linear.n_rows) * static_cast<double>(linear.weight->row_bytes()) : 0;
}

double ns(double amount, double rate) noexcept { return rate > 0 ? amount / rate : 0; }

// Of one token or one chunk. What is read of the drive are experts.
struct Amounts {
  double n_tokens = 1;
  double bytes = 0, macs = 0, drive_bytes = 0;
  double dense_ns = 0, expert_ns = 0;  // expected
  double head_ns = 0;                  // of dense_ns, in decode
  double search_ns = 0;                // for the next token
  ReadsAhead ahead = ReadsAhead::kNothing;
};

double expected_ns(const Amounts& of, const MachineRates& rates) noexcept {
  const double drive_share = of.n_tokens > 1 ? kPrefillDriveShare : kDriveShare;
  double least = of.dense_ns + std::max(of.expert_ns, ns(of.drive_bytes, drive_share * rates.drive_gbps));
  const double reading_ns = ns(of.drive_bytes, rates.drive_gbps);
  if (of.n_tokens > 1 || reading_ns <= 0 || of.ahead == ReadsAhead::kNothing) return least;
  const auto beside_reading = [&](double computing_ns) {
    return std::max(computing_ns, reading_ns) + kNotHidden * std::min(computing_ns, reading_ns);
  };
  const double computing_ns = of.dense_ns + of.expert_ns;
  least = std::min(least, of.head_ns + beside_reading(computing_ns - of.head_ns));
  if (of.ahead == ReadsAhead::kNextToken) least = std::min(least, beside_reading(computing_ns + of.search_ns));
  return least;
}

Speed speed_of(const Amounts& of, const MachineRates& rates) noexcept {
  const std::array<std::pair<BoundBy, double>, 3> bounds = {{{BoundBy::kArithmetic, ns(of.macs, rates.int8_gmacs)},
                                                             {BoundBy::kMemory, ns(of.bytes, rates.dram_gbps)},
                                                             {BoundBy::kDrive, ns(of.drive_bytes, rates.drive_gbps)}}};
  const auto most =
      std::max_element(bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->second <= 0) return {};
  const double taken_ns = expected_ns(of, rates);
  // On a machine that varies, products may have been timed in a better moment than the peak that bounds them.
  return {.expected_tps = of.n_tokens * 1e9 / taken_ns,
          .bound_tps = of.n_tokens * 1e9 / std::min(taken_ns, most->second),
          .by = most->first};
}

// Expected time of products with weights of one type, of n_tokens each, n_macs in all.
double products_ns(const TypeWork& work, double n_macs, double n_tokens, bool is_dense,
                   const MachineRates& rates) noexcept {
  const ProductRates* timed = rates.operations.product(work.type);
  if (timed != nullptr) return ns(n_macs, timed->gmacs(n_tokens, is_dense));
  return std::max(ns(work.bytes(n_macs / n_tokens), kDramShare * rates.dram_gbps),
                  n_tokens > 1 ? ns(n_macs, kArithmeticShare * rates.int8_gmacs) : 0);
}

// What is not a product, of n_tokens that follow `context` others. One token is one thread's, a chunk all threads'.
double beside_products_ns(const ModelWork& work, const MachineRates& rates, double n_tokens, double context) noexcept {
  const OperationRates& times = rates.operations;
  const double n_positions = n_tokens * (context + (n_tokens + 1) / 2);
  const AttentionRates* attention = times.attention_of(work.kv_type);
  const double small = n_tokens * (work.norm_elems * times.norm_ns + work.combined_elems * times.combine_ns +
                                   work.routed_experts * times.route_ns);
  double sum = n_tokens > 1 ? small / rates.n_threads : small;
  sum += work.n_forks * times.fork_ns + work.n_logits * times.sample_ns;
  if (attention == nullptr) return sum + ns(n_positions * work.kv_bytes / n_tokens, kDramShare * rates.dram_gbps);
  return sum + ns(n_positions * work.attention_macs, n_tokens > 1 ? attention->rows_gmacs : attention->row_gmacs);
}

Speed pass_speed(const ModelWork& work, const MachineRates& rates, double n_tokens, double n_touched,
                 double missed_bytes, double context, ReadsAhead ahead = ReadsAhead::kNothing) noexcept {
  // One row's products wait for memory, not for arithmetic.
  const bool is_one = n_tokens <= 1;
  const double kv_bytes = work.kv_bytes * (context + n_tokens);
  Amounts of = {
      .n_tokens = n_tokens,
      .bytes = work.dense_bytes + kv_bytes + work.used_expert_bytes * (work.n_used > 0 ? n_touched / work.n_used : 0),
      .macs = is_one ? 0 : n_tokens * work.macs,
      .drive_bytes = missed_bytes,
      .dense_ns = beside_products_ns(work, rates, n_tokens, context),
      .search_ns = ns(work.sketch_bytes, kDramShare * rates.dram_gbps),
      .ahead = ahead == ReadsAhead::kNextToken && work.sketch_bytes == 0 ? ReadsAhead::kLayers : ahead};
  const double tokens_an_expert = n_touched > 0 ? std::max(1.0, n_tokens * work.n_used / n_touched) : 1;
  for (const TypeWork& type : work.types) {
    of.dense_ns += products_ns(type, n_tokens * type.dense_macs, n_tokens, true, rates);
    of.head_ns += products_ns(type, type.head_macs, 1, true, rates);
    of.expert_ns += products_ns(type, n_tokens * type.expert_macs, tokens_an_expert, false, rates);
  }
  of.dense_ns += of.head_ns;
  return speed_of(of, rates);
}

// Things that a layer does beside products, and the times that it hands the products of small experts to all threads.
// Those take 0.7 to 3.5 us beyond their bytes (measured). Others are left out: one matrix is read in order.
void add_layer(const model::Model& model, const model::Layer& layer, ModelWork& work) {
  const model::ModelSpec& spec = model.spec;
  const double q_width = static_cast<double>(spec.n_heads) * spec.dk,
               kv_width = static_cast<double>(spec.n_kv_heads) * spec.dk;
  // Two norms of the state; q and k by head; the attention's output quantised; two sums.
  work.norm_elems += 2.0 * spec.d_model + 2 * q_width + kv_width;
  work.combined_elems += 2.0 * spec.d_model;
  if (layer.is_moe) {
    work.combined_elems += static_cast<double>(spec.router.n_used) * spec.d_model;
    work.routed_experts += spec.router.n_experts;
    work.n_forks += 3;  // gate and up; their product; down
  }
  for (const model::FfnWeights* ffn : {&layer.dense, &layer.shared}) {
    if (*ffn) work.norm_elems += ffn->down.k;
  }
}

}  // namespace

double TypeWork::bytes(double n_macs) const noexcept {
  const format::TypeInfo& info = format::type_info(type);
  return n_macs / info.block_elems * info.block_bytes;
}

ModelWork model_work(const model::Model& model, kernels::KvType kv_type) {
  const model::ModelSpec& spec = model.spec;
  ModelWork work;
  work.kv_type = kv_type;
  work.n_logits = spec.n_vocab;
  const auto of_type = [&](format::TensorType type) -> TypeWork& {
    for (TypeWork& known : work.types) {
      if (known.type == type) return known;
    }
    return work.types.emplace_back(TypeWork{.type = type});
  };
  const auto add = [&](const model::Linear& linear) {
    if (!linear) return;
    work.dense_bytes += bytes(linear);
    work.macs += elems(linear);
    of_type(linear.weight->type).dense_macs += elems(linear);
  };
  for (const model::Layer& layer : model.layers) {
    for (const model::Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.dense.gate, &layer.dense.up, &layer.dense.down,
          &layer.router, &layer.shared.gate, &layer.shared.up, &layer.shared.down, &layer.shared_gate}) {
      add(*linear);
    }
    add_layer(model, layer, work);
    const model::ExpertStacks& experts = layer.experts;
    for (const format::Tensor* stack : {experts.gate, experts.up, experts.gate_up, experts.down}) {
      if (stack == nullptr) continue;
      const double share = static_cast<double>(model.spec.router.n_used) / model.spec.router.n_experts;
      work.all_expert_bytes += static_cast<double>(stack->n_bytes);
      work.used_expert_bytes += static_cast<double>(stack->n_bytes) * share;
      work.macs += static_cast<double>(stack->n_elems()) * share;
      work.expert_macs += static_cast<double>(stack->n_elems()) * share;
      of_type(stack->type).expert_macs += static_cast<double>(stack->n_elems()) * share;
    }
  }
  work.dense_bytes += bytes(model.head);
  of_type(model.head.weight->type).head_macs += elems(model.head);
  if (spec.d_model % 32 == 0)
    work.sketch_bytes = static_cast<double>(kernels::sketch_bytes(spec.n_vocab, spec.d_model));
  work.attention_macs = static_cast<double>(spec.n_layers) * spec.n_heads * (spec.dk + spec.dv);
  work.kv_bytes =
      static_cast<double>(spec.n_layers) * spec.n_kv_heads *
      static_cast<double>(kernels::kv_row_bytes(kv_type, spec.dk) + kernels::kv_row_bytes(kv_type, spec.dv));
  if (model.n_moe_layers() > 0) {
    work.n_experts = model.spec.router.n_experts;
    work.n_used = model.spec.router.n_used;
  }
  return work;
}

std::string_view bound_name(BoundBy bound) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"memory", "drive", "arithmetic"};
  return kNames[static_cast<size_t>(bound)];
}

double uniform_miss_rate(const ModelWork& work, uint32_t slots) noexcept {
  return work.n_experts == 0 ? 0 : 1 - static_cast<double>(std::min(slots, work.n_experts)) / work.n_experts;
}

double touched_expert_bytes(const ModelWork& work, double n_tokens) noexcept {
  const double used_share = work.n_experts == 0 ? 0 : static_cast<double>(work.n_used) / work.n_experts;
  return work.all_expert_bytes * (1 - std::pow(1 - used_share, n_tokens));
}

Prediction predict(const ModelWork& work, const MachineRates& rates, const PassShape& pass) noexcept {
  Prediction out;
  out.missed_bytes = pass.miss_rate * work.used_expert_bytes;
  out.decode = pass_speed(work, rates, 1, work.n_used, out.missed_bytes, pass.context, pass.ahead);
  if (pass.chunk == 0) return out;
  const double touched_bytes = touched_expert_bytes(work, pass.chunk);
  const double n_touched = work.n_experts == 0 ? 0 : work.n_experts * touched_bytes / work.all_expert_bytes;
  out.prefill = pass_speed(work, rates, pass.chunk, n_touched, pass.miss_rate * touched_bytes, pass.context);
  return out;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/predict.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace outrider::whatif {

namespace {

constexpr double kDramShare = 0.80, kDriveShare = 0.85, kArithmeticShare = 0.60;

double elems(const model::Linear& linear) noexcept { return static_cast<double>(linear.n_rows) * linear.k; }

double bytes(const model::Linear& linear) noexcept {
  return linear ? static_cast<double>(linear.n_rows) * static_cast<double>(linear.weight->row_bytes()) : 0;
}

struct Term {
  BoundBy by;
  double amount, rate, share;
};

Speed speed_of(double n_tokens, std::initializer_list<Term> terms) noexcept {
  double bound_ns = 0, expected_ns = 0;
  Speed speed;
  for (const Term& term : terms) {
    if (term.rate <= 0) continue;
    const double ns = term.amount / term.rate;
    if (ns > bound_ns) speed.by = term.by;
    bound_ns = std::max(bound_ns, ns);
    expected_ns = std::max(expected_ns, ns / term.share);
  }
  if (bound_ns > 0) speed.bound_tps = n_tokens * 1e9 / bound_ns;
  if (expected_ns > 0) speed.expected_tps = n_tokens * 1e9 / expected_ns;
  return speed;
}

}  // namespace

ModelWork model_work(const model::Model& model) {
  ModelWork work;
  const auto add = [&](const model::Linear& linear) {
    work.dense_bytes += bytes(linear);
    work.macs += elems(linear);
  };
  for (const model::Layer& layer : model.layers) {
    for (const model::Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.dense.gate, &layer.dense.up, &layer.dense.down,
                                        &layer.router, &layer.shared.gate, &layer.shared.up, &layer.shared.down, &layer.shared_gate}) {
      add(*linear);
    }
    const model::ExpertStacks& experts = layer.experts;
    for (const format::Tensor* stack : {experts.gate, experts.up, experts.gate_up, experts.down}) {
      if (stack == nullptr) continue;
      const double share = static_cast<double>(model.spec.router.n_used) / model.spec.router.n_experts;
      work.all_expert_bytes += static_cast<double>(stack->n_bytes);
      work.used_expert_bytes += static_cast<double>(stack->n_bytes) * share;
      work.macs += static_cast<double>(stack->n_elems()) * share;
    }
  }
  work.dense_bytes += bytes(model.head);
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

Prediction predict(const ModelWork& work, const MachineRates& rates, double miss_rate, uint32_t chunk) noexcept {
  Prediction out;
  out.missed_bytes = miss_rate * work.used_expert_bytes;
  out.decode = speed_of(1, {{BoundBy::kMemory, work.dense_bytes + work.used_expert_bytes + work.kv_bytes, rates.dram_gbps, kDramShare},
                            {BoundBy::kDrive, out.missed_bytes, rates.drive_gbps, kDriveShare}});
  const double used_share = work.n_experts == 0 ? 0 : static_cast<double>(work.n_used) / work.n_experts;
  const double touched_bytes = work.all_expert_bytes * (1 - std::pow(1 - used_share, chunk));
  out.prefill = speed_of(chunk, {{BoundBy::kArithmetic, chunk * work.macs, rates.int8_gmacs, kArithmeticShare},
                                 {BoundBy::kMemory, work.dense_bytes + touched_bytes, rates.dram_gbps, kDramShare},
                                 {BoundBy::kDrive, miss_rate * touched_bytes, rates.drive_gbps, kDriveShare}});
  return out;
}

}  // namespace outrider::whatif

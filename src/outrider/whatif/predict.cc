// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/predict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace outrider::whatif {

namespace {

constexpr double kDramShare = 0.80, kDriveShare = 0.90, kArithmeticShare = 0.60;

double elems(const model::Linear& linear) noexcept { return static_cast<double>(linear.n_rows) * linear.k; }

double bytes(const model::Linear& linear) noexcept {
  return linear ? static_cast<double>(linear.n_rows) * static_cast<double>(linear.weight->row_bytes()) : 0;
}

// Of one token or one chunk. What is read of the drive are experts.
struct Work {
  double dense_bytes = 0, expert_bytes = 0, drive_bytes = 0;
  double dense_macs = 0, expert_macs = 0;
};

double ns(double amount, double rate) noexcept { return rate > 0 ? amount / rate : 0; }

Speed speed_of(double n_tokens, const Work& work, const MachineRates& rates) noexcept {
  const std::array<std::pair<BoundBy, double>, 3> bounds = {
      {{BoundBy::kArithmetic, ns(work.dense_macs + work.expert_macs, rates.int8_gmacs)},
       {BoundBy::kMemory, ns(work.dense_bytes + work.expert_bytes, rates.dram_gbps)},
       {BoundBy::kDrive, ns(work.drive_bytes, rates.drive_gbps)}}};
  const auto most =
      std::max_element(bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double dram = kDramShare * rates.dram_gbps, arithmetic = kArithmeticShare * rates.int8_gmacs;
  const double expected_ns = std::max(ns(work.dense_bytes, dram), ns(work.dense_macs, arithmetic)) +
                             std::max({ns(work.expert_bytes, dram), ns(work.expert_macs, arithmetic),
                                       ns(work.drive_bytes, kDriveShare * rates.drive_gbps)});
  if (most->second <= 0) return {};
  return {.expected_tps = n_tokens * 1e9 / expected_ns, .bound_tps = n_tokens * 1e9 / most->second, .by = most->first};
}

}  // namespace

ModelWork model_work(const model::Model& model) {
  ModelWork work;
  const auto add = [&](const model::Linear& linear) {
    work.dense_bytes += bytes(linear);
    work.macs += elems(linear);
  };
  for (const model::Layer& layer : model.layers) {
    for (const model::Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.dense.gate, &layer.dense.up, &layer.dense.down,
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
      work.expert_macs += static_cast<double>(stack->n_elems()) * share;
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
  // One row: its products wait for memory, not for arithmetic.
  out.decode = speed_of(1,
                        {.dense_bytes = work.dense_bytes + work.kv_bytes,
                         .expert_bytes = work.used_expert_bytes,
                         .drive_bytes = out.missed_bytes},
                        rates);
  const double used_share = work.n_experts == 0 ? 0 : static_cast<double>(work.n_used) / work.n_experts;
  const double touched_bytes = work.all_expert_bytes * (1 - std::pow(1 - used_share, chunk));
  out.prefill = speed_of(chunk,
                         {.dense_bytes = work.dense_bytes,
                          .expert_bytes = touched_bytes,
                          .drive_bytes = miss_rate * touched_bytes,
                          .dense_macs = chunk * (work.macs - work.expert_macs),
                          .expert_macs = chunk * work.expert_macs},
                         rates);
  return out;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
// What the engine's own operations reach on this machine, timed for some milliseconds each through the engine's device:
// products by weight type, attention, and what a token costs beside them. Expected speeds are sums of such times, so
// they hold for any model of these types, whatever the peaks are that bound it. Threads: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "outrider/base/isa.h"
#include "outrider/format/tensor_type.h"
#include "outrider/kernels/attention/attention.h"

namespace outrider::whatif {

inline constexpr std::array<uint32_t, 3> kExpertTokens = {8, 32, 128};  // of each expert
inline constexpr uint32_t kDenseTokens = 256;

// Of all threads. Weights come from memory.
struct ProductRates {
  format::TensorType type = format::TensorType::kF32;
  double row_gbps = 0;  // one token, weights of its experts read
  // Multiply-adds per nanosecond: of experts at kExpertTokens, SwiGLU included; of one matrix at kDenseTokens.
  std::array<double, kExpertTokens.size()> expert_gmacs = {};
  double dense_gmacs = 0;
  // At any number of tokens of each expert, or of a matrix that all tokens share. 0 when nothing was measured.
  double gmacs(double n_tokens, bool is_dense) const noexcept;
};

struct AttentionRates {
  kernels::KvType kv_type = kernels::KvType::kF16;
  double row_gmacs = 0;   // one token, keys and values from memory; all threads
  double rows_gmacs = 0;  // many tokens
};

struct OperationRates {
  std::vector<ProductRates> products;
  std::vector<AttentionRates> attention;
  double fork_ns = 0;  // what handing a small product to all threads takes beyond its bytes
  // One thread: an element of a norm with quantising, an element that an expert adds to a row's sum, an expert that a
  // router weighs, a logit that a sampler sees.
  double norm_ns = 0, combine_ns = 0, route_ns = 0, sample_ns = 0;

  const ProductRates* product(format::TensorType type) const noexcept;
  const AttentionRates* attention_of(kernels::KvType type) const noexcept;
};

// All types that weights can have.
std::vector<format::TensorType> weight_types();

// Takes about 0.1 s a type, more where kernels are slow, and 128 MiB or `most_bytes` if that is less (at least 32 MiB).
// `step` is called n_operation_steps() times.
OperationRates measure_operations(uint32_t n_threads, Isa isa, uint64_t most_bytes,
                                  std::span<const format::TensorType> types, const std::function<void()>& step);
uint64_t n_operation_steps(std::span<const format::TensorType> types) noexcept;

}  // namespace outrider::whatif

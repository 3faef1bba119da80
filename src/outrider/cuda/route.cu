// SPDX-License-Identifier: Apache-2.0
// The router: kernels/router/router.h by one warp a row. Sums are the 32 lanes of the float law; choosing is a maximum
// over (value, lower id first), so the order in which threads look cannot matter.
#include "outrider/cuda/device/functions.cuh"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

using kernels::RouterScore;

__device__ __forceinline__ float warp_max(float value) {
  for (uint32_t step = 16; step >= 1; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// values_i = e^(values_i - max) / sum, by the whole warp. NaN values may give any maximum: the caller fails the row.
__device__ void softmax(float* values, uint32_t n, uint32_t lane) {
  float m = values[0];
  for (uint32_t i = lane; i < n; i += kWarp) m = values[i] > m ? values[i] : m;
  m = warp_max(m);
  __syncwarp();  // everyone has read what is written next
  float sum = 0;
  for (uint32_t i = lane; i < n; i += kWarp) {
    values[i] = exp_f32(__fsub_rn(values[i], m));
    sum = __fmaf_rn(values[i], 1.0F, sum);
  }
  sum = fold32(sum);
  for (uint32_t i = lane; i < n; i += kWarp) values[i] = __fdiv_rn(values[i], sum);
  __syncwarp();
}

__device__ float score_of(RouterScore score, float logit) {
  if (score == RouterScore::kSigmoid) return sigmoid_f32(logit);
  if (score == RouterScore::kSqrtSoftplus) return __fsqrt_rn(softplus_f32(logit));
  return logit;
}

__device__ void keep_best_groups(const kernels::RouterSpec& spec, float* selection, float* group_values,
                                 uint32_t lane) {
  const float none = __uint_as_float(0xFF800000U);
  const uint32_t group_size = spec.n_experts / spec.n_groups;
  for (uint32_t g = lane; g < spec.n_groups; g += kWarp) {
    float largest = none;
    float second = none;
    for (uint32_t e = g * group_size; e < (g + 1) * group_size; ++e) {
      if (selection[e] > largest) {
        second = largest;
        largest = selection[e];
      } else if (selection[e] > second) {
        second = selection[e];
      }
    }
    group_values[g] = group_size > 1 ? __fadd_rn(largest, second) : largest;
  }
  __syncwarp();
  for (uint32_t g = lane; g < spec.n_groups; g += kWarp) {
    uint32_t n_better = 0;
    for (uint32_t other = 0; other < spec.n_groups; ++other) {
      n_better += group_values[other] > group_values[g] || (group_values[other] == group_values[g] && other < g);
    }
    if (n_better < spec.n_groups_used) continue;
    for (uint32_t e = g * group_size; e < (g + 1) * group_size; ++e) selection[e] = none;
  }
  __syncwarp();
}

// The id of the largest selection value among those not taken, the lowest on ties.
__device__ uint32_t choose_one(const float* selection, const uint8_t* taken, uint32_t n, uint32_t lane) {
  uint32_t best = n;
  float value = 0;
  for (uint32_t e = lane; e < n; e += kWarp) {
    if (taken[e] == 0 && (best == n || selection[e] > value)) {
      best = e;
      value = selection[e];
    }
  }
  for (uint32_t step = 16; step >= 1; step /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, best, step);
    const float other_value = __shfl_xor_sync(kAllLanes, value, step);
    const bool better = other != n && (best == n || other_value > value || (other_value == value && other < best));
    best = better ? other : best;
    value = better ? other_value : value;
  }
  return best;
}

__device__ void scale_weights(const kernels::RouterSpec& spec, float* weights, uint32_t lane) {
  if (spec.normalize) {
    float sum = 0;
    for (uint32_t i = lane; i < spec.n_used; i += kWarp) sum = __fmaf_rn(weights[i], 1.0F, sum);
    sum = fold32(sum);
    sum = sum > 0x1p-14F ? sum : 0x1p-14F;
    for (uint32_t i = lane; i < spec.n_used; i += kWarp) weights[i] = __fdiv_rn(weights[i], sum);
  }
  if (spec.weight_scale != 0.0F && spec.weight_scale != 1.0F) {
    for (uint32_t i = lane; i < spec.n_used; i += kWarp) weights[i] = __fmul_rn(weights[i], spec.weight_scale);
  }
  __syncwarp();
}

__global__ void __launch_bounds__(kWarp) route_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ float scores[kMostExperts];
  __shared__ float selection[kMostExperts];
  __shared__ float group_values[kMostExperts];
  __shared__ uint8_t taken[kMostExperts];
  const kernels::RouterSpec& spec = args.spec;
  const uint32_t lane = threadIdx.x;
  const uint32_t n = spec.n_experts;
  const float* logits = args.logits + static_cast<uint64_t>(blockIdx.x) * n;
  uint32_t* ids = args.ids + static_cast<uint64_t>(blockIdx.x) * spec.n_used;
  float* weights = args.weights + static_cast<uint64_t>(blockIdx.x) * spec.n_used;
  for (uint32_t e = lane; e < n; e += kWarp) scores[e] = score_of(spec.score, logits[e]);
  __syncwarp();
  if (spec.score == RouterScore::kSoftmax) softmax(scores, n, lane);
  bool is_number = true;
  for (uint32_t e = lane; e < n; e += kWarp) {
    selection[e] = args.selection_bias != nullptr ? __fadd_rn(scores[e], args.selection_bias[e]) : scores[e];
    taken[e] = 0;
    is_number = is_number && logits[e] == logits[e] && selection[e] == selection[e];
  }
  is_number = __all_sync(kAllLanes, is_number);
  if (is_number) {
    __syncwarp();  // a vote orders threads, not what they wrote
    if (spec.n_groups > 1) keep_best_groups(spec, selection, group_values, lane);
    for (uint32_t i = 0; i < spec.n_used; ++i) {
      __syncwarp();
      const uint32_t best = choose_one(selection, taken, n, lane);
      if (lane == 0) {
        taken[best] = 1;
        ids[i] = best;
        weights[i] = scores[best];
      }
    }
    __syncwarp();
    if (spec.score == RouterScore::kSoftmaxOfChosen) softmax(weights, spec.n_used, lane);
    scale_weights(spec, weights, lane);
    for (uint32_t i = lane; i < spec.n_used; i += kWarp) {
      is_number = is_number && (__float_as_uint(weights[i]) & 0x7FFFFFFFU) < 0x7F800000U;
    }
    is_number = __all_sync(kAllLanes, is_number);
  }
  if (!is_number) {
    for (uint32_t i = lane; i < spec.n_used; i += kWarp) {
      ids[i] = i;
      weights[i] = 0;
    }
  }
  if (lane == 0) args.failed[blockIdx.x] = is_number ? 0 : 1;
}

}  // namespace

void route(const RouteArgs& args, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  route_kernel<<<args.n_rows, kWarp, 0, stream>>>(args);
  check_launch("route_kernel");
}

}  // namespace outrider::cuda

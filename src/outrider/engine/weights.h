// SPDX-License-Identifier: Apache-2.0
// The resident (dense) weights of a model: which tensors they are, where each goes in one block of device memory, and
// the binding of layers to device pointers. Matrices keep their file format; norms, biases and factors become f32.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "outrider/engine/device.h"
#include "outrider/engine/engine.h"
#include "outrider/model/model.h"

namespace outrider::engine {

struct DeviceLayer {
  const float* attn_norm = nullptr;
  DeviceLinear q, k, v, attn_output;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* ffn_norm = nullptr;
  bool is_moe = false;
  uint32_t moe_idx = 0;
  DeviceFfn dense;
  DeviceLinear router;
  const float* selection_bias = nullptr;
  ExpertShape experts;
  DeviceFfn shared;
  DeviceLinear shared_gate;
  // Whether any matrix that reads these rows multiplies with the int8 form.
  bool quantize_attn_in = false, quantize_attn_out = false, quantize_ffn_in = false;
};

struct DeviceModel {
  kernels::Weights embedding;  // data is nullptr when it stays on the drive
  const float* output_norm = nullptr;
  DeviceLinear head;
  std::vector<DeviceLayer> layers;
  std::vector<float> rope_divisors;  // host copy of rope_freqs, or empty
};

// Bytes of device memory that the dense weights take, with or without the token embedding. Reads nothing.
uint64_t dense_bytes(const model::Model& model, bool with_embedding);

// Reads the dense weights into device memory, allocated in one block of dense_bytes().
DeviceModel load_dense(const model::Model& model, Device& device, bool with_embedding, const LoadProgress& progress);

}  // namespace outrider::engine

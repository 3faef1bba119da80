// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/weights.h"

#include <algorithm>
#include <cstring>

#include "outrider/base/check.h"
#include "outrider/base/checked.h"
#include "outrider/io/file.h"
#include "outrider/numerics/dequant.h"

namespace outrider::engine {
namespace {

using format::Tensor;

// One tensor's place in the block.
struct Place {
  const Tensor* tensor = nullptr;
  bool widen = false;  // to f32
  uint64_t offset = 0;
  uint64_t n_bytes() const noexcept { return widen ? tensor->n_elems() * sizeof(float) : tensor->n_bytes; }
};

// Every resident tensor once, in the order of use.
class DenseLayout {
 public:
  DenseLayout(const model::Model& model, bool with_embedding) {
    if (with_embedding) add(model.embedding, false);
    for (const model::Layer& layer : model.layers) add_layer(layer);
    add(model.output_norm, true);
    add(model.head);
  }

  const std::vector<Place>& places() const noexcept { return places_; }
  uint64_t n_bytes() const noexcept { return n_bytes_; }
  uint64_t offset(const Tensor* tensor) const { return places_[index_.at(tensor)].offset; }

 private:
  void add(const Tensor* tensor, bool widen) {
    if (tensor == nullptr || !index_.emplace(tensor, places_.size()).second) return;
    places_.push_back({tensor, widen, n_bytes_});
    n_bytes_ = align_up(n_bytes_ + places_.back().n_bytes(), 64);
  }
  void add(const model::Linear& linear) {
    add(linear.weight, false);
    add(linear.bias, true);
    add(linear.scale, true);
  }
  void add(const model::FfnWeights& ffn) {
    add(ffn.gate);
    add(ffn.up);
    add(ffn.down);
  }
  void add_layer(const model::Layer& layer) {
    add(layer.attn_norm, true);
    for (const model::Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attn_output}) add(*linear);
    for (const Tensor* norm : {layer.q_norm, layer.k_norm, layer.ffn_norm}) add(norm, true);
    add(layer.dense);
    add(layer.router);
    add(layer.selection_bias, true);
    const model::ExpertStacks& experts = layer.experts;
    for (const Tensor* scale : {experts.gate_scale, experts.up_scale, experts.gate_up_scale, experts.down_scale})
      add(scale, true);
    add(layer.shared);
    add(layer.shared_gate);
  }

  std::vector<Place> places_;
  std::unordered_map<const Tensor*, size_t> index_;
  uint64_t n_bytes_ = 0;
};

// Reads whole tensors, opening each file of the set once.
class TensorReader {
 public:
  explicit TensorReader(const format::ModelFile& model_file) {
    for (const format::ModelPart& part : model_file.files) files_.push_back(io::File::open(part.path));
  }
  void read(const Tensor& tensor, uint64_t offset, std::span<std::byte> out) const {
    files_[tensor.file_idx].read_exact(tensor.offset + offset, out);
  }
  std::vector<float> read_floats(const Tensor& tensor) const {
    std::vector<std::byte> bytes(tensor.n_bytes);
    read(tensor, 0, bytes);
    std::vector<float> floats(tensor.n_elems());
    numerics::dequantize(tensor.type, bytes.data(), floats.data(), floats.size());
    return floats;
  }

 private:
  std::vector<io::File> files_;
};

class Binding {
 public:
  Binding(const DenseLayout& layout, const std::byte* base, const TensorReader& reader)
      : layout_(layout), base_(base), reader_(reader) {}

  const float* floats(const Tensor* tensor, uint64_t begin = 0) const {
    return tensor == nullptr ? nullptr : reinterpret_cast<const float*>(base_ + layout_.offset(tensor)) + begin;
  }

  kernels::Weights weights(const Tensor& tensor, uint64_t row_begin, uint32_t n_rows) const {
    return {.type = tensor.type,
            .data = base_ + layout_.offset(&tensor) + row_begin * tensor.row_bytes(),
            .row_bytes = tensor.row_bytes(),
            .n_rows = n_rows,
            .k = static_cast<uint32_t>(tensor.dims[0])};
  }

  DeviceLinear linear(const model::Linear& linear) const {
    if (!linear) return {};
    return {.w = weights(*linear.weight, linear.row_begin, linear.n_rows),
            .bias = floats(linear.bias, linear.bias_begin),
            .scale = linear.scale != nullptr ? reader_.read_floats(*linear.scale)[0] : 1};
  }

  DeviceFfn ffn(const model::FfnWeights& ffn) const { return {linear(ffn.gate), linear(ffn.up), linear(ffn.down)}; }

  ExpertShape experts(const model::ExpertStacks& stacks, uint32_t ff) const {
    ExpertShape shape;
    const auto like = [](const Tensor& stack, uint32_t n_rows) {
      return kernels::Weights{.type = stack.type,
                              .row_bytes = stack.row_bytes(),
                              .n_rows = n_rows,
                              .k = static_cast<uint32_t>(stack.dims[0])};
    };
    // The parts of a slab lie as expert_sources() lists them: gate, up, down; gate_up, down; or up, down.
    if (stacks.gate_up != nullptr) {
      shape.gate = shape.up = like(*stacks.gate_up, ff);
      shape.up_offset = ff * stacks.gate_up->row_bytes();
      shape.down_part = 1;
      shape.gate_scale = shape.up_scale = floats(stacks.gate_up_scale);
    } else {
      shape.has_gate = stacks.gate != nullptr;
      if (shape.has_gate) shape.gate = like(*stacks.gate, ff);
      shape.up = like(*stacks.up, ff);
      shape.up_part = shape.has_gate ? 1 : 0;
      shape.down_part = shape.up_part + 1;
      shape.gate_scale = floats(stacks.gate_scale);
      shape.up_scale = floats(stacks.up_scale);
    }
    shape.down = like(*stacks.down, static_cast<uint32_t>(stacks.down->dims[1]));
    shape.down_scale = floats(stacks.down_scale);
    return shape;
  }

  DeviceLayer layer(const model::Layer& layer, uint32_t expert_ff) const {
    DeviceLayer result;
    result.attn_norm = floats(layer.attn_norm);
    result.q = linear(layer.q);
    result.k = linear(layer.k);
    result.v = linear(layer.v);
    result.attn_output = linear(layer.attn_output);
    result.q_norm = floats(layer.q_norm);
    result.k_norm = floats(layer.k_norm);
    result.ffn_norm = floats(layer.ffn_norm);
    result.is_moe = layer.is_moe;
    result.moe_idx = layer.moe_idx;
    result.dense = ffn(layer.dense);
    result.router = linear(layer.router);
    result.selection_bias = floats(layer.selection_bias);
    if (layer.is_moe) result.experts = experts(layer.experts, expert_ff);
    result.shared = ffn(layer.shared);
    result.shared_gate = linear(layer.shared_gate);
    const auto any = [](std::initializer_list<const DeviceLinear*> linears) {
      return std::any_of(linears.begin(), linears.end(), [](const DeviceLinear* l) { return l->wants_quantized(); });
    };
    const auto expert_in = [](const kernels::Weights& w) {
      return w.k != 0 && kernels::activation_form(w.type) == kernels::ActivationForm::kQuantized;
    };
    result.quantize_attn_in = any({&result.q, &result.k, &result.v});
    result.quantize_attn_out = result.attn_output.wants_quantized();
    result.quantize_ffn_in = any({&result.dense.gate, &result.dense.up, &result.router, &result.shared.gate,
                                  &result.shared.up, &result.shared_gate}) ||
                             expert_in(result.experts.gate) || expert_in(result.experts.up);
    return result;
  }

 private:
  const DenseLayout& layout_;
  const std::byte* base_;
  const TensorReader& reader_;
};

void read_places(const DenseLayout& layout, const TensorReader& reader, Device& device, std::byte* base,
                 const LoadProgress& progress) {
  constexpr uint64_t kStep = 8ULL << 20;  // between two reports of progress
  uint64_t total = 0;
  for (const Place& place : layout.places()) total += place.tensor->n_bytes;
  uint64_t done = 0;
  for (const Place& place : layout.places()) {
    const Tensor& tensor = *place.tensor;
    if (place.widen) {
      const std::vector<float> floats = reader.read_floats(tensor);
      device.write(base + place.offset, place.n_bytes(),
                   [&](std::byte* to) { std::memcpy(to, floats.data(), place.n_bytes()); });
      done += tensor.n_bytes;
    } else {
      for (uint64_t at = 0; at < tensor.n_bytes; at += kStep) {
        const uint64_t n = std::min(kStep, tensor.n_bytes - at);
        device.write(base + place.offset + at, n, [&](std::byte* to) { reader.read(tensor, at, {to, n}); });
        done += n;
        if (progress) progress(done, total);
      }
    }
  }
  if (progress) progress(total, total);
}

}  // namespace

uint64_t dense_bytes(const model::Model& model, bool with_embedding) {
  return DenseLayout(model, with_embedding).n_bytes();
}

DeviceModel load_dense(const model::Model& model, Device& device, bool with_embedding, const LoadProgress& progress) {
  const DenseLayout layout(model, with_embedding);
  const TensorReader reader(model.file);
  std::byte* base = device.allocate(layout.n_bytes(), "dense weights");
  read_places(layout, reader, device, base, progress);

  DeviceModel result;
  const Binding binding(layout, base, reader);
  if (with_embedding) result.embedding = binding.weights(*model.embedding, 0, model.spec.n_vocab);
  for (const model::Layer& layer : model.layers) result.layers.push_back(binding.layer(layer, model.spec.expert_ff));
  result.output_norm = binding.floats(model.output_norm);
  result.head = binding.linear(model.head);
  if (model.rope_freqs != nullptr) result.rope_divisors = reader.read_floats(*model.rope_freqs);
  return result;
}

}  // namespace outrider::engine

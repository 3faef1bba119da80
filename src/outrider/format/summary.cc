// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/summary.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "outrider/base/error.h"

namespace outrider::format {

namespace {

constexpr std::array<std::string_view, 4> kParts = {"gate", "up", "gate_up", "down"};

// "blk.7.REST" -> 7 and REST.
struct LayerName {
  uint32_t layer = 0;
  std::string_view rest;
};

std::optional<LayerName> parse_layer_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  LayerName out;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, out.layer);
  if (error != std::errc() || stop == end || *stop != '.') return std::nullopt;
  out.rest = name.substr(static_cast<size_t>(stop - name.data()) + 1);
  return out;
}

std::optional<std::string_view> expert_part(std::string_view rest) {
  for (const std::string_view part : kParts) {
    if (rest.starts_with("ffn_") && rest.ends_with("_exps.weight") && rest.size() == part.size() + 4 + 12 &&
        rest.substr(4, part.size()) == part) {
      return part;
    }
  }
  return std::nullopt;
}

void add_expert_tensor(const ModelFile& model, const Tensor& tensor, std::string_view part, ExpertLayer& layer) {
  const uint64_t n_experts = tensor.dims[2];
  if (layer.tensors.empty()) layer.n_experts = n_experts;
  if (n_experts != layer.n_experts) {
    fail(ErrorKind::kBadFile, "{}: tensor {}: dimension 2 (experts) is {}, wanted {} like the layer's other experts",
         model.path_of(tensor), printable(tensor.name), n_experts, layer.n_experts);
  }
  layer.tensors.push_back({part, tensor.type, tensor.n_bytes / n_experts});
  layer.slab_bytes += tensor.n_bytes / n_experts;
}

}  // namespace

ModelSummary summarize(const ModelFile& model) {
  std::map<uint32_t, ExpertLayer> layers;
  std::set<uint32_t> nextn_layers;
  std::map<TensorType, TypeTotal> types;
  ModelSummary summary;
  for (const Tensor& tensor : model.tensors) {
    const auto name = parse_layer_name(tensor.name);
    const auto part = name ? expert_part(name->rest) : std::nullopt;
    if (name && name->rest.starts_with("nextn.")) nextn_layers.insert(name->layer);
    TypeTotal& total = types[tensor.type];
    total.type = tensor.type;
    ++total.n_tensors;
    total.n_elems += tensor.n_elems();
    (part ? total.expert_bytes : total.dense_bytes) += tensor.n_bytes;
    (part ? summary.expert_bytes : summary.dense_bytes) += tensor.n_bytes;
    if (!part) continue;
    ExpertLayer& layer = layers[name->layer];
    layer.layer = name->layer;
    add_expert_tensor(model, tensor, *part, layer);
  }
  for (auto& [number, layer] : layers) {
    layer.is_nextn = nextn_layers.contains(number);
    const auto rank = [](const ExpertTensor& t) { return std::find(kParts.begin(), kParts.end(), t.part); };
    std::sort(layer.tensors.begin(), layer.tensors.end(),
              [&](const ExpertTensor& a, const ExpertTensor& b) { return rank(a) < rank(b); });
    summary.expert_layers.push_back(std::move(layer));
  }
  for (const auto& [type, total] : types) summary.types.push_back(total);
  std::stable_sort(summary.types.begin(), summary.types.end(), [](const TypeTotal& a, const TypeTotal& b) {
    return a.dense_bytes + a.expert_bytes > b.dense_bytes + b.expert_bytes;
  });
  return summary;
}

}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
// outrider inspect: what a model file holds. Reads the header only, so it is quick for a model of any size.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/format/gguf.h"
#include "outrider/format/summary.h"

namespace outrider::apps {

namespace {

using format::ExpertLayer;
using format::ModelFile;
using format::ModelSummary;
using format::Tensor;
using format::TypeTotal;
using Json = nlohmann::ordered_json;

// Arrays longer than this are shown by their first elements and their length.
constexpr size_t kMaxElements = 16;
constexpr size_t kFirstElements = 8;

struct InspectOptions {
  std::string model;
  bool json = false;
  bool tensors = false;
};

template <typename T>
Json scalar_json(const T& scalar, format::ValueType type) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (type == format::ValueType::kBool) return scalar != 0;
  } else if constexpr (std::is_same_v<T, double>) {
    // The shortest number that stands for the f32, not the digits of its f64 expansion.
    if (type == format::ValueType::kF32)
      return parse_double(fmt::format("{}", static_cast<float>(scalar))).value_or(scalar);
  }
  return scalar;
}

template <typename T>
Json held_json(const T& scalar, const format::Value& value) {
  return scalar_json(scalar, value.type);
}

template <typename T>
Json held_json(const std::vector<T>& elements, const format::Value& value) {
  const size_t n_shown = elements.size() > kMaxElements ? kFirstElements : elements.size();
  Json first = Json::array();
  for (size_t i = 0; i < n_shown; ++i) first.push_back(scalar_json(elements[i], value.element_type));
  if (n_shown == elements.size()) return first;
  return {{"type", format::value_type_name(value.element_type)}, {"count", elements.size()}, {"first", first}};
}

Json value_json(const format::Value& value) {
  return std::visit([&](const auto& held) { return held_json(held, value); }, value.data);
}

std::vector<uint64_t> shape(const Tensor& tensor) { return {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims}; }

Json layer_json(const ExpertLayer& layer) {
  Json tensors = Json::array();
  for (const auto& tensor : layer.tensors) {
    tensors.push_back(
        {{"part", tensor.part}, {"type", format::type_info(tensor.type).name}, {"slab_bytes", tensor.slab_bytes}});
  }
  return {{"layer", layer.layer},
          {"nextn", layer.is_nextn},
          {"experts", layer.n_experts},
          {"slab_bytes", layer.slab_bytes},
          {"bytes", layer.slab_bytes * layer.n_experts},
          {"tensors", tensors}};
}

Json type_json(const TypeTotal& total) {
  return {{"type", format::type_info(total.type).name},
          {"tensors", total.n_tensors},
          {"elements", total.n_elems},
          {"bytes", total.dense_bytes + total.expert_bytes},
          {"dense_bytes", total.dense_bytes},
          {"expert_bytes", total.expert_bytes}};
}

std::vector<uint64_t> tensors_per_file(const ModelFile& model) {
  std::vector<uint64_t> counts(model.files.size());
  for (const Tensor& tensor : model.tensors) ++counts[tensor.file_idx];
  return counts;
}

// Experts the router picks for a token; 0 when the file does not say.
uint64_t experts_used(const ModelFile& model) {
  const auto arch = model.metadata.find_string("general.architecture");
  if (!arch) return 0;
  const auto used = model.metadata.find_ints(fmt::format("{}.expert_used_count", *arch));
  return used && !used->empty()
             ? static_cast<uint64_t>(std::max<int64_t>(0, *std::max_element(used->begin(), used->end())))
             : 0;
}

Json report_json(const ModelFile& model, const ModelSummary& summary) {
  Json out;
  out["version"] = model.version;
  out["alignment"] = model.alignment;
  const auto counts = tensors_per_file(model);
  for (size_t i = 0; i < model.files.size(); ++i) {
    out["files"].push_back({{"path", model.files[i].path}, {"bytes", model.files[i].n_bytes}, {"tensors", counts[i]}});
  }
  out["metadata"] = Json::object();
  for (const auto& [key, value] : model.metadata.entries()) out["metadata"][key] = value_json(value);
  out["tensors"] = Json::array();
  for (const Tensor& tensor : model.tensors) {
    out["tensors"].push_back({{"name", tensor.name},
                              {"type", format::type_info(tensor.type).name},
                              {"dims", shape(tensor)},
                              {"bytes", tensor.n_bytes},
                              {"file", tensor.file_idx},
                              {"offset", tensor.offset}});
  }
  out["types"] = Json::array();
  for (const TypeTotal& total : summary.types) out["types"].push_back(type_json(total));
  out["experts"] = {{"used_per_token", experts_used(model)}, {"layers", Json::array()}};
  for (const ExpertLayer& layer : summary.expert_layers) out["experts"]["layers"].push_back(layer_json(layer));
  out["totals"] = {{"tensors", model.tensors.size()},
                   {"bytes", model.total_tensor_bytes()},
                   {"dense_bytes", summary.dense_bytes},
                   {"expert_bytes", summary.expert_bytes}};
  return out;
}

// Rows of text in columns: the first to the left edge, those of `right` to the right one.
class Table {
 public:
  Table(std::vector<std::string> head, std::vector<size_t> right) : right_(std::move(right)) { add(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    for (const auto& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const bool to_right = std::find(right_.begin(), right_.end(), c) != right_.end();
        line += to_right ? fmt::format("  {:>{}}", row[c], widths[c]) : fmt::format("  {:<{}}", row[c], widths[c]);
      }
      fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
    }
  }

 private:
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

void print_metadata(const ModelFile& model) {
  fmt::print("\nmetadata, {} keys\n", model.metadata.entries().size());
  Table table({"key", "type", "value"}, {});
  for (const auto& [key, value] : model.metadata.entries()) {
    const bool is_array = value.type == format::ValueType::kArray;
    const std::string type(format::value_type_name(value.element_type));
    table.add(
        {printable(key), is_array ? fmt::format("{}[{}]", type, value.n_elements()) : type, format::to_text(value)});
  }
  table.print();
}

void print_tensors(const ModelFile& model) {
  fmt::print("\ntensors, contiguous dimension first\n");
  Table table({"name", "type", "dims", "bytes", "file", "offset"}, {3, 4, 5});
  for (const Tensor& tensor : model.tensors) {
    table.add({printable(tensor.name), std::string(format::type_info(tensor.type).name),
               fmt::format("{}", fmt::join(shape(tensor), " x ")), fmt::format("{}", tensor.n_bytes),
               fmt::format("{}", tensor.file_idx + 1), fmt::format("{}", tensor.offset)});
  }
  table.print();
}

bool same_geometry(const ExpertLayer& a, const ExpertLayer& b) {
  return a.n_experts == b.n_experts && a.is_nextn == b.is_nextn &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const auto& x, const auto& y) {
                      return x.part == y.part && x.type == y.type && x.slab_bytes == y.slab_bytes;
                    });
}

// Neighbouring layers that are alike share a line.
void print_experts(const ModelFile& model, const ModelSummary& summary) {
  const auto& layers = summary.expert_layers;
  if (layers.empty()) {
    fmt::print("\nexperts: none\n");
    return;
  }
  const uint64_t n_used = experts_used(model);
  fmt::print("\nexperts, {} layers{}\n", layers.size(),
             n_used > 0 ? fmt::format(", {} used per token and layer", n_used) : "");
  Table table({"layers", "experts", "slab bytes", "layer bytes", "parts"}, {1, 2, 3});
  for (size_t i = 0; i < layers.size();) {
    const ExpertLayer& first = layers[i];
    size_t end = i + 1;
    while (end < layers.size() && layers[end].layer == layers[end - 1].layer + 1 && same_geometry(first, layers[end]))
      ++end;
    std::string numbers = fmt::format("{}", first.layer);
    if (end - i > 1) numbers += fmt::format("..{}", layers[end - 1].layer);
    if (first.is_nextn) numbers += " (nextn)";
    std::string parts;
    for (const auto& tensor : first.tensors) {
      parts += fmt::format("{}{} {} {}", parts.empty() ? "" : ", ", tensor.part, format::type_info(tensor.type).name,
                           tensor.slab_bytes);
    }
    table.add({numbers, fmt::format("{}", first.n_experts), fmt::format("{}", first.slab_bytes),
               fmt::format("{}", first.slab_bytes * first.n_experts), parts});
    i = end;
  }
  table.print();
}

void print_totals(const ModelFile& model, const ModelSummary& summary) {
  fmt::print("\ntotals\n");
  Table table({"type", "tensors", "elements", "dense bytes", "expert bytes", "bytes", ""}, {1, 2, 3, 4, 5, 6});
  uint64_t n_elems = 0;
  for (const TypeTotal& total : summary.types) {
    const uint64_t n_bytes = total.dense_bytes + total.expert_bytes;
    n_elems += total.n_elems;
    table.add({std::string(format::type_info(total.type).name), fmt::format("{}", total.n_tensors),
               fmt::format("{}", total.n_elems), fmt::format("{}", total.dense_bytes),
               fmt::format("{}", total.expert_bytes), fmt::format("{}", n_bytes), format_bytes(n_bytes)});
  }
  table.add({"all", fmt::format("{}", model.tensors.size()), fmt::format("{}", n_elems),
             fmt::format("{}", summary.dense_bytes), fmt::format("{}", summary.expert_bytes),
             fmt::format("{}", model.total_tensor_bytes()), format_bytes(model.total_tensor_bytes())});
  table.print();
}

void print_report(const ModelFile& model, const ModelSummary& summary, bool with_tensors) {
  fmt::print("GGUF version {}, {} tensors, alignment {}\n\nfiles\n", model.version, model.tensors.size(),
             model.alignment);
  Table files({"path", "tensors", "bytes", ""}, {1, 2, 3});
  const auto counts = tensors_per_file(model);
  for (size_t i = 0; i < model.files.size(); ++i) {
    files.add({model.files[i].path, fmt::format("{}", counts[i]), fmt::format("{}", model.files[i].n_bytes),
               format_bytes(model.files[i].n_bytes)});
  }
  files.print();
  print_metadata(model);
  if (with_tensors) print_tensors(model);
  print_experts(model, summary);
  print_totals(model, summary);
}

void inspect(const InspectOptions& options) {
  const ModelFile model = ModelFile::open(options.model);
  const ModelSummary summary = format::summarize(model);
  if (options.json) {
    // Text in a file need not be UTF-8, JSON must.
    fmt::print("{}\n", report_json(model, summary).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_report(model, summary, options.tensors);
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();  // lives as long as the callback
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a model file holds: metadata, tensors, experts, bytes per type");
  command->add_option("model", options->model, "GGUF file, any part of a split set, or a folder with one model")
      ->required();
  command->add_flag("--json", options->json, "Print one JSON object (always with the tensor table)");
  command->add_flag("--tensors", options->tensors, "Print the tensor table");
  command->callback([options] { inspect(*options); });
}

}  // namespace outrider::apps

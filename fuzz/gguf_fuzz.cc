// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused in one line that begins with the file's name, or they give a directory that keeps its
// promises: ranges aligned, inside the file, disjoint, and metadata that every accessor answers or refuses. Packed
// files (format/pack.h) likewise, down to each expert's part of a slab.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/format/gguf_header.h"
#include "outrider/format/pack.h"
#include "outrider/format/split_name.h"
#include "outrider/format/summary.h"

namespace {

using namespace outrider;
using namespace outrider::format;

template <typename Call>
void answers_or_refuses(Call call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    OUTRIDER_CHECK(error.kind() == ErrorKind::kBadFile, "{}", message);
    OUTRIDER_CHECK(message.starts_with("fuzz.gguf: ") && message.find('\n') == std::string_view::npos, "{}", message);
  }
}

void use_metadata(const Metadata& metadata) {
  for (const auto& entry : metadata.entries()) {
    const std::string& key = entry.first;
    const Value& value = entry.second;
    OUTRIDER_CHECK(metadata.find(key) == &value, "{}", key);
    OUTRIDER_CHECK(!to_text(value).empty());
    answers_or_refuses([&] { metadata.find_uint(key); });
    answers_or_refuses([&] { metadata.find_int(key); });
    answers_or_refuses([&] { metadata.find_real(key); });
    answers_or_refuses([&] { metadata.find_bool(key); });
    answers_or_refuses([&] { metadata.find_string(key); });
    answers_or_refuses([&] { metadata.find_strings(key); });
    answers_or_refuses([&] { metadata.find_ints(key); });
    answers_or_refuses([&] { metadata.find_reals(key); });
    parse_split_name(key);
  }
}

void check_tensors(const GgufHeader& header, uint64_t n_bytes) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : header.tensors) {
    const TypeInfo& info = type_info(tensor.type);
    OUTRIDER_CHECK(tensor.n_elems() > 0 && tensor.n_elems() % info.block_elems == 0);
    OUTRIDER_CHECK(tensor.n_bytes == tensor.n_elems() / info.block_elems * info.block_bytes);
    OUTRIDER_CHECK(tensor.row_bytes() <= tensor.n_bytes);
    OUTRIDER_CHECK(tensor.offset % header.alignment == 0 && tensor.offset >= header.data_start);
    OUTRIDER_CHECK(tensor.n_bytes <= n_bytes && tensor.offset <= n_bytes - tensor.n_bytes);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    OUTRIDER_CHECK(order[i - 1]->offset + order[i - 1]->n_bytes <= order[i]->offset);
  }
}

// Every part of every slab inside the file, no two of them sharing a byte.
void check_stacks(const ModelFile& model, uint64_t n_bytes) {
  std::vector<std::pair<uint64_t, uint64_t>> parts;  // begin, end
  for (const Tensor& tensor : model.tensors) {
    OUTRIDER_CHECK(model.find(tensor.name) == &tensor, "{}", tensor.name);
    const uint64_t n_slabs = tensor.stride == 0 ? 1 : tensor.dims[2];
    const uint64_t part_bytes = tensor.n_bytes / n_slabs;
    for (uint64_t i = 0; i < n_slabs; ++i) {
      const uint64_t begin = tensor.offset + i * tensor.stride;
      OUTRIDER_CHECK(part_bytes <= n_bytes && begin <= n_bytes - part_bytes, "{}", tensor.name);
      parts.emplace_back(begin, begin + part_bytes);
    }
  }
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) OUTRIDER_CHECK(parts[i - 1].second <= parts[i].first);
}

void use(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "fuzz.gguf");
  GgufHeader header = read_gguf_header(in);
  use_metadata(header.metadata);
  check_tensors(header, bytes.size());
  ModelFile model;
  model.files.push_back({.path = "fuzz.gguf", .n_bytes = bytes.size()});
  model.metadata = std::move(header.metadata);
  model.tensors = std::move(header.tensors);
  for (size_t i = 0; i < model.tensors.size(); ++i)
    model.index.emplace(model.tensors[i].name, static_cast<uint32_t>(i));
  expand_pack(model);
  check_stacks(model, bytes.size());
  const ModelSummary summary = summarize(model);
  OUTRIDER_CHECK(summary.dense_bytes + summary.expert_bytes == model.total_tensor_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, n_bytes));
  // A packed file has pages of data, which would dilute the mutations: its seed is the head, and the rest is put here.
  std::vector<std::byte> whole;
  if (std::string_view(reinterpret_cast<const char*>(data), n_bytes).find("outrider.pack.") != std::string_view::npos) {
    whole.assign(bytes.begin(), bytes.end());
    whole.resize(n_bytes + 5 * kPackAlignment);
    bytes = whole;
  }
  answers_or_refuses([&] { use(bytes); });
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused in one line that begins with the file's name, or they give a directory that keeps its
// promises: ranges aligned, inside the file, disjoint, and metadata that every accessor answers or refuses.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/format/gguf_header.h"
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

void use(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "fuzz.gguf");
  GgufHeader header = read_gguf_header(in);
  use_metadata(header.metadata);
  check_tensors(header, bytes.size());
  ModelFile model;
  model.files.push_back({.path = "fuzz.gguf", .n_bytes = bytes.size()});
  model.metadata = std::move(header.metadata);
  model.tensors = std::move(header.tensors);
  const ModelSummary summary = summarize(model);
  OUTRIDER_CHECK(summary.dense_bytes + summary.expert_bytes == model.total_tensor_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  answers_or_refuses([&] { use(std::as_bytes(std::span(data, n_bytes))); });
  return 0;
}

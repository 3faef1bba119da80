// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/pack.h"

#include <algorithm>
#include <unordered_set>

#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/format/gguf_header.h"

namespace outrider::format {

namespace {

// The keys, checked against each other.
struct Description {
  const std::vector<std::string>* names = nullptr;
  const std::vector<std::string>* blobs = nullptr;
  std::vector<int64_t> types, dims, offsets;
};

const std::vector<std::string>& require_strings(const Metadata& metadata, std::string_view key) {
  const auto* values = metadata.find_strings(key);
  if (values == nullptr) fail(ErrorKind::kBadFile, "{}: key {} is missing", metadata.source(), key);
  return *values;
}

std::vector<int64_t> require_ints(const Metadata& metadata, std::string_view key) {
  auto values = metadata.find_ints(key);
  if (!values) fail(ErrorKind::kBadFile, "{}: key {} is missing", metadata.source(), key);
  return std::move(*values);
}

Description read_description(const Metadata& metadata) {
  Description out;
  out.names = &require_strings(metadata, kPackNamesKey);
  out.blobs = &require_strings(metadata, kPackBlobsKey);
  out.types = require_ints(metadata, kPackTypesKey);
  out.dims = require_ints(metadata, kPackDimsKey);
  out.offsets = require_ints(metadata, kPackOffsetsKey);
  const size_t n = out.names->size();
  const auto check = [&](std::string_view key, size_t n_got, size_t n_wanted) {
    if (n_got != n_wanted) {
      fail(ErrorKind::kBadFile, "{}: key {} has {} elements, wanted {}: {} has {}", metadata.source(), key, n_got,
           n_wanted, kPackNamesKey, n);
    }
  };
  check(kPackBlobsKey, out.blobs->size(), n);
  check(kPackTypesKey, out.types.size(), n);
  check(kPackDimsKey, out.dims.size(), 3 * n);
  check(kPackOffsetsKey, out.offsets.size(), n);
  return out;
}

class Expander {
 public:
  Expander(ModelFile& model, Description description) : model_(model), description_(std::move(description)) {}

  void run() {
    std::vector<Tensor> packed;
    std::unordered_set<std::string> names;
    for (size_t i = 0; i < description_.names->size(); ++i) {
      packed.push_back(tensor(i));
      const std::string& name = packed.back().name;
      if (model_.find(name) != nullptr || !names.insert(name).second) bad(i, "is there twice, wanted once");
    }
    check_overlaps(packed);
    std::erase_if(model_.tensors,
                  [this](const Tensor& t) { return t.name == kPackHashesTensor || blobs_.contains(t.name); });
    for (Tensor& tensor : packed) model_.tensors.push_back(std::move(tensor));
    model_.index.clear();
    for (size_t i = 0; i < model_.tensors.size(); ++i)
      model_.index.emplace(model_.tensors[i].name, static_cast<uint32_t>(i));
    model_.is_packed = true;
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(size_t i, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: packed tensor {}: {}", model_.metadata.source(), printable((*description_.names)[i]),
         fmt::format(format, std::forward<Args>(args)...));
  }

  // The blob a tensor lies in: [slab bytes, experts] of i8.
  const Tensor& blob(size_t i) {
    const std::string& name = (*description_.blobs)[i];
    const Tensor* blob = model_.find(name);
    if (blob == nullptr) bad(i, "its blob {} is missing", printable(name));
    if (blob->type != TensorType::kI8 || blob->n_dims != 2) {
      bad(i, "its blob {} has type {} and {} dimensions, wanted i8 and 2", printable(name), type_info(blob->type).name,
          blob->n_dims);
    }
    if (blob->dims[0] % kPackAlignment != 0 || blob->offset % kPackAlignment != 0) {
      bad(i, "its blob {} has slabs of {} bytes from byte {} on, wanted multiples of {}", printable(name),
          blob->dims[0], blob->offset, kPackAlignment);
    }
    blobs_.insert(name);
    return *blob;
  }

  Tensor tensor(size_t i) {
    const Tensor& from = blob(i);
    Tensor out;
    out.name = (*description_.names)[i];
    if (out.name.empty() || out.name.size() > kMaxTensorNameBytes)
      bad(i, "name wanted 1..{} bytes", kMaxTensorNameBytes);
    const int64_t type = description_.types[i];
    const TypeInfo* info = type >= 0 && type <= UINT32_MAX ? find_type(static_cast<uint32_t>(type)) : nullptr;
    if (info == nullptr) bad(i, "type number {} is not a known tensor type", type);
    out.type = info->type;
    out.n_dims = 3;
    uint64_t n_elems = 1;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t dim = description_.dims[3 * i + d];
      const auto product = dim > 0 ? checked_mul(n_elems, static_cast<uint64_t>(dim)) : std::nullopt;
      if (!product || *product > INT64_MAX)
        bad(i, "dimension {} is {}, wanted 1 or more and fewer than 2^63 elements in all", d, dim);
      n_elems = *product;
      out.dims[d] = static_cast<uint64_t>(dim);
    }
    if (out.dims[0] % info->block_elems != 0) {
      bad(i, "dimension 0 is {}, wanted a multiple of {} for type {}", out.dims[0], info->block_elems, info->name);
    }
    if (out.dims[2] != from.dims[1])
      bad(i, "dimension 2 is {}, wanted the {} slabs of {}", out.dims[2], from.dims[1], printable(from.name));
    const auto n_bytes = checked_mul(n_elems / info->block_elems, info->block_bytes);
    const int64_t offset = description_.offsets[i];
    if (!n_bytes || offset < 0 || !sub_range(static_cast<uint64_t>(offset), *n_bytes / out.dims[2], from.dims[0])) {
      bad(i, "{} elements of type {} an expert from byte {} on do not fit slabs of {} bytes", n_elems / out.dims[2],
          info->name, offset, from.dims[0]);
    }
    out.n_bytes = *n_bytes;
    out.file_idx = from.file_idx;
    out.offset = from.offset + static_cast<uint64_t>(offset);
    out.stride = from.dims[0];
    return out;
  }

  void check_overlaps(const std::vector<Tensor>& packed) const {
    std::vector<size_t> order(packed.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(packed[a].file_idx, packed[a].offset) < std::pair(packed[b].file_idx, packed[b].offset);
    });
    for (size_t k = 1; k < order.size(); ++k) {
      const Tensor& before = packed[order[k - 1]];
      const Tensor& after = packed[order[k]];
      if (before.file_idx == after.file_idx && after.offset < before.offset + before.n_bytes / before.dims[2]) {
        bad(order[k], "begins inside {}, wanted parts side by side", printable(before.name));
      }
    }
  }

  ModelFile& model_;
  Description description_;
  std::unordered_set<std::string> blobs_;
};

}  // namespace

void expand_pack(ModelFile& model) {
  const auto version = model.metadata.find_uint(kPackVersionKey);
  if (!version) return;
  if (*version != kPackVersion) {
    fail(ErrorKind::kBadFile, "{}: key {}: {}, wanted {}: pack the model again", model.metadata.source(),
         kPackVersionKey, *version, kPackVersion);
  }
  Expander(model, read_description(model.metadata)).run();
}

}  // namespace outrider::format

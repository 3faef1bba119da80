// SPDX-License-Identifier: Apache-2.0
#include "convert/pack_layout.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/format/fd.h"
#include "outrider/format/gguf_header.h"
#include "outrider/format/gguf_writer.h"
#include "outrider/format/pack.h"

namespace outrider::apps {
namespace {

using format::Tensor;
using format::TensorType;

// In the order in which the engine wants an expert's parts (engine::expert_sources).
constexpr std::array<std::string_view, 4> kParts = {"gate_up", "gate", "up", "down"};

// "blk.7.ffn_up_exps.weight" -> "blk.7" and the rank of "up"; rank 4 for what is not an expert stack.
struct StackName {
  std::string_view block;
  size_t rank = kParts.size();
};

StackName parse_stack(const Tensor& tensor) {
  const std::string_view name = tensor.name;
  for (size_t rank = 0; rank < kParts.size(); ++rank) {
    const std::string suffix = fmt::format(".ffn_{}_exps.weight", kParts[rank]);
    if (name.starts_with("blk.") && name.ends_with(suffix) && tensor.n_dims == 3) {
      return {name.substr(0, name.size() - suffix.size()), rank};
    }
  }
  return {};
}

using Stacks = std::array<const Tensor*, kParts.size()>;

// Collects what goes into the file, in order, while the writer makes the head.
class Builder {
 public:
  explicit Builder(const format::ModelFile& in) : in_(in), writer_(in.metadata) {
    for (const Tensor& tensor : in.tensors) {
      if (const StackName name = parse_stack(tensor); name.rank < kParts.size())
        layers_[name.block][name.rank] = &tensor;
    }
  }

  PackLayout run() {
    writer_.metadata().set_uint("general.alignment", format::kPackAlignment);
    writer_.metadata().set_uint(std::string(format::kPackVersionKey), format::kPackVersion);
    // Tensors that stay come first, then the layers as the file has them: a reader of dense weights reads one stretch.
    for (const Tensor& tensor : in_.tensors) {
      if (parse_stack(tensor).rank == kParts.size()) add_plain(tensor);
    }
    for (const Tensor& tensor : in_.tensors) {
      const StackName name = parse_stack(tensor);
      if (name.rank == kParts.size() || layers_.at(name.block) == Stacks{}) continue;
      add_layer(name.block, layers_.at(name.block));
      layers_.at(name.block) = {};  // done
    }
    layout_.hashes_offset = at_;
    const uint64_t n_hashes = layout_.units.size() + 1;
    writer_.add(std::string(format::kPackHashesTensor), TensorType::kI64, {n_hashes}, {});
    at_ = align_up(at_ + n_hashes * 8, format::kPackAlignment);
    set_keys();
    layout_.head = writer_.head();
    for (PackUnit& unit : layout_.units) unit.offset += layout_.head.size();
    layout_.hashes_offset += layout_.head.size();
    layout_.n_bytes = at_ + layout_.head.size();
    return std::move(layout_);
  }

 private:
  void add_plain(const Tensor& tensor) {
    writer_.add(tensor.name, tensor.type, {tensor.dims.begin(), tensor.dims.begin() + std::max(1U, tensor.n_dims)}, {});
    layout_.units.push_back({.name = tensor.name,
                             .offset = at_,
                             .n_bytes = tensor.n_bytes,
                             .from = {{tensor.file_idx, tensor.offset, tensor.n_bytes}}});
    at_ = align_up(at_ + tensor.n_bytes, format::kPackAlignment);
  }

  void add_layer(std::string_view block, const Stacks& stacks) {
    const std::string blob = fmt::format("outrider.pack.{}", block);
    uint64_t n_experts = 0, payload = 0;
    for (const Tensor* stack : stacks) {
      if (stack == nullptr) continue;
      if (n_experts != 0 && stack->dims[2] != n_experts) {
        fail(ErrorKind::kBadFile,
             "{}: tensor {}: dimension 2 (experts) is {}, wanted {} like the layer's other experts",
             in_.path_of(*stack), printable(stack->name), stack->dims[2], n_experts);
      }
      n_experts = stack->dims[2];
      names_.push_back(stack->name);
      blobs_.push_back(blob);
      types_.push_back(static_cast<int64_t>(stack->type));
      for (size_t d = 0; d < 3; ++d) dims_.push_back(static_cast<int64_t>(stack->dims[d]));
      offsets_.push_back(static_cast<int64_t>(payload));
      payload += stack->n_bytes / n_experts;
    }
    const uint64_t stride = align_up(payload, format::kPackAlignment);
    writer_.add(blob, TensorType::kI8, {stride, n_experts}, {});
    for (uint64_t expert = 0; expert < n_experts; ++expert) {
      PackUnit unit{.name = fmt::format("{} expert {}", block, expert), .offset = at_, .n_bytes = stride, .from = {}};
      for (const Tensor* stack : stacks) {
        if (stack == nullptr) continue;
        const uint64_t n_bytes = stack->n_bytes / n_experts;
        unit.from.push_back({stack->file_idx, stack->offset + expert * n_bytes, n_bytes});
      }
      layout_.units.push_back(std::move(unit));
      at_ += stride;
    }
    ++layout_.n_layers;
    layout_.n_slabs += n_experts;
  }

  void set_keys() {
    format::Metadata& metadata = writer_.metadata();
    metadata.set_strings(std::string(format::kPackNamesKey), names_);
    metadata.set_strings(std::string(format::kPackBlobsKey), blobs_);
    metadata.set_ints(std::string(format::kPackTypesKey), types_, format::ValueType::kI32);
    metadata.set_ints(std::string(format::kPackDimsKey), dims_, format::ValueType::kI64);
    metadata.set_ints(std::string(format::kPackOffsetsKey), offsets_, format::ValueType::kI64);
  }

  const format::ModelFile& in_;
  format::GgufWriter writer_;
  std::map<std::string_view, Stacks> layers_;
  PackLayout layout_;
  uint64_t at_ = 0;  // from the first tensor on
  std::vector<std::string> names_, blobs_;
  std::vector<int64_t> types_, dims_, offsets_;
};

}  // namespace

PackLayout lay_out_pack(const format::ModelFile& in) {
  if (in.is_packed) fail(ErrorKind::kBadArgument, "{}: is packed already", in.metadata.source());
  PackLayout layout = Builder(in).run();
  if (layout.n_layers == 0)
    fail(ErrorKind::kBadArgument, "{}: has no routed experts, nothing to pack", in.metadata.source());
  return layout;
}

PackLayout read_pack_layout(const std::string& path) {
  const format::ModelFile model = format::ModelFile::open(path);  // checks the description
  if (!model.is_packed) {
    fail(ErrorKind::kBadFile, "{}: key {} is missing: not a packed model", path, format::kPackVersionKey);
  }
  const format::Fd fd(::open(model.files[0].path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail(ErrorKind::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  format::ByteReader in(fd.get(), model.files[0].n_bytes, path);
  const format::GgufHeader header = format::read_gguf_header(in);
  PackLayout layout;
  layout.n_bytes = model.files[0].n_bytes;
  layout.head.resize(header.data_start);
  uint64_t n_hashes = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.name == format::kPackHashesTensor) {
      layout.hashes_offset = tensor.offset;
      n_hashes = tensor.type == TensorType::kI64 ? tensor.n_elems() : 0;
      continue;
    }
    const bool is_blob = model.find(tensor.name) == nullptr;
    if (!is_blob) {
      layout.units.push_back({.name = tensor.name, .offset = tensor.offset, .n_bytes = tensor.n_bytes, .from = {}});
      continue;
    }
    ++layout.n_layers;
    layout.n_slabs += tensor.dims[1];
    for (uint64_t expert = 0; expert < tensor.dims[1]; ++expert) {
      layout.units.push_back({.name = fmt::format("{} expert {}", tensor.name, expert),
                              .offset = tensor.offset + expert * tensor.dims[0],
                              .n_bytes = tensor.dims[0],
                              .from = {}});
    }
  }
  if (n_hashes != layout.units.size() + 1) {
    fail(ErrorKind::kBadFile, "{}: tensor {} has {} numbers, wanted {}", path, format::kPackHashesTensor, n_hashes,
         layout.units.size() + 1);
  }
  return layout;
}

}  // namespace outrider::apps

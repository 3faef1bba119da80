// SPDX-License-Identifier: Apache-2.0
// Writes GGUF version 3: metadata, tensor records and padded data, as one file or as a split set. Tensor data is asked
// for when its turn comes and streamed through, so memory stays small whatever the model's size. A file appears under
// its name only when it is complete. The same metadata, tensors and data give the same bytes. Alignment is the
// metadata's general.alignment, or 32. Keys split.* of the metadata given are left out: each part gets its own.
// Threads: thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "outrider/base/function_ref.h"
#include "outrider/format/gguf.h"
#include "outrider/format/metadata.h"
#include "outrider/format/tensor_type.h"

namespace outrider::format {

using ByteSink = FunctionRef<void(std::span<const std::byte>)>;
// Hands a tensor's bytes to the sink in order, in pieces of any size; all of them must add up to the tensor's size.
using TensorSource = std::function<void(ByteSink)>;

TensorSource from_memory(std::vector<std::byte> bytes);
// A byte range of a file, opened when the data is asked for. Throws Error(kIo) then if it cannot be read.
TensorSource from_file(std::string path, uint64_t offset, uint64_t n_bytes);
// The data of a tensor of another model, unchanged.
TensorSource from_tensor(const ModelFile& model, const Tensor& tensor);

// Plain numbers: from_values(std::vector<float>{...}) for a kF32 tensor.
template <typename T>
TensorSource from_values(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return from_memory(std::move(bytes));
}

class GgufWriter {
 public:
  explicit GgufWriter(Metadata metadata) : metadata_(std::move(metadata)) {}

  Metadata& metadata() noexcept { return metadata_; }

  // `dims`: 1 to 4, dims[0] contiguous and whole blocks of `type`. Names are unique and 1..63 bytes long.
  void add(std::string name, TensorType type, std::vector<uint64_t> dims, TensorSource source);

  // What write() puts before the data: header, keys, tensor records, padding. The sources are not asked for.
  std::string head() const;

  // Returns the size of the file. Throws Error(kIo) when it cannot be written; then nothing is left at `path`.
  uint64_t write(const std::string& path) const;

  // Writes PREFIX-00001-of-0000N.gguf ..., tensors in order and spread evenly by number. Every part carries the hash of
  // all data as key outrider.split.set_id, by which the reader tells a part of another set. Returns the paths.
  std::vector<std::string> write_split(const std::string& prefix, uint32_t n_parts) const;

 private:
  struct Item {
    std::string name;
    TensorType type;
    std::vector<uint64_t> dims;
    uint64_t n_bytes;
    TensorSource source;
  };
  class Out;

  uint64_t alignment() const;
  std::string head_of(const Metadata& metadata, std::span<const Item> items) const;
  Metadata whole_metadata() const;
  void write_part(Out& out, const Metadata& metadata, std::span<const Item> items) const;

  Metadata metadata_;
  std::vector<Item> items_;
};

}  // namespace outrider::format

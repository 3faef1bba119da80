// SPDX-License-Identifier: Apache-2.0
// Opens a GGUF model (v2 or v3, one file or a split set) and returns its validated directory: metadata and, per tensor,
// type, shape and the byte range in its file. No tensor data is read. Every count, length and offset is checked before
// it is used; a bad file throws Error(kBadFile) with one line naming file, field, value and what was wanted.
// Layout and limits: ../shared/spec/gguf-and-quants.md sections 1 and 2.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "outrider/format/metadata.h"
#include "outrider/format/tensor_type.h"

namespace outrider::format {

struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous: a [in, out] matrix has rows of `in`
  uint32_t file_idx = 0;                        // into ModelFile::files
  uint64_t offset = 0;                          // absolute, in bytes, in that file
  uint64_t n_bytes = 0;
  uint64_t stride = 0;  // packed expert stacks: bytes from one expert to the next in the file; 0: no gaps

  uint64_t n_elems() const noexcept { return dims[0] * dims[1] * dims[2] * dims[3]; }
  uint64_t row_bytes() const noexcept { return format::row_bytes(type, dims[0]); }
};

struct ModelPart {
  std::string path;
  uint64_t n_bytes = 0;  // size of the file
};

// Immutable after open().
struct ModelFile {
  std::vector<ModelPart> files;
  Metadata metadata;  // of the first part
  std::vector<Tensor> tensors;
  uint32_t version = 3;
  uint32_t alignment = 32;
  bool is_packed = false;                           // made by `outrider pack`: expert stacks have a stride (pack.h)
  std::unordered_map<std::string, uint32_t> index;  // tensor name -> position in `tensors`

  const Tensor* find(std::string_view name) const;
  // Throws Error(kBadFile) "FILE: tensor NAME is missing".
  const Tensor& require(std::string_view name) const;
  const std::string& path_of(const Tensor& tensor) const { return files[tensor.file_idx].path; }
  uint64_t total_tensor_bytes() const;

  // `path`: a GGUF file, any part of a split set, or a folder that holds exactly one model (mmproj* files aside). Parts
  // are looked for beside the named one; symlinks are followed; part number and count must agree between metadata and
  // file name, and keys that several parts carry must have one value.
  static ModelFile open(const std::string& path);
};

}  // namespace outrider::format

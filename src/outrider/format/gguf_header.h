// SPDX-License-Identifier: Apache-2.0
// Parses and checks the front of one GGUF file: header, metadata, tensor records. ModelFile::open (gguf.h) puts the
// parts of a split set together; the fuzz target calls this directly.
#pragma once

#include <cstdint>
#include <vector>

#include "outrider/format/byte_reader.h"
#include "outrider/format/gguf.h"
#include "outrider/format/metadata.h"

namespace outrider::format {

// Limits beyond what the file's own size implies.
inline constexpr uint64_t kMaxKeys = 1ULL << 20;
inline constexpr uint64_t kMaxTensors = 1ULL << 20;
inline constexpr uint64_t kMaxKeyBytes = 65'535;
inline constexpr uint64_t kMaxTensorNameBytes = 63;
inline constexpr uint32_t kMinAlignment = 8;
inline constexpr uint32_t kMaxAlignment = 65'536;
// Memory that decoded metadata may take. The largest known vocabularies with merges need about a quarter.
inline constexpr uint64_t kMaxMetadataBytes = 128ULL << 20;

struct GgufHeader {
  uint32_t version = 0;
  uint32_t alignment = 32;
  uint64_t data_start = 0;
  Metadata metadata;
  std::vector<Tensor> tensors;  // in file order; offsets are absolute, every byte range lies inside the file
};

// Throws Error(kBadFile), or Error(kIo) when the file cannot be read.
GgufHeader read_gguf_header(ByteReader& in);

}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
// Packed models (docs/pack-format.md): a GGUF file in which the expert stacks of a layer are one blob, expert after
// expert, each expert's parts side by side from a 4 KiB line on. Here are the names that make up the format, and the
// step that turns the blobs of an opened file back into the tensors they hold.
#pragma once

#include <cstdint>
#include <string_view>

#include "outrider/format/gguf.h"

namespace outrider::format {

inline constexpr uint64_t kPackVersion = 1;
inline constexpr uint64_t kPackAlignment = 4096;
inline constexpr std::string_view kPackVersionKey = "outrider.pack.version";
// One element a packed tensor (dims: three), all arrays in one order.
inline constexpr std::string_view kPackNamesKey = "outrider.pack.names";
inline constexpr std::string_view kPackTypesKey = "outrider.pack.types";
inline constexpr std::string_view kPackDimsKey = "outrider.pack.dims";
inline constexpr std::string_view kPackBlobsKey = "outrider.pack.blobs";      // the blob's tensor name
inline constexpr std::string_view kPackOffsetsKey = "outrider.pack.offsets";  // of the part in each slab
inline constexpr std::string_view kPackHashesTensor = "outrider.pack.hashes";

// Replaces the blobs of a packed model by the tensors they hold, with Tensor::stride set; nothing for a plain one.
// Throws Error(kBadFile) naming key or tensor when the description does not hold together.
void expand_pack(ModelFile& model);

}  // namespace outrider::format

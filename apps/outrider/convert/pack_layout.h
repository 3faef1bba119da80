// SPDX-License-Identifier: Apache-2.0
// What a packed file will hold, and where: computed from the directory of the plain model alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outrider/format/gguf.h"

namespace outrider::apps {

struct PackRange {
  uint32_t file_idx = 0;  // of the plain model
  uint64_t offset = 0;
  uint64_t n_bytes = 0;
};

// The smallest thing that is hashed and counted as done: an expert's slab, or a tensor that stays as it is.
struct PackUnit {
  std::string name;      // for messages
  uint64_t offset = 0;   // in the packed file
  uint64_t n_bytes = 0;  // with the zeros that fill a slab
  std::vector<PackRange> from;
};

struct PackLayout {
  std::string head;             // the first bytes of the file, up to the first tensor's
  std::vector<PackUnit> units;  // by rising offset
  uint64_t hashes_offset = 0;   // one 64-bit number for the head, then one a unit
  uint64_t n_bytes = 0;         // of the whole file
  uint64_t n_layers = 0, n_slabs = 0;
};

// Throws Error(kBadArgument) for a model without experts or packed already.
PackLayout lay_out_pack(const format::ModelFile& in);

// The units of a packed file as it lies, without `from`; throws Error(kBadFile) when it is not packed.
PackLayout read_pack_layout(const std::string& path);

}  // namespace outrider::apps

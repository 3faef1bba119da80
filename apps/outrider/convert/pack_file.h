// SPDX-License-Identifier: Apache-2.0
// Copies a model into the packed layout (docs/pack-format.md), so that an expert is one read. Memory stays at a few
// megabytes whatever the model. Work that was interrupted is taken up where it was: OUT.part holds the bytes, and
// OUT.part.progress says how many of them are safely there. OUT appears when all of it has been read back and agrees.
#pragma once

#include <cstdint>
#include <string>

#include "outrider/base/function_ref.h"
#include "outrider/format/gguf.h"

namespace outrider::apps {

struct PackOptions {
  bool replace = false;                  // an OUT that is there; else it is an error
  uint64_t record_bytes = 256ULL << 20;  // of data between two records of progress
};

struct PackSummary {
  uint64_t n_layers = 0, n_slabs = 0;  // packed ones
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t resumed_bytes = 0;  // of bytes_out, written by an earlier run
};

// `progress(done, total)` counts bytes written and read back. Throws Error(kBadArgument) for a model without experts or
// packed already and for an OUT that is there or is part of the model, Error(kIo) for too little room, a failed read or
// write, or bytes that read back differently; what OUT.part has by then stays for the next run.
PackSummary pack_file(const format::ModelFile& in, const std::string& out_path, const PackOptions& options,
                      FunctionRef<void(uint64_t, uint64_t)> progress);

// Reads a packed file and compares each slab and tensor with its hash; returns the bytes read. Throws Error(kBadFile)
// for a file that is not packed, or naming the first place that differs.
uint64_t verify_pack(const std::string& path, FunctionRef<void(uint64_t, uint64_t)> progress);

}  // namespace outrider::apps

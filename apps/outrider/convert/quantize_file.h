// SPDX-License-Identifier: Apache-2.0
// Writes a model again with other weight types. Streams: memory is bounded by a few MiB a thread, whatever the model's
// size. A split set becomes one file. The result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <string>

#include "convert/tensor_rules.h"
#include "outrider/base/function_ref.h"
#include "outrider/format/gguf.h"

namespace outrider::apps {

struct QuantizeSummary {
  uint64_t bytes_in = 0, bytes_out = 0;     // of tensor data in, of the file out
  uint32_t n_tensors = 0, n_quantized = 0;  // n_quantized: tensors whose type changed
  uint32_t n_fallback = 0;                  // got another type than asked for, because of their row length
};

struct QuantizeOptions {
  TypeChoice types;               // all three with numerics::can_quantize
  bool allow_requantize = false;  // else a quantised tensor that would change is refused
  uint32_t n_threads = 1;
};

// Throws Error(kBadFile) for a quantised source tensor that would be quantised anew without allow_requantize and for
// NaN or infinity in a tensor, Error(kIo) from reading and writing. `progress(done, total)` counts source bytes.
QuantizeSummary quantize_file(const format::ModelFile& in, const std::string& out_path, const QuantizeOptions& options,
                              FunctionRef<void(uint64_t, uint64_t)> progress);

}  // namespace outrider::apps

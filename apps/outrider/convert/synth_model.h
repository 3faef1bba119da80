// SPDX-License-Identifier: Apache-2.0
// A model file of a real geometry with random weights: for speed, memory and residency work without a download.
// Hidden states stay finite and routing is spread over the experts, nearly uniformly: the worst case for a cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/geometries.h"
#include "convert/tensor_rules.h"
#include "outrider/base/function_ref.h"

namespace outrider::apps {

struct SynthOptions {
  Geometry geometry;  // as published, or cut with cut_geometry()
  TypeChoice types;   // any with is_weight; rows that do not fit fall back as in quantize
  uint64_t seed = 1;
  uint32_t n_threads = 1;
};

// `geometry` with other numbers of layers, experts and vocabulary rows; 0 keeps the published one. Throws
// Error(kBadArgument) when nothing sensible is left: fewer layers than dense lead + 1, or a vocabulary too small for
// the tokenizer.
Geometry cut_geometry(const Geometry& geometry, uint32_t n_layers, uint32_t n_experts, uint32_t n_vocab);

enum class SynthKind : uint8_t {
  kMatrix,         // rows of `dims[0]` inputs: values of rms 1 / sqrt(inputs)
  kEmbedding,      // rms 1
  kNorm,           // about 1
  kBias,           // about 0, rms 0.1
  kRouter,         // rms 1.5 / sqrt(inputs), so that logits differ by a few units
  kSelectionBias,  // rms 0.1, both signs: about the gaps between sigmoid scores
  kSink,           // rms 1
};

struct SynthTensor {
  std::string name;
  std::vector<uint64_t> dims;
  SynthKind kind = SynthKind::kMatrix;
};

// All tensors of the geometry, in file order.
std::vector<SynthTensor> synth_tensors(const Geometry& geometry);

// Writes the file and returns its size. The same options but n_threads give the same bytes. `progress(done, total)`
// counts bytes of tensor data.
uint64_t write_synth(const std::string& path, const SynthOptions& options,
                     FunctionRef<void(uint64_t, uint64_t)> progress);

}  // namespace outrider::apps

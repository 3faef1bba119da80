// SPDX-License-Identifier: Apache-2.0
// Traces for geometries that cannot be run here: seeded draws with the three habits of real routers. Skew: experts of a
// layer have Zipf weights, in an order of the layer's own. Recency: a token keeps each expert of the token before with
// some probability. Topics: for a while, part of the draws follow another order. The same spec gives the same trace
// everywhere. Threads: pure functions.
#pragma once

#include <cstdint>

#include "outrider/observe/trace.h"

namespace outrider::whatif {

struct SyntheticSpec {
  uint32_t n_layers = 8, n_experts = 64, n_used = 6;
  uint32_t n_prompt = 0;     // rows of a first pass
  uint32_t n_tokens = 1024;  // single tokens after it
  uint64_t slab_bytes = 1 << 20;
  double zipf = 0.8;          // exponent; 0: all alike
  double recency = 0.2;       // 0..1
  double topic_tokens = 128;  // mean length of a topic
  double topic_share = 0.5;   // of the draws that follow the topic, 0..1
  uint64_t seed = 1;
};

// Throws Error(kBadArgument) naming the field: counts of 0, more used than experts, shares outside 0..1.
observe::Trace make_synthetic_trace(const SyntheticSpec& spec);

// The spec whose traces look most like `trace`: overlap of tokens in a row, skew, and working sets of windows, mean
// squared relative difference, found by coordinate search. Geometry and length are the trace's; seed is `seed`.
SyntheticSpec fit_synthetic(const observe::Trace& trace, uint64_t seed);

}  // namespace outrider::whatif

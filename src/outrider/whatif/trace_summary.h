// SPDX-License-Identifier: Apache-2.0
// What a trace says about the workload, whatever the cache: how uneven the experts of a layer are used, how soon an
// expert is used again, how much two tokens in a row share, and how many distinct experts a window of tokens needs. All
// of it counts tokens (rows), not passes. Threads: pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "outrider/observe/trace.h"

namespace outrider::whatif {

struct LayerSummary {
  uint32_t n_experts = 0, n_seen = 0;
  uint64_t uses = 0;
  double top_eighth_share = 0;  // of the uses, by the most used eighth of the experts
  double entropy_bits = 0;      // of the uses; log2(n_experts) when all are used alike
  double overlap = 0;           // share of a token's experts that the token before used too
  std::vector<uint64_t> expert_uses;
};

struct TraceSummary {
  uint64_t n_tokens = 0;
  std::vector<LayerSummary> layers;
  double overlap = 0, top_eighth_share = 0;  // means over the layers
  // Choices by how many tokens ago the layer last used the expert: 1, 2, 3..4, 5..8, ...; `first_uses` had no last
  // time.
  std::vector<uint64_t> reuse;
  uint64_t first_uses = 0;
  // Mean number of distinct experts of a layer in a window of 1, 2, 4, ... tokens.
  std::vector<double> working_set;
};

TraceSummary summarize(const observe::Trace& trace);

}  // namespace outrider::whatif

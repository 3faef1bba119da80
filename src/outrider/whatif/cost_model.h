// SPDX-License-Identifier: Apache-2.0
// What a token costs, from the misses of a replay: a floor (the computation, everything resident) plus the bytes of the
// misses at the rate of the slower of drive and link, less what is hidden. Stated in full, so that it can be disputed:
//   layer = floor / layers;  read = misses * slab / rate
//   hidden by look-ahead: of `width` predictions a share `precision` is right; those among them that miss are read
//     while the layer before computes and the drive is idle, wasted guesses in their midst
//   exposed = max(0, read - hidden - overlap * layer)
//   ms a token = sum over the layers of (layer + exposed), over the steps of one row; all steps when there are none
// Threads: thread-compatible.
#pragma once

#include <cstdint>

#include "outrider/observe/trace.h"
#include "outrider/whatif/replay.h"

namespace outrider::whatif {

struct CostModel {
  double drive_bytes_per_s = 3e9;
  double link_bytes_per_s = 0;  // from RAM to the device; 0: none
  double floor_ms = 0;          // of a token
  double overlap = 0;           // share of a layer's computation during which its own misses load
  uint32_t lookahead_width = 0;
  double lookahead_precision = 0;
};

struct Cost {
  double ms_per_token = 0;
  double exposed_ms_per_token = 0;  // of that, waiting for bytes
  uint64_t wasted_bytes = 0;        // of predictions that were not used, over the steps that count
  uint64_t n_tokens = 0;            // that count
};

Cost predict_cost(const observe::Trace& trace, const Replay& replay, const CostModel& model);

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
// The layer code: what one pass does, written once against the device. Per layer: norm, q k v, rotary and cache,
// attention, output, residual; norm, then a dense FFN or router, experts (as their slabs become ready) and shared
// expert, residual.
#pragma once

#include <atomic>

#include "outrider/engine/device.h"
#include "outrider/engine/engine.h"
#include "outrider/engine/phase_clock.h"
#include "outrider/engine/rope_table.h"
#include "outrider/engine/weights.h"
#include "outrider/engine/work_buffers.h"

namespace outrider::engine {

class EmbeddingRows;
class HeadWork;
class LookAhead;
class NextTokenChooser;
class TokenAhead;

// What a pass works with. work.places and work.tokens hold the rows.
struct PassContext {
  Device& device;
  const model::ModelSpec& spec;
  const DeviceModel& weights;
  const RopeTable& rope;
  const WorkBuffers& work;
  EmbeddingRows* embedding_rows = nullptr;  // nullptr: the embedding is resident
  const KvLayout& kv_layout;
  std::byte* kv = nullptr;
  residency::ExpertStore* store = nullptr;  // nullptr in a dense model
  LookAhead* ahead = nullptr;               // nullptr: off
  PhaseClock& clock;
  const std::atomic<bool>* cancel = nullptr;
  const RoutingObserver& observer;
  std::span<PassObserver* const> watchers;
  HeadWork* head = nullptr;  // of the pass before, to be done while experts are waited for
  // Of a pass of one row: what its last layer's wait is used for, and who will choose. nullptr: nothing.
  TokenAhead* token_ahead = nullptr;
  const NextTokenChooser* next = nullptr;
};

// Runs n_rows rows through the layers from first_layer on; work.x then holds the last layer's output. first_layer is 0,
// or what begin_guessed() returned for this very row, if nothing has run since. Throws RowError, Error(kCancelled)
// between layers, Error(kIo) from the store.
void run_layers(const PassContext& pass, uint32_t n_rows, uint32_t first_layer = 0);

// The inputs of the head of n rows (work.x at row_idx[i]) into work.head_in; n <= logit_rows.
void norm_head(const PassContext& pass, const uint32_t* row_idx, uint32_t n);
// Their logits into work.logits.
void run_head(const PassContext& pass, uint32_t n);

// Begins the pass of one row that will probably be the next (work.tokens[0] at work.places[0], one position beyond its
// sequence): runs layers, doing pass.head while experts are waited for, until that is done. Returns how many layers
// have been run; work.x holds the state after them. Writes keys and values at that position, which the pass of whatever
// token comes there writes again. 0: it went wrong, which is for that pass itself to tell, or was cancelled.
uint32_t begin_guessed(const PassContext& pass) noexcept;

}  // namespace outrider::engine

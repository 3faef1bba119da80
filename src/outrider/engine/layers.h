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
class LookAhead;

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
};

// Runs n_rows rows through all layers; work.x then holds the last layer's output. Throws RowError, Error(kCancelled)
// between layers, Error(kIo) from the store.
void run_layers(const PassContext& pass, uint32_t n_rows);

// Logits of n of those rows (work.x at row_idx[i]) into work.logits; n <= logit_rows.
void run_head(const PassContext& pass, const uint32_t* row_idx, uint32_t n);

}  // namespace outrider::engine

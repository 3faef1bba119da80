// SPDX-License-Identifier: Apache-2.0
// How the arena is cut: for each layer, slots of one size, each with a place for every read of a slab; or one pool of
// slots for all layers, each as large as the largest slab wants it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "outrider/residency/expert_store.h"

namespace outrider::residency {

// Direct reads may ask for blocks of up to this many bytes; a file that needs larger ones is read buffered.
inline constexpr uint32_t kDirectBlock = 4096;

struct LayerLayout {
  // In a pool, all layers have the same.
  uint32_t n_slots = 0;       // min(slots_per_layer, n_experts); in a pool, their sum
  uint32_t first_slot = 0;    // counted over all layers
  uint64_t arena_offset = 0;  // of the layer's first slot
  uint64_t slot_bytes = 0;
  LayerSource reads = {};  // what is asked for: the layer's parts, those that lie side by side as one
  std::array<uint64_t, kMaxSlabParts> read_offset = {};  // in a slot; multiples of kDirectBlock unless direct is off
  // Room for the read, with the slack that direct reads put around it.
  std::array<uint64_t, kMaxSlabParts> read_bytes = {};
  uint64_t slab_bytes = 0;
  uint32_t n_pieces = 0;  // in which the reader asks for a slab
  uint32_t n_parts = 0;
  std::array<uint32_t, kMaxSlabParts> part_read = {};     // which read brings the part
  std::array<uint64_t, kMaxSlabParts> part_in_read = {};  // where it begins in that
};

struct SlabLayout {
  std::vector<LayerLayout> layers;
  uint32_t n_slots = 0;
  uint64_t n_bytes = 0;
};

// Throws Error(kOutOfMemory) when the sum cannot be addressed.
SlabLayout make_slab_layout(std::span<const LayerSource> layers, uint32_t slots_per_layer, DirectMode direct,
                            SlotPool pool = SlotPool::kLayer);

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/slab_layout.h"

#include <algorithm>

#include "outrider/base/check.h"
#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/io/reader.h"

namespace outrider::residency {

namespace {

constexpr uint64_t kCacheLine = 64;

uint64_t room_for(const PartSource& part, uint32_t n_experts, DirectMode direct) noexcept {
  if (direct == DirectMode::kOff) return align_up(part.n_bytes, kCacheLine);
  // The slack that this layer's offsets really need: none when experts start and end on blocks.
  uint64_t n_bytes = 0;
  for (uint64_t expert = 0; expert < n_experts; ++expert) {
    n_bytes = std::max(n_bytes, io::direct_span_bytes(part.offset + expert * part.step(), part.n_bytes, kDirectBlock));
  }
  return n_bytes;
}

bool is_next_to(const PartSource& before, const PartSource& part) noexcept {
  return part.file_idx == before.file_idx && part.step() == before.step() &&
         part.offset == before.offset + before.n_bytes && before.n_bytes + part.n_bytes <= part.step();
}

void plan_reads(const LayerSource& source, LayerLayout& layer) noexcept {
  layer.n_parts = source.n_parts;
  layer.reads = {.n_experts = source.n_experts, .n_parts = 0, .parts = {}};
  for (uint32_t part = 0; part < source.n_parts; ++part) {
    uint32_t& n_reads = layer.reads.n_parts;
    if (n_reads > 0 && is_next_to(layer.reads.parts[n_reads - 1], source.parts[part])) {
      layer.part_in_read[part] = layer.reads.parts[n_reads - 1].n_bytes;
      layer.reads.parts[n_reads - 1].n_bytes += source.parts[part].n_bytes;
    } else {
      layer.reads.parts[n_reads] = source.parts[part];
      layer.reads.parts[n_reads].stride = source.parts[part].step();
      ++n_reads;
    }
    layer.part_read[part] = n_reads - 1;
  }
}

void share_slots(SlabLayout& layout) {
  uint64_t slot_bytes = 0;
  for (const LayerLayout& layer : layout.layers) slot_bytes = std::max(slot_bytes, layer.slot_bytes);
  const auto total = checked_mul(slot_bytes, layout.n_slots);
  if (!total) fail(ErrorKind::kOutOfMemory, "expert cache: a pool of {} slots cannot be addressed", layout.n_slots);
  layout.n_bytes = *total;
  for (LayerLayout& layer : layout.layers) {
    layer.n_slots = layout.n_slots;
    layer.first_slot = 0;
    layer.arena_offset = 0;
    layer.slot_bytes = slot_bytes;
  }
}

}  // namespace

SlabLayout make_slab_layout(std::span<const LayerSource> layers, uint32_t slots_per_layer, DirectMode direct,
                            SlotPool pool) {
  SlabLayout layout;
  layout.layers.reserve(layers.size());
  for (const LayerSource& source : layers) {
    OUTRIDER_CHECK(source.n_experts > 0 && source.n_parts > 0 && source.n_parts <= kMaxSlabParts);
    LayerLayout layer = {.n_slots = std::min(slots_per_layer, source.n_experts),
                         .first_slot = layout.n_slots,
                         .arena_offset = layout.n_bytes};
    for (uint32_t part = 0; part < source.n_parts; ++part) {
      OUTRIDER_CHECK(source.parts[part].n_bytes > 0 && source.parts[part].n_bytes <= 1ULL << 48);
    }
    plan_reads(source, layer);
    for (uint32_t read = 0; read < layer.reads.n_parts; ++read) {
      layer.read_offset[read] = layer.slot_bytes;
      layer.read_bytes[read] = room_for(layer.reads.parts[read], source.n_experts, direct);
      layer.slot_bytes += layer.read_bytes[read];
      layer.slab_bytes += layer.reads.parts[read].n_bytes;
      layer.n_pieces += static_cast<uint32_t>((layer.reads.parts[read].n_bytes - 1) / io::kPieceBytes + 1);
    }
    const auto layer_bytes = checked_mul(layer.slot_bytes, layer.n_slots);
    const auto total = layer_bytes ? checked_add(layout.n_bytes, *layer_bytes) : std::nullopt;
    if (!total) fail(ErrorKind::kOutOfMemory, "expert cache: {} slots a layer cannot be addressed", slots_per_layer);
    layout.n_bytes = *total;
    layout.n_slots += layer.n_slots;
    layout.layers.push_back(layer);
  }
  if (pool == SlotPool::kGlobal) share_slots(layout);
  return layout;
}

}  // namespace outrider::residency

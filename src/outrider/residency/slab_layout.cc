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
    n_bytes = std::max(n_bytes, io::direct_span_bytes(part.offset + expert * part.n_bytes, part.n_bytes, kDirectBlock));
  }
  return n_bytes;
}

}  // namespace

SlabLayout make_slab_layout(std::span<const LayerSource> layers, uint32_t slots_per_layer, DirectMode direct) {
  SlabLayout layout;
  layout.layers.reserve(layers.size());
  for (const LayerSource& source : layers) {
    OUTRIDER_CHECK(source.n_experts > 0 && source.n_parts > 0 && source.n_parts <= kMaxSlabParts);
    LayerLayout layer = {.n_slots = std::min(slots_per_layer, source.n_experts),
                         .first_slot = layout.n_slots,
                         .arena_offset = layout.n_bytes};
    for (uint32_t part = 0; part < source.n_parts; ++part) {
      OUTRIDER_CHECK(source.parts[part].n_bytes > 0 && source.parts[part].n_bytes <= 1ULL << 48);
      layer.part_offset[part] = layer.slot_bytes;
      layer.part_bytes[part] = room_for(source.parts[part], source.n_experts, direct);
      layer.slot_bytes += layer.part_bytes[part];
    }
    const auto layer_bytes = checked_mul(layer.slot_bytes, layer.n_slots);
    const auto total = layer_bytes ? checked_add(layout.n_bytes, *layer_bytes) : std::nullopt;
    if (!total) fail(ErrorKind::kOutOfMemory, "expert cache: {} slots a layer cannot be addressed", slots_per_layer);
    layout.n_bytes = *total;
    layout.n_slots += layer.n_slots;
    layout.layers.push_back(layer);
  }
  return layout;
}

}  // namespace outrider::residency

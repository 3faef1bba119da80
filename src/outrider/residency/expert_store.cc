// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/expert_store.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "outrider/base/check.h"
#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/residency/expert_store_impl.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

namespace {

std::vector<uint32_t> expert_counts(std::span<const LayerSource> layers) {
  std::vector<uint32_t> counts;
  for (const LayerSource& layer : layers) counts.push_back(layer.n_experts);
  return counts;
}

void check_ranges(std::span<const LayerSource> layers, const io::Reader& reader) {
  for (size_t i = 0; i < layers.size(); ++i) {
    for (uint32_t part = 0; part < layers[i].n_parts; ++part) {
      const PartSource& source = layers[i].parts[part];
      OUTRIDER_CHECK(source.file_idx < reader.n_files(), "file {} of {}", source.file_idx, reader.n_files());
      const auto last = checked_mul(source.step(), layers[i].n_experts - 1);
      const auto n_bytes = last ? checked_add(*last, source.n_bytes) : std::nullopt;
      const auto end = n_bytes ? checked_add(source.offset, *n_bytes) : std::nullopt;
      const uint64_t file_bytes = reader.file_bytes(source.file_idx);
      if (!end || *end > file_bytes) {
        fail(ErrorKind::kBadFile,
             "{}: experts of MoE layer {}, part {}: data ends at byte {} but the file has {} (truncated?)",
             reader.path(source.file_idx), i, part, end.value_or(UINT64_MAX), file_bytes);
      }
    }
  }
}

}  // namespace

ExpertStore::Impl::Impl(StoreOptions store_options)
    : options(std::move(store_options)),
      layout(make_slab_layout(options.layers, options.slots_per_layer, options.direct, options.pool)) {
  if (options.slots_per_layer == 0) fail(ErrorKind::kBadArgument, "expert cache: 0 slots a layer, wanted at least 1");
  const std::vector<uint32_t> n_experts = expert_counts(options.layers);
  placer.emplace(n_experts, options.slots_per_layer,
                 make_policy(options.policy, pooled_counts(n_experts, options.pool),
                             {.lfu_half_life_tokens = options.lfu_half_life_tokens}),
                 options.pool);
  slots.resize(layout.n_slots);

  uint32_t max_requests = 1;
  uint32_t max_experts = 0;
  for (size_t i = 0; i < options.layers.size(); ++i) {
    max_requests = std::max(max_requests, layout.layers[i].n_slots * layout.layers[i].reads.n_parts);
    max_experts = std::max(max_experts, n_experts[i]);
    n_slots_per_layer = std::max(n_slots_per_layer, std::min(options.slots_per_layer, n_experts[i]));
  }
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    for (uint32_t k = 0; k < layout.layers[i].n_slots; ++k)
      slots[layout.layers[i].first_slot + k].layer = static_cast<uint32_t>(i);
  }
  // Twice, since those that were taken back count until their completions are collected.
  const uint32_t max_ahead_requests = 2 * (kMaxAhead + kMaxBackground) * kMaxSlabParts;
  reader = std::make_unique<io::Reader>(io::ReaderOptions{.files = options.files,
                                                          .mirrors = options.mirrors,
                                                          .io = options.io,
                                                          .direct = options.direct,
                                                          .queue_depth = options.queue_depth,
                                                          .max_requests = max_requests + max_ahead_requests,
                                                          .max_block_bytes = kDirectBlock,
                                                          .faults = options.faults});
  warnings = reader->warnings();
  check_ranges(options.layers, *reader);
  arena = AlignedBuffer(layout.n_bytes, "expert cache");
  populator.emplace(std::span(arena.data(), arena.size()), options.populate_threads);

  ready.reserve(max_experts);
  begun.reserve(max_experts);
  told_begun.reserve(max_experts);
  queue_next.assign(max_experts, kNoExpert);
  occupants.reserve(layout.n_slots);
  requests.reserve(max_requests + max_ahead_requests);
  ahead.reserve(kMaxAhead + kMaxBackground);
  ahead_claimed.reserve(kMaxAhead + kMaxBackground);
  ids.reserve(requests.capacity());
  may_leave.reserve(layout.n_slots);
  is_demanded.assign(max_experts, 0);
  was_resident.assign(max_experts, 0);
  idle_ns.resize(options.layers.size());
  cover_ns.resize(options.layers.size());
  idle_since = Clock::now();
}

void ExpertStore::Impl::begin(uint32_t layer_idx, std::span<const uint32_t> experts, std::span<const uint32_t> uses) {
  OUTRIDER_CHECK(!is_open, "a pass of layer {} is open", layer);
  OUTRIDER_CHECK(layer_idx < options.layers.size(), "layer {} of {}", layer_idx, options.layers.size());
  OUTRIDER_CHECK(experts.size() == uses.size(), "{} experts, {} uses", experts.size(), uses.size());
  for (const uint32_t expert : experts) {
    OUTRIDER_CHECK(expert < options.layers[layer_idx].n_experts, "layer {} expert {}", layer_idx, expert);
  }
  if (!ahead.empty()) settle_ahead(layer_idx, experts);
  const bool has_company = !ahead.empty();
  const Placer::Plan plan = placer->place(layer_idx, experts, uses);
  is_open = true;
  layer = layer_idx;
  ready.clear();
  begun.clear();
  n_handed_out = 0;
  has_thrown = false;
  error.clear();
  n_missing = 0;
  for (const uint32_t expert : experts) was_resident[expert] = 0;
  const uint32_t first_slot = layout.layers[layer].first_slot;
  for (const Placement& hit : plan.hits) {
    if (slots[first_slot + hit.slot_idx].state == SlotState::kLoading) {
      adopt(first_slot + hit.slot_idx);
      continue;
    }
    was_resident[hit.expert] = 1;
    ++counters.hits;
    give(first_slot + hit.slot_idx);
  }
  // What guesses still have in flight would be taken for the demand's own time.
  note_demand_begin(has_company ? 0 : static_cast<uint32_t>(plan.loads.size()));
  n_missing += static_cast<uint32_t>(plan.loads.size());
  counters.demanded += experts.size();
  counters.misses += n_missing;
  for (const Placement& load : plan.loads) claim_or_queue(first_slot + load.slot_idx, load.expert);
  submit_claimed();
  if (looks_ahead) {
    for (Slot& slot : layer_slots()) slot.is_fresh = slot.is_fresh && slot.layer != layer;
  }
  pump_refill();
}

void ExpertStore::Impl::claim_or_queue(uint32_t slot_idx, uint32_t expert) noexcept {
  Slot& slot = slots[slot_idx];
  if (slot.state == SlotState::kFree || slot.state == SlotState::kResident) {
    claim(slot_idx, expert);
    return;
  }
  if (slot.is_ahead && !slot.is_blocking) {
    slot.is_blocking = true;
    ++n_loading;
    cancel_parts(slot_idx);
  }
  (slot.queue_tail == kNoExpert ? slot.queue_head : queue_next[slot.queue_tail]) = expert;
  slot.queue_tail = expert;
  queue_next[expert] = kNoExpert;
}

// From here on the slot belongs to `expert`; the reads are sent by submit_claimed().
void ExpertStore::Impl::claim(uint32_t slot_idx, uint32_t expert) noexcept {
  if (slots[slot_idx].state == SlotState::kResident) evict(slots[slot_idx]);
  slots[slot_idx].layer = layer;
  slots[slot_idx].is_fresh = false;
  start_load(slot_idx, expert, io::ReadClass::kDemand);
  ++n_loading;
}

void ExpertStore::Impl::evict(Slot& slot) noexcept {
  ++counters.evicted;
  if (!slot.is_unused) return;
  ++counters.evicted_unused;
  waste_prediction(slot);
}

void ExpertStore::Impl::start_load(uint32_t slot_idx, uint32_t expert, io::ReadClass reason) noexcept {
  Slot& slot = slots[slot_idx];
  OUTRIDER_CHECK(slot.state == SlotState::kFree || slot.state == SlotState::kResident);
  slot.expert = expert;
  slot.reason = reason;
  slot.state = SlotState::kLoading;
  slot.is_adopted = false;
  slot.is_begun = false;
  push_reads(slot_idx);
}

void ExpertStore::Impl::push_reads(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  const LayerLayout& place = layout.layers[slot.layer];
  ++slot.generation;
  slot.n_reads_left = place.reads.n_parts;
  slot.failed = false;
  slot.landed_reads = 0;
  std::byte* base = arena.data() + place.arena_offset + (slot_idx - place.first_slot) * place.slot_bytes;
  for (uint32_t read = 0; read < place.reads.n_parts; ++read) {
    const PartSource& from = place.reads.parts[read];
    requests.push_back({.file_idx = from.file_idx,
                        .offset = from.offset + slot.expert * from.step(),
                        .n_bytes = from.n_bytes,
                        .dst = base + place.read_offset[read],
                        .dst_bytes = place.read_bytes[read],
                        .cls = slot.reason,
                        .tag = pack({.slot = slot_idx, .read = read, .generation = slot.generation})});
  }
}

void ExpertStore::Impl::claim_from_queue(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  const uint32_t expert = slot.queue_head;
  if (expert == kNoExpert) return;
  slot.queue_head = queue_next[expert];
  if (slot.queue_head == kNoExpert) slot.queue_tail = kNoExpert;
  claim(slot_idx, expert);
}

void ExpertStore::Impl::submit_claimed() noexcept {
  if (requests.empty()) return;
  // Every slot of the layer has at most one load under way, and the reader has room for that many.
  const bool accepted = reader->submit(requests);
  OUTRIDER_CHECK(accepted, "{} reads", requests.size());
  requests.clear();
}

// Pins a slot whose bytes are complete, and lists it for next().
void ExpertStore::Impl::give(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  OUTRIDER_CHECK(slot.state == SlotState::kResident || slot.state == SlotState::kLoading);
  if (slot.is_unused) {
    ++counters.predicted_used;
    ++counters.predicted_in_time;
    use_prediction(slot);
  }
  forget_begun(slot);
  slot.state = SlotState::kPinned;
  ++n_pinned;
  ready.push_back({.expert = slot.expert, .slot_idx = slot_idx - layout.layers[layer].first_slot, .parts = slot.parts});
}

// Every byte goes into exactly one class.
void ExpertStore::Impl::count_read(Slot& slot, const io::ReadDone& read) noexcept {
  counters.bytes_read += read.got_bytes;
  if (slot.reason == io::ReadClass::kDemand) {
    counters.bytes_demand += read.got_bytes;
  } else if (slot.reason == io::ReadClass::kBackground) {
    counters.bytes_background += read.got_bytes;
  } else if (slot.is_adopted) {
    counters.bytes_predicted_used += read.got_bytes;
  } else {
    counters.bytes_predicted_pending += read.got_bytes;
    slot.open_bytes += read.got_bytes;
  }
}

void ExpertStore::Impl::land(const io::ReadDone& read) noexcept {
  const ReadTag tag = unpack(read.tag);
  Slot& slot = slots[tag.slot];
  const bool is_current = slot.state == SlotState::kLoading && (slot.generation & kGenerationMask) == tag.generation;
  // What was taken back has touched no memory, so its slot may have gone on at once.
  if (read.status == io::ReadStatus::kCancelled && !is_current) return;
  // A slot is never claimed again while a read into it is under way, not even when another part of it has failed.
  OUTRIDER_CHECK(is_current, "slot {} generation {} got a read for {}", tag.slot, slot.generation, tag.generation);
  count_read(slot, read);
  counters.reads += read.n_reads;
  counters.read_retries += read.n_retries;
  if (read.direct_error != 0 || read.lost_copy != io::kNoCopy) warnings.push_back(reader->warning_text(read));
  const LayerLayout& place = layout.layers[slot.layer];
  for (uint32_t part = 0; part < place.n_parts; ++part) {
    if (place.part_read[part] == tag.read) slot.parts[part] = read.data + place.part_in_read[part];
  }
  if (read.status == io::ReadStatus::kOk) {
    slot.landed_reads |= static_cast<uint8_t>(1U << tag.read);
  } else {
    slot.failed = true;
    // What was read for a guess fails in silence: a demand that came in the meantime asks again for itself.
    if (!slot.is_ahead && !slot.is_adopted && error.empty()) error = reader->error_text(read);
  }
  if (--slot.n_reads_left != 0) {
    list_begun(tag.slot);
    return;
  }
  if (slot.is_ahead) {
    land_ahead(tag.slot);
    return;
  }
  if (slot.failed && slot.is_adopted) {
    slot.is_adopted = false;
    slot.reason = io::ReadClass::kDemand;
    forget_begun(slot);
    push_reads(tag.slot);
    return;
  }
  --n_loading;
  --n_missing;
  if (slot.failed) {
    forget_begun(slot);
    slot.expert = kNoExpert;
    slot.state = SlotState::kFree;
    claim_from_queue(tag.slot);
  } else {
    give(tag.slot);
  }
}

void ExpertStore::Impl::collect(bool wait) noexcept {
  const uint32_t n_reads = wait ? reader->wait(reads) : reader->poll(reads);
  for (uint32_t i = 0; i < n_reads; ++i) land(reads[i]);
  submit_claimed();
}

// Of a slot that the open pass has loaded: whether all parts but the last are there, and nothing else was told of it.
void ExpertStore::Impl::list_begun(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  const LayerLayout& place = layout.layers[slot.layer];
  const uint32_t last_read = place.reads.n_parts - 1;
  if (!is_open || slot.layer != layer || slot.is_ahead || slot.is_begun || slot.failed) return;
  const bool is_last_alone = place.n_parts > 1 && place.part_read[place.n_parts - 2] != last_read;
  if (!is_last_alone || slot.landed_reads != (1U << last_read) - 1) return;
  slot.is_begun = true;
  begun.push_back({.expert = slot.expert, .slot_idx = slot_idx - place.first_slot, .parts = slot.parts});
}

// Is not to be told any more.
void ExpertStore::Impl::forget_begun(Slot& slot) noexcept {
  if (!slot.is_begun) return;
  const auto n_listed = std::erase_if(begun, [&](const ReadySlab& slab) { return slab.expert == slot.expert; });
  if (n_listed > 0) slot.is_begun = false;
}

// Until next() need not wait, or next_begun() has something to tell.
void ExpertStore::Impl::await(bool wants_begun) noexcept {
  OUTRIDER_CHECK(is_open);
  while (n_loading > 0) {
    collect(false);
    if (n_loading == 0) {
      note_cover();
      note_demand_end(false);
    }
    if (n_handed_out < ready.size() || (!error.empty() && !has_thrown) || n_loading == 0) break;
    if (wants_begun && !begun.empty()) break;
    note_cover();
    const auto start = std::chrono::steady_clock::now();
    collect(true);
    const auto waited = std::chrono::steady_clock::now() - start;
    counters.stall_ns += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count());
    if (n_loading == 0) note_demand_end(true);
  }
}

std::span<const ReadySlab> ExpertStore::Impl::next_begun() noexcept {
  await(true);
  if (n_handed_out < ready.size() || (!error.empty() && !has_thrown)) return {};
  std::swap(begun, told_begun);
  begun.clear();
  return told_begun;
}

std::span<const ReadySlab> ExpertStore::Impl::next() {
  await(false);
  if (!error.empty() && !has_thrown) {
    has_thrown = true;
    throw Error(ErrorKind::kIo, error);
  }
  const std::span<const ReadySlab> slabs = std::span<const ReadySlab>(ready).subspan(n_handed_out);
  OUTRIDER_CHECK(!slabs.empty() || n_missing == 0, "next() before done(): {} experts of layer {} wait for slots",
                 n_missing, layer);
  n_handed_out = ready.size();
  return slabs;
}

bool ExpertStore::Impl::would_wait() noexcept {
  if (n_loading == 0 || n_handed_out < ready.size()) return false;
  collect(false);
  if (n_loading == 0) {
    note_cover();
    note_demand_end(false);
  }
  const bool waits = n_loading > 0 && n_handed_out == ready.size() && (error.empty() || has_thrown);
  if (waits) note_cover();
  return waits;
}

void ExpertStore::Impl::done(std::span<const ReadySlab> slabs) noexcept {
  const uint32_t first_slot = layout.layers[layer].first_slot;
  for (const ReadySlab& slab : slabs) {
    const uint32_t slot_idx = first_slot + slab.slot_idx;
    Slot& slot = slots[slot_idx];
    OUTRIDER_CHECK(slot.state == SlotState::kPinned && slot.expert == slab.expert, "layer {} expert {} is not pinned",
                   layer, slab.expert);
    slot.state = SlotState::kResident;
    --n_pinned;
    claim_from_queue(slot_idx);
  }
  submit_claimed();
}

// Experts that still wait for a slot lapse; reads under way are waited for, since the kernel writes into their slots.
void ExpertStore::Impl::close() noexcept {
  is_open = false;
  note_pass_end();
  if (n_pinned == 0 && n_missing == 0 && error.empty()) return;
  for (Slot& slot : layer_slots()) slot.queue_head = slot.queue_tail = kNoExpert;
  while (n_loading > 0) collect(true);
  occupants.clear();
  for (Slot& slot : layer_slots()) {
    if (slot.state == SlotState::kPinned) slot.state = SlotState::kResident;
    occupants.push_back(placer->id_of(slot.layer, slot.expert));
  }
  n_pinned = n_missing = 0;
  placer->restore(layer, occupants);
}

ExpertStore::ExpertStore(StoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

ExpertStore::~ExpertStore() { OUTRIDER_CHECK(!impl_->is_open, "a pass outlives its store"); }

LayerPass ExpertStore::begin(uint32_t layer, std::span<const uint32_t> expert_ids, std::span<const uint32_t> uses) {
  impl_->begin(layer, expert_ids, uses);
  return LayerPass(*impl_);
}

void ExpertStore::end_step(uint32_t n_tokens) noexcept {
  impl_->placer->end_step(n_tokens);
  impl_->pump_refill();
}
void ExpertStore::begin_step() noexcept { impl_->idle_since = Impl::Clock::now(); }
void ExpertStore::predict(uint32_t layer, std::span<const uint32_t> expert_ids) noexcept {
  impl_->predict(layer, expert_ids);
}
void ExpertStore::refill(std::vector<ExpertKey> experts) {
  impl_->refill = std::move(experts);
  impl_->refill_next = 0;
  impl_->pump_refill();
}
bool ExpertStore::is_resident(uint32_t layer, uint32_t expert) const noexcept {
  const uint32_t slot_idx = impl_->placer->slot_of(layer, expert);
  if (slot_idx == Placer::kNoSlot) return false;
  const SlotState state = impl_->slots[impl_->layout.layers[layer].first_slot + slot_idx].state;
  return state == SlotState::kResident || state == SlotState::kPinned;
}
bool ExpertStore::has_place(uint32_t layer, uint32_t expert) const noexcept {
  return impl_->placer->slot_of(layer, expert) != Placer::kNoSlot;
}
bool ExpertStore::was_resident(uint32_t expert) const noexcept { return impl_->was_resident[expert] != 0; }
uint32_t ExpertStore::n_reads_ahead() const noexcept { return static_cast<uint32_t>(impl_->ahead.size()); }
AheadTimes ExpertStore::ahead_times(uint32_t layer) const noexcept { return impl_->ahead_times(layer); }
double ExpertStore::heat(uint32_t layer, uint32_t expert) const noexcept { return impl_->placer->heat(layer, expert); }
const StoreCounters& ExpertStore::counters() const noexcept { return impl_->counters; }
io::ReadLatency ExpertStore::read_latency() const noexcept { return impl_->reader->latency(); }
std::vector<io::CopyReads> ExpertStore::copy_reads() const { return impl_->reader->copy_reads(); }
uint32_t ExpertStore::slots_per_layer() const noexcept { return impl_->n_slots_per_layer; }
uint64_t ExpertStore::arena_bytes() const noexcept { return impl_->layout.n_bytes; }
const std::vector<std::string>& ExpertStore::warnings() const noexcept { return impl_->warnings; }

uint64_t ExpertStore::arena_bytes_for(std::span<const LayerSource> layers, uint32_t slots, DirectMode direct,
                                      SlotPool pool) {
  return make_slab_layout(layers, slots, direct, pool).n_bytes;
}

LayerPass::LayerPass(LayerPass&& other) noexcept : store_(std::exchange(other.store_, nullptr)) {}
LayerPass::~LayerPass() {
  if (store_ != nullptr) store_->close();
}
std::span<const ReadySlab> LayerPass::next() { return store_->next(); }
std::span<const ReadySlab> LayerPass::next_begun() noexcept { return store_->next_begun(); }
bool LayerPass::has_begun() const noexcept { return !store_->begun.empty(); }
bool LayerPass::would_wait() noexcept { return store_->would_wait(); }
void LayerPass::note_filled(std::chrono::nanoseconds time) noexcept {
  store_->filled_ns += static_cast<uint64_t>(time.count());
}
void LayerPass::done(std::span<const ReadySlab> slabs) noexcept { store_->done(slabs); }

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// What the store reads before it is demanded: predictions and the refill of a warm start.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "outrider/base/check.h"
#include "outrider/residency/expert_store_impl.h"

namespace outrider::residency {

namespace {

constexpr double kNewShare = 0.125;      // of the newest value in a running mean
constexpr double kServedWithinNs = 1e6;  // of a drive's answer, while every core computes

void blend(double& mean, double value) noexcept { mean = mean == 0 ? value : mean + kNewShare * (value - mean); }

uint64_t ns_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) noexcept {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

}  // namespace

void ExpertStore::Impl::predict(uint32_t layer_idx, std::span<const uint32_t> experts) noexcept {
  looks_ahead = true;
  collect_landed();
  if (experts.empty()) return;
  reader->set_low_depth(pieces_in_flight(layer_idx));
  placer->expect(layer_idx, experts);
  const uint32_t first_slot = layout.layers[layer_idx].first_slot;
  const std::span<Slot> layer_slots = std::span(slots).subspan(first_slot, layout.layers[layer_idx].n_slots);
  // Those that are there stay; this comes first, so that no guess pushes out another.
  for (const uint32_t expert : experts) {
    const uint32_t slot_idx = placer->slot_of(layer_idx, expert);
    if (slot_idx != Placer::kNoSlot) layer_slots[slot_idx].is_fresh = true;
  }
  for (const uint32_t expert : experts) {
    if (placer->slot_of(layer_idx, expert) != Placer::kNoSlot) continue;
    if (!find_room(layer_idx, expert, io::ReadClass::kPrediction)) ++counters.dropped;
  }
  submit_ahead();
}

// Takes what has landed, without waiting.
void ExpertStore::Impl::collect_landed() noexcept {
  for (;;) {
    const uint32_t n_reads = reader->poll(reads);
    for (uint32_t i = 0; i < n_reads; ++i) land(reads[i]);
    if (n_reads < reads.size()) break;
  }
  submit_claimed();
}

// Pieces of guesses that keep the drive busy: one more than what hides its start-up time, and than what lasts until
// somebody gets a core to serve it while all of them compute; but what is in flight stands before the demand, so the
// latter is for no longer than the time until that.
uint32_t ExpertStore::Impl::pieces_in_flight(uint32_t layer_idx) const noexcept {
  const double piece_ns = drive_times.slab_ns() / layout.layers[layer_idx].n_pieces;
  if (piece_ns <= 0) return 1;  // not known yet
  const double hidden_ns = std::max(drive_times.start_ns(), std::min(idle_ns[layer_idx], kServedWithinNs));
  const double n_pieces = hidden_ns / piece_ns;
  return 1 + static_cast<uint32_t>(std::ceil(std::min(n_pieces, static_cast<double>(options.queue_depth))));
}

AheadTimes ExpertStore::Impl::ahead_times(uint32_t layer_idx) const noexcept {
  const LayerLayout& place = layout.layers[layer_idx];
  const double slab_ns = drive_times.slab_ns();
  return {.idle_ns = idle_ns[layer_idx],
          .start_ns = drive_times.start_ns(),
          .slab_ns = slab_ns,
          .cover_ns = cover_ns[layer_idx],
          .stalled = drive_times.stalled(),
          .piece_ns = slab_ns / place.n_pieces * pieces_in_flight(layer_idx),
          .copy_ns = counters.bytes_read == 0
                         ? 0
                         : static_cast<double>(reader->cpu_ns()) / static_cast<double>(counters.bytes_read) *
                               static_cast<double>(place.slab_bytes)};
}

// Gives a guess or a refill a slot, if there is one for it.
bool ExpertStore::Impl::find_room(uint32_t layer_idx, uint32_t expert, io::ReadClass reason) noexcept {
  // A layer that is open settles its slots itself.
  if (is_open && layer == layer_idx) return false;
  const bool is_guess = reason == io::ReadClass::kPrediction;
  if (is_guess ? ahead.size() - n_background >= kMaxAhead : n_background >= kMaxBackground) return false;
  const LayerLayout& place = layout.layers[layer_idx];
  may_leave.assign(place.n_slots, 0);
  uint32_t n_guesses = 0;
  for (uint32_t i = 0; i < place.n_slots; ++i) {
    const Slot& slot = slots[place.first_slot + i];
    const bool is_open_layer = is_open && slot.layer == layer;  // only in a pool; its pass settles those
    const bool may_evict = is_guess && slot.state == SlotState::kResident && !slot.is_fresh && !is_open_layer;
    may_leave[i] = slot.state == SlotState::kFree || may_evict ? 1 : 0;
    if (slot.is_fresh && slot.layer == layer_idx && (slot.is_ahead || slot.is_unused)) ++n_guesses;
  }
  if (is_guess && n_guesses >= std::max(1U, std::min(place.n_slots, n_slots_per_layer) / 2)) return false;
  const uint32_t slot_idx = placer->slot_for_prediction(layer_idx, expert, may_leave);
  if (slot_idx == Placer::kNoSlot) return false;
  claim_ahead(place.first_slot + slot_idx, {.layer = layer_idx, .expert = expert}, reason);
  return true;
}

void ExpertStore::Impl::claim_ahead(uint32_t slot_idx, ExpertKey key, io::ReadClass reason) noexcept {
  Slot& slot = slots[slot_idx];
  if (slot.state == SlotState::kResident) {
    slot.displaced = slot.expert;
    slot.displaced_layer = slot.layer;
    slot.displaced_unused = slot.is_unused;
    slot.displaced_bytes = slot.open_bytes;
    slot.displaced_parts = slot.parts;
    slot.is_unused = false;
    slot.open_bytes = 0;
  }
  slot.layer = key.layer;
  start_load(slot_idx, key.expert, reason);
  slot.is_ahead = true;
  slot.is_fresh = reason == io::ReadClass::kPrediction;
  const uint32_t in_layer = slot_idx - layout.layers[slot.layer].first_slot;
  placer->set_occupant(slot.layer, in_layer, key.expert);
  placer->set_busy(slot.layer, in_layer, true);
  ahead.push_back(slot_idx);
  ahead_claimed.push_back(slot_idx);
  if (reason == io::ReadClass::kBackground) {
    ++n_background;
  } else {
    ++counters.admitted;
  }
}

void ExpertStore::Impl::submit_ahead() noexcept {
  if (requests.empty()) return;
  ids.resize(requests.size());
  const bool accepted = reader->submit(requests, ids);
  OUTRIDER_CHECK(accepted, "{} reads ahead", requests.size());
  size_t at = 0;
  for (const uint32_t slot_idx : ahead_claimed) {
    Slot& slot = slots[slot_idx];
    for (uint32_t read = 0; read < slot.n_reads_left; ++read) slot.read_ids[read] = ids[at++];
  }
  ahead_claimed.clear();
  requests.clear();
}

// A layer is about to be demanded. Guesses that nothing is lost by taking back go: those of this layer that were wrong,
// and, when the demand will read, those of other layers, too.
void ExpertStore::Impl::settle_ahead(uint32_t layer_idx, std::span<const uint32_t> experts) noexcept {
  collect_landed();
  bool must_read = false;
  uint32_t n_absent = 0;
  for (const uint32_t expert : experts) {
    is_demanded[expert] = 1;
    const uint32_t slot_idx = placer->slot_of(layer_idx, expert);
    n_absent += slot_idx == Placer::kNoSlot ? 1 : 0;
    must_read |= slot_idx == Placer::kNoSlot ||
                 slots[layout.layers[layer_idx].first_slot + slot_idx].state == SlotState::kLoading;
  }
  for (const Slot& slot :
       std::span(slots).subspan(layout.layers[layer_idx].first_slot, layout.layers[layer_idx].n_slots)) {
    if (slot.state == SlotState::kFree && n_absent > 0) --n_absent;
  }
  for (size_t i = ahead.size(); i-- > 0;) {
    const Slot& slot = slots[ahead[i]];
    const bool is_here = slot.layer == layer_idx;
    if (is_here && is_demanded[slot.expert] != 0) continue;
    const bool is_guess = slot.reason == io::ReadClass::kPrediction;
    const bool wants_slot = is_here && n_absent > 0;
    if (is_guess ? is_here || must_read : wants_slot) {
      const uint32_t slot_idx = ahead[i];
      if (take_back(slot_idx)) {
        if (wants_slot) --n_absent;
      } else if (is_here) {
        cancel_parts(slot_idx);  // wrong: what is left of it would only keep the drive from the next guess
      }
    }
  }
  for (const uint32_t expert : experts) is_demanded[expert] = 0;
}

// Undoes a claim of which no byte was asked. False when the drive is at it.
bool ExpertStore::Impl::take_back(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  const uint32_t n_reads = layout.layers[slot.layer].reads.n_parts;
  if (slot.n_reads_left != n_reads || !reader->cancel_all({slot.read_ids.data(), n_reads})) return false;
  if (slot.reason == io::ReadClass::kPrediction) ++counters.dropped;
  const uint32_t in_layer = slot_idx - layout.layers[slot.layer].first_slot;
  leave_ahead(slot_idx);
  slot.expert = kNoExpert;
  slot.state = SlotState::kFree;
  slot.is_fresh = false;
  placer->set_occupant(slot.layer, in_layer, kNoExpert);
  if (slot.displaced != kNoExpert) {
    if (placer->slot_of(slot.displaced_layer, slot.displaced) == Placer::kNoSlot) {
      slot.layer = slot.displaced_layer;
      slot.expert = slot.displaced;
      slot.parts = slot.displaced_parts;
      slot.is_unused = slot.displaced_unused;
      slot.open_bytes = slot.displaced_bytes;
      slot.state = SlotState::kResident;
      placer->set_occupant(slot.layer, in_layer, slot.expert);
      slot.displaced = kNoExpert;
    } else {
      forget_displaced(slot);  // it is being read into another slot already
    }
  }
  return true;
}

// Takes back what can be of a read that has started: its slot is wanted.
void ExpertStore::Impl::cancel_parts(uint32_t slot_idx) noexcept {
  const Slot& slot = slots[slot_idx];
  for (uint32_t read = 0; read < layout.layers[slot.layer].reads.n_parts; ++read) reader->cancel(slot.read_ids[read]);
}

// A demand takes over a read that is under way for a guess or a refill.
void ExpertStore::Impl::adopt(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  OUTRIDER_CHECK(slot.is_ahead, "layer {} expert {}", slot.layer, slot.expert);
  const bool has_started = reader->promote({slot.read_ids.data(), layout.layers[slot.layer].reads.n_parts});
  leave_ahead(slot_idx);
  forget_displaced(slot);
  if (!has_started) {
    if (slot.reason == io::ReadClass::kPrediction) ++counters.dropped;
    slot.reason = io::ReadClass::kDemand;
  } else {
    slot.is_adopted = true;
    if (slot.reason == io::ReadClass::kPrediction) {
      ++counters.predicted;
      ++counters.predicted_used;
      use_prediction(slot);
    }
  }
  ++n_loading;
  ++n_missing;
  list_begun(slot_idx);
}

void ExpertStore::Impl::use_prediction(Slot& slot) noexcept {
  counters.bytes_predicted_pending -= slot.open_bytes;
  counters.bytes_predicted_used += slot.open_bytes;
  slot.open_bytes = 0;
  slot.is_unused = false;
}

void ExpertStore::Impl::waste_prediction(Slot& slot) noexcept {
  counters.bytes_predicted_pending -= slot.open_bytes;
  counters.bytes_predicted_wasted += slot.open_bytes;
  slot.open_bytes = 0;
  slot.is_unused = false;
}

// The read that took its place has started, so it is gone for good.
void ExpertStore::Impl::forget_displaced(Slot& slot) noexcept {
  if (slot.displaced == kNoExpert) return;
  slot.displaced = kNoExpert;
  ++counters.evicted;
  if (!slot.displaced_unused) return;
  ++counters.evicted_unused;
  counters.bytes_predicted_pending -= slot.displaced_bytes;
  counters.bytes_predicted_wasted += slot.displaced_bytes;
}

void ExpertStore::Impl::leave_ahead(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  slot.is_ahead = false;
  if (slot.reason == io::ReadClass::kBackground) --n_background;
  placer->set_busy(slot.layer, slot_idx - layout.layers[slot.layer].first_slot, false);
  const auto at = std::find(ahead.begin(), ahead.end(), slot_idx);
  *at = ahead.back();
  ahead.pop_back();
}

// The last byte of a guess or a refill has landed, or it has failed, before anybody demanded it.
void ExpertStore::Impl::land_ahead(uint32_t slot_idx) noexcept {
  Slot& slot = slots[slot_idx];
  leave_ahead(slot_idx);
  forget_displaced(slot);
  const bool is_guess = slot.reason == io::ReadClass::kPrediction;
  if (is_guess) ++counters.predicted;
  if (!slot.failed) {
    slot.state = SlotState::kResident;
    slot.is_unused = is_guess;
  } else {
    waste_prediction(slot);
    const uint32_t in_layer = slot_idx - layout.layers[slot.layer].first_slot;
    // A demand that waits for the slot is in its place already.
    if (placer->occupants(slot.layer)[in_layer] == placer->id_of(slot.layer, slot.expert))
      placer->set_occupant(slot.layer, in_layer, kNoExpert);
    slot.expert = kNoExpert;
    slot.state = SlotState::kFree;
    slot.is_fresh = false;
  }
  if (slot.is_blocking) {
    slot.is_blocking = false;
    --n_loading;
    claim_from_queue(slot_idx);
  }
}

void ExpertStore::Impl::pump_refill() noexcept {
  while (refill_next < refill.size() && n_background < kMaxBackground) {
    const ExpertKey key = refill[refill_next];
    if (is_open && layer == key.layer) break;  // later
    ++refill_next;
    if (placer->slot_of(key.layer, key.expert) == Placer::kNoSlot)
      find_room(key.layer, key.expert, io::ReadClass::kBackground);
  }
  submit_ahead();
}

void ExpertStore::Impl::note_demand_begin(uint32_t n_loads) noexcept {
  demand_begin = Clock::now();
  gap_ns = ns_between(idle_since, demand_begin);
  counters.idle_ns += gap_ns;
  blend(idle_ns[layer], std::max(1.0, static_cast<double>(gap_ns)));
  stall_before_ns = counters.stall_ns;
  filled_ns = 0;
  has_cover = false;
  idle_since = demand_begin;
  n_timed_loads = n_loads <= layout.layers[layer].n_slots ? n_loads : 0;
  n_stalled_loads = n_timed_loads;
}

// Only a demand that was waited for tells when its last byte landed.
void ExpertStore::Impl::note_demand_end(bool has_waited) noexcept {
  idle_since = Clock::now();
  if (has_waited && n_timed_loads > 0)
    drive_times.add(n_timed_loads, static_cast<double>(ns_between(demand_begin, idle_since)));
  n_timed_loads = 0;
}

// Compute has come to where it waits for reads, or finds that they have landed.
void ExpertStore::Impl::note_cover() noexcept {
  if (has_cover) return;
  has_cover = true;
  blend(cover_ns[layer], static_cast<double>(ns_between(demand_begin, Clock::now())));
}

void ExpertStore::Impl::note_pass_end() noexcept {
  const uint64_t stall_ns = counters.stall_ns - stall_before_ns + filled_ns;
  counters.hideable_ns += std::min(gap_ns, stall_ns);
  if (n_stalled_loads > 0) drive_times.add_stall(n_stalled_loads, cover_ns[layer], static_cast<double>(stall_ns));
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// Inside of the expert store. expert_store.cc does the demands, expert_store_ahead.cc what is read before it is
// demanded.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/page_populator.h"
#include "outrider/io/reader.h"
#include "outrider/residency/drive_times.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/placer.h"
#include "outrider/residency/slab_layout.h"

namespace outrider::residency {

// free -> loading -> pinned <-> resident -> loading (for another expert). A failed load goes back to free.
enum class SlotState : uint8_t { kFree, kLoading, kResident, kPinned };

struct Slot {
  uint32_t layer = 0;  // of the expert; in a pool it changes with it
  uint32_t expert = kNoExpert;
  uint32_t generation = 0;          // changes with every claim
  uint32_t n_reads_left = 0;        // under way
  uint8_t landed_reads = 0;         // of the load, a bit each
  bool is_begun = false;            // of the load: is in `begun`, or next_begun() has told it
  uint32_t queue_head = kNoExpert;  // experts of the open pass that take this slot afterwards, in order (rounds)
  uint32_t queue_tail = kNoExpert;
  SlotState state = SlotState::kFree;
  bool failed = false;
  io::ReadClass reason = io::ReadClass::kDemand;  // of the load
  bool is_ahead = false;                          // loading, and nobody has demanded it yet
  bool is_adopted = false;                        // loading, demanded after it had started
  bool is_blocking = false;                       // is_ahead, and the open pass waits for its end to use the slot
  bool is_unused = false;                         // resident by a prediction and not demanded yet
  bool is_fresh = false;                          // predicted for the next demand of the layer
  uint64_t open_bytes = 0;                        // that landed for a prediction whose fate is open
  std::array<const std::byte*, kMaxSlabParts> parts = {};
  std::array<io::ReadId, kMaxSlabParts> read_ids = {};  // while is_ahead
  // Whose place a prediction took. It is back again when the prediction is taken back before the drive was asked.
  uint32_t displaced = kNoExpert;
  uint32_t displaced_layer = 0;
  bool displaced_unused = false;
  uint64_t displaced_bytes = 0;
  std::array<const std::byte*, kMaxSlabParts> displaced_parts = {};
};

// Most slabs that are read ahead at one time, and most of a refill.
inline constexpr uint32_t kMaxAhead = 64;
inline constexpr uint32_t kMaxBackground = 16;

// What a read is for, carried through the reader.
struct ReadTag {
  uint32_t slot = 0;
  uint32_t read = 0;  // of the slab
  uint32_t generation = 0;
};
inline constexpr uint32_t kGenerationMask = (1U << 30) - 1;
inline uint64_t pack(const ReadTag& tag) noexcept {
  return uint64_t{tag.slot} << 32 | uint64_t{tag.read} << 30 | (tag.generation & kGenerationMask);
}
inline ReadTag unpack(uint64_t tag) noexcept {
  return {.slot = static_cast<uint32_t>(tag >> 32),
          .read = static_cast<uint32_t>(tag >> 30) & 3,
          .generation = static_cast<uint32_t>(tag) & kGenerationMask};
}

// Carries out what the placer has settled: a slot is pinned from the moment its expert is a hit or has landed until
// done(); an expert that must wait for a slot of its own pass stands in that slot's queue, so neither the order of
// reads nor that of done() can change who takes whose place.
struct ExpertStore::Impl {
  explicit Impl(StoreOptions store_options);

  void begin(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);
  std::span<const ReadySlab> next();
  std::span<const ReadySlab> next_begun() noexcept;
  void await(bool wants_begun) noexcept;
  void list_begun(uint32_t slot_idx) noexcept;
  void forget_begun(Slot& slot) noexcept;
  bool would_wait() noexcept;
  void done(std::span<const ReadySlab> slabs) noexcept;
  void close() noexcept;

  void claim_or_queue(uint32_t slot_idx, uint32_t expert) noexcept;
  void claim(uint32_t slot_idx, uint32_t expert) noexcept;
  void claim_from_queue(uint32_t slot_idx) noexcept;
  void submit_claimed() noexcept;
  void give(uint32_t slot_idx) noexcept;
  void land(const io::ReadDone& read) noexcept;
  void collect(bool wait) noexcept;
  void start_load(uint32_t slot_idx, uint32_t expert, io::ReadClass reason) noexcept;
  void push_reads(uint32_t slot_idx) noexcept;
  void count_read(Slot& slot, const io::ReadDone& read) noexcept;
  void evict(Slot& slot) noexcept;

  // expert_store_ahead.cc
  void predict(uint32_t layer_idx, std::span<const uint32_t> experts) noexcept;
  void collect_landed() noexcept;
  bool find_room(uint32_t layer_idx, uint32_t expert, io::ReadClass reason) noexcept;
  void claim_ahead(uint32_t slot_idx, ExpertKey key, io::ReadClass reason) noexcept;
  void submit_ahead() noexcept;
  void settle_ahead(uint32_t layer_idx, std::span<const uint32_t> experts) noexcept;
  bool take_back(uint32_t slot_idx) noexcept;
  void cancel_parts(uint32_t slot_idx) noexcept;
  void adopt(uint32_t slot_idx) noexcept;
  void use_prediction(Slot& slot) noexcept;
  void waste_prediction(Slot& slot) noexcept;
  void forget_displaced(Slot& slot) noexcept;
  void leave_ahead(uint32_t slot_idx) noexcept;
  void land_ahead(uint32_t slot_idx) noexcept;
  void pump_refill() noexcept;
  void note_demand_begin(uint32_t n_loads) noexcept;
  void note_demand_end(bool has_waited) noexcept;
  void note_cover() noexcept;
  void note_pass_end() noexcept;
  uint32_t pieces_in_flight(uint32_t layer_idx) const noexcept;
  AheadTimes ahead_times(uint32_t layer_idx) const noexcept;

  // Those that the open pass may use: its layer's, or the pool's.
  std::span<Slot> layer_slots() noexcept {
    return {slots.data() + layout.layers[layer].first_slot, layout.layers[layer].n_slots};
  }

  StoreOptions options;
  SlabLayout layout;
  uint32_t n_slots_per_layer = 0;
  std::optional<Placer> placer;
  StoreCounters counters;
  std::vector<std::string> warnings;
  std::vector<Slot> slots;  // all layers
  AlignedBuffer arena;      // outlives the reader, which writes into it
  std::optional<PagePopulator> populator;
  std::unique_ptr<io::Reader> reader;

  // The open pass. All of this is sized at construction.
  bool is_open = false;
  uint32_t layer = 0;
  uint32_t n_loading = 0;   // slots
  uint32_t n_pinned = 0;    // slots
  uint32_t n_missing = 0;   // demanded experts that have not landed or failed yet
  size_t n_handed_out = 0;  // of `ready`
  bool has_thrown = false;
  std::string error;  // of the first read that failed
  std::vector<ReadySlab> ready;
  std::vector<ReadySlab> begun;       // to be told by next_begun()
  std::vector<ReadySlab> told_begun;  // by its last call
  std::vector<uint32_t> queue_next;   // by expert: the one behind it in its slot's queue
  std::vector<uint32_t> occupants;    // by slot in the layer: scratch of close()
  std::vector<io::ReadRequest> requests;
  std::array<io::ReadDone, 32> reads;

  // What is read ahead of its demand.
  using Clock = std::chrono::steady_clock;
  bool looks_ahead = false;             // predict() has been called
  std::vector<uint32_t> ahead;          // slots
  uint32_t n_background = 0;            // of them
  std::vector<uint32_t> ahead_claimed;  // their reads are in `requests`, not submitted yet
  std::vector<io::ReadId> ids;          // scratch of submit_ahead()
  std::vector<uint8_t> may_leave;       // by slot in the layer: scratch of predict()
  std::vector<uint8_t> is_demanded;     // by expert: scratch of settle_ahead()
  std::vector<uint8_t> was_resident;    // by expert, for those of the last demand
  std::vector<ExpertKey> refill;        // still to be read, from refill_next on
  size_t refill_next = 0;
  std::vector<double> idle_ns;  // by layer, before its demand: a running mean
  Clock::time_point demand_begin, idle_since;
  uint64_t gap_ns = 0;           // idle time before the open pass
  uint64_t stall_before_ns = 0;  // counters.stall_ns when it began
  uint64_t filled_ns = 0;        // of the open pass: its waits in which the caller did something else
  uint32_t n_timed_loads = 0;    // of the open pass; 0: not to be timed
  uint32_t n_stalled_loads = 0;  // likewise, until the pass ends
  DriveTimes drive_times;
  std::vector<double> cover_ns;  // by layer: from a demand that reads to the first wait for it
  bool has_cover = false;        // of the open pass
};

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// Which expert is where. One owner of all expert slots: a fixed arena of `slots_per_layer` slots for each MoE layer,
// each layer's own or all shared, filled by reads, emptied by a pure policy. Words as in design.md section 4.
//
// Invariants: a pinned slot is never a victim; two slots never claim one expert; a slab is published when its last byte
// has landed; a slot is not claimed again while a read into it is under way, and its generation, new with every claim,
// is compared when a read lands; without
// predictions and refills, which expert is evicted for which depends on the sequence of demands alone, never on the
// order in which reads land. Threads: owned by one thread (the engine's); readers are inside.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outrider/io/copy_reads.h"
#include "outrider/io/modes.h"
#include "outrider/io/read_latency.h"
#include "outrider/residency/placer.h"

namespace outrider::io {
class FaultPlan;
}

namespace outrider::residency {

// `layer` counts MoE layers only, from 0.
struct ExpertKey {
  uint32_t layer = 0;
  uint32_t expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

inline constexpr uint32_t kMaxSlabParts = 3;

// Where one tensor stack of a layer lies: expert e at offset + e * step() of file file_idx.
struct PartSource {
  uint32_t file_idx = 0;
  uint64_t offset = 0;
  uint64_t n_bytes = 0;  // per expert
  uint64_t stride = 0;   // from one expert to the next; 0: n_bytes (a plain stack)
  uint64_t step() const noexcept { return stride != 0 ? stride : n_bytes; }
};

// gate, up, down; or gate_up, down; in that order. All experts of a layer have one shape. Parts of an expert that lie
// side by side in one file (a packed layer) are read in one request.
struct LayerSource {
  uint32_t n_experts = 0;
  uint32_t n_parts = 0;
  std::array<PartSource, kMaxSlabParts> parts;
};

// A resident, pinned slab: part i of the expert starts at parts[i] (any alignment).
struct ReadySlab {
  uint32_t expert = 0;
  uint32_t slot_idx = 0;
  std::array<const std::byte*, kMaxSlabParts> parts = {};
};

using io::DirectMode;
using io::IoMode;

struct StoreOptions {
  std::vector<std::string> files;                      // paths by file_idx
  std::vector<std::vector<std::string>> mirrors = {};  // copies of all of them, on other drives; io/reader.h
  std::vector<LayerSource> layers;
  uint32_t slots_per_layer = 0;  // >= the model's experts per token; capped at n_experts per layer
  SlotPool pool = SlotPool::kLayer;
  std::string policy = "lru";  // names: policy_names()
  double lfu_half_life_tokens = 256;
  IoMode io = IoMode::kAuto;
  DirectMode direct = DirectMode::kAuto;
  uint32_t queue_depth = 16;
  uint32_t populate_threads = 0;    // that have the kernel give the arena's pages, in the background
  io::FaultPlan* faults = nullptr;  // tests only; outlives the store
};

// Running totals since the store was made, but for bytes_predicted_pending, which is a current value. Bytes are counted
// where they move, and every byte read is in exactly one class:
// bytes_read = bytes_demand + bytes_predicted_used + bytes_predicted_wasted + bytes_predicted_pending +
// bytes_background.
struct StoreCounters {
  uint64_t demanded = 0, hits = 0, misses = 0;  // expert demands (one per distinct expert, layer and pass)
  uint64_t bytes_read = 0;                      // payload bytes that landed in slots
  uint64_t bytes_demand = 0;
  uint64_t bytes_predicted_used = 0;     // of predictions that were demanded while resident or loading
  uint64_t bytes_predicted_wasted = 0;   // of predictions that left, or failed, before a demand
  uint64_t bytes_predicted_pending = 0;  // of predictions whose fate is open
  uint64_t bytes_background = 0;         // refill of a warm start
  uint64_t predicted = 0;                // slabs read for predictions (asked of the drive and not taken back)
  uint64_t predicted_used = 0;           // of those, demanded while resident or loading
  uint64_t predicted_in_time = 0;        // of those, resident when demanded
  uint64_t admitted = 0;                 // predictions that got a slot
  uint64_t dropped = 0;                  // predictions refused a slot, or taken back before the drive was asked
  uint64_t evicted = 0;                  // resident slabs that left for another
  uint64_t evicted_unused = 0;           // of those, predicted and never demanded
  uint64_t reads = 0, read_retries = 0;  // asked of the kernel; of those, repeats (interrupt, short, error)
  uint64_t stall_ns = 0;                 // compute waited for bytes
  uint64_t idle_ns = 0;                  // before the demands, while no demanded byte was on its way
  uint64_t hideable_ns = 0;              // sum over demands of min(idle time before it, stall and filled waits in it)
};

class LayerPass;

// Measured, for whoever decides what a prediction is worth, as running means. 0 = not known yet.
struct AheadTimes {
  double idle_ns = 0;   // before the layer's demand: since the demand before it had all its bytes, or the step began
  double start_ns = 0;  // a demand for n slabs has its last byte after start_ns + n slab_ns
  double slab_ns = 0;
  double cover_ns = 0;  // of that, what passes while the hits are computed
  double stalled = 1;   // of the rest, the share that really was waited for
  double piece_ns = 0;  // of what is in flight for guesses and cannot be taken back
  double copy_ns = 0;   // processor time that reading a slab takes
};

class ExpertStore {
 public:
  explicit ExpertStore(StoreOptions options);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // Demands a set of distinct experts of one layer, in any number: those that do not fit at once are done in rounds.
  // `uses[i]` = how many tokens of the pass chose expert_ids[i] (policies count them). Hits are pinned and reads for
  // the misses are queued before this returns. One LayerPass may be open at a time; it must not outlive the store.
  LayerPass begin(uint32_t layer, std::span<const uint32_t> expert_ids, std::span<const uint32_t> uses);

  // The tokens of the next demands are known: idle time counts from here.
  void begin_step() noexcept;
  // Tells the policies that `n_tokens` tokens have been processed (decay runs on this clock).
  void end_step(uint32_t n_tokens) noexcept;

  // The layer's next demand may hold these experts, best guess first. Reads those that are not there in the prediction
  // class: in time in which the drive has nothing that was demanded. A guess goes into a free slot or that of the
  // coldest expert whom policy and guard (guard.h) let go, never into a pinned slot, that of an expert which the open
  // pass demands, or that of another guess for the same demand; at most half of a layer's slots hold unused guesses.
  // What finds no room is dropped, without a read and without an eviction. When the demand comes, a guess is
  //   a hit, used in time, when it is resident;
  //   a miss, used, when its read has started: the demand takes that read over, at a demand's priority;
  //   a miss, dropped, when its read has not started: it becomes a demand read;
  //   taken back with its eviction, and dropped, when it was not demanded and its read has not started. A demand that
  //   must read takes back guesses for other layers likewise.
  // A guess whose read fails frees its slot and is told nowhere. An empty list only collects what has landed.
  void predict(uint32_t layer, std::span<const uint32_t> expert_ids) noexcept;
  // Reads these experts in the background class while slots of their layers are free, in order.
  void refill(std::vector<ExpertKey> experts);

  bool is_resident(uint32_t layer, uint32_t expert) const noexcept;
  // Resident or on its way.
  bool has_place(uint32_t layer, uint32_t expert) const noexcept;
  // Of an expert of the last begin(): whether it was resident then.
  bool was_resident(uint32_t expert) const noexcept;
  uint32_t n_reads_ahead() const noexcept;  // slabs: guesses and refills under way, as of the last call that collected
  AheadTimes ahead_times(uint32_t layer) const noexcept;
  // Decayed count of demands.
  double heat(uint32_t layer, uint32_t expert) const noexcept;

  const StoreCounters& counters() const noexcept;
  io::ReadLatency read_latency() const noexcept;
  std::vector<io::CopyReads> copy_reads() const;  // the files themselves, then the mirrors
  uint32_t slots_per_layer() const noexcept;      // after capping; of a pool, each layer's share
  uint64_t arena_bytes() const noexcept;
  // What opening found, one line each: "io: io_uring refused (EPERM), using threads", "direct reads refused on FILE
  // (EINVAL), using buffered".
  const std::vector<std::string>& warnings() const noexcept;

  // Bytes of arena for `slots` slots per layer: for the plan, before anything is opened.
  static uint64_t arena_bytes_for(std::span<const LayerSource> layers, uint32_t slots, DirectMode direct,
                                  SlotPool pool = SlotPool::kLayer);

 private:
  friend class LayerPass;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One layer's demand. Move-only. Usage: while (auto slabs = pass.next(); !slabs.empty()) { compute; pass.done(slabs); }
class LayerPass {
 public:
  LayerPass(LayerPass&&) noexcept;
  LayerPass& operator=(LayerPass&&) = delete;
  ~LayerPass();  // unpins what is left and lets queued reads of this pass finish or lapse

  // Slabs that are resident now and have not been handed out: hits first, then as reads land; waits (counted as stall)
  // when none is. Empty when every demanded expert has been handed out. Results must not depend on the order.
  // Throws Error(kIo) naming file, offset, wanted and got when a read failed for good; the store stays usable.
  std::span<const ReadySlab> next();
  // Slabs all of whose parts but the last (down) have landed, each told once, for the caller who can begin with them;
  // next() has them once more, whole. Their slots stay *loading*, so nobody else gets them; what has landed may be read
  // until the pass is called again. Waits (counted as stall) until there is such a slab, or next() need not wait: then
  // empty. Never has a slab that is read in one piece with its last part (a packed layer).
  std::span<const ReadySlab> next_begun() noexcept;
  // Whether next_begun() has something to tell. As of the last call that collected what has landed.
  bool has_begun() const noexcept;
  // Whether next() would wait: for the caller who has something else to do.
  bool would_wait() noexcept;
  // The caller did something else for so long while next() would have waited: no stall, but time that the reads took.
  void note_filled(std::chrono::nanoseconds time) noexcept;
  // Unpins slabs that next() returned; their bytes may be replaced from now on.
  void done(std::span<const ReadySlab> slabs) noexcept;

 private:
  friend class ExpertStore;
  explicit LayerPass(ExpertStore::Impl& store) noexcept : store_(&store) {}
  ExpertStore::Impl* store_;
};

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// Which expert takes which slot: the pure half of the store. A demand is settled whole, from the sequence of demands
// alone, before a byte is read, so the store and a simulator that replays a trace come to the same hits, misses and
// victims at every step. Memory is fixed at construction. Threads: thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "outrider/residency/guard.h"
#include "outrider/residency/layer_table.h"
#include "outrider/residency/policy.h"

namespace outrider::residency {

inline constexpr uint32_t kNoExpert = UINT32_MAX;

struct Placement {
  uint32_t expert = 0;
  uint32_t slot_idx = 0;  // in the layer
};

// Whether each layer has slots of its own, or all share theirs. A shared pool is to placer, policy and guard one layer
// that has all experts: what a demand of one layer pushes out may be another's.
enum class SlotPool : uint8_t { kLayer, kGlobal };

// The experts of each layer as policies see them: n_experts itself, or one number for all.
std::vector<uint32_t> pooled_counts(std::span<const uint32_t> n_experts, SlotPool pool);

class Placer {
 public:
  // Layers may differ in their number of experts; each has min(slots_per_layer, its experts) slots, or adds as many to
  // the shared pool. slots_per_layer > 0. `policy` is one for pooled_counts().
  Placer(std::span<const uint32_t> n_experts, uint32_t slots_per_layer, std::unique_ptr<Policy> policy,
         SlotPool pool = SlotPool::kLayer);

  struct Plan {
    std::span<const Placement> hits;   // resident; in the order of the demand
    std::span<const Placement> loads;  // misses; each slot's in the order in which they take it
  };
  // `experts` are distinct. A load takes a free slot, else that of an expert which this demand does not need. When
  // there are no more of those, experts of this demand take turns (rounds): a load whose slot is named before, by a hit
  // or a load, waits until that one has been used. Coldest go first by the policy's judgement and the hottest stay, but
  // at least half of the slots take turns, so that reads run side by side. The spans hold until the next call.
  Plan place(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses);

  // Where a predicted expert may go: a free slot, else the coldest of those whose slots `may_leave` (by slot of the
  // layer) and whose expert policy and guard let go. slot_idx is kNoSlot when there is none. Changes nothing.
  uint32_t slot_for_prediction(uint32_t layer, uint32_t expert, std::span<const uint8_t> may_leave) noexcept;
  // The slot's expert is now this one (kNoExpert: none): predictions and refills, which place() did not settle.
  void set_occupant(uint32_t layer, uint32_t slot_idx, uint32_t expert) noexcept;
  // A busy slot is being read into for something that was not demanded: a demand takes it only after all others, since
  // it would have to wait.
  void set_busy(uint32_t layer, uint32_t slot_idx, bool busy) noexcept { busy_[bin(layer)][slot_idx] = busy ? 1 : 0; }
  void expect(uint32_t layer, std::span<const uint32_t> experts) noexcept {
    policy_->expect(bin(layer), ids_of(layer, experts));
  }
  uint32_t slot_of(uint32_t layer, uint32_t expert) const noexcept {
    return slot_of_.at(bin(layer), id_of(layer, expert));
  }
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  void end_step(uint32_t n_tokens) noexcept {
    policy_->end_step(n_tokens);
    guard_.end_step(n_tokens);
  }
  // Decayed count of demands.
  double heat(uint32_t layer, uint32_t expert) const noexcept { return guard_.heat(bin(layer), id_of(layer, expert)); }

  // A plan was not carried out to its end: this is what the layer's slots, or the pool's, really hold, as id_of()
  // (kNoExpert: nothing).
  void restore(uint32_t layer, std::span<const uint32_t> occupants) noexcept;

  uint32_t n_slots(uint32_t layer) const noexcept { return static_cast<uint32_t>(occupants_[bin(layer)].size()); }
  // Who holds the slots when the plan has been carried out, as id_of().
  std::span<const uint32_t> occupants(uint32_t layer) const noexcept { return occupants_[bin(layer)]; }
  // The expert's number among those that share its slots: in its layer, or in all.
  uint32_t id_of(uint32_t layer, uint32_t expert) const noexcept {
    return expert == kNoExpert ? kNoExpert : first_[layer] + expert;
  }

 private:
  enum class Role : uint8_t { kNone, kHit, kMiss, kKept };

  uint32_t bin(uint32_t layer) const noexcept { return is_pooled_ ? 0 : layer; }
  std::span<const uint32_t> ids_of(uint32_t layer, std::span<const uint32_t> experts) noexcept;
  void settle(uint32_t bin, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept;
  void rank_for_rounds(uint32_t layer, std::span<const uint32_t> experts) noexcept;
  void load_into(uint32_t layer, uint32_t slot_idx, uint32_t expert) noexcept;
  Placement take_coldest(uint32_t layer) noexcept;

  // From here on "layer" and "expert" are bin() and id_of().
  const bool is_pooled_;
  std::vector<uint32_t> first_;  // by real layer: the id of its first expert
  std::unique_ptr<Policy> policy_;
  EvictionGuard guard_;
  LayerTable<uint32_t> slot_of_;                  // the slot that an expert holds, or kNoSlot
  std::vector<std::vector<uint32_t>> occupants_;  // by layer and slot: its expert, or kNoExpert
  std::vector<std::vector<uint8_t>> busy_;        // beside it

  // Scratch of one call; sized at construction.
  std::vector<uint32_t> ids_;
  std::vector<Role> role_;  // by expert: its part in this demand
  std::vector<Placement> hits_;
  std::vector<Placement> loads_;
  std::vector<uint32_t> misses_;
  std::vector<uint32_t> hot_hits_;         // from cold to hot
  std::vector<uint32_t> candidates_;       // what the policy chooses from
  std::vector<uint32_t> candidate_slots_;  // beside it
};

}  // namespace outrider::residency

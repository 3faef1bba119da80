// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/placer.h"

#include <algorithm>
#include <numeric>

#include "outrider/base/check.h"

namespace outrider::residency {

std::vector<uint32_t> pooled_counts(std::span<const uint32_t> n_experts, SlotPool pool) {
  std::vector<uint32_t> counts(n_experts.begin(), n_experts.end());
  if (pool == SlotPool::kGlobal) counts = {std::accumulate(counts.begin(), counts.end(), 0U)};
  return counts;
}

Placer::Placer(std::span<const uint32_t> n_experts, uint32_t slots_per_layer, std::unique_ptr<Policy> policy,
               SlotPool pool)
    : is_pooled_(pool == SlotPool::kGlobal),
      policy_(std::move(policy)),
      guard_(pooled_counts(n_experts, pool)),
      slot_of_(pooled_counts(n_experts, pool), kNoSlot) {
  OUTRIDER_CHECK(slots_per_layer > 0);
  uint32_t n_pooled = 0;
  for (const uint32_t n : n_experts) {
    const uint32_t n_slots = std::min(n, slots_per_layer);
    first_.push_back(is_pooled_ ? n_pooled : 0);
    n_pooled += n;
    if (!is_pooled_ || occupants_.empty()) occupants_.emplace_back();
    occupants_.back().resize(occupants_.back().size() + n_slots, kNoExpert);
  }
  for (const std::vector<uint32_t>& occupants : occupants_) busy_.emplace_back(occupants.size(), 0);
  const uint32_t max_experts = is_pooled_ ? n_pooled : *std::ranges::max_element(n_experts);
  ids_.reserve(max_experts);
  role_.assign(max_experts, Role::kNone);
  hits_.reserve(max_experts);
  loads_.reserve(max_experts);
  misses_.reserve(max_experts);
  hot_hits_.reserve(max_experts);
  candidates_.reserve(max_experts);
  candidate_slots_.reserve(max_experts);
}

std::span<const uint32_t> Placer::ids_of(uint32_t layer, std::span<const uint32_t> experts) noexcept {
  if (!is_pooled_) return experts;
  ids_.clear();
  for (const uint32_t expert : experts) ids_.push_back(id_of(layer, expert));
  return ids_;
}

Placer::Plan Placer::place(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) {
  settle(bin(layer), ids_of(layer, experts), uses);
  for (Placement& hit : hits_) hit.expert -= first_[layer];
  for (Placement& load : loads_) load.expert -= first_[layer];
  return {.hits = hits_, .loads = loads_};
}

void Placer::settle(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept {
  hits_.clear();
  loads_.clear();
  misses_.clear();
  policy_->observe(layer, experts, uses);
  guard_.observe(layer, experts, uses);
  for (const uint32_t expert : experts) {
    const uint32_t slot_idx = slot_of_.at(layer, expert);
    OUTRIDER_CHECK(role_[expert] == Role::kNone, "layer {} expert {} is demanded twice", layer, expert);
    role_[expert] = slot_idx == kNoSlot ? Role::kMiss : Role::kHit;
    if (slot_idx == kNoSlot) {
      misses_.push_back(expert);
    } else {
      hits_.push_back({.expert = expert, .slot_idx = slot_idx});
    }
  }
  if (!misses_.empty()) {
    const std::vector<uint32_t>& occupants = occupants_[layer];
    if (experts.size() > occupants.size()) rank_for_rounds(layer, experts);
    auto miss = misses_.begin();
    candidates_.clear();
    candidate_slots_.clear();
    for (uint32_t slot_idx = 0; slot_idx < occupants.size() && miss != misses_.end(); ++slot_idx) {
      const uint32_t occupant = occupants[slot_idx];
      if (occupant == kNoExpert) {
        load_into(layer, slot_idx, *miss++);
      } else if (role_[occupant] == Role::kNone && busy_[layer][slot_idx] == 0) {
        candidates_.push_back(occupant);
        candidate_slots_.push_back(slot_idx);
      }
    }
    for (bool is_first_round = true; miss != misses_.end(); is_first_round = false) {
      while (miss != misses_.end() && !candidates_.empty()) load_into(layer, take_coldest(layer).slot_idx, *miss++);
      if (is_first_round) {
        for (uint32_t slot_idx = 0; slot_idx < occupants.size() && miss != misses_.end(); ++slot_idx) {
          if (busy_[layer][slot_idx] == 0 || role_[occupants[slot_idx]] != Role::kNone) continue;
          load_into(layer, slot_idx, *miss++);
        }
      }
      // A new round: each slot that takes turns is used once more.
      for (uint32_t slot_idx = 0; slot_idx < occupants.size() && miss != misses_.end(); ++slot_idx) {
        if (role_[occupants[slot_idx]] == Role::kKept) continue;
        candidates_.push_back(occupants[slot_idx]);
        candidate_slots_.push_back(slot_idx);
      }
    }
  }
  for (const uint32_t expert : experts) role_[expert] = Role::kNone;
}

// The demand does not fit: orders the misses from cold to hot, and marks the hits that keep their slots.
void Placer::rank_for_rounds(uint32_t layer, std::span<const uint32_t> experts) noexcept {
  candidates_.assign(experts.begin(), experts.end());
  candidate_slots_.assign(experts.size(), kNoSlot);
  misses_.clear();
  hot_hits_.clear();
  const size_t n_slots = occupants_[layer].size();
  while (!candidates_.empty()) {
    const bool is_hot = candidates_.size() <= n_slots;
    const uint32_t expert = take_coldest(layer).expert;
    if (role_[expert] == Role::kMiss) {
      misses_.push_back(expert);
    } else if (is_hot) {
      hot_hits_.push_back(expert);
    }
  }
  const size_t n_kept = std::min(hot_hits_.size(), n_slots / 2);
  for (size_t i = hot_hits_.size() - n_kept; i < hot_hits_.size(); ++i) role_[hot_hits_[i]] = Role::kKept;
}

uint32_t Placer::slot_for_prediction(uint32_t real_layer, uint32_t real_expert,
                                     std::span<const uint8_t> may_leave) noexcept {
  const uint32_t layer = bin(real_layer), expert = id_of(real_layer, real_expert);
  const std::vector<uint32_t>& occupants = occupants_[layer];
  candidates_.clear();
  candidate_slots_.clear();
  for (uint32_t slot_idx = 0; slot_idx < occupants.size(); ++slot_idx) {
    if (may_leave[slot_idx] == 0) continue;
    const uint32_t occupant = occupants[slot_idx];
    if (occupant == kNoExpert) return slot_idx;
    if (!guard_.admits(layer, expert, occupant) || !policy_->admit(layer, expert, occupant)) continue;
    candidates_.push_back(occupant);
    candidate_slots_.push_back(slot_idx);
  }
  return candidates_.empty() ? kNoSlot : take_coldest(layer).slot_idx;
}

void Placer::set_occupant(uint32_t real_layer, uint32_t slot_idx, uint32_t real_expert) noexcept {
  const uint32_t layer = bin(real_layer), expert = id_of(real_layer, real_expert);
  const uint32_t before = occupants_[layer][slot_idx];
  if (before != kNoExpert && slot_of_.at(layer, before) == slot_idx) slot_of_.at(layer, before) = kNoSlot;
  occupants_[layer][slot_idx] = expert;
  if (expert != kNoExpert) slot_of_.at(layer, expert) = slot_idx;
}

void Placer::load_into(uint32_t layer, uint32_t slot_idx, uint32_t expert) noexcept {
  uint32_t& occupant = occupants_[layer][slot_idx];
  if (occupant != kNoExpert) slot_of_.at(layer, occupant) = kNoSlot;
  occupant = expert;
  slot_of_.at(layer, expert) = slot_idx;
  loads_.push_back({.expert = expert, .slot_idx = slot_idx});
}

Placement Placer::take_coldest(uint32_t layer) noexcept {
  const uint32_t choice = policy_->victim(layer, candidates_);
  OUTRIDER_CHECK(choice < candidates_.size(), "the policy chose {} of {}", choice, candidates_.size());
  const Placement taken = {.expert = candidates_[choice], .slot_idx = candidate_slots_[choice]};
  candidates_[choice] = candidates_.back();
  candidate_slots_[choice] = candidate_slots_.back();
  candidates_.pop_back();
  candidate_slots_.pop_back();
  return taken;
}

void Placer::restore(uint32_t real_layer, std::span<const uint32_t> occupants) noexcept {
  const uint32_t layer = bin(real_layer);
  OUTRIDER_CHECK(occupants.size() == occupants_[layer].size());
  for (const uint32_t expert : occupants_[layer]) {
    if (expert != kNoExpert) slot_of_.at(layer, expert) = kNoSlot;
  }
  for (uint32_t slot_idx = 0; slot_idx < occupants.size(); ++slot_idx) {
    occupants_[layer][slot_idx] = occupants[slot_idx];
    if (occupants[slot_idx] != kNoExpert) slot_of_.at(layer, occupants[slot_idx]) = slot_idx;
  }
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// The choice that every policy makes: of some experts, the one with the smallest key. Keys end in the expert's id, so
// that there are no ties and the order of the candidates does not matter.
#pragma once

#include <cstdint>
#include <span>

namespace outrider::residency {

// Position of the expert whose `key(expert)` is smallest; `candidates` is not empty.
template <typename Key>
uint32_t coldest(std::span<const uint32_t> candidates, Key&& key) noexcept {
  uint32_t best = 0;
  auto best_key = key(candidates[0]);
  for (uint32_t i = 1; i < candidates.size(); ++i) {
    if (auto other = key(candidates[i]); other < best_key) {
      best = i;
      best_key = other;
    }
  }
  return best;
}

}  // namespace outrider::residency

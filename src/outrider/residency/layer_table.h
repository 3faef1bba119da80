// SPDX-License-Identifier: Apache-2.0
// One value for each expert of each layer, in one flat array; layers may differ in their number of experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outrider/base/check.h"

namespace outrider::residency {

template <typename T>
class LayerTable {
 public:
  LayerTable() = default;
  explicit LayerTable(std::span<const uint32_t> n_experts, T value = {}) {
    first_.push_back(0);
    for (const uint32_t n : n_experts) first_.push_back(first_.back() + n);
    values_.assign(first_.back(), value);
  }

  T& at(uint32_t layer, uint32_t expert) noexcept { return values_[index(layer, expert)]; }
  const T& at(uint32_t layer, uint32_t expert) const noexcept { return values_[index(layer, expert)]; }
  std::span<T> all() noexcept { return values_; }

 private:
  size_t index(uint32_t layer, uint32_t expert) const noexcept {
    OUTRIDER_DCHECK(layer + 1 < first_.size() && expert < first_[layer + 1] - first_[layer], "layer {} expert {}",
                    layer, expert);
    return first_[layer] + expert;
  }
  std::vector<size_t> first_;  // of each layer; one more at the end
  std::vector<T> values_;
};

}  // namespace outrider::residency

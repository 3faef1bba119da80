// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/sketch/largest_scores.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace outrider::kernels {
namespace {

constexpr uint64_t kGroup = 32;
constexpr float kNone = -std::numeric_limits<float>::infinity();

// A score and its index as one number, larger for a larger score and of equal scores for the lower index. Not of NaN.
uint64_t key_of(float score, uint64_t index) noexcept {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0F);  // no -0
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~index);
}
float score_of(uint64_t key) noexcept {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ordered & 0x80000000U) != 0 ? ordered & 0x7FFFFFFFU : ~ordered);
}
uint64_t index_of(uint64_t key) noexcept { return static_cast<uint32_t>(~key); }

void move_largest_to_front(std::span<uint64_t> keys, uint64_t n) noexcept {
  std::nth_element(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(n - 1), keys.end(), std::greater<>());
}

// The largest of 32 scores; NaN never wins. Eight lanes, so that the compiler can compare vectors.
float largest_of_group(const float* scores) noexcept {
  float lanes[8] = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
  for (uint64_t i = 0; i < kGroup; i += 8) {
    for (uint64_t l = 0; l < 8; ++l) lanes[l] = scores[i + l] > lanes[l] ? scores[i + l] : lanes[l];
  }
  return std::max(std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3])),
                  std::max(std::max(lanes[4], lanes[5]), std::max(lanes[6], lanes[7])));
}

// Takes scores, with their indices, that are not below a floor. Whenever 2 n have come together, all but the n largest
// go and the n-th is the floor.
class Collector {
 public:
  Collector(uint64_t n, float floor, std::span<uint64_t> keys) noexcept : n_(n), floor_(floor), keys_(keys) {}

  void add(std::span<const float> scores, uint64_t begin, uint64_t end) noexcept {
    for (uint64_t i = begin; i < end; ++i) {
      if (!(scores[i] >= floor_)) continue;
      keys_[count_++] = key_of(scores[i], i);
      if (count_ == 2 * n_) cut();
    }
  }

  std::span<const uint64_t> finish() noexcept {
    if (count_ > n_) cut();
    return keys_.first(count_);
  }

 private:
  void cut() noexcept {
    move_largest_to_front(keys_.first(count_), n_);
    count_ = n_;
    floor_ = score_of(keys_[n_ - 1]);
  }

  uint64_t n_;
  float floor_;
  std::span<uint64_t> keys_;
  uint64_t count_ = 0;
};

}  // namespace

uint64_t largest_scores_scratch(uint64_t n_scores, uint64_t n) noexcept { return 2 * n + n_scores / kGroup; }

uint32_t largest_scores(std::span<const float> scores, std::span<uint32_t> out, std::span<uint64_t> scratch) noexcept {
  const uint64_t n = out.size();
  if (n == 0) return 0;
  const uint64_t n_groups = scores.size() / kGroup;
  const std::span<uint64_t> groups = scratch.subspan(2 * n, n_groups);  // by their largest score
  for (uint64_t g = 0; g < n_groups; ++g) groups[g] = key_of(largest_of_group(scores.data() + g * kGroup), g);
  float floor = std::numeric_limits<float>::lowest();
  uint64_t n_visited = n_groups;
  if (n_groups > n) {
    // The largest scores of the n first groups come before every score of the other groups, and none of the n largest
    // is below the least of them.
    move_largest_to_front(groups, n);
    n_visited = n;
    floor = std::max(floor, score_of(groups[n - 1]));
  }
  Collector collector(n, floor, scratch.first(2 * n));
  for (const uint64_t group : groups.first(n_visited)) {
    collector.add(scores, index_of(group) * kGroup, (index_of(group) + 1) * kGroup);
  }
  collector.add(scores, n_groups * kGroup, scores.size());
  const std::span<const uint64_t> keys = collector.finish();
  for (uint64_t i = 0; i < keys.size(); ++i) out[i] = static_cast<uint32_t>(index_of(keys[i]));
  return static_cast<uint32_t>(keys.size());
}

}  // namespace outrider::kernels

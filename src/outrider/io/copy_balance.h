// SPDX-License-Identifier: Apache-2.0
// Which of several copies of the files (mirrors on different drives) takes the next read: the one that would be done
// first, so that the bytes split in proportion to the rates and a slow copy does not hold up the end of a demand. What
// a read takes is known from those before it that began with as many in flight: a rate alone would mislead, since a
// drive that is given few reads at a time shows a low one. Pure but for the times it is given. Threads:
// thread-compatible (the reader's mutex guards it).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace outrider::io {

class CopyBalance {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // `depth`: most reads in flight of one copy.
  CopyBalance(uint32_t n_copies, uint32_t depth) : depth_(depth), copies_(n_copies) {}

  // Whether `copy` should take a read now: it has room, and no other copy would be done with it earlier. A copy with
  // nothing to do is only refused when it would take kHopeless times as long: what it reads, others need not. Where
  // times are not known yet, having room is enough, and after kTryAgain reads of the others: a copy that was slow for a
  // while must be able to show that it no longer is.
  bool may_take(uint32_t copy) const noexcept {
    const Copy& own = copies_[copy];
    if (own.is_lost || own.n_flying >= depth_) return false;
    const double own_ns = own.next_ns();
    if (own.n_passed >= kTryAgain || own_ns <= 0) return true;
    return std::none_of(copies_.begin(), copies_.end(), [&](const Copy& other) {
      const double other_ns = other.is_lost || &other == &own ? 0 : other.next_ns();
      return other_ns > 0 && other_ns * (own.n_flying == 0 ? kHopeless : 1.0) < own_ns;
    });
  }

  // Returns how many reads of the copy are in flight with it.
  uint32_t begin(uint32_t copy, uint64_t now_ns) noexcept {
    Copy& own = copies_[copy];
    if (own.n_flying++ == 0) own.busy_since_ns = now_ns;
    for (Copy& other : copies_) ++other.n_passed;
    own.n_passed = 0;
    return own.n_flying;
  }
  // Ends a read that began on `copy` at `begin_ns` as one of n_flying, and brought `n_bytes`, from `from`: another copy
  // when its own failed.
  void end(uint32_t copy, uint32_t from, uint64_t n_bytes, uint32_t n_flying, uint64_t begin_ns,
           uint64_t now_ns) noexcept {
    copies_[from].bytes += n_bytes;
    Copy& own = copies_[copy];
    own.busy_ns += now_ns - own.busy_since_ns;
    own.busy_since_ns = now_ns;
    --own.n_flying;
    if (from != copy) return;
    double& known = own.read_ns[std::min(n_flying, kBuckets) - 1];
    const double took = static_cast<double>(std::max<uint64_t>(now_ns - begin_ns, 1));
    known = known == 0 ? took : known + kNewShare * (took - known);
  }
  // `copy` cannot be read. Returns the copy to turn to, or kNone when there is no other: then it is not given up.
  // `is_news`: it counted as readable until now.
  uint32_t lose(uint32_t copy, bool& is_news) noexcept {
    is_news = false;
    for (uint32_t other = 0; other < copies_.size(); ++other) {
      if (other == copy || copies_[other].is_lost) continue;
      is_news = !std::exchange(copies_[copy].is_lost, true);
      return other;
    }
    return kNone;
  }

  bool is_lost(uint32_t copy) const noexcept { return copies_[copy].is_lost; }
  uint32_t n_copies() const noexcept { return static_cast<uint32_t>(copies_.size()); }
  uint64_t bytes(uint32_t copy) const noexcept { return copies_[copy].bytes; }
  // Bytes per nanosecond while it had something to read; 0 = nothing read yet.
  double rate(uint32_t copy) const noexcept {
    const Copy& own = copies_[copy];
    return own.busy_ns == 0 ? 0 : static_cast<double>(own.bytes) / static_cast<double>(own.busy_ns);
  }

 private:
  static constexpr uint32_t kTryAgain = 64;
  static constexpr double kHopeless = 8;
  static constexpr uint32_t kBuckets = 32;
  static constexpr double kNewShare = 0.125;  // of the newest time in a running mean
  struct Copy {
    std::array<double, kBuckets> read_ns = {};  // by reads in flight, itself included: what one took; 0 = not known
    uint64_t bytes = 0, busy_ns = 0, busy_since_ns = 0;
    uint32_t n_flying = 0;
    uint32_t n_passed = 0;  // reads that others began since its own last
    bool is_lost = false;

    // What one more read would take. From fewer in flight it is inferred as if the drive served one after the other.
    double next_ns() const noexcept {
      const uint32_t wanted = std::min(n_flying, kBuckets - 1);
      for (uint32_t i = wanted + 1; i-- > 0;) {
        if (read_ns[i] > 0) return read_ns[i] * (wanted + 1) / (i + 1);
      }
      for (uint32_t i = wanted + 1; i < kBuckets; ++i) {
        if (read_ns[i] > 0) return read_ns[i];
      }
      return 0;
    }
  };
  const uint32_t depth_;
  std::vector<Copy> copies_;
};

}  // namespace outrider::io

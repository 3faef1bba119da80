// SPDX-License-Identifier: Apache-2.0
// What a demand for n slabs costs on this drive: start_ns + n * slab_ns, fitted by least squares to the demands that
// were waited for; old ones fade. On a drive that does one thing at a time start_ns is 0; where reads overlap it is
// what one waits for the first byte. Pure. Threads: thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>

namespace outrider::residency {

class DriveTimes {
 public:
  // A demand for n_slabs > 0 had its last byte after `ns`.
  void add(uint32_t n_slabs, double ns) noexcept {
    const auto n = static_cast<double>(n_slabs);
    // A hiccup of the machine must not pass for the drive; several in a row are a drive that has changed.
    const double most_ns = kHiccup * (start_ns_ + n * slab_ns_);
    n_hiccups_ = weight_ > kFew && ns > most_ns ? n_hiccups_ + 1 : 0;
    if (n_hiccups_ == kChanged) weight_ = n_ = ns_ = nn_ = n_ns_ = 0;
    if (weight_ > kFew) ns = std::min(ns, most_ns);
    for (double* sum : {&weight_, &n_, &ns_, &nn_, &n_ns_}) *sum *= kKeep;
    weight_ += 1;
    n_ += n;
    ns_ += ns;
    nn_ += n * n;
    n_ns_ += n * ns;
    const double mean_n = n_ / weight_, mean_ns = ns_ / weight_;
    const double spread = nn_ / weight_ - mean_n * mean_n;
    // Where all demands are alike nothing tells the two apart: then the slabs are taken to come one after the other.
    const double most = mean_ns / mean_n;
    slab_ns_ = spread < kMinSpread ? most : std::clamp((n_ns_ / weight_ - mean_n * mean_ns) / spread, 0.0, most);
    start_ns_ = mean_ns - slab_ns_ * mean_n;
  }
  // A demand for n_slabs > 0, waited for or not: the stall in it, when cover_ns of its time is usually covered.
  void add_stall(uint32_t n_slabs, double cover_ns, double stall_ns) noexcept {
    const double expected_ns = std::max(0.0, start_ns_ + static_cast<double>(n_slabs) * slab_ns_ - cover_ns);
    expected_ns_ += kNewStall * (expected_ns - expected_ns_);
    stall_ns_ += kNewStall * (std::min(stall_ns, kHiccup * expected_ns) - stall_ns_);
  }
  // The fit knows only demands that were waited for: of what it expects to be waited for, the share that really was.
  double stalled() const noexcept { return expected_ns_ > 0 ? std::min(stall_ns_ / expected_ns_, 1.0) : 1; }
  double start_ns() const noexcept { return start_ns_; }
  double slab_ns() const noexcept { return slab_ns_; }

 private:
  static constexpr double kKeep = 1 - 1.0 / 64;
  static constexpr uint32_t kChanged = 4;
  static constexpr double kNewStall = 1.0 / 128;
  static constexpr double kFew = 8, kHiccup = 3;
  static constexpr double kMinSpread = 0.05;  // of n, squared
  double weight_ = 0, n_ = 0, ns_ = 0, nn_ = 0, n_ns_ = 0;
  double start_ns_ = 0, slab_ns_ = 0;
  double expected_ns_ = 0, stall_ns_ = 0;
  uint32_t n_hiccups_ = 0;  // in a row
};

}  // namespace outrider::residency

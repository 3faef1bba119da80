// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace outrider::apps {

Progress::Progress(std::string label, bool off) : label_(std::move(label)), on_(!off && isatty(STDERR_FILENO) == 1) {}

void Progress::update(uint64_t done, uint64_t total) {
  if (!on_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int full = static_cast<int>(share * kWidth);
  std::fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%", label_.c_str(), full, "##############################", kWidth - full,
               "", 100 * share);
  std::fflush(stderr);
}

void Progress::finish() {
  if (drawn_) {
    std::fprintf(stderr, "\r%*s\r", static_cast<int>(label_.size()) + 40, "");
    std::fflush(stderr);
  }
  drawn_ = on_ = false;
}

}  // namespace outrider::apps

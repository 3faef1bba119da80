// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/stream_text.h"

#include <algorithm>

#include "outrider/text/utf8.h"

namespace outrider::text {

StreamText::StreamText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StreamText::push(std::string_view piece) {
  if (stopped_) return {};
  bytes_ += piece;
  return take(false);
}

std::string StreamText::finish() {
  if (stopped_) return {};
  return take(true);
}

// The match that ends first wins, and of those that end together the longest: the result then does not depend on how
// the text was cut into pieces, and no part of a stop string that has matched is ever shown.
std::string StreamText::take(bool last) {
  size_t pos = 0;
  while (pos < bytes_.size()) {
    const Utf8Step step = decode_utf8(bytes_, pos);
    if (step.state == Utf8Step::kCut && !last) break;
    append_utf8(held_, step.code_point);
    pos += step.n_bytes;
  }
  bytes_.erase(0, pos);

  size_t match_begin = std::string::npos;
  size_t match_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end > match_end || (end == match_end && begin >= match_begin)) continue;
    match_begin = begin, match_end = end;
    matched_ = stop;
  }
  if (match_end != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, match_begin);
    held_.clear();
    bytes_.clear();
    return shown;
  }

  size_t n_held = 0;
  if (!last) {
    for (const std::string& stop : stops_) {
      size_t n = std::min(stop.size() - 1, held_.size());
      while (n > n_held && held_.compare(held_.size() - n, n, stop, 0, n) != 0) --n;
      n_held = std::max(n_held, n);
    }
  }
  std::string shown = held_.substr(0, held_.size() - n_held);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace outrider::text

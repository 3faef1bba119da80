// SPDX-License-Identifier: Apache-2.0
// The head's product of one row in pieces, so that it can be done while something else is waited for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "outrider/engine/device.h"

namespace outrider::engine {

class HeadWork {
 public:
  // logits (n_vocab) of one row. All of it outlives the work.
  HeadWork(Device& device, const DeviceLinear& head, const Rows& in, float* logits) noexcept
      : device_(device), head_(head), in_(in), logits_(logits) {}

  bool is_done() const noexcept { return row_ == head_.w.n_rows; }
  // The next piece: some tenths of a millisecond.
  void step() noexcept { run(static_cast<uint32_t>(std::max<uint64_t>(kPieceBytes / head_.w.row_bytes, 1))); }
  void finish() noexcept { run(head_.w.n_rows); }

 private:
  static constexpr uint64_t kPieceBytes = 8U << 20;

  void run(uint32_t most_rows) noexcept {
    DeviceLinear piece = head_;
    piece.w.n_rows = std::min(most_rows, head_.w.n_rows - row_);
    if (piece.w.n_rows == 0) return;
    piece.w.data += row_ * head_.w.row_bytes;
    if (piece.bias != nullptr) piece.bias += row_;
    const LinearOp op = {&piece, logits_ + row_};
    device_.linear({&op, 1}, in_, 1);
    row_ += piece.w.n_rows;
  }

  Device& device_;
  const DeviceLinear& head_;
  const Rows in_;
  float* logits_;
  uint32_t row_ = 0;  // the first that is not done
};

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// The seam where tests make a drive misbehave. A preload library cannot see io_uring, so the seam is ours: it works the
// same for the ring and for threads. Production passes nullptr, which costs one compare a read.
// Threads: the reader's threads call it, several at a time, and so may the reader's caller, unless may_block(); an
// implementation is thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace outrider::io {

struct ReadOp {
  std::string_view path;
  uint64_t offset = 0;
  uint64_t n_bytes = 0;
  const void* address = nullptr;
  bool direct = false;
};

struct ReadFault {
  int error = 0;                    // an errno: the kernel is not asked, the read fails with it
  uint64_t max_bytes = UINT64_MAX;  // the read returns at most this many bytes; 0 looks like the end of the file
};

class FaultPlan {
 public:
  virtual ~FaultPlan() = default;
  // Whether on_read() may wait or sleep. Then only the reader's own threads read.
  virtual bool may_block() const noexcept { return false; }
  // An errno refuses the ring.
  virtual int on_ring() { return 0; }
  // An errno refuses the open.
  virtual int on_open(std::string_view path, bool direct) {
    static_cast<void>(path), static_cast<void>(direct);
    return 0;
  }
  virtual ReadFault on_read(const ReadOp& op) {
    static_cast<void>(op);
    return {};
  }
  // Keeps the completion of the request at `offset` back until this many later ones have been delivered, or until
  // nothing else is left to wait for: late and reordered reads without a clock.
  virtual uint32_t hold_completion(uint64_t offset) {
    static_cast<void>(offset);
    return 0;
  }
};

}  // namespace outrider::io

// SPDX-License-Identifier: Apache-2.0
// An io_uring for reads, nothing else: reads are pushed, handed to the kernel together, and come back in any order.
// Threads: one at a time uses it (the reader says which); only wait() may be called by others meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace outrider::io {

inline constexpr uint64_t kWakeId = UINT64_MAX;

struct RingDone {
  uint64_t id = 0;
  int64_t result = 0;  // bytes read, or -errno
};

class Ring {
 public:
  // `depth`: most reads in flight, 1..4096. When the kernel refuses a ring or its read operation, for whatever reason,
  // returns nullptr and sets `error` to the errno.
  static std::unique_ptr<Ring> make(uint32_t depth, int& error);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Queues one read; the caller keeps at most `depth` in flight. `dst` stays alive until its RingDone.
  void push(int fd, uint64_t offset, std::byte* dst, uint32_t n_bytes, uint64_t id) noexcept;
  // Hands all pushed reads to the kernel, which may not take all of them before some that are done are reaped: then
  // they stay pushed, and the result is false.
  bool submit() noexcept;
  // Reads that are done, without waiting. Returns how many it put in `out`.
  uint32_t reap(std::span<RingDone> out) noexcept;
  // Returns when a read is done that was not reaped when wait() began (or earlier, after a signal). Any thread. Where
  // others reap, what it waits for may be gone before it begins: wake() ends it then.
  void wait() const noexcept;
  // Ends every wait(), by a completion with kWakeId. Requires that all that was pushed is submitted.
  void wake() noexcept;

 private:
  struct Impl;
  explicit Ring(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outrider::io

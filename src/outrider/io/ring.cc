// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/ring.h"

#include <liburing.h>

#include <cerrno>

#include "outrider/base/check.h"

#if defined(__SANITIZE_THREAD__)
#define OUTRIDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OUTRIDER_TSAN 1
#endif
#endif
#ifdef OUTRIDER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace outrider::io {

namespace {

// liburing maps and unmaps ring memory by raw system calls, which the thread sanitizer does not see: it would report a
// race between the last user of a ring and the first user of a later one at the same addresses. These two tell it that
// the kernel lies between, page by page.
[[maybe_unused]] void for_each_ring_page(const io_uring& ring, uint32_t n_entries, void (*tell)(void*)) {
  const auto walk = [tell](void* begin, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes; at += 4096) tell(static_cast<char*>(begin) + at);
  };
  walk(ring.sq.ring_ptr, ring.sq.ring_sz);
  if (ring.cq.ring_ptr != ring.sq.ring_ptr) walk(ring.cq.ring_ptr, ring.cq.ring_sz);
  walk(ring.sq.sqes, n_entries * sizeof(io_uring_sqe));
}
void tell_mapped([[maybe_unused]] const io_uring& ring, [[maybe_unused]] uint32_t n_entries) {
#ifdef OUTRIDER_TSAN
  for_each_ring_page(ring, n_entries, __tsan_acquire);
#endif
}
void tell_unmapped([[maybe_unused]] const io_uring& ring, [[maybe_unused]] uint32_t n_entries) {
#ifdef OUTRIDER_TSAN
  for_each_ring_page(ring, n_entries, __tsan_release);
#endif
}

}  // namespace

struct Ring::Impl {
  explicit Impl(uint32_t depth) noexcept : status(io_uring_queue_init_params(depth, &ring, &params)) {
    if (status >= 0) tell_mapped(ring, params.sq_entries);
  }
  ~Impl() {
    if (status < 0) return;
    tell_unmapped(ring, params.sq_entries);
    io_uring_queue_exit(&ring);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  io_uring ring = {};
  io_uring_params params = {};
  const int status;  // 0, or -errno of the refusal
};

Ring::Ring(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Ring::~Ring() = default;

std::unique_ptr<Ring> Ring::make(uint32_t depth, int& error) {
  OUTRIDER_CHECK(depth >= 1 && depth <= 4096, "depth {}", depth);
  auto impl = std::make_unique<Impl>(depth);
  if (impl->status < 0) {
    error = -impl->status;
    return nullptr;
  }
  // Kernels before 5.6 have rings without plain reads.
  io_uring_probe* probe = io_uring_get_probe_ring(&impl->ring);
  const bool can_read = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  io_uring_free_probe(probe);
  if (!can_read) {
    error = EOPNOTSUPP;
    return nullptr;
  }
  error = 0;
  return std::unique_ptr<Ring>(new Ring(std::move(impl)));
}

void Ring::push(int fd, uint64_t offset, std::byte* dst, uint32_t n_bytes, uint64_t id) noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&impl_->ring);
  OUTRIDER_CHECK(sqe != nullptr, "more reads pushed than the ring is deep");
  io_uring_prep_read(sqe, fd, dst, n_bytes, offset);
  io_uring_sqe_set_data64(sqe, id);
}

void Ring::wake() noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&impl_->ring);
  OUTRIDER_CHECK(sqe != nullptr, "wake() of a ring with reads that were not submitted");
  io_uring_prep_nop(sqe);
  io_uring_sqe_set_data64(sqe, kWakeId);
  while (!submit()) {
  }
}

bool Ring::submit() noexcept {
  for (;;) {
    const int status = io_uring_submit(&impl_->ring);
    if (status >= 0 && io_uring_sq_ready(&impl_->ring) == 0) return true;
    // Busy: completions have to be taken before the kernel accepts more. What was not accepted stays queued.
    if (status == -EAGAIN || status == -EBUSY || status >= 0) return false;
    OUTRIDER_CHECK(status == -EINTR, "io_uring_enter: errno {}", -status);
  }
}

uint32_t Ring::reap(std::span<RingDone> out) noexcept {
  uint32_t n_done = 0;
  io_uring_cqe* cqe = nullptr;
  while (n_done < out.size() && io_uring_peek_cqe(&impl_->ring, &cqe) == 0) {
    out[n_done++] = {.id = io_uring_cqe_get_data64(cqe), .result = cqe->res};
    io_uring_cqe_seen(&impl_->ring, cqe);
  }
  return n_done;
}

// Reads no memory of the ring: the kernel does.
void Ring::wait() const noexcept {
  const int status = io_uring_enter(static_cast<unsigned>(impl_->ring.ring_fd), 0, 1, IORING_ENTER_GETEVENTS, nullptr);
  OUTRIDER_CHECK(status >= 0 || status == -EINTR || status == -EAGAIN || status == -EBUSY, "io_uring_enter: errno {}",
                 -status);
}

}  // namespace outrider::io

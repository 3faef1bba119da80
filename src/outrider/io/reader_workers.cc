// SPDX-License-Identifier: Apache-2.0
// The threads of the reader: they take pieces from the queue, ask the kernel and tell what came of it.
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "outrider/base/check.h"
#include "outrider/io/reader_impl.h"

namespace outrider::io {

namespace {

uint64_t now_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Adds what a thread has used of a processor to a sum. Owned by that thread.
class CpuMeter {
 public:
  explicit CpuMeter(std::atomic<uint64_t>& sum) noexcept : sum_(sum), last_(used()) {}
  void read() noexcept {
    const uint64_t now = used();
    sum_.fetch_add(now - last_, std::memory_order_relaxed);
    last_ = now;
  }

 private:
  static uint64_t used() noexcept {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(time.tv_nsec);
  }
  std::atomic<uint64_t>& sum_;
  uint64_t last_;
};

void wake(const RingWorker& worker) noexcept {
  const uint64_t one = 1;
  while (write(worker.wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace

// Call with the mutex held.
bool Reader::Impl::take(uint32_t copy, Piece& piece) noexcept {
  if (!balance.may_take(copy) || !queue.take(piece)) return false;
  piece.copy = copy;
  piece.taken_ns = now_ns();
  piece.n_flying = balance.begin(copy, piece.taken_ns);
  return true;
}

// Call with the mutex held. `copy`: of the worker that took it.
void Reader::Impl::finish(uint32_t copy, const Piece& piece, bool failed) {
  Piece told = piece;
  const uint64_t now = now_ns();
  latency[ReadLatency::bucket_of(now - piece.taken_ns)].fetch_add(1, std::memory_order_relaxed);
  balance.end(copy, piece.copy, piece.pos - piece.begin, piece.n_flying, piece.taken_ns, now);
  // Only the first refusal of a file is told.
  if (told.direct_error != 0 &&
      file(told.copy, told.file_idx).direct_refused.exchange(true, std::memory_order_relaxed)) {
    told.direct_error = 0;
  }
  queue.finish(told, failed);
}

// Call with the mutex held, after finish().
void Reader::Impl::tell_done() {
  n_done.store(queue.n_done(), std::memory_order_release);
  if (caller_waits && queue.n_done() != 0) done_ready.notify_one();
}

void Reader::Impl::leave_refused_direct(Piece& piece) const noexcept {
  const SourceFile& source = file(piece.copy, piece.file_idx);
  if (piece.direct && (source.block_bytes == 0 || source.direct_refused.load(std::memory_order_relaxed)))
    leave_direct(piece);
}

// After a failure for good: false when no other copy of the files is left. Else the piece goes on there, from where it
// is, and nothing more is taken for the copy that failed.
bool Reader::Impl::turn_to_other_copy(Piece& piece) noexcept {
  if (balance.n_copies() == 1) return false;
  const std::lock_guard lock(mutex);
  bool is_news = false;
  const uint32_t other = balance.lose(piece.copy, is_news);
  if (other == CopyBalance::kNone) return false;
  if (is_news) {
    piece.lost_copy = piece.copy;
    piece.lost_error = piece.error;
  }
  piece.copy = other;
  piece.error = piece.direct_error = 0;
  piece.n_errors = piece.n_interrupts = 0;
  ++piece.n_retries;
  return true;
}

void Reader::Impl::thread_loop(uint32_t copy) noexcept {
  CpuMeter meter(cpu_ns);
  std::unique_lock lock(mutex);
  while (!stopping) {
    Piece piece;
    if (!take(copy, piece)) {
      work_ready.wait(lock);
      continue;
    }
    // Which copy is the faster has changed with that.
    if (balance.n_copies() > 1 && queue.can_take()) work_ready.notify_all();
    lock.unlock();
    PieceStep step = PieceStep::kAgain;
    while (step == PieceStep::kAgain) {
      leave_refused_direct(piece);
      step = advance(piece, read_once(file_of(piece), piece.pos, {piece.dst, piece.end - piece.pos}, piece.direct,
                                      options.faults));
      if (step == PieceStep::kFailed && turn_to_other_copy(piece)) step = PieceStep::kAgain;
    }
    meter.read();
    lock.lock();
    finish(copy, piece, step == PieceStep::kFailed);
    tell_done();
    // A class may have become idle, which lets the next one start on several threads; and a thread of another copy may
    // have waited for this one to be the faster.
    if (queue.has_waiting()) work_ready.notify_all();
  }
}

// Takes pieces while there is room. Returns whether the thread should stop taking.
bool Reader::Impl::take_flights(RingWorker& worker) {
  const std::lock_guard lock(mutex);
  while (!stopping && !worker.free_flights.empty()) {
    const uint32_t flight_idx = worker.free_flights.back();
    if (!take(worker.copy, worker.flights[flight_idx].piece)) break;
    worker.free_flights.pop_back();
    worker.to_issue.push_back(flight_idx);
  }
  worker.asleep = false;  // not to be woken by itself
  wake_sleepers();
  worker.asleep = !worker.free_flights.empty();
  return stopping;
}

// Pushes the rest of a flight's piece to the ring. Returns kAgain when it is on its way, else how a fault ended it.
PieceStep Reader::Impl::issue(RingWorker& worker, uint32_t flight_idx) {
  RingWorker::Flight& flight = worker.flights[flight_idx];
  Piece& piece = flight.piece;
  for (;;) {
    leave_refused_direct(piece);
    const uint64_t n_bytes = piece.end - piece.pos;
    flight.fault = {};
    if (options.faults != nullptr) {
      flight.fault = options.faults->on_read({file_of(piece).path(), piece.pos, n_bytes, piece.dst, piece.direct});
    }
    if (flight.fault.error == 0) {
      worker.ring->push(file_of(piece).fd(), piece.pos, piece.dst, static_cast<uint32_t>(n_bytes), flight_idx);
      return PieceStep::kAgain;
    }
    const PieceStep step = advance(piece, -flight.fault.error);
    if (step != PieceStep::kAgain && !(step == PieceStep::kFailed && turn_to_other_copy(piece))) return step;
  }
}

void Reader::Impl::end_flights(RingWorker& worker) {
  if (worker.over.empty()) return;
  const std::lock_guard lock(mutex);
  for (const RingWorker::Over& end : worker.over) {
    finish(worker.copy, worker.flights[end.flight_idx].piece, end.failed);
    worker.free_flights.push_back(end.flight_idx);
  }
  worker.over.clear();
  tell_done();
}

void Reader::Impl::ring_loop(RingWorker& worker) noexcept {
  CpuMeter meter(cpu_ns);
  bool wake_armed = false;
  for (;;) {
    const bool is_stopping = take_flights(worker);
    if (is_stopping && !wake_armed && worker.to_issue.empty() && worker.free_flights.size() == worker.flights.size())
      return;
    if (!wake_armed && !is_stopping) {
      worker.ring->push(worker.wake_fd, 0, reinterpret_cast<std::byte*>(&worker.wake_value), sizeof worker.wake_value,
                        kWakeId);
      wake_armed = true;
    }
    for (const uint32_t flight_idx : worker.to_issue) {
      const PieceStep step = issue(worker, flight_idx);
      if (step != PieceStep::kAgain) worker.over.push_back({flight_idx, step == PieceStep::kFailed});
    }
    worker.to_issue.clear();
    if (!worker.over.empty()) {
      end_flights(worker);
      continue;
    }
    const uint32_t n_answers = worker.ring->submit_and_wait(worker.answers);
    for (uint32_t i = 0; i < n_answers; ++i) {
      if (worker.answers[i].id == kWakeId) {
        wake_armed = false;
        continue;
      }
      const auto flight_idx = static_cast<uint32_t>(worker.answers[i].id);
      RingWorker::Flight& flight = worker.flights[flight_idx];
      const PieceStep step =
          advance(flight.piece, apply_fault(flight.fault, worker.answers[i].result, flight.piece.dst));
      if (step == PieceStep::kAgain || (step == PieceStep::kFailed && turn_to_other_copy(flight.piece))) {
        worker.to_issue.push_back(flight_idx);
      } else {
        worker.over.push_back({flight_idx, step == PieceStep::kFailed});
      }
    }
    meter.read();
    end_flights(worker);
  }
}

// Call with the mutex held. Wakes the ring threads that could take something now.
void Reader::Impl::wake_sleepers() noexcept {
  if (!stopping && !queue.can_take()) return;
  for (const auto& worker : rings) {
    if (!worker->asleep || (!stopping && !balance.may_take(worker->copy))) continue;
    worker->asleep = false;
    wake(*worker);
  }
}

// Call with the mutex held, after the queue has changed.
void Reader::Impl::wake_workers() noexcept {
  if (rings.empty()) {
    work_ready.notify_all();
  } else {
    wake_sleepers();
  }
}

}  // namespace outrider::io

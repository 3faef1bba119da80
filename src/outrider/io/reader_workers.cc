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

// Likewise, for what the caller does of it, none of which waits: by the clock, which costs less.
class CallerMeter {
 public:
  explicit CallerMeter(std::atomic<uint64_t>& sum) noexcept : sum_(sum) {}
  ~CallerMeter() { sum_.fetch_add(now_ns() - begin_, std::memory_order_relaxed); }
  CallerMeter(const CallerMeter&) = delete;
  CallerMeter& operator=(const CallerMeter&) = delete;

 private:
  std::atomic<uint64_t>& sum_;
  const uint64_t begin_ = now_ns();
};

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

// After a failure for good; without the mutex. False when no other copy of the files is left. Else the piece goes on
// there, from where it is, and nothing more is taken for the copy that failed.
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

// Call with the mutex held.
bool Reader::Impl::may_take_flight(const RingWorker& worker) const noexcept {
  return !stopping && !worker.free_flights.empty() && balance.may_take(worker.copy) && queue.can_take();
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

void Reader::Impl::issue_taken(RingWorker& worker) noexcept {
  for (const uint32_t flight_idx : worker.to_issue) {
    const PieceStep step = issue(worker, flight_idx);
    if (step == PieceStep::kAgain) {
      worker.is_submitted = false;
    } else {
      worker.over.push_back({flight_idx, step == PieceStep::kFailed});
    }
  }
  worker.to_issue.clear();
  if (!worker.is_submitted) worker.is_submitted = worker.ring->submit();
}

void Reader::Impl::reap(RingWorker& worker) noexcept {
  const uint32_t n_answers = worker.ring->reap(worker.answers);
  for (uint32_t i = 0; i < n_answers; ++i) {
    if (worker.answers[i].id == kWakeId) continue;
    const auto flight_idx = static_cast<uint32_t>(worker.answers[i].id);
    RingWorker::Flight& flight = worker.flights[flight_idx];
    const PieceStep step = advance(flight.piece, apply_fault(flight.fault, worker.answers[i].result, flight.piece.dst));
    if (step == PieceStep::kAgain || (step == PieceStep::kFailed && turn_to_other_copy(flight.piece))) {
      worker.to_issue.push_back(flight_idx);
    } else {
      worker.over.push_back({flight_idx, step == PieceStep::kFailed});
    }
  }
}

// Call with the mutex held.
void Reader::Impl::end_flights(RingWorker& worker) {
  for (const RingWorker::Over& end : worker.over) {
    finish(worker.copy, worker.flights[end.flight_idx].piece, end.failed);
    worker.free_flights.push_back(end.flight_idx);
  }
  worker.over.clear();
  tell_done();
}

// Takes in what is done, and hands the kernel what may start now. Call with the mutex held, which it lets go of in
// between, when the ring is not busy.
void Reader::Impl::serve(RingWorker& worker, Lock& lock) noexcept {
  worker.is_busy = true;
  lock.unlock();
  reap(worker);
  lock.lock();
  for (;;) {
    end_flights(worker);
    const size_t n_retries = worker.to_issue.size();
    while (may_take_flight(worker)) {
      const uint32_t flight_idx = worker.free_flights.back();
      if (!take(worker.copy, worker.flights[flight_idx].piece)) break;
      worker.free_flights.pop_back();
      worker.to_issue.push_back(flight_idx);
    }
    if (worker.to_issue.empty() && worker.is_submitted) break;
    // Which copy is the faster has changed with that.
    if (rings.size() > 1 && worker.to_issue.size() != n_retries) work_ready.notify_all();
    lock.unlock();
    issue_taken(worker);
    reap(worker);
    lock.lock();
  }
  worker.is_busy = false;
}

// Whether the ring's thread is to serve it. Where the caller does so whenever he waits, what flies is left to him,
// unless something waits for its end to start.
bool Reader::Impl::is_my_turn(const RingWorker& worker) const noexcept {
  if (worker.is_busy) return false;
  if (!caller_reads || stopping) return worker.is_flying() || may_take_flight(worker);
  return !caller_waits && queue.has_waiting();
}

void Reader::Impl::ring_loop(RingWorker& worker) noexcept {
  CpuMeter meter(cpu_ns);
  Lock lock(mutex);
  for (;;) {
    work_ready.wait(lock, [&] { return stopping || is_my_turn(worker); });
    if (is_my_turn(worker)) {
      serve(worker, lock);
      if (caller_reads && caller_waits) done_ready.notify_one();  // he goes on with it
      if (!caller_reads && !stopping && queue.can_take()) serve_all(lock);
    }
    if (stopping && !worker.is_busy && !worker.is_flying()) return;
    meter.read();
    if (!worker.is_flying() || !(stopping || is_my_turn(worker))) continue;
    lock.unlock();
    worker.ring->wait();
    lock.lock();
  }
}

// Starts what can be started, or wakes those who will. Call with the mutex held.
void Reader::Impl::serve_all(Lock& lock) noexcept {
  for (const auto& ring : rings) {
    if (any_may_serve && !ring->is_busy && may_take_flight(*ring)) serve(*ring, lock);
  }
  if (!caller_reads || queue.has_waiting()) work_ready.notify_all();
}

// For the caller, after something may have become ready to start. Call with the mutex held.
void Reader::Impl::start_reading(Lock& lock) noexcept {
  const CallerMeter meter(cpu_ns);
  serve_all(lock);
}

// For the caller, when nothing has been told. Call with the mutex held.
void Reader::Impl::look_for_done(Lock& lock) noexcept {
  // While something waits to start, the ring's thread is at it.
  if (!caller_reads || queue.n_pending() == 0 || queue.has_waiting() || rings.front()->is_busy) return;
  const CallerMeter meter(cpu_ns);
  serve(*rings.front(), lock);
}

// Until something is done, or nothing is under way. Call with the mutex held.
void Reader::Impl::wait_for_done(Lock& lock) noexcept {
  caller_waits = true;
  while (queue.n_done() == 0 && queue.n_pending() != 0) {
    RingWorker* ring = caller_reads ? rings.front().get() : nullptr;
    if (ring == nullptr || ring->is_busy) {
      done_ready.wait(lock);
      continue;
    }
    {
      const CallerMeter meter(cpu_ns);
      serve(*ring, lock);
    }
    if (queue.n_done() != 0 || queue.n_pending() == 0) break;
    OUTRIDER_CHECK(ring->is_flying(), "{} reads wait for nothing", queue.n_pending());
    lock.unlock();
    ring->ring->wait();
    lock.lock();
  }
  caller_waits = false;
  if (caller_reads && queue.has_waiting()) work_ready.notify_all();
}

}  // namespace outrider::io

// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/reader.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/io/file.h"
#include "outrider/io/ring.h"

namespace outrider::io {

namespace {

constexpr uint32_t kMaxThreads = 16;
constexpr uint64_t kWakeId = UINT64_MAX;  // of the ring's read of the wake descriptor

struct SourceFile {
  File buffered;
  File direct;
  uint32_t block_bytes = 0;                // 0 = direct reads were refused when it was opened
  std::atomic<bool> direct_refused{false};  // found out later; alone, so relaxed is enough
};

std::string refusal_text(const std::string& path, int error) {
  return fmt::format("direct reads refused on {} ({}), using buffered", path, errno_name(error));
}

}  // namespace

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

}  // namespace

struct Reader::Impl {
  explicit Impl(const ReaderOptions& reader_options)
      : options(reader_options), files(options.files.size()), queue(options.max_requests, options.piece_bytes) {}
  ~Impl() { stop_threads(); }

  void open_files();
  void start();
  void stop_threads() noexcept;
  void thread_loop() noexcept;
  void ring_loop() noexcept;
  bool take_flights();
  PieceStep issue(uint32_t flight_idx);
  void end_flights();
  bool take(Piece& piece) noexcept;
  void finish(const Piece& piece, bool failed);
  void tell_done();
  void leave_refused_direct(Piece& piece) const noexcept;
  void wake_ring() noexcept;
  void wake_workers(bool ring_wants) noexcept;
  uint32_t collect(std::span<ReadDone> out);
  ReadSpan span_of(const ReadRequest& request) const noexcept;
  const File& file_of(const Piece& piece) const noexcept {
    return piece.direct ? files[piece.file_idx].direct : files[piece.file_idx].buffered;
  }

  const ReaderOptions options;
  std::vector<SourceFile> files;
  std::vector<std::string> warnings;

  std::mutex mutex;
  std::condition_variable work_ready;  // for the pread threads
  std::condition_variable done_ready;  // for the caller
  ReadQueue queue;                     // guarded by mutex
  bool stopping = false;               // guarded by mutex
  bool ring_asleep = false;            // guarded by mutex: the ring thread waits and could take more
  bool caller_waits = false;           // guarded by mutex
  std::array<std::atomic<uint64_t>, kLatencyBuckets> latency = {};  // relaxed: counters
  std::atomic<uint64_t> cpu_ns{0};     // relaxed: a counter
  std::atomic<uint32_t> n_done{0};     // completions in the queue; release in finish(), acquire in poll()

  // Of the ring thread.
  struct Flight {
    Piece piece;
    ReadFault fault;
  };
  struct Over {
    uint32_t flight_idx = 0;
    bool failed = false;
  };
  std::unique_ptr<Ring> ring;
  int wake_fd = -1;
  uint64_t wake_value = 0;
  std::vector<Flight> flights;
  std::vector<uint32_t> free_flights;
  std::vector<uint32_t> to_issue;
  std::vector<Over> over;
  std::vector<RingDone> answers;  // made before the thread starts: it may start as late as the token loop
  std::vector<std::thread> threads;
};

void Reader::Impl::open_files() {
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& path = options.files[i];
    SourceFile& file = files[i];
    file.buffered = File::open(path, options.faults);
    if (options.direct == DirectMode::kOff) continue;
    int error = 0;
    file.direct = File::open_direct(path, error, options.faults);
    const uint32_t block = error == 0 ? probe_direct_block(file.direct, error, options.faults) : 0;
    if (block == 0) {
      warnings.push_back(refusal_text(path, error));
    } else if (block > options.max_block_bytes) {
      warnings.push_back(fmt::format("direct reads on {} need an alignment of {} bytes, at most {} is supported here, using buffered",
                                     path, block, options.max_block_bytes));
    } else {
      file.block_bytes = block;
    }
  }
}

void Reader::Impl::start() {
  if (options.io != IoMode::kThreads) {
    int error = options.faults != nullptr ? options.faults->on_ring() : 0;
    if (error == 0) ring = Ring::make(options.queue_depth + 1, error);
    if (error == 0 && (wake_fd = eventfd(0, EFD_CLOEXEC)) < 0) error = errno;
    if (error != 0) {
      ring.reset();
      warnings.push_back(fmt::format("io: io_uring refused ({}), using threads", errno_name(error)));
    }
  }
  try {
    if (ring != nullptr) {
      flights.resize(options.queue_depth);
      free_flights.reserve(options.queue_depth);
      to_issue.reserve(options.queue_depth);
      over.reserve(options.queue_depth);
      answers.resize(options.queue_depth + 1);
      for (uint32_t i = options.queue_depth; i-- > 0;) free_flights.push_back(i);
      threads.emplace_back([this] { ring_loop(); });
    } else {
      const uint32_t n_threads = std::min(options.queue_depth, kMaxThreads);
      for (uint32_t i = 0; i < n_threads; ++i) threads.emplace_back([this] { thread_loop(); });
    }
  } catch (const std::system_error& error) {
    // Fewer pread threads than wished for read more slowly, not wrongly.
    if (threads.empty()) fail(ErrorKind::kEnvironment, "io: the system refused a thread: {}", error.what());
  }
}

void Reader::Impl::stop_threads() noexcept {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  work_ready.notify_all();
  if (wake_fd >= 0) wake_ring();
  for (std::thread& thread : threads) thread.join();
  if (wake_fd >= 0) close(wake_fd);
}

// Call with the mutex held.
bool Reader::Impl::take(Piece& piece) noexcept {
  if (!queue.take(piece)) return false;
  piece.taken_ns = now_ns();
  return true;
}

// Call with the mutex held.
void Reader::Impl::finish(const Piece& piece, bool failed) {
  Piece told = piece;
  latency[ReadLatency::bucket_of(now_ns() - piece.taken_ns)].fetch_add(1, std::memory_order_relaxed);
  // Only the first refusal of a file is told.
  if (told.direct_error != 0 && files[told.file_idx].direct_refused.exchange(true, std::memory_order_relaxed)) {
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
  if (piece.direct && files[piece.file_idx].direct_refused.load(std::memory_order_relaxed)) leave_direct(piece);
}

void Reader::Impl::thread_loop() noexcept {
  CpuMeter meter(cpu_ns);
  std::unique_lock lock(mutex);
  while (!stopping) {
    Piece piece;
    if (!take(piece)) {
      work_ready.wait(lock);
      continue;
    }
    lock.unlock();
    PieceStep step = PieceStep::kAgain;
    while (step == PieceStep::kAgain) {
      leave_refused_direct(piece);
      step = advance(piece, read_once(file_of(piece), piece.pos, {piece.dst, piece.end - piece.pos}, piece.direct,
                                      options.faults));
    }
    meter.read();
    lock.lock();
    finish(piece, step == PieceStep::kFailed);
    tell_done();
    // A class may have become idle, which lets the next one start on several threads.
    if (queue.has_waiting()) work_ready.notify_all();
  }
}

// Takes pieces while there is room. Returns whether the thread should stop taking.
bool Reader::Impl::take_flights() {
  const std::lock_guard lock(mutex);
  while (!stopping && !free_flights.empty()) {
    const uint32_t flight_idx = free_flights.back();
    if (!take(flights[flight_idx].piece)) break;
    free_flights.pop_back();
    to_issue.push_back(flight_idx);
  }
  ring_asleep = !free_flights.empty();
  return stopping;
}

// Pushes the rest of a flight's piece to the ring. Returns kAgain when it is on its way, else how a fault ended it.
PieceStep Reader::Impl::issue(uint32_t flight_idx) {
  Flight& flight = flights[flight_idx];
  Piece& piece = flight.piece;
  for (;;) {
    leave_refused_direct(piece);
    const uint64_t n_bytes = piece.end - piece.pos;
    flight.fault = {};
    if (options.faults != nullptr) {
      flight.fault = options.faults->on_read({file_of(piece).path(), piece.pos, n_bytes, piece.dst, piece.direct});
    }
    if (flight.fault.error == 0) {
      ring->push(file_of(piece).fd(), piece.pos, piece.dst, static_cast<uint32_t>(n_bytes), flight_idx);
      return PieceStep::kAgain;
    }
    const PieceStep step = advance(piece, -flight.fault.error);
    if (step != PieceStep::kAgain) return step;
  }
}

void Reader::Impl::end_flights() {
  if (over.empty()) return;
  const std::lock_guard lock(mutex);
  for (const Over& end : over) {
    finish(flights[end.flight_idx].piece, end.failed);
    free_flights.push_back(end.flight_idx);
  }
  over.clear();
  tell_done();
}

void Reader::Impl::ring_loop() noexcept {
  CpuMeter meter(cpu_ns);
  bool wake_armed = false;
  for (;;) {
    const bool is_stopping = take_flights();
    if (is_stopping && !wake_armed && to_issue.empty() && free_flights.size() == flights.size()) return;
    if (!wake_armed && !is_stopping) {
      ring->push(wake_fd, 0, reinterpret_cast<std::byte*>(&wake_value), sizeof wake_value, kWakeId);
      wake_armed = true;
    }
    for (const uint32_t flight_idx : to_issue) {
      const PieceStep step = issue(flight_idx);
      if (step != PieceStep::kAgain) over.push_back({flight_idx, step == PieceStep::kFailed});
    }
    to_issue.clear();
    if (!over.empty()) {
      end_flights();
      continue;
    }
    const uint32_t n_answers = ring->submit_and_wait(answers);
    for (uint32_t i = 0; i < n_answers; ++i) {
      if (answers[i].id == kWakeId) {
        wake_armed = false;
        continue;
      }
      const auto flight_idx = static_cast<uint32_t>(answers[i].id);
      Flight& flight = flights[flight_idx];
      const PieceStep step = advance(flight.piece, apply_fault(flight.fault, answers[i].result, flight.piece.dst));
      if (step == PieceStep::kAgain) {
        to_issue.push_back(flight_idx);
      } else {
        over.push_back({flight_idx, step == PieceStep::kFailed});
      }
    }
    meter.read();
    end_flights();
  }
}

void Reader::Impl::wake_ring() noexcept {
  const uint64_t one = 1;
  while (write(wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// After the queue has changed. `ring_wants`: the ring thread waits and could take more.
void Reader::Impl::wake_workers(bool ring_wants) noexcept {
  if (ring == nullptr) {
    work_ready.notify_all();
  } else if (ring_wants) {
    wake_ring();
  }
}

// Call with the mutex held.
uint32_t Reader::Impl::collect(std::span<ReadDone> out) {
  uint32_t n_out = 0;
  while (n_out < out.size() && queue.pop_done(out[n_out])) ++n_out;
  n_done.store(queue.n_done(), std::memory_order_release);
  return n_out;
}

ReadSpan Reader::Impl::span_of(const ReadRequest& request) const noexcept {
  const SourceFile& file = files[request.file_idx];
  const uint64_t block = file.block_bytes;
  if (block != 0 && reinterpret_cast<uintptr_t>(request.dst) % block == 0 &&
      !file.direct_refused.load(std::memory_order_relaxed)) {
    const uint64_t span_bytes = direct_span_bytes(request.offset, request.n_bytes, block);
    if (span_bytes <= request.dst_bytes) {
      const uint64_t begin = request.offset - request.offset % block;
      return {.begin = begin, .end = begin + span_bytes, .direct = true};
    }
  }
  return {.begin = request.offset, .end = request.offset + request.n_bytes, .direct = false};
}

Reader::Reader(const ReaderOptions& options) {
  if (options.queue_depth < 1 || options.queue_depth > 1024) {
    fail(ErrorKind::kBadArgument, "io: queue depth {}, wanted 1 to 1024", options.queue_depth);
  }
  OUTRIDER_CHECK(options.piece_bytes > 0 && options.piece_bytes % (64U << 10) == 0 && options.piece_bytes <= 1U << 30,
                 "piece_bytes {}", options.piece_bytes);
  impl_ = std::make_unique<Impl>(options);
  impl_->queue.set_faults(options.faults);
  impl_->open_files();
  impl_->start();
}

Reader::~Reader() = default;

bool Reader::submit(std::span<const ReadRequest> requests, std::span<ReadId> ids) {
  OUTRIDER_CHECK(ids.empty() || ids.size() == requests.size());
  bool wake = false;
  {
    const std::lock_guard lock(impl_->mutex);
    if (requests.size() > impl_->queue.n_free()) return false;
    for (size_t i = 0; i < requests.size(); ++i) {
      OUTRIDER_CHECK(requests[i].file_idx < impl_->files.size());
      const ReadId id = *impl_->queue.push(requests[i], impl_->span_of(requests[i]));
      if (!ids.empty()) ids[i] = id;
    }
    wake = impl_->ring_asleep;
    impl_->ring_asleep = false;
  }
  impl_->wake_workers(wake);
  return true;
}

bool Reader::cancel(ReadId id) {
  const std::lock_guard lock(impl_->mutex);
  const bool cancelled = impl_->queue.cancel(id);
  impl_->n_done.store(impl_->queue.n_done(), std::memory_order_release);
  return cancelled;
}

bool Reader::cancel_all(std::span<const ReadId> ids) {
  bool wake = false;
  {
    const std::lock_guard lock(impl_->mutex);
    for (const ReadId id : ids) {
      if (!impl_->queue.is_queued(id)) return false;
    }
    for (const ReadId id : ids) {
      const bool cancelled = impl_->queue.cancel(id);
      OUTRIDER_CHECK(cancelled, "a queued demand cannot be taken back");
    }
    impl_->n_done.store(impl_->queue.n_done(), std::memory_order_release);
    wake = std::exchange(impl_->ring_asleep, false);
  }
  // What waited behind them may start now.
  impl_->wake_workers(wake);
  return true;
}

bool Reader::promote(std::span<const ReadId> ids) {
  bool has_started = false;
  bool wake = false;
  {
    const std::lock_guard lock(impl_->mutex);
    for (const ReadId id : ids) {
      has_started |= !impl_->queue.is_queued(id);
      impl_->queue.promote(id);
    }
    wake = std::exchange(impl_->ring_asleep, false);
  }
  impl_->wake_workers(wake);
  return has_started;
}

void Reader::set_low_depth(uint32_t n_pieces) {
  OUTRIDER_CHECK(n_pieces > 0);
  const std::lock_guard lock(impl_->mutex);
  impl_->queue.set_low_depth(n_pieces);
}

uint32_t Reader::poll(std::span<ReadDone> out) {
  if (impl_->n_done.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(impl_->mutex);
  return impl_->collect(out);
}

uint32_t Reader::wait(std::span<ReadDone> out) {
  std::unique_lock lock(impl_->mutex);
  impl_->caller_waits = true;
  impl_->done_ready.wait(lock, [this] { return impl_->queue.n_done() != 0 || impl_->queue.n_pending() == 0; });
  impl_->caller_waits = false;
  return impl_->collect(out);
}

uint32_t Reader::n_files() const noexcept { return static_cast<uint32_t>(impl_->files.size()); }
uint64_t Reader::file_bytes(uint32_t file_idx) const noexcept { return impl_->files[file_idx].buffered.n_bytes(); }
const std::string& Reader::path(uint32_t file_idx) const noexcept { return impl_->options.files[file_idx]; }
uint32_t Reader::block_bytes(uint32_t file_idx) const noexcept {
  const SourceFile& file = impl_->files[file_idx];
  return file.direct_refused.load(std::memory_order_relaxed) ? 0 : file.block_bytes;
}
bool Reader::uses_ring() const noexcept { return impl_->ring != nullptr; }
const std::vector<std::string>& Reader::warnings() const noexcept { return impl_->warnings; }

uint64_t Reader::cpu_ns() const noexcept { return impl_->cpu_ns.load(std::memory_order_relaxed); }

ReadLatency Reader::latency() const noexcept {
  ReadLatency latency;
  for (uint32_t i = 0; i < kLatencyBuckets; ++i) latency.counts[i] = impl_->latency[i].load(std::memory_order_relaxed);
  return latency;
}

std::string Reader::error_text(const ReadDone& done) const {
  return read_error_text(path(done.file_idx), done.offset, done.n_bytes, done.got_bytes, done.error);
}

std::string Reader::direct_refused_text(uint32_t file_idx, int error) const {
  return refusal_text(path(file_idx), error);
}

}  // namespace outrider::io

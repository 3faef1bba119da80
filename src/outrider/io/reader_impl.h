// SPDX-License-Identifier: Apache-2.0
// Inside of the reader. reader.cc opens files and serves the caller, reader_workers.cc reads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "outrider/io/copy_balance.h"
#include "outrider/io/file.h"
#include "outrider/io/reader.h"
#include "outrider/io/ring.h"

namespace outrider::io {

inline constexpr uint32_t kMaxThreads = 16;  // of one copy of the files

struct SourceFile {
  File buffered;
  File direct;
  uint32_t block_bytes = 0;                 // 0 = direct reads were refused when it was opened
  std::atomic<bool> direct_refused{false};  // found out later; alone, so relaxed is enough
};

// A ring and what flies in it. There is one for each copy of the files: each drive has its own queue in the kernel.
// Whoever finds it not busy, and has set is_busy, has it until he clears that; meanwhile he may let go of the mutex.
struct RingWorker {
  struct Flight {
    Piece piece;
    ReadFault fault;
  };
  struct Over {
    uint32_t flight_idx = 0;
    bool failed = false;
  };
  uint32_t copy = 0;
  std::unique_ptr<Ring> ring;
  bool is_busy = false;      // guarded by the reader's mutex
  bool is_submitted = true;  // all that was pushed to the ring has been taken by the kernel
  std::vector<Flight> flights;
  std::vector<uint32_t> free_flights;
  std::vector<uint32_t> to_issue;
  std::vector<Over> over;
  std::vector<RingDone> answers;  // made before the thread starts: it may start as late as the token loop
  bool is_flying() const noexcept { return free_flights.size() != flights.size(); }
};

struct Reader::Impl {
  explicit Impl(const ReaderOptions& reader_options);
  ~Impl();

  void open_files();
  void start();
  bool make_rings(int& error);
  void stop_threads() noexcept;
  ReadSpan span_of(const ReadRequest& request) const noexcept;
  SourceFile& file(uint32_t copy, uint32_t file_idx) noexcept { return files[copy * options.files.size() + file_idx]; }
  const SourceFile& file(uint32_t copy, uint32_t file_idx) const noexcept {
    return files[copy * options.files.size() + file_idx];
  }
  const std::string& path(uint32_t copy, uint32_t file_idx) const noexcept {
    return copy == 0 ? options.files[file_idx] : options.mirrors[copy - 1][file_idx];
  }
  const File& file_of(const Piece& piece) const noexcept {
    const SourceFile& source = file(piece.copy, piece.file_idx);
    return piece.direct ? source.direct : source.buffered;
  }
  uint32_t collect(std::span<ReadDone> out);

  // reader_workers.cc
  using Lock = std::unique_lock<std::mutex>;
  void thread_loop(uint32_t copy) noexcept;
  void ring_loop(RingWorker& worker) noexcept;
  bool is_my_turn(const RingWorker& worker) const noexcept;
  void serve(RingWorker& worker, Lock& lock) noexcept;
  void serve_all(Lock& lock) noexcept;
  void start_reading(Lock& lock) noexcept;
  void look_for_done(Lock& lock) noexcept;
  void wait_for_done(Lock& lock) noexcept;
  bool may_take_flight(const RingWorker& worker) const noexcept;
  PieceStep issue(RingWorker& worker, uint32_t flight_idx);
  void issue_taken(RingWorker& worker) noexcept;
  void reap(RingWorker& worker) noexcept;
  void end_flights(RingWorker& worker);
  bool take(uint32_t copy, Piece& piece) noexcept;
  void finish(uint32_t copy, const Piece& piece, bool failed);
  bool turn_to_other_copy(Piece& piece) noexcept;
  void tell_done();
  void leave_refused_direct(Piece& piece) const noexcept;

  const ReaderOptions options;
  std::vector<SourceFile> files;  // copy by copy
  std::vector<std::string> warnings;

  std::mutex mutex;
  std::condition_variable work_ready;                               // for the reader's threads
  std::condition_variable done_ready;                               // for the caller
  ReadQueue queue;                                                  // guarded by mutex
  CopyBalance balance;                                              // guarded by mutex
  bool stopping = false;                                            // guarded by mutex
  bool caller_waits = false;                                        // guarded by mutex
  std::array<std::atomic<uint64_t>, kLatencyBuckets> latency = {};  // relaxed: counters
  std::atomic<uint64_t> cpu_ns{0};                                  // relaxed: a counter
  std::atomic<uint32_t> n_done{0};  // completions in the queue; release in finish(), acquire in poll()

  std::vector<std::unique_ptr<RingWorker>> rings;  // empty: pread threads
  bool any_may_serve = false;                      // rings: the caller, and the thread of another
  bool caller_reads = false;                       // there is one ring, and who waits for it serves it
  uint32_t n_uncollected = 0;                      // requests; the caller's own
  std::vector<std::thread> threads;
};

}  // namespace outrider::io

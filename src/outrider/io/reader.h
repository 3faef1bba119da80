// SPDX-License-Identifier: Apache-2.0
// Reads byte ranges of model files into caller memory, several at a time, past the page cache where that is possible.
// Why io_uring with O_DIRECT and not mmap: docs/architecture.md, "Reads".
// Inside: a ring, or pread threads when the kernel refuses one. Who submits hands the kernel what may start, and who
// waits takes in what is done: no other thread has to get a core first. A thread of the ring does both when the caller
// computes and something still waits to start. With mirrors, copies of the files on other drives, there are that many
// rings, each with a thread that takes in what is done, or that many sets of pread threads: each drive has its own
// queue, and each piece goes to the copy that would be done with it first (copy_balance.h). A copy that cannot be read
// any more is left, and its pieces go on at another.
// A request is cut into pieces of `piece_bytes` so that the drive sees a deep queue, and is told once, when its last
// byte has landed. A direct read takes the aligned superset of the range straight into the destination (no copy);
// ReadDone::data says where the wanted bytes begin. Short reads are finished, EINTR and EAGAIN repeated, EIO repeated a
// few times and then told. Threads: one thread submits, cancels and collects; the reader's own threads are inside.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outrider/io/copy_reads.h"
#include "outrider/io/modes.h"
#include "outrider/io/read_latency.h"
#include "outrider/io/read_queue.h"

namespace outrider::io {

inline constexpr uint64_t kPieceBytes = 1U << 20;

struct ReaderOptions {
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> mirrors = {};  // each: the same files, of the same bytes, in other places
  IoMode io = IoMode::kAuto;
  DirectMode direct = DirectMode::kAuto;
  uint32_t queue_depth = 16;           // reads in flight at most of each copy, 1..1024 (threads: at most 16)
  uint32_t max_requests = 256;         // requests between submit and their completion's collection
  uint64_t piece_bytes = kPieceBytes;  // a multiple of 64 KiB
  uint32_t max_block_bytes = 4096;     // a file whose direct reads need a larger alignment is read buffered
  FaultPlan* faults = nullptr;         // tests only; outlives the reader
};

// Most bytes that a direct read of [offset, offset + n_bytes) can put into its destination with blocks of `block`.
constexpr uint64_t direct_span_bytes(uint64_t offset, uint64_t n_bytes, uint64_t block) noexcept {
  const uint64_t head = offset % block;
  return (head + n_bytes + block - 1) / block * block;
}

class Reader {
 public:
  // Opens the files and starts the threads. Throws Error(kIo) for a file that cannot be opened, Error(kBadFile) for a
  // mirror of another size.
  explicit Reader(const ReaderOptions& options);
  ~Reader();  // waits for what the kernel is doing, forgets what is queued
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Queues all of `requests` (one wake-up for all) and puts their ids into `ids` unless that is empty; false, without
  // side effects, when more than max_requests would be under way. A read is direct when its file allows it, `dst` is
  // aligned and the aligned span fits dst_bytes.
  [[nodiscard]] bool submit(std::span<const ReadRequest> requests, std::span<ReadId> ids = {});
  // Takes back a request that has not started. False for demand and for what has started; either way every submitted
  // request gives exactly one completion.
  bool cancel(ReadId id);
  // Takes back all of them, if nothing of any has started; else none, and returns false.
  bool cancel_all(std::span<const ReadId> ids);
  // Makes requests of a lower class demands, started or not. Returns whether anything of any had started.
  bool promote(std::span<const ReadId> ids);
  // Most pieces in flight of reads that are no demands, > 0; ReadQueue::set_low_depth().
  void set_low_depth(uint32_t n_pieces);
  // Completions so far, at most out.size() of them. Takes no lock when nothing is under way.
  uint32_t poll(std::span<ReadDone> out);
  // As poll, but waits for the first one. 0 only when nothing is under way.
  uint32_t wait(std::span<ReadDone> out);

  uint32_t n_files() const noexcept;
  uint64_t file_bytes(uint32_t file_idx) const noexcept;
  const std::string& path(uint32_t file_idx) const noexcept;
  // Alignment of direct reads of this file; 0 = it is read buffered.
  uint32_t block_bytes(uint32_t file_idx) const noexcept;
  bool uses_ring() const noexcept;
  // Of all reads so far: from when a piece was taken up to its last byte, repeats included; or until somebody looked,
  // when nobody waited for it.
  ReadLatency latency() const noexcept;
  // Processor time of reading so far: what it takes from others when no core is idle.
  uint64_t cpu_ns() const noexcept;
  // What opening found, one line each.
  const std::vector<std::string>& warnings() const noexcept;
  // "FILE: read at offset O: wanted N bytes, got M: ..." of a failed completion.
  std::string error_text(const ReadDone& done) const;
  // What a completion with direct_error or lost_copy has found out, one line.
  std::string warning_text(const ReadDone& done) const;
  std::vector<CopyReads> copy_reads() const;  // the files themselves, then the mirrors

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outrider::io

// SPDX-License-Identifier: Apache-2.0
// Which read comes next: the pure half of the reader. Requests wait by class, are cut into pieces, and each gives one
// completion when its last byte has landed (or when it has failed and its last piece has come back).
// Order: demand before prediction before background, first in first out within a class; a lower class starts only while
// nothing of a higher one is waiting and its last piece is in flight, because a staged byte that delays a demanded one
// costs as much. What is in flight cannot be taken back, so the pieces that lower classes have in flight are limited
// (set_low_depth).
// Memory is fixed at construction. Threads: thread-compatible (the reader's mutex guards it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "outrider/io/piece.h"

namespace outrider::io {

enum class ReadClass : uint8_t { kDemand, kPrediction, kBackground };
inline constexpr uint32_t kReadClasses = 3;

// Names one request while it lives; its generation makes an old id of the same place harmless.
struct ReadId {
  uint32_t entry = 0;
  uint32_t generation = 0;
  friend bool operator==(const ReadId&, const ReadId&) = default;
};

struct ReadRequest {
  uint32_t file_idx = 0;
  uint64_t offset = 0;
  uint64_t n_bytes = 0;      // > 0
  std::byte* dst = nullptr;  // memory that stays alive and untouched until the completion
  uint64_t dst_bytes = 0;    // its size: direct reads use what lies beyond n_bytes as slack (direct_span_bytes)
  ReadClass cls = ReadClass::kDemand;
  uint64_t tag = 0;  // the caller's, handed back
};

enum class ReadStatus : uint8_t { kOk, kFailed, kCancelled };

inline constexpr uint32_t kNoCopy = UINT32_MAX;

struct ReadDone {
  ReadId id;
  uint64_t tag = 0;
  ReadStatus status = ReadStatus::kOk;
  uint32_t file_idx = 0;
  uint64_t offset = 0;
  uint64_t n_bytes = 0;
  uint64_t got_bytes = 0;           // n_bytes when kOk; when kFailed, what lay before the first byte that failed
  const std::byte* data = nullptr;  // the byte at `offset`: in dst, shifted by what alignment asked for
  int error = 0;                    // errno when kFailed; 0 = the file ended
  int direct_error = 0;             // this request found out that direct reads of its file are refused
  uint32_t copy = 0;                // of the files: where it failed, or what refuses direct reads
  uint32_t lost_copy = kNoCopy;     // this request found out that a copy of the files cannot be read, with lost_error
  int lost_error = 0;
  uint32_t n_reads = 0;    // what the kernel was asked
  uint32_t n_retries = 0;  // of those, repeats after an interrupt, a short read or an error
};

// The range the kernel is asked for: [begin, end) holds the request, aligned when direct.
struct ReadSpan {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool direct = false;
};

class ReadQueue {
 public:
  // `max_requests`: most requests between push and pop_done.
  ReadQueue(uint32_t max_requests, uint64_t piece_bytes);

  // nullopt when max_requests are in it.
  [[nodiscard]] std::optional<ReadId> push(const ReadRequest& request, const ReadSpan& span) noexcept;
  // Takes back a request of which nothing was taken yet; it completes as kCancelled. False for demand, for anything
  // already started or done, and for an id of the past.
  bool cancel(ReadId id) noexcept;
  // Whether nothing of it was taken yet. False for an id of the past.
  bool is_queued(ReadId id) const noexcept;
  // Makes a request of a lower class a demand: what is left of it goes before all lower classes. An id of the past is
  // let be.
  void promote(ReadId id) noexcept;
  // Most pieces in flight of all classes below demand, > 0. At first there is no limit.
  void set_low_depth(uint32_t n_pieces) noexcept { low_depth_ = n_pieces; }
  // The next piece to read; false when none may start now.
  [[nodiscard]] bool take(Piece& piece) noexcept;
  bool can_take() const noexcept;
  // `failed`: the piece's error says why.
  void finish(const Piece& piece, bool failed) noexcept;
  // The next completion; false when there is none.
  [[nodiscard]] bool pop_done(ReadDone& done) noexcept;

  uint32_t n_free() const noexcept { return n_free_; }  // requests that push() still takes
  uint32_t n_done() const noexcept { return n_done_; }  // completions to pop
  bool has_waiting() const noexcept {
    return lines_[0].head != kNone || lines_[1].head != kNone || lines_[2].head != kNone;
  }
  uint32_t n_pending() const noexcept { return n_pending_[0] + n_pending_[1] + n_pending_[2]; }  // not yet done
  // Tests: completions go through `faults`, which may hold them back.
  void set_faults(FaultPlan* faults) noexcept { faults_ = faults; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kFree, kQueued, kFlying, kDone };
  struct Entry {
    ReadRequest request;
    ReadSpan span;
    ReadDone done;
    uint64_t taken = 0;      // pieces have been taken up to here
    uint64_t failed_at = 0;  // position of the first byte that failed
    uint32_t n_flying = 0;   // pieces taken and not finished
    uint32_t generation = 0;
    uint32_t next = kNone;  // in its class's line, or in the free list
    State state = State::kFree;
  };
  struct Line {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };
  struct Held {
    uint32_t entry = 0;
    uint32_t n_left = 0;
  };

  void pop_head(Line& line) noexcept;
  void unlink(uint32_t entry_idx) noexcept;
  void append(Line& line, uint32_t entry_idx) noexcept;
  void complete(uint32_t entry_idx) noexcept;
  void publish(uint32_t entry_idx) noexcept;
  // The class of which a piece may be taken now; kReadClasses: none.
  uint32_t next_class() const noexcept;

  const uint64_t piece_bytes_;
  std::vector<Entry> entries_;
  std::array<Line, kReadClasses> lines_;
  std::array<uint32_t, kReadClasses> n_pending_ = {};
  std::array<uint32_t, kReadClasses> n_flying_ = {};  // pieces
  uint32_t low_depth_ = UINT32_MAX;
  uint32_t free_head_ = kNone;
  uint32_t n_free_ = 0;
  std::vector<uint32_t> done_;  // circular
  uint32_t done_begin_ = 0;
  uint32_t n_done_ = 0;
  FaultPlan* faults_ = nullptr;
  std::vector<Held> held_;
};

}  // namespace outrider::io

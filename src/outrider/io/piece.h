// SPDX-License-Identifier: Apache-2.0
// A piece is one stretch of a request that the kernel is asked for, and the rules by which it goes on after an answer.
// Pure, so that the ring, the threads and File share one set of rules and tests need no drive.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "outrider/io/fault.h"

namespace outrider::io {

inline constexpr uint32_t kMaxErrorRetries = 3;    // EIO at one position: a bus hiccup heals at once or not at all
inline constexpr uint32_t kMaxInterrupts = 10000;  // EINTR and EAGAIN in a row, so that a broken kernel cannot hang us

struct Piece {
  uint32_t entry = 0;  // of the queue
  uint32_t file_idx = 0;
  uint32_t copy = 0;         // of the files: which mirror is read
  uint64_t begin = 0;        // first byte
  uint64_t pos = 0;          // next byte to read
  uint64_t end = 0;          // ask up to here (past the end of the file at most by a block, when direct)
  uint64_t wanted_end = 0;   // done from here on
  std::byte* dst = nullptr;  // where byte `pos` goes
  bool direct = false;
  int error = 0;                    // why it failed; 0 with kFailed: the file ended
  int direct_error = 0;             // a direct read was refused with this
  uint32_t lost_copy = UINT32_MAX;  // a copy of the files failed under it, with lost_error (0: it ended early)
  int lost_error = 0;
  uint64_t taken_ns = 0;  // when it was taken from the queue, by the reader's clock
  uint32_t n_flying = 0;  // of its copy when it was taken, itself included
  uint32_t n_reads = 0;
  uint32_t n_retries = 0;
  uint32_t n_errors = 0;
  uint32_t n_interrupts = 0;
};

enum class PieceStep : uint8_t { kDone, kAgain, kFailed };

inline void leave_direct(Piece& piece) noexcept {
  piece.direct = false;
  piece.end = piece.wanted_end;
}

inline bool is_direct_refusal(int error) noexcept { return error == EINVAL || error == EOPNOTSUPP; }

// `result`: bytes read, or -errno. Requires pos < wanted_end.
inline PieceStep advance(Piece& piece, int64_t result) noexcept {
  ++piece.n_reads;
  if (result > 0) {
    piece.pos += static_cast<uint64_t>(result);
    piece.dst += result;
    piece.n_interrupts = piece.n_errors = 0;
    if (piece.pos >= piece.wanted_end) return PieceStep::kDone;
    // A direct read that stopped inside a block cannot go on from there: the page cache gives the rest.
    leave_direct(piece);
    ++piece.n_retries;
    return PieceStep::kAgain;
  }
  const int error = static_cast<int>(-result);
  piece.error = error;
  if (piece.direct && (result == 0 || is_direct_refusal(error))) {
    // Some file systems refuse or answer nothing for the block in which the file ends: ask again without O_DIRECT.
    if (error != 0) piece.direct_error = error;
    leave_direct(piece);
  } else if (error == EINTR || error == EAGAIN) {
    if (++piece.n_interrupts > kMaxInterrupts) return PieceStep::kFailed;
  } else if (error == EIO) {
    if (++piece.n_errors > kMaxErrorRetries) return PieceStep::kFailed;
  } else {
    return PieceStep::kFailed;
  }
  ++piece.n_retries;
  return PieceStep::kAgain;
}

// What the reader sees of a read that the kernel answered with `result`. Bytes that a short read hides are overwritten,
// so that code which trusts them is caught.
inline int64_t apply_fault(const ReadFault& fault, int64_t result, std::byte* dst) noexcept {
  if (result <= 0 || static_cast<uint64_t>(result) <= fault.max_bytes) return result;
  std::memset(dst + fault.max_bytes, 0xA5, static_cast<uint64_t>(result) - fault.max_bytes);
  return static_cast<int64_t>(fault.max_bytes);
}

}  // namespace outrider::io

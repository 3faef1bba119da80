// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/read_queue.h"

#include <algorithm>

#include "outrider/base/check.h"

namespace outrider::io {

namespace {

// Pieces in flight of a class with which the next one may start: the drive has work while the last piece's answer finds
// its way, and what it does first is what it was given first.
constexpr uint32_t kAlmostDone = 1;

}  // namespace

ReadQueue::ReadQueue(uint32_t max_requests, uint64_t piece_bytes)
    : piece_bytes_(piece_bytes), entries_(max_requests), n_free_(max_requests), done_(max_requests) {
  OUTRIDER_CHECK(max_requests > 0 && piece_bytes > 0);
  held_.reserve(max_requests);
  for (uint32_t i = max_requests; i-- > 0;) {
    entries_[i].next = free_head_;
    free_head_ = i;
  }
}

std::optional<ReadId> ReadQueue::push(const ReadRequest& request, const ReadSpan& span) noexcept {
  OUTRIDER_CHECK(request.n_bytes > 0 && span.begin <= request.offset && span.end >= request.offset + request.n_bytes);
  OUTRIDER_CHECK(span.end - span.begin <= request.dst_bytes, "span {} destination {}", span.end - span.begin,
                 request.dst_bytes);
  if (free_head_ == kNone) return std::nullopt;
  const uint32_t idx = free_head_;
  Entry& entry = entries_[idx];
  free_head_ = entry.next;
  --n_free_;
  const uint32_t generation = entry.generation + 1;
  entry = Entry{.request = request,
                .span = span,
                .done = {},
                .taken = span.begin,
                .generation = generation,
                .state = State::kQueued};
  entry.done.id = {.entry = idx, .generation = generation};
  entry.done.tag = request.tag;
  entry.done.file_idx = request.file_idx;
  entry.done.offset = request.offset;
  entry.done.n_bytes = request.n_bytes;
  entry.done.data = request.dst + (request.offset - span.begin);

  const auto cls = static_cast<uint32_t>(request.cls);
  append(lines_[cls], idx);
  ++n_pending_[cls];
  return entry.done.id;
}

bool ReadQueue::cancel(ReadId id) noexcept {
  if (id.entry >= entries_.size()) return false;
  Entry& entry = entries_[id.entry];
  if (entry.generation != id.generation || entry.state != State::kQueued) return false;
  if (entry.request.cls == ReadClass::kDemand) return false;
  unlink(id.entry);
  entry.done.status = ReadStatus::kCancelled;
  complete(id.entry);
  return true;
}

bool ReadQueue::is_queued(ReadId id) const noexcept {
  return id.entry < entries_.size() && entries_[id.entry].generation == id.generation &&
         entries_[id.entry].state == State::kQueued;
}

void ReadQueue::promote(ReadId id) noexcept {
  if (id.entry >= entries_.size()) return;
  Entry& entry = entries_[id.entry];
  if (entry.generation != id.generation || entry.request.cls == ReadClass::kDemand) return;
  if (entry.state != State::kQueued && entry.state != State::kFlying) return;
  const bool has_more = entry.taken < entry.span.end;
  if (has_more) unlink(id.entry);
  --n_pending_[static_cast<uint32_t>(entry.request.cls)];
  n_flying_[static_cast<uint32_t>(entry.request.cls)] -= entry.n_flying;
  n_flying_[static_cast<uint32_t>(ReadClass::kDemand)] += entry.n_flying;
  entry.request.cls = ReadClass::kDemand;
  ++n_pending_[static_cast<uint32_t>(ReadClass::kDemand)];
  if (has_more) append(lines_[static_cast<uint32_t>(ReadClass::kDemand)], id.entry);
}

void ReadQueue::append(Line& line, uint32_t entry_idx) noexcept {
  entries_[entry_idx].next = kNone;
  (line.tail == kNone ? line.head : entries_[line.tail].next) = entry_idx;
  line.tail = entry_idx;
}

// Takes an entry out of the line it waits in.
void ReadQueue::unlink(uint32_t entry_idx) noexcept {
  Line& line = lines_[static_cast<uint32_t>(entries_[entry_idx].request.cls)];
  if (line.head == entry_idx) {
    pop_head(line);
    return;
  }
  uint32_t before = line.head;
  while (entries_[before].next != entry_idx) before = entries_[before].next;
  entries_[before].next = entries_[entry_idx].next;
  if (line.tail == entry_idx) line.tail = before;
}

void ReadQueue::pop_head(Line& line) noexcept {
  line.head = entries_[line.head].next;
  if (line.head == kNone) line.tail = kNone;
}

uint32_t ReadQueue::next_class() const noexcept {
  const uint32_t n_low_flying = n_flying_[1] + n_flying_[2];
  for (uint32_t cls = 0; cls < kReadClasses; ++cls) {
    if (cls != static_cast<uint32_t>(ReadClass::kDemand) && n_low_flying >= low_depth_) break;
    if (lines_[cls].head != kNone) return cls;
    if (n_flying_[cls] > kAlmostDone) break;
  }
  return kReadClasses;
}

bool ReadQueue::can_take() const noexcept { return next_class() != kReadClasses; }

bool ReadQueue::take(Piece& piece) noexcept {
  const uint32_t cls = next_class();
  if (cls == kReadClasses) return false;
  Line& line = lines_[cls];
  const uint32_t idx = line.head;
  Entry& entry = entries_[idx];
  const uint64_t end = std::min(entry.span.end, entry.taken + piece_bytes_);
  piece = Piece{.entry = idx,
                .file_idx = entry.request.file_idx,
                .begin = entry.taken,
                .pos = entry.taken,
                .end = end,
                .wanted_end = std::min(end, entry.request.offset + entry.request.n_bytes),
                .dst = entry.request.dst + (entry.taken - entry.span.begin),
                .direct = entry.span.direct};
  entry.taken = end;
  entry.state = State::kFlying;
  ++entry.n_flying;
  ++n_flying_[cls];
  // What lies behind the last wanted byte is alignment slack; it is asked for, but never alone.
  if (entry.taken >= entry.request.offset + entry.request.n_bytes) {
    entry.taken = entry.span.end;
    pop_head(line);
  }
  return true;
}

void ReadQueue::finish(const Piece& piece, bool failed) noexcept {
  Entry& entry = entries_[piece.entry];
  ReadDone& done = entry.done;
  done.n_reads += piece.n_reads;
  done.n_retries += piece.n_retries;
  if (piece.direct_error != 0) done.direct_error = piece.direct_error, done.copy = piece.copy;
  if (piece.lost_copy != kNoCopy) done.lost_copy = piece.lost_copy, done.lost_error = piece.lost_error;
  --entry.n_flying;
  --n_flying_[static_cast<uint32_t>(entry.request.cls)];
  if (failed) {
    if (done.status != ReadStatus::kFailed || piece.pos < entry.failed_at) {
      entry.failed_at = piece.pos;
      done.error = piece.error;
      done.copy = piece.copy;
    }
    done.status = ReadStatus::kFailed;
    // The rest is not worth reading.
    if (entry.taken < entry.span.end) {
      unlink(piece.entry);
      entry.taken = entry.span.end;
    }
  }
  if (entry.n_flying == 0 && entry.taken == entry.span.end) {
    done.got_bytes =
        done.status == ReadStatus::kOk ? done.n_bytes : std::max(entry.failed_at, done.offset) - done.offset;
    complete(piece.entry);
  }
}

void ReadQueue::complete(uint32_t entry_idx) noexcept {
  entries_[entry_idx].state = State::kDone;
  --n_pending_[static_cast<uint32_t>(entries_[entry_idx].request.cls)];
  if (faults_ == nullptr) {
    publish(entry_idx);
    return;
  }
  const uint32_t n_hold = faults_->hold_completion(entries_[entry_idx].request.offset);
  if (n_hold > 0) {
    held_.push_back({.entry = entry_idx, .n_left = n_hold});
  } else {
    publish(entry_idx);
    for (Held& held : held_) --held.n_left;
  }
  const bool is_idle = n_pending() == 0;
  for (size_t i = held_.size(); i-- > 0;) {
    if (held_[i].n_left != 0 && !is_idle) continue;
    publish(held_[i].entry);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void ReadQueue::publish(uint32_t entry_idx) noexcept {
  done_[(done_begin_ + n_done_) % done_.size()] = entry_idx;
  ++n_done_;
}

bool ReadQueue::pop_done(ReadDone& done) noexcept {
  if (n_done_ == 0) return false;
  const uint32_t idx = done_[done_begin_];
  done_begin_ = (done_begin_ + 1) % static_cast<uint32_t>(done_.size());
  --n_done_;
  Entry& entry = entries_[idx];
  done = entry.done;
  entry.state = State::kFree;
  entry.next = free_head_;
  free_head_ = idx;
  ++n_free_;
  return true;
}

}  // namespace outrider::io

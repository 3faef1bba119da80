// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/io/reader_impl.h"

namespace outrider::io {

namespace {

std::string refusal_text(const std::string& path, int error) {
  return fmt::format("direct reads refused on {} ({}), using buffered", path, errno_name(error));
}

}  // namespace

Reader::Impl::Impl(const ReaderOptions& reader_options)
    : options(reader_options),
      files(options.files.size() * (1 + options.mirrors.size())),
      queue(options.max_requests, options.piece_bytes),
      balance(static_cast<uint32_t>(1 + options.mirrors.size()), options.queue_depth) {}

Reader::Impl::~Impl() { stop_threads(); }

void Reader::Impl::open_files() {
  for (uint32_t i = 0; i < files.size(); ++i) {
    const auto n_files = static_cast<uint32_t>(options.files.size());
    const uint32_t copy = i / n_files, file_idx = i % n_files;
    const std::string& name = path(copy, file_idx);
    SourceFile& source = files[i];
    source.buffered = File::open(name, options.faults);
    const uint64_t n_bytes = source.buffered.n_bytes(), wanted_bytes = files[file_idx].buffered.n_bytes();
    if (n_bytes != wanted_bytes) {
      fail(ErrorKind::kBadFile, "{}: is not a copy of {}: has {} bytes, wanted {}", name, path(0, file_idx), n_bytes,
           wanted_bytes);
    }
    if (options.direct == DirectMode::kOff) continue;
    int error = 0;
    source.direct = File::open_direct(name, error, options.faults);
    const uint32_t block = error == 0 ? probe_direct_block(source.direct, error, options.faults) : 0;
    if (block == 0) {
      warnings.push_back(refusal_text(name, error));
    } else if (block > options.max_block_bytes) {
      warnings.push_back(
          fmt::format("direct reads on {} need an alignment of {} bytes, at most {} is supported here, using buffered",
                      name, block, options.max_block_bytes));
    } else {
      source.block_bytes = block;
    }
  }
}

bool Reader::Impl::make_rings(int& error) {
  error = options.faults != nullptr ? options.faults->on_ring() : 0;
  for (uint32_t copy = 0; copy < balance.n_copies() && error == 0; ++copy) {
    auto worker = std::make_unique<RingWorker>();
    worker->copy = copy;
    worker->ring = Ring::make(options.queue_depth, error);
    rings.push_back(std::move(worker));
  }
  if (error != 0) rings.clear();
  any_may_serve = !rings.empty() && (options.faults == nullptr || !options.faults->may_block());
  caller_reads = any_may_serve && rings.size() == 1;
  return error == 0;
}

void Reader::Impl::start() {
  int error = 0;
  if (options.io != IoMode::kThreads && !make_rings(error)) {
    warnings.push_back(fmt::format("io: io_uring refused ({}), using threads", errno_name(error)));
  }
  try {
    for (const auto& worker : rings) {
      worker->flights.resize(options.queue_depth);
      worker->free_flights.reserve(options.queue_depth);
      worker->to_issue.reserve(options.queue_depth);
      worker->over.reserve(options.queue_depth);
      worker->answers.resize(options.queue_depth);
      for (uint32_t i = options.queue_depth; i-- > 0;) worker->free_flights.push_back(i);
    }
    for (const auto& worker : rings) threads.emplace_back([this, ring = worker.get()] { ring_loop(*ring); });
    if (!rings.empty()) return;
    for (uint32_t i = 0; i < std::min(options.queue_depth, kMaxThreads); ++i) {
      for (uint32_t copy = 0; copy < balance.n_copies(); ++copy)
        threads.emplace_back([this, copy] { thread_loop(copy); });
    }
  } catch (const std::system_error& refused) {
    // Fewer pread threads than wished for read more slowly, not wrongly; a copy needs its own, though.
    const size_t n_needed = balance.n_copies();
    if (threads.size() < n_needed) fail(ErrorKind::kEnvironment, "io: the system refused a thread: {}", refused.what());
  }
}

void Reader::Impl::stop_threads() noexcept {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    // Its thread may wait for a read that the caller has reaped.
    for (const auto& worker : rings) {
      if (!worker->is_busy) worker->ring->wake();
    }
  }
  work_ready.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// Call with the mutex held.
uint32_t Reader::Impl::collect(std::span<ReadDone> out) {
  uint32_t n_out = 0;
  while (n_out < out.size() && queue.pop_done(out[n_out])) ++n_out;
  n_done.store(queue.n_done(), std::memory_order_release);
  n_uncollected -= n_out;
  return n_out;
}

ReadSpan Reader::Impl::span_of(const ReadRequest& request) const noexcept {
  // Aligned for every copy that reads directly; the others leave it when they take a piece.
  uint64_t block = 0;
  for (uint32_t copy = 0; copy < balance.n_copies(); ++copy) {
    const SourceFile& source = file(copy, request.file_idx);
    if (!source.direct_refused.load(std::memory_order_relaxed)) block = std::max<uint64_t>(block, source.block_bytes);
  }
  if (block != 0 && reinterpret_cast<uintptr_t>(request.dst) % block == 0) {
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
  for (const auto& mirror : options.mirrors) {
    OUTRIDER_CHECK(mirror.size() == options.files.size(), "{} files, {} of a mirror", options.files.size(),
                   mirror.size());
  }
  impl_ = std::make_unique<Impl>(options);
  impl_->queue.set_faults(options.faults);
  impl_->open_files();
  impl_->start();
}

Reader::~Reader() = default;

bool Reader::submit(std::span<const ReadRequest> requests, std::span<ReadId> ids) {
  OUTRIDER_CHECK(ids.empty() || ids.size() == requests.size());
  Impl::Lock lock(impl_->mutex);
  if (requests.size() > impl_->queue.n_free()) return false;
  for (size_t i = 0; i < requests.size(); ++i) {
    OUTRIDER_CHECK(requests[i].file_idx < n_files());
    const ReadId id = *impl_->queue.push(requests[i], impl_->span_of(requests[i]));
    if (!ids.empty()) ids[i] = id;
  }
  impl_->n_uncollected += static_cast<uint32_t>(requests.size());
  impl_->start_reading(lock);
  return true;
}

bool Reader::cancel(ReadId id) {
  const std::lock_guard lock(impl_->mutex);
  const bool cancelled = impl_->queue.cancel(id);
  impl_->n_done.store(impl_->queue.n_done(), std::memory_order_release);
  return cancelled;
}

bool Reader::cancel_all(std::span<const ReadId> ids) {
  Impl::Lock lock(impl_->mutex);
  for (const ReadId id : ids) {
    if (!impl_->queue.is_queued(id)) return false;
  }
  for (const ReadId id : ids) {
    const bool cancelled = impl_->queue.cancel(id);
    OUTRIDER_CHECK(cancelled, "a queued demand cannot be taken back");
  }
  impl_->n_done.store(impl_->queue.n_done(), std::memory_order_release);
  impl_->start_reading(lock);  // what waited behind them
  return true;
}

bool Reader::promote(std::span<const ReadId> ids) {
  bool has_started = false;
  Impl::Lock lock(impl_->mutex);
  for (const ReadId id : ids) {
    has_started |= !impl_->queue.is_queued(id);
    impl_->queue.promote(id);
  }
  impl_->start_reading(lock);
  return has_started;
}

void Reader::set_low_depth(uint32_t n_pieces) {
  OUTRIDER_CHECK(n_pieces > 0);
  const std::lock_guard lock(impl_->mutex);
  impl_->queue.set_low_depth(n_pieces);
}

uint32_t Reader::poll(std::span<ReadDone> out) {
  if (impl_->n_uncollected == 0) return 0;
  if (impl_->n_done.load(std::memory_order_acquire) == 0 && !impl_->caller_reads) return 0;
  Impl::Lock lock(impl_->mutex);
  if (impl_->queue.n_done() == 0) impl_->look_for_done(lock);
  return impl_->collect(out);
}

uint32_t Reader::wait(std::span<ReadDone> out) {
  Impl::Lock lock(impl_->mutex);
  impl_->wait_for_done(lock);
  return impl_->collect(out);
}

uint32_t Reader::n_files() const noexcept { return static_cast<uint32_t>(impl_->options.files.size()); }
uint64_t Reader::file_bytes(uint32_t file_idx) const noexcept { return impl_->files[file_idx].buffered.n_bytes(); }
const std::string& Reader::path(uint32_t file_idx) const noexcept { return impl_->options.files[file_idx]; }
uint32_t Reader::block_bytes(uint32_t file_idx) const noexcept {
  const SourceFile& file = impl_->files[file_idx];
  return file.direct_refused.load(std::memory_order_relaxed) ? 0 : file.block_bytes;
}
bool Reader::uses_ring() const noexcept { return !impl_->rings.empty(); }

std::vector<CopyReads> Reader::copy_reads() const {
  std::vector<CopyReads> reads;
  const std::lock_guard lock(impl_->mutex);
  for (uint32_t copy = 0; copy < impl_->balance.n_copies(); ++copy) {
    reads.push_back({.path = impl_->path(copy, 0),
                     .n_bytes = impl_->balance.bytes(copy),
                     .gbps = impl_->balance.rate(copy),
                     .is_lost = impl_->balance.is_lost(copy)});
  }
  return reads;
}
const std::vector<std::string>& Reader::warnings() const noexcept { return impl_->warnings; }

uint64_t Reader::cpu_ns() const noexcept { return impl_->cpu_ns.load(std::memory_order_relaxed); }

ReadLatency Reader::latency() const noexcept {
  ReadLatency latency;
  for (uint32_t i = 0; i < kLatencyBuckets; ++i) latency.counts[i] = impl_->latency[i].load(std::memory_order_relaxed);
  return latency;
}

std::string Reader::error_text(const ReadDone& done) const {
  return read_error_text(impl_->path(done.copy, done.file_idx), done.offset, done.n_bytes, done.got_bytes, done.error);
}

std::string Reader::warning_text(const ReadDone& done) const {
  std::string text;
  if (done.direct_error != 0) text = refusal_text(impl_->path(done.copy, done.file_idx), done.direct_error);
  if (done.lost_copy == kNoCopy) return text;
  if (!text.empty()) text += "; ";
  return text + fmt::format("{}: cannot be read any more ({}): the other copies serve instead",
                            impl_->path(done.lost_copy, done.file_idx),
                            done.lost_error == 0 ? "end of file" : errno_name(done.lost_error));
}

}  // namespace outrider::io

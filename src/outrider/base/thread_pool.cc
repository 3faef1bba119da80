// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/thread_pool.h"

#include <sched.h>

#include "outrider/base/check.h"
#include "outrider/base/cpu.h"

namespace outrider {

namespace {

// About 50 microseconds of spinning: longer than the gap between two operations of a layer, shorter than a read.
constexpr uint32_t kSpins = 2000;
constexpr uint32_t kSpinsOversubscribed = 20;

void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(uint32_t n_threads, uint32_t usable_cpus)
    : n_threads_(n_threads), ranges_(std::make_unique<Range[]>(n_threads)) {
  OUTRIDER_CHECK(n_threads >= 1);
  if (usable_cpus == 0) usable_cpus = core_budget().affinity_cpus;
  oversubscribed_ = n_threads > usable_cpus;
  threads_.reserve(n_threads - 1);
  for (uint32_t worker = 1; worker < n_threads; ++worker) {
    threads_.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);  // published by the release of epoch_
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Takes tasks of `range` until it is empty: one at a time from the front of the worker's own, in quarters from the back
// of another's. Returns how many were run.
uint32_t ThreadPool::work_on(Range& range, bool is_own, uint32_t worker) noexcept {
  uint32_t n_done = 0;
  uint64_t word = range.word.load(std::memory_order_acquire);
  for (;;) {
    const auto begin = static_cast<uint32_t>(word >> 32);
    const auto end = static_cast<uint32_t>(word);
    if (begin == end) return n_done;
    const uint32_t n = is_own ? 1 : (end - begin + 3) / 4;
    const uint32_t first = is_own ? begin : end - n;
    const uint64_t left = is_own ? word + (uint64_t{1} << 32) : word - n;
    if (!range.word.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    for (uint32_t task = first; task < first + n; ++task)
      (*body_)(task, worker);  // the job cannot end before they have
    n_done += n;
    word = range.word.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(uint32_t worker) noexcept {
  uint32_t n_done = 0;
  for (uint32_t i = 0; i < n_threads_; ++i) n_done += work_on(ranges_[(worker + i) % n_threads_], i == 0, worker);
  if (n_done != 0 && n_unfinished_.fetch_sub(n_done, std::memory_order_acq_rel) == n_done) n_unfinished_.notify_one();
}

void ThreadPool::run(uint32_t n_tasks, FunctionRef<void(uint32_t, uint32_t)> body) noexcept {
  if (n_tasks == 0) return;
  if (n_threads_ == 1 || n_tasks == 1) {
    for (uint32_t task = 0; task < n_tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  n_unfinished_.store(n_tasks, std::memory_order_relaxed);
  uint64_t begin = 0;
  for (uint32_t worker = 0; worker < n_threads_; ++worker) {
    const uint64_t end = uint64_t{n_tasks} * (worker + 1) / n_threads_;
    ranges_[worker].word.store(begin << 32 | end, std::memory_order_release);
    begin = end;
  }
  epoch_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: ordered against n_sleeping_ in worker_loop
  if (n_sleeping_.load(std::memory_order_seq_cst) != 0) epoch_.notify_all();
  work(0);
  const uint32_t spins = oversubscribed_ ? kSpinsOversubscribed : kSpins;
  for (uint32_t i = 0; n_unfinished_.load(std::memory_order_acquire) != 0; ++i) {
    if (i < spins) {
      cpu_relax();
      continue;
    }
    const uint32_t n_unfinished = n_unfinished_.load(std::memory_order_acquire);
    if (n_unfinished != 0) n_unfinished_.wait(n_unfinished, std::memory_order_acquire);
  }
}

void ThreadPool::worker_loop(uint32_t worker) noexcept {
  uint32_t seen = 0;
  const uint32_t spins = oversubscribed_ ? kSpinsOversubscribed : kSpins;
  for (;;) {
    uint32_t epoch = epoch_.load(std::memory_order_acquire);
    for (uint32_t i = 0; epoch == seen && i < spins; ++i) {
      cpu_relax();
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (epoch == seen) {
      n_sleeping_.fetch_add(1, std::memory_order_seq_cst);
      epoch_.wait(seen, std::memory_order_seq_cst);
      n_sleeping_.fetch_sub(1, std::memory_order_relaxed);
      epoch = epoch_.load(std::memory_order_acquire);
      if (epoch == seen) continue;
    }
    seen = epoch;
    if (stop_.load(std::memory_order_relaxed)) return;
    work(worker);
  }
}

}  // namespace outrider

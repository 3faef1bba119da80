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

ThreadPool::ThreadPool(uint32_t n_threads, uint32_t usable_cpus) : n_threads_(n_threads) {
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

void ThreadPool::work(uint32_t worker) noexcept {
  constexpr uint64_t kCount = 0xFFFFFFFFU;
  uint64_t tickets = tickets_.load(std::memory_order_acquire);
  while ((tickets & kCount) != 0) {
    if (!tickets_.compare_exchange_weak(tickets, tickets - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The job cannot end before this task has, so body_ and n_tasks_ are those of the job.
    (*body_)(n_tasks_ - static_cast<uint32_t>(tickets & kCount), worker);
    if (n_unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) n_unfinished_.notify_one();
    tickets = tickets_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run(uint32_t n_tasks, FunctionRef<void(uint32_t, uint32_t)> body) noexcept {
  if (n_tasks == 0) return;
  if (n_threads_ == 1 || n_tasks == 1) {
    for (uint32_t task = 0; task < n_tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  n_tasks_ = n_tasks;
  n_unfinished_.store(n_tasks, std::memory_order_relaxed);
  const uint64_t job = (tickets_.load(std::memory_order_relaxed) >> 32) + 1;
  tickets_.store(job << 32 | n_tasks, std::memory_order_release);
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

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
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks_) return;
    (*body_)(task, worker);
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
  next_task_.store(0, std::memory_order_relaxed);
  n_busy_.store(n_threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: ordered against n_sleeping_ in worker_loop
  if (n_sleeping_.load(std::memory_order_seq_cst) != 0) epoch_.notify_all();
  work(0);
  const uint32_t spins = oversubscribed_ ? kSpinsOversubscribed : kSpins;
  for (uint32_t i = 0; n_busy_.load(std::memory_order_acquire) != 0; ++i) {
    if (i < spins) {
      cpu_relax();
    } else if (oversubscribed_ || i > 64 * kSpins) {
      const uint32_t busy = n_busy_.load(std::memory_order_acquire);
      if (busy != 0) n_busy_.wait(busy, std::memory_order_acquire);
    } else {
      cpu_relax();
    }
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
    if (n_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) n_busy_.notify_one();
  }
}

}  // namespace outrider

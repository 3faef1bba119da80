// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads for the token loop: fork and join in about a microsecond, no mutex, no allocation.
// run() waits for tasks, not for workers: a worker that the system has not scheduled holds nobody up, as its tasks are
// taken by the others. Workers spin for a short while after a job, then sleep on a futex until the next one. When more threads are asked
// for than processors are usable, waiting threads yield and sleep early, so that the working ones get the core.
// Threads: run() is called by one thread at a time (the owner). The owner takes part as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "outrider/base/function_ref.h"

namespace outrider {

class ThreadPool {
 public:
  // `n_threads` >= 1, the owner included. `usable_cpus` = 0: ask the system.
  explicit ThreadPool(uint32_t n_threads, uint32_t usable_cpus = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const noexcept { return n_threads_; }

  // Calls body(task, worker) once for each task in [0, n_tasks), tasks taken in rising order by whichever worker is
  // free; returns when all have returned. `worker` is in [0, n_threads). body must not throw and must not call run().
  // The assignment of tasks to workers varies, so results must not depend on `worker` (scratch memory may).
  void run(uint32_t n_tasks, FunctionRef<void(uint32_t task, uint32_t worker)> body) noexcept;

 private:
  void worker_loop(uint32_t worker) noexcept;
  void work(uint32_t worker) noexcept;

  const uint32_t n_threads_;
  bool oversubscribed_ = false;
  std::vector<std::thread> threads_;
  const FunctionRef<void(uint32_t, uint32_t)>* body_ = nullptr;
  uint32_t n_tasks_ = 0;
  alignas(64) std::atomic<uint32_t> epoch_{0};      // what workers sleep on: a new value for each job
  // Job number in the high half, tasks not yet taken in the low half: a task is taken by lowering it, so a worker that
  // comes late can never take a task of one job for a task of another. Paired: release in run(), acquire on taking.
  alignas(64) std::atomic<uint64_t> tickets_{0};
  alignas(64) std::atomic<uint32_t> n_unfinished_{0};  // tasks of the job; paired release/acquire
  alignas(64) std::atomic<uint32_t> n_sleeping_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace outrider

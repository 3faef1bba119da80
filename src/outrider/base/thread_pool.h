// SPDX-License-Identifier: Apache-2.0
// A fixed team of threads for the token loop: fork and join in about a microsecond, no mutex, no allocation.
// Each worker has tasks of its own, neighbours that it takes in rising order, so that memory is read on where it was
// read; who has no more takes the last quarter of what another has left. run() waits for tasks, not for workers: a
// worker that the system has not scheduled holds nobody up, as its tasks are taken by the others. Workers spin for a
// short while after a job, then sleep on a futex until the next one. When more threads are asked for than processors
// are usable, waiting threads sleep early, so that the working ones get the core. Threads: run() is called by one
// thread at a time (the owner). The owner takes part as worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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

  // Calls body(task, worker) once for each task in [0, n_tasks), in no certain order; returns when all have returned.
  // `worker` is in [0, n_threads). body must not throw and must not call run().
  // The assignment of tasks to workers varies, so results must not depend on `worker` (scratch memory may).
  void run(uint32_t n_tasks, FunctionRef<void(uint32_t task, uint32_t worker)> body) noexcept;

 private:
  // Tasks [begin, end) not yet taken: begin in the high half of a word, end in the low half, so that both change at
  // once. A task is taken by changing the word, and no job ends before its tasks have: a worker that comes late either
  // takes a task of the present job or none. Paired: release in run(), acquire on taking.
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };

  void worker_loop(uint32_t worker) noexcept;
  void work(uint32_t worker) noexcept;
  uint32_t work_on(Range& range, bool is_own, uint32_t worker) noexcept;

  const uint32_t n_threads_;
  bool oversubscribed_ = false;
  std::vector<std::thread> threads_;
  std::unique_ptr<Range[]> ranges_;  // by worker
  const FunctionRef<void(uint32_t, uint32_t)>* body_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};         // what workers sleep on: a new value for each job
  alignas(64) std::atomic<uint32_t> n_unfinished_{0};  // tasks of the job; paired release/acquire
  alignas(64) std::atomic<uint32_t> n_sleeping_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/page_populator.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>

namespace outrider {

namespace {
constexpr uint64_t kStep = 2ULL << 20;  // one large page: what a stop has to wait for
constexpr int kPopulateWrite = 23;      // MADV_POPULATE_WRITE, which the headers of 5.13 lack
constexpr int kLowestPriority = 19;
}  // namespace

PagePopulator::PagePopulator(std::span<std::byte> memory, uint32_t n_threads) : memory_(memory) {
  n_threads =
      static_cast<uint32_t>(std::min<uint64_t>(n_threads, memory.size() / kStep));  // less is not worth a thread
  try {
    for (uint32_t t = 0; t < n_threads; ++t) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // fewer do it, or whoever writes first
  }
}

PagePopulator::~PagePopulator() {
  stop_.store(true, std::memory_order_relaxed);
  wait();
}

void PagePopulator::wait() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PagePopulator::work() noexcept {
  setpriority(PRIO_PROCESS, 0, kLowestPriority);  // of this thread alone, on Linux
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t at = next_.fetch_add(kStep, std::memory_order_relaxed);
    if (at >= memory_.size()) return;
    if (madvise(memory_.data() + at, std::min(kStep, memory_.size() - at), kPopulateWrite) != 0) return;
  }
}

}  // namespace outrider

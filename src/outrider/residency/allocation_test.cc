// SPDX-License-Identifier: Apache-2.0
// The token loop does not allocate: this file replaces operator new of the test program by one that counts per thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <numeric>

#include "outrider/io/test_faults.h"
#include "outrider/residency/expert_store.h"

namespace {
thread_local uint64_t t_n_allocations = 0;

void* allocate(std::size_t n_bytes) {
  ++t_n_allocations;
  void* memory = std::malloc(n_bytes != 0 ? n_bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: GCC would see malloc on one side and free on the other of a new that it knows, and warn.
[[gnu::noinline]] void* operator new(std::size_t n_bytes) { return allocate(n_bytes); }
[[gnu::noinline]] void* operator new[](std::size_t n_bytes) { return allocate(n_bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace outrider::residency {
namespace {

TEST(Residency, TheTokenLoopDoesNotAllocate) {
  const io::TestFile file(20 * 3000);
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    for (const uint32_t slots : {1U, 4U, 20U}) {
      StoreOptions options;
      options.files = {file.path()};
      options.layers = {LayerSource{.n_experts = 20,
                                    .n_parts = 2,
                                    .parts = {PartSource{.file_idx = 0, .offset = 0, .n_bytes = 2000},
                                              PartSource{.file_idx = 0, .offset = 20 * 2000, .n_bytes = 1000}}}};
      options.slots_per_layer = slots;
      options.io = io;
      ExpertStore store(options);
      std::vector<uint32_t> experts(20);
      std::iota(experts.begin(), experts.end(), 0U);
      const std::vector<uint32_t> uses(20, 1);
      const uint64_t before = t_n_allocations;
      uint64_t n_slabs = 0;
      for (uint32_t step = 0; step < 30; ++step) {
        const uint32_t n_demanded = step % 5 == 0 ? 20 : 4;
        const uint32_t first = n_demanded == 20 ? 0 : step % 17;
        LayerPass pass =
            store.begin(0, std::span(experts).subspan(first, n_demanded), std::span(uses).first(n_demanded));
        for (;;) {
          while (!pass.next_begun().empty()) {
          }
          const auto slabs = pass.next();
          if (slabs.empty()) break;
          n_slabs += slabs.size();
          pass.done(slabs);
        }
        store.end_step(1);
      }
      EXPECT_EQ(t_n_allocations, before);
      EXPECT_EQ(n_slabs, 6U * 20 + 24U * 4);
      const std::vector<int> counted(10);
      EXPECT_GT(t_n_allocations, before);  // the counter counts
    }
  }
}

}  // namespace
}  // namespace outrider::residency

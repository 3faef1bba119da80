// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, at which copies arrive too. Addresses are those of shared memory.
#pragma once

#include <cstdint>

namespace outrider::cuda {
namespace {

__device__ __forceinline__ void init_barrier(uint32_t barrier, uint32_t n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// This thread arrives when all copies that it has asked for by cp.async are there.
__device__ __forceinline__ void arrive_when_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
#if __CUDA_ARCH__ >= 900
#define OUTRIDER_BARRIER_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define OUTRIDER_BARRIER_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#endif
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n" OUTRIDER_BARRIER_WAIT
      " done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
#undef OUTRIDER_BARRIER_WAIT

}  // namespace
}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// Bulk copies to shared memory, which one thread asks for and no thread carries. Compute capability 9.0 and up.
#pragma once

#include <cstdint>

#include "outrider/cuda/device/barrier.cuh"

namespace outrider::cuda {
namespace {

__device__ __forceinline__ void arrive_expecting(uint32_t barrier, uint32_t n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}
// Addresses and n_bytes: multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t n_bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(n_bytes), "r"(barrier)
               : "memory");
}
// What this thread wrote to shared memory comes before what the tensor cores and bulk copies do there after a barrier.
__device__ __forceinline__ void hand_over() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace
}  // namespace outrider::cuda

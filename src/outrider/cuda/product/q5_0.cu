// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/rows.cuh"
#include "outrider/cuda/product/tiles.cuh"

namespace outrider::cuda {

void rows_q5_0(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitQ5_0, false>(p, n_jobs, most_pairs, stream);
}
void gated_q5_0(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitQ5_0, true>(p, n_jobs, most_pairs, stream);
}
void tiles_q5_0(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  tiles<UnitQ5_0>(p, n_jobs, most_pairs, stream);
}

}  // namespace outrider::cuda

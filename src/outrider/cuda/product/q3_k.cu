// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/rows.cuh"
#include "outrider/cuda/product/tiles.cuh"

namespace outrider::cuda {

void rows_q3_k(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitQ3K, false>(p, n_jobs, most_pairs, stream);
}
void gated_q3_k(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitQ3K, true>(p, n_jobs, most_pairs, stream);
}
void tiles_q3_k(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  tiles<UnitQ3K>(p, n_jobs, most_pairs, stream);
}

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/rows.cuh"
#include "outrider/cuda/product/tiles.cuh"

namespace outrider::cuda {

void rows_mxfp4(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitMxfp4, false>(p, n_jobs, most_pairs, stream);
}
void gated_mxfp4(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitMxfp4, true>(p, n_jobs, most_pairs, stream);
}
void tiles_mxfp4(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  tiles<UnitMxfp4>(p, n_jobs, most_pairs, stream);
}

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/product/rows.cuh"
#include "outrider/cuda/product/tiles.cuh"

namespace outrider::cuda {

void rows_iq4_nl(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitIq4Nl, false>(p, n_jobs, most_pairs, stream);
}
void gated_iq4_nl(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  rows<UnitIq4Nl, true>(p, n_jobs, most_pairs, stream);
}
void tiles_iq4_nl(const ProductParams& p, uint32_t n_jobs, uint32_t most_pairs, cudaStream_t stream) {
  tiles<UnitIq4Nl>(p, n_jobs, most_pairs, stream);
}

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda_test [SEEDS] [GROUP...]: the device kernels against the scalar CPU functions, bit for bit. Prints values
// compared and values that differ per group; exit code 1 on any difference, 2 without a usable device. Groups: runtime
// products experts layer attention (all); few-products, few-experts and few-attention for
// compute-sanitizer.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "outrider/base/error.h"
#include "outrider/cuda/test/harness.h"

int main(int argc, char** argv) {
  using namespace outrider;
  namespace t = cuda::test;
  try {
    const cuda::DeviceInfo info = cuda::open_device(0);
    std::printf("%s, sm_%u, %u multiprocessors, %llu MiB\n", info.name.c_str(), info.sm, info.n_multiprocessors,
                static_cast<unsigned long long>(info.total_bytes >> 20));
    const uint64_t n_seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const auto wanted = [&](const char* group) {
      return argc <= 2 ||
             std::any_of(argv + 2, argv + argc, [&](const char* arg) { return std::string(arg) == group; });
    };
    const cuda::DeviceBuffer memory(cuda::codebook_bytes());
    const cuda::Codebooks books = cuda::upload_codebooks(memory.data());
    t::Tally tally;
    for (uint64_t seed = 1; seed <= n_seeds; ++seed) {
      if (wanted("runtime")) t::test_runtime(tally, seed);
      if (wanted("layer")) t::test_layer(tally, books, seed);
      if (wanted("attention")) t::test_attention(tally, seed, false);
      if (wanted("experts")) t::test_experts(tally, seed, false);
      if (wanted("products")) t::test_products(tally, books, seed, false);
      if (argc > 2 && wanted("few-products")) t::test_products(tally, books, seed, true);
      if (argc > 2 && wanted("few-experts")) t::test_experts(tally, seed, true);
      if (argc > 2 && wanted("few-attention")) t::test_attention(tally, seed, true);
    }
    cuda::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return tally.print() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "cuda_test: %s\n", error.what());
    return 2;
  }
}

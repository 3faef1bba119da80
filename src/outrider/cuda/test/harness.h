// SPDX-License-Identifier: Apache-2.0
// What the device tests share: a tally of differing bits per group, random inputs, host-device copies. A plain program
// and not GoogleTest: it also runs on machines that have a GPU and little else.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "outrider/base/random.h"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"
#include "outrider/format/tensor_type.h"

namespace outrider::cuda::test {

// Counts values compared and values whose bits differ, per group; two NaN are equal (their payload is not part of the
// law).
class Tally {
 public:
  void compare(const std::string& group, const std::string& name, const float* want, const float* got, uint64_t n);
  template <typename T>
  void compare_bytes(const std::string& group, const std::string& name, const T* want, const T* got, uint64_t n) {
    Group& g = groups_[group];
    ++g.n_cases;
    g.n_values += n;
    for (uint64_t i = 0; i < n; ++i) {
      if (std::memcmp(want + i, got + i, sizeof(T)) != 0) note(g, group, name, i, "bytes differ");
    }
  }
  void expect(const std::string& group, const std::string& name, bool holds);
  // Prints a line a group; true when nothing differs.
  bool print() const;

 private:
  struct Group {
    uint64_t n_cases = 0, n_values = 0, n_different = 0;
  };
  void note(Group& g, const std::string& group, const std::string& name, uint64_t i, const std::string& what);
  std::map<std::string, Group> groups_;
};

// Device memory with a host vector's contents. 64 bytes longer, so that the next 16-byte boundary is readable.
template <typename T>
DeviceBuffer upload(const std::vector<T>& host) {
  DeviceBuffer buffer(host.size() * sizeof(T) + 64);
  if (!host.empty()) {
    cuda_check(cudaMemcpy(buffer.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "upload",
               host.size() * sizeof(T));
  }
  return buffer;
}
// Device memory filled with a pattern that no result has, so that unwritten values show.
inline DeviceBuffer poisoned(uint64_t n_bytes) {
  DeviceBuffer buffer(n_bytes + 64);
  cuda_check(cudaMemset(buffer.data(), 0xA5, n_bytes + 64), "cudaMemset", n_bytes);
  return buffer;
}
// Waits for everything and copies n values back.
template <typename T>
std::vector<T> download(const DeviceBuffer& buffer, uint64_t n) {
  std::vector<T> host(n);
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  if (n != 0) cuda_check(cudaMemcpy(host.data(), buffer.data(), n * sizeof(T), cudaMemcpyDeviceToHost), "download", n);
  return host;
}

std::vector<float> random_floats(Random& rng, uint64_t n);
// Rows of random blocks with finite scales, or now and then a faulty one (NaN, infinity, zero, subnormal).
std::vector<std::byte> random_weights(format::TensorType type, uint64_t n_rows, uint32_t k, Random& rng, bool faulty);

// Activations of n rows: f32, and by the scalar reference the quantised form; on the host and on the device.
struct Rows {
  Rows(Random& rng, uint32_t n_rows, uint32_t k);
  numerics::Activations host() const;
  numerics::Activations device() const;
  uint32_t n_rows, k;
  std::vector<float> f32, d;
  std::vector<int8_t> q;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
  DeviceBuffer f32_device, d_device, q_device, sum32_device, sum16_device;
};
// Empty device rows for quantised results.
struct DeviceRows {
  DeviceRows(uint64_t n_rows, uint32_t k);
  QuantizedRows view() const;
  DeviceBuffer q, d, sum32, sum16;
};

// out[i * n_rows + r] by the scalar reference, on all processors.
std::vector<float> reference_product(format::TensorType type, const std::byte* weights, uint32_t n_rows, uint32_t k,
                                     const numerics::Activations& x, const uint32_t* token_rows, uint32_t n_tokens);

// `few`: a shape for each way through a kernel only, for tools that make every launch slow.
void test_products(Tally& tally, const Codebooks& books, uint64_t seed, bool few);
void test_experts(Tally& tally, uint64_t seed, bool few);
void test_layer(Tally& tally, const Codebooks& books, uint64_t seed);
void test_attention(Tally& tally, uint64_t seed, bool few);
void test_runtime(Tally& tally, uint64_t seed);

}  // namespace outrider::cuda::test

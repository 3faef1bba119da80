// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/test/harness.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <thread>

#include "outrider/kernels/matmul/matmul.h"
#include "outrider/kernels/quantize_act/quantize_act.h"
#include "outrider/numerics/test_blocks.h"

namespace outrider::cuda::test {

using format::TensorType;

void Tally::note(Group& g, const std::string& group, const std::string& name, uint64_t i, const std::string& what) {
  if (++g.n_different <= 3) {
    std::printf("DIFFERS %s %s [%llu]: %s\n", group.c_str(), name.c_str(), static_cast<unsigned long long>(i),
                what.c_str());
  }
}

void Tally::compare(const std::string& group, const std::string& name, const float* want, const float* got,
                    uint64_t n) {
  Group& g = groups_[group];
  ++g.n_cases;
  g.n_values += n;
  for (uint64_t i = 0; i < n; ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (std::bit_cast<uint32_t>(want[i]) == std::bit_cast<uint32_t>(got[i])) continue;
    note(g, group, name, i, "want " + std::to_string(want[i]) + " got " + std::to_string(got[i]));
  }
}

void Tally::expect(const std::string& group, const std::string& name, bool holds) {
  Group& g = groups_[group];
  ++g.n_cases;
  ++g.n_values;
  if (!holds) note(g, group, name, 0, "does not hold");
}

bool Tally::print() const {
  uint64_t n_values = 0;
  uint64_t n_different = 0;
  for (const auto& [name, g] : groups_) {
    std::printf("%-24s cases %5llu  values %10llu  differing %llu\n", name.c_str(),
                static_cast<unsigned long long>(g.n_cases), static_cast<unsigned long long>(g.n_values),
                static_cast<unsigned long long>(g.n_different));
    n_values += g.n_values;
    n_different += g.n_different;
  }
  std::printf("all: values %llu differing %llu\n", static_cast<unsigned long long>(n_values),
              static_cast<unsigned long long>(n_different));
  return n_different == 0 && n_values != 0;
}

std::vector<float> random_floats(Random& rng, uint64_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(rng.normal());
  return values;
}

std::vector<std::byte> random_weights(TensorType type, uint64_t n_rows, uint32_t k, Random& rng, bool faulty) {
  const format::TypeInfo& info = format::type_info(type);
  std::vector<std::byte> bytes(n_rows * format::row_bytes(type, k));
  for (uint64_t at = 0; at < bytes.size(); at += info.block_bytes) {
    numerics::random_block(info, rng, bytes.data() + at);
    if (faulty && rng.below(20) == 0) numerics::put_fault(info, rng, bytes.data() + at);
  }
  return bytes;
}

Rows::Rows(Random& rng, uint32_t n_rows_in, uint32_t k_in) : n_rows(n_rows_in), k(k_in) {
  f32 = random_floats(rng, static_cast<uint64_t>(n_rows) * k);
  const uint32_t padded = k / 32 * 32;
  q.resize(static_cast<uint64_t>(n_rows) * padded);
  d.resize(q.size() / 32);
  sum32.resize(q.size() / 32);
  sum16.resize(q.size() / 16);
  for (uint64_t t = 0; t < n_rows && padded != 0; ++t) {
    kernels::choose_quantize_act(Isa::kScalar)(&f32[t * k], padded, &q[t * padded], &d[t * (padded / 32)],
                                               &sum32[t * (padded / 32)], &sum16[t * (padded / 16)]);
  }
  f32_device = upload(f32), q_device = upload(q), d_device = upload(d), sum32_device = upload(sum32),
  sum16_device = upload(sum16);
}
numerics::Activations Rows::host() const { return {f32.data(), k, q.data(), d.data(), sum32.data(), sum16.data(), k}; }
numerics::Activations Rows::device() const {
  return {f32_device.as<float>(),     k, q_device.as<int8_t>(), d_device.as<float>(), sum32_device.as<int32_t>(),
          sum16_device.as<int16_t>(), k};
}

DeviceRows::DeviceRows(uint64_t n_rows, uint32_t k)
    : q(poisoned(n_rows * k)),
      d(poisoned(n_rows * k / 8)),
      sum32(poisoned(n_rows * k / 8)),
      sum16(poisoned(n_rows * k / 8)) {}
QuantizedRows DeviceRows::view() const {
  return {q.as<int8_t>(), d.as<float>(), sum32.as<int32_t>(), sum16.as<int16_t>()};
}

std::vector<float> reference_product(TensorType type, const std::byte* weights, uint32_t n_rows, uint32_t k,
                                     const numerics::Activations& x, const uint32_t* token_rows, uint32_t n_tokens) {
  std::vector<float> out(static_cast<uint64_t>(n_rows) * n_tokens);
  const uint32_t n_threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < n_threads; ++i) {
    threads.emplace_back([&, i] {
      const auto part = [&](uint64_t at) { return static_cast<uint32_t>(at * n_rows / n_threads); };
      const kernels::Weights w = {type, weights, format::row_bytes(type, k), n_rows, k};
      kernels::choose_matmul(Isa::kScalar,
                             type)({w, part(i), part(i + 1), x, token_rows, n_tokens, out.data(), n_rows});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

}  // namespace outrider::cuda::test

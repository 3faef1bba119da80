// SPDX-License-Identifier: Apache-2.0
// The rest of a layer against the scalar reference: activations, norms, rotation, cache rows, router, embedding,
// argmax.
#include <algorithm>
#include <limits>

#include "outrider/cuda/test/harness.h"
#include "outrider/kernels/elementwise/elementwise.h"
#include "outrider/kernels/quantize_act/quantize_act.h"
#include "outrider/kernels/rms_norm/rms_norm.h"
#include "outrider/numerics/dequant.h"

namespace outrider::cuda::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Normal values, and by rows: large, tiny, subnormal, zero, with NaN, with infinity.
std::vector<float> hard_floats(Random& rng, uint32_t n_rows, uint32_t k) {
  std::vector<float> x = random_floats(rng, static_cast<uint64_t>(n_rows) * k);
  const float factors[] = {1, 1e30F, 1e-36F, 1e-40F, 0, 1, 1};
  for (uint32_t row = 0; row < n_rows; ++row) {
    for (uint32_t i = 0; i < k; ++i) x[static_cast<uint64_t>(row) * k + i] *= factors[row % 7];
    if (k != 0 && row % 7 == 5) x[static_cast<uint64_t>(row) * k + rng.below(k)] = kNan;
    if (k != 0 && row % 7 == 6) x[static_cast<uint64_t>(row) * k + rng.below(k)] = -kInf;
  }
  return x;
}

struct Quantized {
  explicit Quantized(const std::vector<float>& x)
      : q(x.size()), d(x.size() / 32), sum32(x.size() / 32), sum16(x.size() / 16) {
    if (!x.empty()) {
      kernels::choose_quantize_act(Isa::kScalar)(x.data(), static_cast<uint32_t>(x.size()), q.data(), d.data(),
                                                 sum32.data(), sum16.data());
    }
  }
  void compare(Tally& tally, const std::string& group, const std::string& name, const DeviceRows& got) const {
    tally.compare_bytes(group, name + " q", q.data(), download<int8_t>(got.q, q.size()).data(), q.size());
    tally.compare(group, name + " d", d.data(), download<float>(got.d, d.size()).data(), d.size());
    tally.compare_bytes(group, name + " sum32", sum32.data(), download<int32_t>(got.sum32, sum32.size()).data(),
                        sum32.size());
    tally.compare_bytes(group, name + " sum16", sum16.data(), download<int16_t>(got.sum16, sum16.size()).data(),
                        sum16.size());
  }
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
};

void test_activations(Tally& tally, Random& rng) {
  for (const uint32_t k : {0U, 32U, 64U, 96U, 256U, 288U, 2048U, 7168U}) {
    const uint32_t n_rows = 14;
    const std::vector<float> x = hard_floats(rng, n_rows, k);
    const DeviceBuffer x_device = upload(x);
    const DeviceRows out(n_rows, k);
    quantize_act(x_device.as<float>(), k, n_rows, k, out.view(), nullptr);
    Quantized(x).compare(tally, "quantize_act", "k " + std::to_string(k), out);

    std::vector<float> gate = hard_floats(rng, n_rows, k);
    for (float& g : gate) g *= 8;
    std::vector<float> want(x.size());
    const DeviceBuffer gate_device = upload(gate);
    const DeviceBuffer got = poisoned(x.size() * 4);
    for (const float alpha : {0.0F, 1.702F}) {
      const auto& fns = kernels::choose_elementwise(Isa::kScalar);
      if (alpha == 0)
        fns.swiglu(gate.data(), x.data(), want.data(), want.size());
      else
        fns.swiglu_clamped(gate.data(), x.data(), alpha, 7.0F, want.data(), want.size());
      const DeviceRows hidden(n_rows, k);
      activate({gate_device.as<float>(), x_device.as<float>(), alpha, 7.0F, k, n_rows, hidden.view(), got.as<float>()},
               nullptr);
      tally.compare("activate", "k " + std::to_string(k), want.data(), download<float>(got, want.size()).data(),
                    want.size());
      Quantized(want).compare(tally, "activate", "k " + std::to_string(k), hidden);
    }
  }
}

void test_rms_norm(Tally& tally, Random& rng) {
  for (const uint32_t n : {1U, 31U, 32U, 33U, 64U, 127U, 1000U, 2048U, 4096U, 4097U, 7168U, 12288U}) {
    const uint32_t n_rows = 7;
    const std::vector<float> x = hard_floats(rng, n_rows, n);
    const std::vector<float> weight = random_floats(rng, n);
    const DeviceBuffer x_device = upload(x), weight_device = upload(weight);
    for (const bool weighted : {true, false}) {
      std::vector<float> want(x.size());
      for (uint64_t row = 0; row < n_rows; ++row) {
        kernels::choose_rms_norm(Isa::kScalar)(&x[row * n], weighted ? weight.data() : nullptr, 1e-6F, n,
                                               &want[row * n]);
      }
      const DeviceBuffer y = poisoned(x.size() * 4);
      const DeviceRows quantized(n_rows, n);
      const bool has_codes = n % 32 == 0;
      rms_norm({x_device.as<float>(), n, weighted ? weight_device.as<float>() : nullptr, 1e-6F, n, n_rows,
                y.as<float>(), n, has_codes ? quantized.view() : QuantizedRows{}},
               nullptr);
      const std::string name = "n " + std::to_string(n);
      tally.compare("rms_norm", name, want.data(), download<float>(y, want.size()).data(), want.size());
      if (has_codes) Quantized(want).compare(tally, "rms_norm codes", name, quantized);
    }
  }
}

void test_rope(Tally& tally, Random& rng) {
  struct Case {
    uint32_t width, n_rot, n_heads;
    bool norm;
  };
  for (const Case& c : {Case{128, 128, 32, true}, Case{128, 64, 4, false}, Case{64, 64, 3, true},
                        Case{80, 40, 5, false}, Case{33, 32, 1, true}, Case{128, 0, 2, true}, Case{256, 2, 7, false}}) {
    for (const auto pairing : {kernels::RopePairing::kHalves, kernels::RopePairing::kInterleaved}) {
      const uint32_t n_rows = 3;
      const uint64_t stride = c.n_heads * c.width + 9;
      const std::vector<float> x = random_floats(rng, n_rows * stride), norm = random_floats(rng, c.width);
      const std::vector<float> cos_sin = random_floats(rng, n_rows * c.n_rot);
      std::vector<float> want = x;
      for (uint32_t row = 0; row < n_rows; ++row) {
        for (uint32_t h = 0; h < c.n_heads; ++h) {
          float* head = &want[row * stride + h * c.width];
          if (c.norm) kernels::choose_rms_norm(Isa::kScalar)(head, norm.data(), 1e-5F, c.width, head);
          kernels::choose_rope(Isa::kScalar)(head, cos_sin.data() + row * c.n_rot, c.n_rot, pairing);
        }
      }
      const DeviceBuffer got = upload(x), norm_device = upload(norm), table = upload(cos_sin);
      rope({got.as<float>(), stride, n_rows, c.n_heads, c.width, c.norm ? norm_device.as<float>() : nullptr, 1e-5F,
            table.as<float>(), c.n_rot, pairing},
           nullptr);
      tally.compare(c.norm ? "qk norm and rope" : "rope", "width " + std::to_string(c.width), want.data(),
                    download<float>(got, want.size()).data(), want.size());
    }
  }
}

void test_store_kv(Tally& tally, Random& rng) {
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kF32, kernels::KvType::kQ8_0}) {
    for (const uint32_t width : {32U, 64U, 128U, 576U}) {
      const uint32_t n_rows = 14;
      const uint32_t n_heads = 3;
      const uint64_t row = kernels::kv_row_bytes(type, width);
      const uint64_t stride = n_heads * row + 2 * (type != kernels::KvType::kF32) + 4;
      const std::vector<float> x = hard_floats(rng, n_rows, n_heads * width);
      std::vector<uint8_t> want((n_rows + 2) * stride, 0xA5);
      for (uint32_t t = 0; t < n_rows; ++t) {
        for (uint32_t h = 0; h < n_heads; ++h) {
          kernels::choose_store_kv(Isa::kScalar)(&x[(t * n_heads + h) * width], width, type,
                                                 reinterpret_cast<std::byte*>(&want[(t + 2) * stride + h * row]));
        }
      }
      const DeviceBuffer cache = poisoned(want.size()), x_device = upload(x);
      store_kv({x_device.as<float>(), static_cast<uint64_t>(n_heads) * width, n_rows, n_heads, width, type,
                cache.data(), stride, 2},
               nullptr);
      const std::vector<uint8_t> got = download<uint8_t>(cache, want.size());
      if (type == kernels::KvType::kF32) {  // a NaN's payload is not part of the law
        for (uint64_t t = 0; t < n_rows; ++t) {
          tally.compare_bytes("store_kv", "f32", &want[(t + 2) * stride], &got[(t + 2) * stride], n_heads * row);
        }
      } else {
        tally.compare_bytes("store_kv", "width " + std::to_string(width), want.data(), got.data(), want.size());
      }
    }
  }
}

struct RouteCase {
  kernels::RouterSpec spec;
  bool biased, ties;
};

void test_route_case(Tally& tally, const RouteCase& c, Random& rng) {
  constexpr uint32_t kRows = 9;
  const uint32_t n = c.spec.n_experts;
  const uint32_t n_used = c.spec.n_used;
  std::vector<float> logits = random_floats(rng, kRows * n);
  if (c.ties) {
    for (float& l : logits) l = static_cast<float>(static_cast<int>(l * 2)) / 2;
  }
  logits[rng.below(n)] = kNan;           // row 0
  logits[n + rng.below(n)] = kInf;       // row 1
  logits[2 * n + rng.below(n)] = -kInf;  // row 2
  const std::vector<float> bias = random_floats(rng, n);
  std::vector<float> scratch(3 * n), weights(kRows * n_used);
  std::vector<uint32_t> ids(kRows * n_used), failed(kRows);
  for (uint32_t row = 0; row < kRows; ++row) {
    failed[row] = kernels::choose_route(Isa::kScalar)(c.spec, &logits[row * n], c.biased ? bias.data() : nullptr,
                                                      scratch.data(), &ids[row * n_used], &weights[row * n_used])
                      ? 0
                      : 1;
  }
  const DeviceBuffer logits_device = upload(logits), bias_device = upload(bias), ids_device = poisoned(ids.size() * 4);
  const DeviceBuffer weights_device = poisoned(weights.size() * 4), failed_device = poisoned(kRows * 4);
  route({c.spec, logits_device.as<float>(), c.biased ? bias_device.as<float>() : nullptr, kRows,
         ids_device.as<uint32_t>(), weights_device.as<float>(), failed_device.as<uint32_t>()},
        nullptr);
  const std::string name = "experts " + std::to_string(n) + " used " + std::to_string(n_used);
  tally.compare_bytes("route ids", name, ids.data(), download<uint32_t>(ids_device, ids.size()).data(), ids.size());
  tally.compare("route weights", name, weights.data(), download<float>(weights_device, weights.size()).data(),
                weights.size());
  tally.compare_bytes("route failed", name, failed.data(), download<uint32_t>(failed_device, kRows).data(), kRows);
}

void test_route(Tally& tally, Random& rng) {
  using enum kernels::RouterScore;
  for (const auto score : {kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus}) {
    for (const bool ties : {false, true}) {
      for (const bool normalize : {false, true}) {
        test_route_case(tally, {{score, 1, 1, 0, 0, normalize, 1}, false, ties}, rng);
        test_route_case(tally, {{score, 128, 8, 0, 0, normalize, 1}, false, ties}, rng);
        test_route_case(tally, {{score, 256, 8, 8, 4, normalize, 2.5F}, true, ties}, rng);
        test_route_case(tally, {{score, 60, 4, 0, 0, normalize, 0}, true, ties}, rng);
        test_route_case(tally, {{score, 33, 33, 0, 0, normalize, 1}, false, ties}, rng);
        test_route_case(tally, {{score, 16, 9, 16, 5, normalize, 1}, false, ties}, rng);  // fewer stay than are chosen
        test_route_case(tally, {{score, 1025, 40, 5, 3, normalize, 1.5F}, true, ties}, rng);
      }
    }
  }
}

void test_embed(Tally& tally, const Codebooks& books, Random& rng) {
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (!info.is_weight) continue;
    const uint32_t k = info.block_elems == 1 ? 257 : 3 * info.block_elems;
    for (const bool faulty : {false, true}) {
      const std::vector<std::byte> weights = random_weights(info.type, 50, k, rng, faulty);
      std::vector<int32_t> tokens(11);
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(50));
      std::vector<float> want(tokens.size() * k);
      for (size_t i = 0; i < tokens.size(); ++i) {
        numerics::dequantize(info.type,
                             weights.data() + static_cast<uint64_t>(tokens[i]) * format::row_bytes(info.type, k),
                             &want[i * k], k);
      }
      const DeviceBuffer weights_device = upload(weights), tokens_device = upload(tokens),
                         out = poisoned(want.size() * 4);
      embed(info.type, weights_device.data(), k, tokens_device.as<int32_t>(), static_cast<uint32_t>(tokens.size()),
            books, out.as<float>(), nullptr);
      tally.compare("embed", std::string(info.name), want.data(), download<float>(out, want.size()).data(),
                    want.size());
    }
  }
}

void test_add_and_argmax(Tally& tally, Random& rng) {
  for (const uint32_t n : {1U, 31U, 32U, 33U, 1023U, 1024U, 1025U, 151936U}) {
    constexpr uint32_t kRows = 5;
    std::vector<float> x = random_floats(rng, static_cast<uint64_t>(kRows) * n);
    const std::vector<float> y = random_floats(rng, x.size());
    std::vector<float> sum = y;
    kernels::choose_elementwise(Isa::kScalar).add(sum.data(), x.data(), x.size());
    const DeviceBuffer y_device = upload(y), x_device = upload(x);
    add(y_device.as<float>(), x_device.as<float>(), x.size(), nullptr);
    tally.compare("add", "n " + std::to_string(n), sum.data(), download<float>(y_device, sum.size()).data(),
                  sum.size());

    for (uint32_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(static_cast<int>(x[i]));  // row 0: many ties
      if (rng.below(2) != 0) x[n + i] = kNan;             // row 1: NaN among numbers
      x[2 * static_cast<uint64_t>(n) + i] = kNan;         // row 2: nothing is a number
      x[3 * static_cast<uint64_t>(n) + i] = -kInf;        // row 3: infinities only
    }
    std::vector<uint32_t> want(kRows);
    for (uint64_t row = 0; row < kRows; ++row) want[row] = static_cast<uint32_t>(kernels::argmax(&x[row * n], n));
    const DeviceBuffer hard = upload(x), index = poisoned(kRows * 4);
    argmax(hard.as<float>(), n, n, kRows, index.as<uint32_t>(), nullptr);
    tally.compare_bytes("argmax", "n " + std::to_string(n), want.data(), download<uint32_t>(index, kRows).data(),
                        kRows);
  }
}

}  // namespace

void test_layer(Tally& tally, const Codebooks& books, uint64_t seed) {
  Random rng(seed);
  test_activations(tally, rng);
  test_rms_norm(tally, rng);
  test_rope(tally, rng);
  test_store_kv(tally, rng);
  test_route(tally, rng);
  test_embed(tally, books, rng);
  test_add_and_argmax(tally, rng);
}

}  // namespace outrider::cuda::test

// SPDX-License-Identifier: Apache-2.0
// What the groups of cuda_bench share: timing by graphs between events, the rows of its output, activations.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "outrider/base/random.h"
#include "outrider/cuda/ops.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {

inline constexpr int kRepeats = 7;
inline constexpr double kInt8PeakTops = 1979;      // dense int8 of an H200 SXM, NVIDIA's data sheet
inline constexpr uint64_t kRotate = 600ULL << 20;  // bytes to rotate over: ten times an H200's L2

struct Times {
  double median, best, worst;  // seconds
};

inline Times summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

inline Times time_stream(const Stream& stream, const std::function<void()>& queue) {
  Event start(Event::Timing::kOn), stop(Event::Timing::kOn);
  std::vector<double> seconds;
  for (int i = -2; i < kRepeats; ++i) {  // two rounds to warm up
    start.record(stream);
    queue();
    stop.record(stream);
    stop.synchronize();
    if (i >= 0) seconds.push_back(stop.milliseconds_since(start) * 1e-3);
  }
  return summarize(seconds);
}

inline Times time_graph(const Stream& stream, const std::function<void()>& queue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  queue();
  cuda_check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  const Times times = time_stream(stream, [&] { cuda_check(cudaGraphLaunch(exec, stream.get()), "cudaGraphLaunch"); });
  cuda_check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return times;
}

struct Bench {
  DeviceInfo info;
  Stream stream;
  double copy_rate = 0;  // bytes read plus written a second
  DeviceBuffer noise;    // random bytes with finite f16 wherever a scale may lie

  void row(const std::string& name, const Times& t, uint64_t launches, double work, const char* unit,
           double ceiling) const {
    const double rate = work / t.median;
    std::printf("%s,%.2f,%.2f,%.2f,%.1f,%s,%.1f%%\n", name.c_str(), t.median / static_cast<double>(launches) * 1e6,
                t.best / static_cast<double>(launches) * 1e6, t.worst / static_cast<double>(launches) * 1e6,
                rate * 1e-9, unit, 100 * rate / ceiling);
    std::fflush(stdout);
  }
};

// Activations for the products: rows of k.
struct Acts {
  Acts(const Bench& bench, uint32_t n_rows, uint32_t k)
      : f32(static_cast<uint64_t>(n_rows) * k * 4),
        q(static_cast<uint64_t>(n_rows) * k),
        d(q.n_bytes() / 8),
        sum32(q.n_bytes() / 8),
        sum16(q.n_bytes() / 8),
        k_(k) {
    std::vector<float> x(static_cast<uint64_t>(n_rows) * k);
    Random rng(7);
    for (float& value : x) value = rng.uniform(-1, 1);
    cuda_check(cudaMemcpy(f32.data(), x.data(), x.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    quantize_act(f32.as<float>(), k, n_rows, k, rows(), bench.stream.get());
    bench.stream.synchronize();
  }
  QuantizedRows rows() const { return {q.as<int8_t>(), d.as<float>(), sum32.as<int32_t>(), sum16.as<int16_t>()}; }
  numerics::Activations view() const {
    return {f32.as<float>(), k_, q.as<int8_t>(), d.as<float>(), sum32.as<int32_t>(), sum16.as<int16_t>(), k_};
  }
  DeviceBuffer f32, q, d, sum32, sum16;
  uint32_t k_;
};

inline constexpr format::TensorType kMainTypes[] = {
    format::TensorType::kQ4_0, format::TensorType::kQ8_0,  format::TensorType::kQ4_K,   format::TensorType::kQ5_K,
    format::TensorType::kQ6_K, format::TensorType::kMXFP4, format::TensorType::kIQ4_NL, format::TensorType::kIQ4_XS};

inline std::string type_name(format::TensorType type) { return std::string(format::type_info(type).name); }

// Layers of experts, experts_bench.cc.
void bench_experts(const Bench& bench);
void bench_packed(const Bench& bench);

}  // namespace outrider::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda_bench [GROUP...]: rates of the device kernels, in GB/s or TOP/s and as a share of the measured copy rate or of
// the card's int8 peak. Groups: rows experts tiles attention small moves contention (all). CSV on stdout. Method: a
// graph of launches that rotate over more memory than the L2 holds is replayed; the figure is the median of kRepeats
// replays between two events, with the fastest and the slowest beside it. Inputs are random, not zero. The bits of the
// same kernels are cuda_test's business.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/base/random.h"
#include "outrider/cuda/product/variants.h"
#include "outrider/cuda/runtime.h"

namespace outrider::cuda {
namespace {

using format::TensorType;

constexpr int kRepeats = 7;
constexpr double kInt8PeakTops = 1979;      // dense int8 of an H200 SXM, NVIDIA's data sheet
constexpr uint64_t kRotate = 600ULL << 20;  // bytes to rotate over: ten times an H200's L2

struct Times {
  double median, best, worst;  // seconds
};

Times summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

Times time_stream(const Stream& stream, const std::function<void()>& queue) {
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

Times time_graph(const Stream& stream, const std::function<void()>& queue) {
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

// Fills device memory with bytes whose 16-bit halves are finite f16 of moderate size, whatever block they land in.
DeviceBuffer random_memory(uint64_t n_bytes, uint64_t seed) {
  std::vector<uint64_t> pattern(1 << 20);
  Random rng(seed);
  for (uint64_t& word : pattern) word = rng.next_u64() & 0xBFFFBFFFBFFFBFFFULL;
  DeviceBuffer memory(n_bytes + 64);
  const uint64_t span = pattern.size() * 8;
  for (uint64_t at = 0; at < n_bytes; at += span) {
    cuda_check(cudaMemcpy(memory.data() + at, pattern.data(), std::min(span, n_bytes - at), cudaMemcpyHostToDevice),
               "fill");
  }
  return memory;
}

void measure_copy(Bench& bench) {
  const uint64_t n_bytes = 4ULL << 30;
  const DeviceBuffer a(n_bytes), b(n_bytes);
  cuda_check(cudaMemset(a.data(), 0x5A, n_bytes), "cudaMemset");
  const Times t = time_stream(bench.stream, [&] {
    cuda_check(cudaMemcpyAsync(b.data(), a.data(), n_bytes, cudaMemcpyDeviceToDevice, bench.stream.get()), "copy");
  });
  bench.copy_rate = 2.0 * static_cast<double>(n_bytes) / t.median;
  bench.row("copy 4 GiB device to device (read + written)", t, 1, 2.0 * static_cast<double>(n_bytes), "GB/s",
            bench.copy_rate);
}

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

const TensorType kMainTypes[] = {TensorType::kQ4_0, TensorType::kQ8_0,  TensorType::kQ4_K,   TensorType::kQ5_K,
                                 TensorType::kQ6_K, TensorType::kMXFP4, TensorType::kIQ4_NL, TensorType::kIQ4_XS};

std::string type_name(TensorType type) { return std::string(format::type_info(type).name); }

// Dense products of few tokens, matrices larger than the L2.
void bench_rows(const Bench& bench) {
  constexpr uint32_t kRows = 65536;
  constexpr uint32_t kK = 4096;
  const Acts x(bench, 8, kK);
  const DeviceBuffer out(8ULL * kRows * 4);
  for (const TensorType type : kMainTypes) {
    for (const uint32_t n_tokens : {1U, 2U, 4U, 8U}) {
      ProductArgs args;
      args.type = type, args.n_rows = kRows, args.k = kK, args.job = {bench.noise.data(), nullptr, 0, n_tokens};
      args.most_pairs = n_tokens, args.x = x.view(), args.out = out.as<float>(), args.out_stride = kRows;
      const uint64_t bytes = static_cast<uint64_t>(kRows) * format::row_bytes(type, kK);
      const uint64_t copies = kRotate / bytes;
      for (const bool ahead : {false, true}) {
        args.ahead = ahead;
        const Times t = time_graph(bench.stream, [&] {
          for (uint64_t i = 0; i < copies; ++i) {
            args.job.weights = bench.noise.data() + i * bytes;
            product(args, bench.stream.get());
          }
        });
        bench.row(
            "rows " + type_name(type) + " 65536x4096 tokens " + std::to_string(n_tokens) + (ahead ? " ahead" : ""), t,
            copies, static_cast<double>(bytes * copies), "GB/s", bench.copy_rate);
      }
    }
  }
}

// The expert products of a layer at one token a request: one launch for gate, up and SwiGLU, one for down.
void bench_experts(const Bench& bench, uint32_t n_used, uint32_t d_model, uint32_t d_ff, uint32_t n_tokens) {
  const Acts x(bench, n_tokens, d_model), hidden(bench, n_used * n_tokens, d_ff);
  const DeviceBuffer out(static_cast<uint64_t>(n_used) * n_tokens * d_model * 4);
  std::vector<uint32_t> rows(n_used * n_tokens);
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i % n_tokens;
  const DeviceBuffer rows_device(rows.size() * 4);
  cuda_check(cudaMemcpy(rows_device.data(), rows.data(), rows.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  for (const TensorType type : kMainTypes) {
    const uint32_t block = format::type_info(type).block_elems;
    if (d_model % block != 0 || d_ff % block != 0) continue;
    const uint64_t in_bytes = static_cast<uint64_t>(d_ff) * format::row_bytes(type, d_model);
    const uint64_t down_bytes = static_cast<uint64_t>(d_model) * format::row_bytes(type, d_ff);
    const uint64_t slab = 2 * in_bytes + down_bytes;
    const uint64_t layers = kRotate / (slab * n_used);
    std::vector<ProductJob> jobs;
    for (uint64_t i = 0; i < layers * n_used; ++i) {
      const std::byte* at = bench.noise.data() + i * slab;
      jobs.push_back({at, at + in_bytes, static_cast<uint32_t>(i % n_used) * n_tokens, n_tokens});
    }
    for (uint64_t i = 0; i < layers * n_used; ++i) {
      jobs.push_back({jobs[i].weights + 2 * in_bytes, nullptr, jobs[i].pair_begin, n_tokens});
    }
    const DeviceBuffer jobs_device(jobs.size() * sizeof(ProductJob));
    cuda_check(cudaMemcpy(jobs_device.data(), jobs.data(), jobs_device.n_bytes(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    GatedArgs in;
    in.in.type = type, in.in.n_rows = d_ff, in.in.k = d_model, in.in.n_jobs = n_used, in.in.most_pairs = n_tokens;
    in.in.x = x.view(), in.in.token_rows = rows_device.as<uint32_t>(), in.hidden = hidden.rows();
    ProductArgs down;
    down.type = type, down.n_rows = d_model, down.k = d_ff, down.n_jobs = n_used, down.most_pairs = n_tokens,
    down.x = hidden.view();
    down.out = out.as<float>(), down.out_stride = d_model;
    const auto run = [&](bool with_in, bool with_down, bool in_ahead, bool down_ahead) {
      in.in.ahead = in_ahead, down.ahead = down_ahead;
      return time_graph(bench.stream, [&] {
        for (uint64_t i = 0; i < layers; ++i) {
          in.in.jobs = jobs_device.as<ProductJob>() + i * n_used;
          down.jobs = jobs_device.as<ProductJob>() + (layers + i) * n_used;
          if (with_in) gated_product(in, bench.stream.get());
          if (with_down) product(down, bench.stream.get());
        }
      });
    };
    const std::string shape = type_name(type) + " " + std::to_string(n_used) + " of " + std::to_string(d_model) + "x" +
                              std::to_string(d_ff) + " tokens " + std::to_string(n_tokens);
    const double all = static_cast<double>(layers * n_used);
    const auto row = [&](const std::string& what, const Times& t, uint64_t bytes) {
      bench.row("experts " + what + " " + shape, t, layers, all * static_cast<double>(bytes), "GB/s", bench.copy_rate);
    };
    row("gate+up", run(true, false, false, false), 2 * in_bytes);
    row("down", run(false, true, false, false), down_bytes);
    row("layer", run(true, true, false, false), slab);
    row("layer with down ahead", run(true, true, false, true),
        slab);  // what a decoder can do when the router has spoken
    row("layer with both ahead", run(true, true, true, true), slab);  // and where the experts were known before
  }
}

void bench_tiles(const Bench& bench) {
  for (const uint32_t n_tokens : {32U, 64U, 256U, 1024U}) {
    constexpr uint32_t kRows = 8192;
    constexpr uint32_t kK = 4096;
    const Acts x(bench, n_tokens, kK);
    const DeviceBuffer out(static_cast<uint64_t>(n_tokens) * kRows * 4);
    for (const TensorType type : kMainTypes) {
      ProductArgs args;
      args.type = type, args.n_rows = kRows, args.k = kK, args.job = {nullptr, nullptr, 0, n_tokens};
      args.most_pairs = n_tokens, args.x = x.view(), args.out = out.as<float>(), args.out_stride = kRows;
      const uint64_t bytes = static_cast<uint64_t>(kRows) * format::row_bytes(type, kK);
      const uint64_t copies = 8;
      const Times t = time_graph(bench.stream, [&] {
        for (uint64_t i = 0; i < copies; ++i) {
          args.job.weights = bench.noise.data() + i * bytes;
          product(args, bench.stream.get());
        }
      });
      const double ops = 2.0 * kRows * kK * n_tokens * static_cast<double>(copies);
      bench.row("tiles " + type_name(type) + " 8192x4096 tokens " + std::to_string(n_tokens), t, copies, ops, "GOP/s",
                kInt8PeakTops * 1e12);
    }
  }
}

void bench_attention(const Bench& bench) {
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kQ8_0, kernels::KvType::kF32}) {
    for (const uint32_t n_heads : {32U, 16U}) {
      constexpr uint32_t kKvHeads = 4;
      constexpr uint32_t kWidth = 128;
      constexpr uint32_t kContext = 32768;
      const uint64_t row = kernels::kv_row_bytes(type, kWidth) * kKvHeads;
      const uint64_t side = row * kContext;
      const uint64_t layers = std::max<uint64_t>(4, kRotate / (2 * side));
      const Acts q(bench, n_heads, kWidth);
      const DeviceBuffer out(n_heads * kWidth * 4);
      AttentionArgs args;
      args.q = q.f32.as<float>(), args.k_stride = row, args.v_stride = row, args.k_type = type, args.v_type = type;
      args.dk = kWidth, args.dv = kWidth, args.n_heads = n_heads, args.n_kv_heads = kKvHeads,
      args.position = kContext - 1;
      args.scale = 0.01F, args.out = out.as<float>();
      const DeviceBuffer scratch(attention_scratch_floats(args) * 4);
      args.scratch = scratch.as<float>();
      const Times t = time_graph(bench.stream, [&] {
        for (uint64_t i = 0; i < layers; ++i) {
          args.k_cache = bench.noise.data() + 2 * i * side;
          args.v_cache = bench.noise.data() + (2 * i + 1) * side;
          attention(args, bench.stream.get());
        }
      });
      const char* const names[] = {"f16", "f32", "q8_0"};
      bench.row(std::string("attention decode ") + names[static_cast<int>(type)] + " 32768 positions heads " +
                    std::to_string(n_heads) + "/4 width 128",
                t, layers, static_cast<double>(2 * side * layers), "GB/s", bench.copy_rate);
    }
  }
}

// Launch-bound operations: microseconds each in a graph of 100, one after the other.
void bench_small(const Bench& bench) {
  constexpr uint64_t kLaunches = 100;
  const Acts x(bench, 1, 4096);
  const DeviceBuffer y(151936 * 4), weights(64 * 4), ids(64 * 4), failed(64);
  const auto one = [&](const std::string& name, const std::function<void()>& launch) {
    const Times t = time_graph(bench.stream, [&] {
      for (uint64_t i = 0; i < kLaunches; ++i) launch();
    });
    bench.row("small " + name, t, kLaunches, static_cast<double>(kLaunches), "G launches/s", 1e30);
  };
  const cudaStream_t s = bench.stream.get();
  one("rms_norm and codes 2048", [&] {
    rms_norm({x.f32.as<float>(), 2048, x.f32.as<float>(), 1e-6F, 2048, 1, y.as<float>(), 2048, x.rows()}, s);
  });
  one("quantize_act 2048", [&] { quantize_act(x.f32.as<float>(), 2048, 1, 2048, x.rows(), s); });
  kernels::RouterSpec spec;
  spec.n_experts = 128, spec.n_used = 8, spec.normalize = true;
  one("route 128 of 8", [&] {
    route({spec, x.f32.as<float>(), nullptr, 1, ids.as<uint32_t>(), weights.as<float>(), failed.as<uint32_t>()}, s);
  });
  one("qk norm and rope 32x128", [&] {
    rope({x.f32.as<float>(), 4096, 1, 32, 128, x.f32.as<float>(), 1e-6F, x.f32.as<float>(), 128,
          kernels::RopePairing::kHalves},
         s);
  });
  one("add 2048", [&] { add(y.as<float>(), x.f32.as<float>(), 2048, s); });
  one("argmax 151936", [&] { argmax(y.as<float>(), 151936, 151936, 1, ids.as<uint32_t>(), s); });
}

// Host to device by slab size: copies one by one, batched, by the gather kernel; and batched and gathered at once.
void bench_moves(const Bench& bench) {
  constexpr uint64_t kTotal = 512ULL << 20;
  const PinnedBuffer from(kTotal);
  Random rng(3);
  for (uint64_t i = 0; i < kTotal / 8; ++i) reinterpret_cast<uint64_t*>(from.data())[i] = rng.next_u64();
  const DeviceBuffer to(kTotal);
  const Stream other;
  for (uint64_t slab = 16 << 10; slab <= 16 << 20; slab *= 2) {
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(kTotal / slab, 2048));
    const PinnedBuffer list(n * sizeof(Move));
    auto* device_moves = reinterpret_cast<Move*>(list.data());
    std::vector<Move> moves;
    for (uint32_t i = 0; i < n; ++i) {
      moves.push_back({to.data() + i * slab, from.data() + i * slab, slab});
      device_moves[i] = {to.data() + i * slab, from.device_data() + i * slab, slab};
    }
    const double bytes = static_cast<double>(n) * static_cast<double>(slab);
    const auto blocks = static_cast<uint32_t>(std::clamp<uint64_t>(slab / 65536, 1, 16));
    const auto gathered = [&](uint32_t first, uint32_t count, const Stream& stream) {
      gather(reinterpret_cast<const Move*>(list.device_data()) + first, count, blocks, stream.get());
    };
    constexpr double kLink = 63e9;  // PCIe 5.0 x16 less its encoding
    const std::string size = " " + std::to_string(slab >> 10) + " KiB x " + std::to_string(n);
    bench.row("move one by one" + size,
              time_stream(bench.stream,
                          [&] {
                            for (const Move& m : moves) copy_to_device(m.to, m.from, m.n_bytes, bench.stream.get());
                          }),
              n, bytes, "GB/s", kLink);
    bench.row("move batched" + size,
              time_stream(bench.stream, [&] { copy_batch(moves.data(), n, bench.stream.get()); }), n, bytes, "GB/s",
              kLink);
    bench.row("move gathered" + size, time_stream(bench.stream, [&] { gathered(0, n, bench.stream); }), n, bytes,
              "GB/s", kLink);
    Event fork, join;
    bench.row("move half batched, half gathered" + size,
              time_stream(bench.stream,
                          [&] {
                            fork.record(bench.stream);
                            fork.make_wait(other);
                            gathered(n / 2, n - n / 2, other);
                            copy_batch(moves.data(), n / 2, bench.stream.get());
                            join.record(other);
                            join.make_wait(bench.stream);
                          }),
              n, bytes, "GB/s", kLink);
  }
}

// Moves and a row kernel at once: each one's rate alone, and while the other runs on another stream. Both take about
// the same time alone; each is timed from the common start to its own end.
void bench_contention(const Bench& bench) {
  constexpr uint64_t kTotal = 256ULL << 20;
  constexpr uint32_t kRows = 65536;
  constexpr uint32_t kK = 4096;
  const Acts x(bench, 1, kK);
  const DeviceBuffer out(kRows * 4), to(kTotal);
  const PinnedBuffer from(kTotal);
  std::fill_n(from.data(), kTotal, std::byte{0x5A});
  const uint64_t matrix = static_cast<uint64_t>(kRows) * format::row_bytes(TensorType::kQ4_0, kK);
  constexpr uint64_t kLaunches = 115;  // 4.9 ms
  ProductArgs args;
  args.type = TensorType::kQ4_0, args.n_rows = kRows, args.k = kK, args.most_pairs = 1, args.x = x.view();
  args.out = out.as<float>(), args.out_stride = kRows;
  const auto queue_rows = [&](const Stream& stream) {
    for (uint64_t i = 0; i < kLaunches; ++i) {
      args.job = {bench.noise.data() + i % (kRotate / matrix) * matrix, nullptr, 0, 1};
      product(args, stream.get());
    }
  };
  const Stream other;
  for (const uint64_t slab : {64ULL << 10, 1ULL << 20, 16ULL << 20}) {
    const auto n = static_cast<uint32_t>(kTotal / slab);
    const PinnedBuffer list(n * sizeof(Move));
    auto* device_moves = reinterpret_cast<Move*>(list.data());
    std::vector<Move> moves;
    for (uint32_t i = 0; i < n; ++i) {
      moves.push_back({to.data() + i * slab, from.data() + i * slab, slab});
      device_moves[i] = {to.data() + i * slab, from.device_data() + i * slab, slab};
    }
    const auto blocks = static_cast<uint32_t>(std::clamp<uint64_t>(slab / 65536, 1, 16));
    for (const bool gathered : {false, true}) {
      const auto queue_moves = [&](const Stream& stream) {
        if (!gathered) return copy_batch(moves.data(), n, stream.get());
        gather(reinterpret_cast<const Move*>(list.device_data()), n, blocks, stream.get());
      };
      Event start(Event::Timing::kOn), rows_end(Event::Timing::kOn), moves_end(Event::Timing::kOn);
      // Seconds of the rows and of the moves, 0 where one does not run.
      const auto run = [&](bool with_rows, bool with_moves) {
        std::vector<double> rows_s, moves_s;
        for (int i = -2; i < kRepeats; ++i) {
          start.record(bench.stream);
          start.make_wait(other);
          if (with_rows) queue_rows(bench.stream);
          rows_end.record(bench.stream);
          if (with_moves) queue_moves(other);
          moves_end.record(other);
          moves_end.synchronize(), rows_end.synchronize();
          if (i < 0) continue;
          rows_s.push_back(rows_end.milliseconds_since(start) * 1e-3);
          moves_s.push_back(moves_end.milliseconds_since(start) * 1e-3);
        }
        return std::pair{summarize(rows_s), summarize(moves_s)};
      };
      const std::string what = std::string(gathered ? "gathered " : "batched ") + std::to_string(slab >> 10) + " KiB";
      const double row_bytes = static_cast<double>(matrix * kLaunches);
      const auto rows_alone = run(true, false).first;
      const auto moves_alone = run(false, true).second;
      const auto both = run(true, true);
      constexpr double kLink = 63e9;
      bench.row("contention rows alone", rows_alone, kLaunches, row_bytes, "GB/s", bench.copy_rate);
      bench.row("contention rows beside " + what, both.first, kLaunches, row_bytes, "GB/s", bench.copy_rate);
      bench.row("contention " + what + " alone", moves_alone, n, static_cast<double>(kTotal), "GB/s", kLink);
      bench.row("contention " + what + " beside rows", both.second, n, static_cast<double>(kTotal), "GB/s", kLink);
    }
  }
}

int run(int argc, char** argv) {
  Bench bench;
  bench.info = open_device(0);
  int driver = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  std::printf("# %s, sm_%u, %u multiprocessors, L2 %llu MiB, driver CUDA %d, runtime %d\n", bench.info.name.c_str(),
              bench.info.sm, bench.info.n_multiprocessors, static_cast<unsigned long long>(bench.info.l2_bytes >> 20),
              driver, CUDART_VERSION);
  std::printf("case,us median,us best,us worst,rate,unit,share\n");
  const auto wanted = [&](const char* group) {
    return argc <= 1 || std::any_of(argv + 1, argv + argc, [&](const char* arg) { return std::string(arg) == group; });
  };
  measure_copy(bench);
  bench.noise = random_memory(kRotate + (256ULL << 20), 5);
  if (wanted("rows")) bench_rows(bench);
  if (wanted("experts")) {
    bench_experts(bench, 8, 2048, 768, 1);
    bench_experts(bench, 10, 2560, 640, 1);
    bench_experts(bench, 8, 2048, 768, 4);
  }
  if (wanted("tiles")) bench_tiles(bench);
  if (wanted("attention")) bench_attention(bench);
  if (wanted("small")) bench_small(bench);
  if (wanted("moves")) bench_moves(bench);
  if (wanted("contention")) bench_contention(bench);
  return 0;
}

}  // namespace
}  // namespace outrider::cuda

int main(int argc, char** argv) {
  try {
    return outrider::cuda::run(argc, argv);
  } catch (const outrider::Error& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 2;
  }
}

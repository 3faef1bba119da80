// SPDX-License-Identifier: Apache-2.0
// cuda_bench [GROUP...]: rates of the device kernels, in GB/s or TOP/s and as a share of the measured copy rate or of
// the card's int8 peak. Groups: rows experts tiles attention small moves contention (all). CSV on stdout. Method: a
// graph of launches that rotate over more memory than the L2 holds is replayed; the figure is the median of kRepeats
// replays between two events, with the fastest and the slowest beside it. Inputs are random, not zero. The bits of the
// same kernels are cuda_test's business.
#include "outrider/base/error.h"
#include "outrider/cuda/bench/bench.h"

namespace outrider::cuda {
namespace {

using format::TensorType;

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

// Without scratch memory, with it, and with it as the product before left it.
void bench_tiles(const Bench& bench, uint32_t n_rows, uint32_t n_tokens) {
  constexpr uint32_t kK = 4096;
  const Acts x(bench, n_tokens, kK);
  const DeviceBuffer out(static_cast<uint64_t>(n_tokens) * n_rows * 4);
  const DeviceBuffer scratch(product_scratch_bytes(kK, 1, n_tokens));
  for (const TensorType type : kMainTypes) {
    for (const char* way : {"", " scratch", " scratch made"}) {
      ProductArgs args;
      args.type = type, args.n_rows = n_rows, args.k = kK, args.job = {nullptr, nullptr, 0, n_tokens};
      args.most_pairs = n_tokens, args.x = x.view(), args.out = out.as<float>(), args.out_stride = n_rows;
      args.scratch = *way != 0 ? scratch.data() : nullptr;
      args.is_scratch_made = std::string(way) == " scratch made";
      const uint64_t bytes = static_cast<uint64_t>(n_rows) * format::row_bytes(type, kK);
      const uint64_t copies = std::min<uint64_t>(8, kRotate / bytes);
      const Times t = time_graph(bench.stream, [&] {
        for (uint64_t i = 0; i < copies; ++i) {
          args.job.weights = bench.noise.data() + i * bytes;
          product(args, bench.stream.get());
        }
      });
      const double ops = 2.0 * n_rows * kK * n_tokens * static_cast<double>(copies);
      bench.row(
          "tiles " + type_name(type) + " " + std::to_string(n_rows) + "x4096 tokens " + std::to_string(n_tokens) + way,
          t, copies, ops, "GOP/s", kInt8PeakTops * 1e12);
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
      const char* const names[] = {"f16", "f32", "q8_0"};
      for (const bool ahead : {false, true}) {
        args.ahead = ahead;
        const Times t = time_graph(bench.stream, [&] {
          for (uint64_t i = 0; i < layers; ++i) {
            args.k_cache = bench.noise.data() + 2 * i * side;
            args.v_cache = bench.noise.data() + (2 * i + 1) * side;
            attention(args, bench.stream.get());
          }
        });
        bench.row(std::string("attention decode ") + names[static_cast<int>(type)] + " 32768 positions heads " +
                      std::to_string(n_heads) + "/4 width 128" + (ahead ? " ahead" : ""),
                  t, layers, static_cast<double>(2 * side * layers), "GB/s", bench.copy_rate);
      }
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
  if (wanted("experts")) bench_experts(bench);
  if (wanted("packed")) bench_packed(bench);
  if (wanted("tiles")) {
    for (const uint32_t n_tokens : {32U, 64U, 256U, 1024U}) bench_tiles(bench, 8192, n_tokens);
    bench_tiles(bench, 65536, 256);
  }
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

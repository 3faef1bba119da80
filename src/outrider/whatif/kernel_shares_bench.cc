// SPDX-License-Identifier: Apache-2.0
// How near the weight kernels come to what the processor can do, printed as CSV: products of one token (`row`) as a
// share of the rate at which the same threads read the same pages, products of many tokens (`tile`) as a share of the
// int8 peak. Kernel and ceiling alternate within milliseconds and shares are of such pairs, so that a noisy machine
// disturbs both.
//   outrider_whatif_bench [THREADS [ISA [TYPE ...]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/cpu.h"
#include "outrider/base/random.h"
#include "outrider/base/thread_pool.h"
#include "outrider/kernels/matmul/matmul_variants.h"
#include "outrider/kernels/quantize_act/quantize_act.h"
#include "outrider/whatif/arithmetic.h"
#include "outrider/whatif/machine.h"

namespace outrider::whatif {
namespace {

constexpr uint32_t kK = 2048;
constexpr uint64_t kColdBytes = 256ULL << 20;  // several times the last cache
constexpr uint64_t kWarmBytes = 1ULL << 20;    // of each thread: within its second-level cache
constexpr uint32_t kMostTokens = 64;
constexpr uint32_t kPairs = 15;
constexpr uint32_t kTaskRows = 64;

template <typename Work>
double seconds_of(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Tokens {
  explicit Tokens(uint32_t n)
      : f32(n * uint64_t{kK}), d(f32.size() / 32), sum32(f32.size() / 32), sum16(f32.size() / 16), q(f32.size(), "q") {
    Random rng(1);
    for (float& x : f32) x = rng.uniform(-1.0F, 1.0F);
    kernels::choose_quantize_act(Isa::kScalar)(f32.data(), n * kK, q.as<int8_t>(), d.data(), sum32.data(),
                                               sum16.data());
  }
  numerics::Activations view() { return {f32.data(), kK, q.as<int8_t>(), d.data(), sum32.data(), sum16.data(), kK}; }

  std::vector<float> f32, d;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
  AlignedBuffer q;  // aligned, as the engine's activations are
};

class Shares {
 public:
  Shares(uint32_t n_threads, Isa isa)
      : pool_(n_threads), isa_(isa), weights_(kColdBytes, "weights"), tokens_(kMostTokens), out_(kColdBytes / 64) {
    // Bytes 0x30..0x3B: every scale is a normal number, whatever its format; no work depends on the values.
    Random rng(1);
    for (uint64_t i = 0; i < kColdBytes; ++i) weights_.data()[i] = static_cast<std::byte>(0x30 + rng.next_u64() % 12);
  }

  void row(format::TensorType type) {
    kernels::MatmulArgs args = problem(type, kColdBytes, 1);
    const uint64_t bytes = args.weights.row_bytes * args.weights.n_rows;
    std::vector<double> rates, ceilings;
    for (uint32_t pair = 0; pair <= kPairs; ++pair) {
      const double reading = seconds_of([&] {
        over_rows(args, [&](const kernels::MatmulArgs& part) {
          read_bytes(part.weights.data + part.row_begin * part.weights.row_bytes,
                     (part.row_end - part.row_begin) * part.weights.row_bytes);
        });
      });
      const double work = seconds_of([&] { over_rows(args, kernels::choose_matmul(isa_, type)); });
      if (pair == 0) continue;  // first touches
      rates.push_back(static_cast<double>(bytes) / 1e9 / work);
      ceilings.push_back(static_cast<double>(bytes) / 1e9 / reading);
    }
    print("row", type, 1, rates, ceilings);
  }

  void tile(format::TensorType type, uint32_t n_tokens) {
    const ArithmeticLoop* loop = nullptr;
    for (const ArithmeticLoop& l : int8_loops()) {
      if (l.isa <= isa_) loop = &l;
    }
    if (loop == nullptr) return;
    const uint32_t n_threads = pool_.n_threads();
    kernels::MatmulArgs args = problem(type, kWarmBytes, n_tokens);
    const double macs = static_cast<double>(args.weights.n_rows) * kK * n_tokens * n_threads;
    uint64_t rounds = 1000;
    std::vector<double> rates, ceilings;
    for (uint32_t pair = 0; pair <= kPairs; ++pair) {
      const double peak = seconds_of([&] { pool_.run(n_threads, [&](uint32_t, uint32_t) { loop->run(rounds); }); });
      const double work = seconds_of([&] {
        pool_.run(n_threads, [&](uint32_t thread, uint32_t) {
          kernels::MatmulArgs own = args;
          own.weights.data += thread * kWarmBytes;
          own.out += thread * (out_.size() / n_threads);
          kernels::choose_matmul(isa_, type)(own);
        });
      });
      const double peak_rate = static_cast<double>(rounds * loop->macs_per_round * n_threads) / 1e9 / peak;
      rounds = std::max<uint64_t>(1000, static_cast<uint64_t>(static_cast<double>(rounds) * work / peak));
      if (pair == 0) continue;
      rates.push_back(macs / 1e9 / work);
      ceilings.push_back(peak_rate);
    }
    print("tile", type, n_tokens, rates, ceilings);
  }

 private:
  kernels::MatmulArgs problem(format::TensorType type, uint64_t weight_bytes, uint32_t n_tokens) {
    const uint64_t row_bytes = format::row_bytes(type, kK);
    kernels::MatmulArgs args;
    args.weights = {type, weights_.data(), row_bytes, static_cast<uint32_t>(weight_bytes / row_bytes), kK};
    args.row_end = args.weights.n_rows;
    args.x = tokens_.view();
    args.n_tokens = n_tokens;
    args.out = out_.data();
    args.out_stride = args.weights.n_rows;
    return args;
  }

  template <typename Work>
  void over_rows(const kernels::MatmulArgs& args, Work work) {
    pool_.run((args.row_end + kTaskRows - 1) / kTaskRows, [&](uint32_t task, uint32_t) {
      kernels::MatmulArgs part = args;
      part.row_begin = task * kTaskRows;
      part.row_end = std::min(args.row_end, part.row_begin + kTaskRows);
      work(part);
    });
  }

  void print(const char* kind, format::TensorType type, uint32_t n_tokens, const std::vector<double>& rates,
             const std::vector<double>& ceilings) {
    std::vector<double> shares;
    for (size_t i = 0; i < rates.size(); ++i) shares.push_back(rates[i] / ceilings[i]);
    const auto median = [](std::vector<double> values) {
      std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
      return values[values.size() / 2];
    };
    const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
    std::printf("%s,%s,%s,%u,%u,%.1f,%.1f,%.2f,%.2f,%.2f\n", kind, std::string(format::type_info(type).name).c_str(),
                std::string(isa_name(isa_)).c_str(), pool_.n_threads(), n_tokens, median(rates), median(ceilings),
                median(shares), *low, *high);
    std::fflush(stdout);
  }

  ThreadPool pool_;
  Isa isa_;
  AlignedBuffer weights_;
  Tokens tokens_;
  std::vector<float> out_;
};

int run(int argc, char** argv) {
  const auto n_threads = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : core_budget().default_threads;
  const Isa isa = argc > 2 ? parse_isa(argv[2]).value_or(best_isa()) : best_isa();
  Shares shares(std::max(1U, n_threads), isa);
  std::printf("# %s; GB/s of weights (row), GMAC/s (tile), all threads; share = median, least, most of %u pairs\n",
              cpu_name().c_str(), kPairs);
  std::printf("kind,type,isa,threads,tokens,rate,ceiling,share,share_min,share_max\n");
  for (const kernels::MatmulVariant& variant : kernels::matmul_variants()) {
    const bool is_quantized = kernels::activation_form(variant.type) == kernels::ActivationForm::kQuantized;
    if (variant.needs != Isa::kScalar || !is_quantized) continue;
    const std::string name(format::type_info(variant.type).name);
    if (argc > 3 && std::none_of(argv + 3, argv + argc, [&](const char* wanted) { return name == wanted; })) continue;
    shares.row(variant.type);
    for (const uint32_t n_tokens : {8U, 32U, kMostTokens}) shares.tile(variant.type, n_tokens);
  }
  return 0;
}

}  // namespace
}  // namespace outrider::whatif

int main(int argc, char** argv) { return outrider::whatif::run(argc, argv); }

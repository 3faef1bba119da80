// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/operations.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/random.h"
#include "outrider/engine/cpu_device.h"
#include "outrider/engine/sampler.h"

namespace outrider::whatif {

namespace {

using Clock = std::chrono::steady_clock;
using format::TensorType;
using kernels::KvType;

constexpr uint32_t kD = 2048, kFf = 768;  // an expert's, as of a model of 30 billion weights
constexpr uint32_t kMostTokens = 512;
constexpr uint32_t kRowExperts = 8, kTileExperts = 2;
constexpr uint32_t kMostPairs = kTileExperts * kExpertTokens.back();
constexpr uint32_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr uint32_t kRoutedExperts = 128, kRoutedUsed = 8, kLogits = 32768;
constexpr std::array<KvType, 3> kKvTypes = {KvType::kF16, KvType::kF32, KvType::kQ8_0};

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// Of one call: the median of three readings of 4 ms, after a call that only warms up; of the slowest kernels that call.
template <typename Work>
double ns_of(const Work& work) {
  constexpr double kReadingNs = 4e6, kSlowNs = 5e7;
  const auto first = Clock::now();
  work();
  if (const double ns = ns_since(first); ns > kSlowNs) return ns;
  std::array<double, 3> readings = {};
  for (double& reading : readings) {
    const auto start = Clock::now();
    uint32_t n_calls = 0;
    do {
      work();
      ++n_calls;
    } while (ns_since(start) < kReadingNs);
    reading = ns_since(start) / n_calls;
  }
  std::sort(readings.begin(), readings.end());
  return readings[1];
}

struct Activations {
  Activations(uint32_t n_rows, uint32_t k)
      : f32(uint64_t{n_rows} * k),
        d(f32.size() / 32),
        sum32(f32.size() / 32),
        sum16(f32.size() / 16),
        q(f32.size(), "q") {
    Random random(k);
    for (float& x : f32) x = random.uniform(-1.0F, 1.0F);
    rows = {
        .f32 = f32.data(), .q = q.as<int8_t>(), .d = d.data(), .sum32 = sum32.data(), .sum16 = sum16.data(), .k = k};
  }
  std::vector<float> f32, d;
  std::vector<int32_t> sum32;
  std::vector<int16_t> sum16;
  AlignedBuffer q;
  engine::Rows rows;
};

kernels::Weights matrix(TensorType type, uint32_t n_rows, uint32_t k) {
  return {.type = type, .row_bytes = format::row_bytes(type, k), .n_rows = n_rows, .k = k};
}

// Times operations on made-up weights, each product on some that have not been used for a while.
class Stopwatch {
 public:
  Stopwatch(uint32_t n_threads, Isa isa, uint64_t most_bytes)
      : device_(isa, n_threads, kRoutedExperts, kHeadDim),
        weights_(std::clamp<uint64_t>(most_bytes, 32ULL << 20, 128ULL << 20), "operations"),
        x_(kMostTokens, kD),
        hidden_(kMostPairs, kFf),
        up_(uint64_t{kMostPairs} * kFf),
        out_(uint64_t{kMostTokens} * kHeads * kHeadDim) {
    // Bytes 0x30..0x3B: every scale is a normal number, whatever its format; no work depends on the values.
    constexpr uint64_t kPattern = 1ULL << 20;
    Random random(1);
    for (uint64_t i = 0; i < kPattern; ++i) weights_.data()[i] = static_cast<std::byte>(0x30 + random.next_u64() % 12);
    for (uint64_t at = kPattern; at < weights_.size(); at += kPattern)
      std::memcpy(weights_.data() + at, weights_.data(), std::min(kPattern, weights_.size() - at));
    for (uint32_t pair = 0; pair < kMostPairs; ++pair)
      pair_row_.push_back(static_cast<uint32_t>(random.below(kMostTokens)));
    device_.quantize(x_.rows, kMostTokens);
  }

  ProductRates products(TensorType type) {
    ProductRates rates{.type = type};
    const uint64_t bytes = expert_bytes(type, kD, kFf);
    const auto elems = static_cast<double>(3ULL * kD * kFf);
    const auto n_row_experts = static_cast<uint32_t>(std::clamp<uint64_t>(weights_.size() / bytes, 1, kRowExperts));
    rates.row_gbps =
        static_cast<double>(n_row_experts * bytes) / ns_of([&] { experts(type, n_row_experts, 1, kD, kFf); });
    for (size_t i = 0; i < kExpertTokens.size(); ++i) {
      const double macs = elems * kTileExperts * kExpertTokens[i];
      rates.expert_gmacs[i] = macs / ns_of([&] { experts(type, kTileExperts, kExpertTokens[i], kD, kFf); });
    }
    engine::DeviceLinear dense = {.w = matrix(type, kD, kD), .bias = nullptr, .scale = 1};
    rates.dense_gmacs = static_cast<double>(kD) * kD * kDenseTokens / ns_of([&] {
                          dense.w.data = take(dense.w.row_bytes * kD);
                          const engine::LinearOp op = {&dense, out_.data()};
                          device_.linear({&op, 1}, x_.rows, kDenseTokens);
                        });
    return rates;
  }

  AttentionRates attention(KvType type) {
    constexpr uint32_t kRows = 64, kRowsContext = 512, kRowContext = 2048;
    AttentionRates rates{.kv_type = type};
    const auto macs = [](uint64_t n_positions) { return static_cast<double>(n_positions * kHeads * 2 * kHeadDim); };
    rates.row_gmacs = macs(kRowContext) / ns_of([&] { attend(type, kRowContext, 1); });
    rates.rows_gmacs = macs(kRows * (kRowsContext - kRows) + kRows * (kRows + 1) / 2) /
                       ns_of([&] { attend(type, kRowsContext, kRows); });
    return rates;
  }

  // What a product of small matrices takes beyond its bytes: threads woken and waited for, activations that go from
  // core to core, the first lines of each matrix.
  double fork_ns() {
    constexpr TensorType kType = TensorType::kQ8_0;
    constexpr uint32_t kSmallD = 512, kSmallFf = 64, kForks = 3;
    const uint64_t large_bytes = kRowExperts * expert_bytes(kType, kD, kFf),
                   small_bytes = kRowExperts * expert_bytes(kType, kSmallD, kSmallFf);
    const double ns_a_byte = ns_of([&] { experts(kType, kRowExperts, 1, kD, kFf); }) / static_cast<double>(large_bytes);
    const double ns = ns_of([&] { experts(kType, kRowExperts, 1, kSmallD, kSmallFf); });
    return std::max(0.0, ns - ns_a_byte * static_cast<double>(small_bytes)) / kForks;
  }

  void small_costs(OperationRates& rates) {
    const std::vector<float> ones(kD, 1.0F);
    rates.norm_ns = ns_of([&] {
                      device_.norm({.x = x_.f32.data(),
                                    .weight = ones.data(),
                                    .eps = 1e-6F,
                                    .n_rows = 1,
                                    .quantize = true,
                                    .y = norm_.rows});
                    }) /
                    kD;
    std::array<uint32_t, kRoutedUsed> ids = {}, pairs = {};
    std::array<float, kRoutedUsed> chosen = {};
    std::vector<float> sum(kD), row(kD);
    for (uint32_t i = 0; i < kRoutedUsed; ++i) pairs[i] = i;
    rates.combine_ns = ns_of([&] {
                         device_.combine({.x = row.data(),
                                          .expert_out = x_.f32.data(),
                                          .pair_of = pairs.data(),
                                          .weights = chosen.data(),
                                          .sum = sum.data(),
                                          .n_rows = 1,
                                          .n_used = kRoutedUsed,
                                          .d_model = kD});
                       }) /
                       (kRoutedUsed * kD);
    rates.route_ns = ns_of([&] {
                       device_.route({.spec = {.n_experts = kRoutedExperts, .n_used = kRoutedUsed, .normalize = true},
                                      .logits = x_.f32.data(),
                                      .n_rows = 1,
                                      .ids = ids.data(),
                                      .weights = chosen.data()});
                     }) /
                     kRoutedExperts;
    engine::SamplerOptions options;
    options.seed = 1;
    engine::Sampler sampler(options, kLogits);
    rates.sample_ns = ns_of([&] { sampler.sample({x_.f32.data(), kLogits}); }) / kLogits;
  }

 private:
  static uint64_t expert_bytes(TensorType type, uint32_t d, uint32_t ff) noexcept {
    return 2 * format::row_bytes(type, d) * ff + format::row_bytes(type, ff) * d;
  }

  // Weights that have not been used for as long as there are others.
  const std::byte* take(uint64_t n_bytes) noexcept {
    if (next_ + n_bytes > weights_.size()) next_ = 0;
    const std::byte* data = weights_.data() + next_;
    next_ += n_bytes;
    return data;
  }

  void experts(TensorType type, uint32_t n_experts, uint32_t n_tokens, uint32_t d, uint32_t ff) {
    engine::ExpertShape shape;
    shape.gate = shape.up = matrix(type, ff, d);
    shape.down = matrix(type, d, ff);
    engine::Rows x = x_.rows, hidden = hidden_.rows;
    x.k = d;
    hidden.k = ff;
    shape.up_part = 1;
    shape.down_part = 2;
    const uint64_t in_bytes = shape.up.row_bytes * ff;
    std::array<engine::ExpertJob, kRowExperts> jobs;
    for (uint32_t i = 0; i < n_experts; ++i) {
      const std::byte* slab = take(expert_bytes(type, d, ff));
      jobs[i] = {.slab = {.expert = i, .slot_idx = i, .parts = {slab, slab + in_bytes, slab + 2 * in_bytes}},
                 .pair_begin = i * n_tokens,
                 .n_pairs = n_tokens,
                 .scratch_begin = i * n_tokens};
    }
    device_.experts({.shape = &shape,
                     .jobs = {jobs.data(), n_experts},
                     .x = x,
                     .pair_row = pair_row_.data(),
                     .hidden = hidden,
                     .up = up_.data(),
                     .out = out_.data()});
  }

  // n_rows tokens, the last of which sees `context` positions.
  void attend(KvType type, uint32_t context, uint32_t n_rows) {
    const uint64_t row_bytes = kernels::kv_row_bytes(type, kHeadDim), head_bytes = row_bytes * context;
    // Only read; the device's view is one for storing, too.
    auto* k = const_cast<std::byte*>(take(2 * head_bytes * kKvHeads));
    const engine::KvLayer kv = {.k = k,
                                .v = k + head_bytes * kKvHeads,
                                .k_head_stride = head_bytes,
                                .v_head_stride = head_bytes,
                                .k_row_bytes = row_bytes,
                                .v_row_bytes = row_bytes,
                                .type = type};
    std::vector<engine::RowPlace> places;
    for (uint32_t row = 0; row < n_rows; ++row) places.push_back({.sequence = 0, .position = context - n_rows + row});
    device_.attention({kHeads, kKvHeads, kHeadDim, kHeadDim, 0.1F}, x_.f32.data(), kv, places, out_.data());
  }

  engine::CpuDevice device_;
  AlignedBuffer weights_;
  uint64_t next_ = 0;
  Activations x_, hidden_, norm_{1, kD};
  std::vector<float> up_, out_;
  std::vector<uint32_t> pair_row_;
};

}  // namespace

double ProductRates::gmacs(double n_tokens, bool is_dense) const noexcept {
  const format::TypeInfo& info = format::type_info(type);
  const double row = row_gbps * info.block_elems / info.block_bytes;
  std::array<std::pair<double, double>, kExpertTokens.size() + 1> points = {{{1, row}}};
  for (size_t i = 0; i < kExpertTokens.size(); ++i) points[i + 1] = {kExpertTokens[i], expert_gmacs[i]};
  if (is_dense) points.back() = {kDenseTokens, dense_gmacs};
  // Between two sizes the rate goes with the logarithm of the number.
  if (n_tokens <= 1) return row;
  for (size_t i = 1; i < points.size(); ++i) {
    if (n_tokens > points[i].first) continue;
    const double at = std::log(n_tokens / points[i - 1].first) / std::log(points[i].first / points[i - 1].first);
    return points[i - 1].second + at * (points[i].second - points[i - 1].second);
  }
  return points.back().second;
}

const ProductRates* OperationRates::product(TensorType type) const noexcept {
  const auto found =
      std::find_if(products.begin(), products.end(), [&](const ProductRates& r) { return r.type == type; });
  return found != products.end() ? &*found : nullptr;
}

const AttentionRates* OperationRates::attention_of(KvType type) const noexcept {
  const auto found =
      std::find_if(attention.begin(), attention.end(), [&](const AttentionRates& r) { return r.kv_type == type; });
  return found != attention.end() ? &*found : nullptr;
}

std::vector<TensorType> weight_types() {
  std::vector<TensorType> types;
  for (const format::TypeInfo& info : format::kTensorTypes) {
    if (info.is_weight) types.push_back(info.type);
  }
  return types;
}

uint64_t n_operation_steps(std::span<const TensorType> types) noexcept { return types.size() + kKvTypes.size() + 1; }

OperationRates measure_operations(uint32_t n_threads, Isa isa, uint64_t most_bytes, std::span<const TensorType> types,
                                  const std::function<void()>& step) {
  Stopwatch stopwatch(n_threads, isa, most_bytes);
  OperationRates rates;
  for (const TensorType type : types) {
    rates.products.push_back(stopwatch.products(type));
    step();
  }
  for (const KvType type : kKvTypes) {
    rates.attention.push_back(stopwatch.attention(type));
    step();
  }
  stopwatch.small_costs(rates);
  rates.fork_ns = stopwatch.fork_ns();
  step();
  return rates;
}

}  // namespace outrider::whatif

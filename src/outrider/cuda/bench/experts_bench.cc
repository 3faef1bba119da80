// SPDX-License-Identifier: Apache-2.0
// cuda_bench experts: the expert products of layers one after the other, every layer's weights elsewhere in memory; and
// beside them what any kernel could reach: launches that only read the same bytes (floor), and the same layer again and
// again, whose weights lie in the L2, so that little but the chain of dependent steps is left.
#include <array>
#include <span>
#include <utility>

#include "outrider/cuda/bench/bench.h"
#include "outrider/cuda/bench/floor.h"

namespace outrider::cuda {
namespace {

using format::TensorType;

// How a layer goes.
enum class Way : uint8_t {
  kGatedOnly,
  kDownOnly,
  kGatedAhead,
  kDownAhead,
  kGatedFree,  // launches that do not depend on each other, on kStreams streams
  kDownFree,
  kBothFree,
  kTwo,
  kTwoDownAhead,
  kTwoAhead,
  kHanded,
  kHandedAhead
};
constexpr bool is_gated_only(Way way) {
  return way == Way::kGatedOnly || way == Way::kGatedAhead || way == Way::kGatedFree;
}
constexpr bool is_down_only(Way way) {
  return way == Way::kDownOnly || way == Way::kDownAhead || way == Way::kDownFree;
}
constexpr bool is_free(Way way) { return way == Way::kGatedFree || way == Way::kDownFree || way == Way::kBothFree; }
constexpr uint32_t kStreams = 8;
constexpr uint32_t kFreeRounds = 4;  // over all layers in a graph, whose begin and end would count otherwise

struct LayerShape {
  uint32_t n_experts, d_model, d_ff;  // experts that have tokens
  std::vector<uint32_t> pair_rows;    // row of x of each (token, expert) pair, experts one after the other
  std::vector<uint32_t> n_pairs;      // of each expert
  uint32_t n_tokens;
  bool has_job_a_pair = false;  // else a job for each expert
};

std::string name_of(const LayerShape& s) {
  return std::to_string(s.n_experts) + " of " + std::to_string(s.d_model) + "x" + std::to_string(s.d_ff) + " tokens " +
         std::to_string(s.n_tokens) + (s.has_job_a_pair ? " a job a pair" : "");
}

// All tokens with the same experts.
LayerShape same_experts(uint32_t n_used, uint32_t d_model, uint32_t d_ff, uint32_t n_tokens) {
  LayerShape s{n_used, d_model, d_ff, {}, std::vector<uint32_t>(n_used, n_tokens), n_tokens, false};
  for (uint32_t i = 0; i < n_used * n_tokens; ++i) s.pair_rows.push_back(i % n_tokens);
  return s;
}
// Tokens that choose n_used of n_experts each, independently.
LayerShape drawn_experts(uint32_t n_experts, uint32_t n_used, uint32_t d_model, uint32_t d_ff, uint32_t n_tokens) {
  Random rng(11);
  std::vector<std::vector<uint32_t>> rows(n_experts);
  for (uint32_t token = 0; token < n_tokens; ++token) {
    for (uint32_t left = n_used; left > 0;) {
      std::vector<uint32_t>& list = rows[rng.below(n_experts)];
      if (!list.empty() && list.back() == token) continue;
      list.push_back(token), --left;
    }
  }
  LayerShape s{0, d_model, d_ff, {}, {}, n_tokens, false};
  for (const std::vector<uint32_t>& list : rows) {
    if (list.empty()) continue;
    ++s.n_experts;
    s.n_pairs.push_back(static_cast<uint32_t>(list.size()));
    s.pair_rows.insert(s.pair_rows.end(), list.begin(), list.end());
  }
  return s;
}

// Layers of one shape and type, their weights side by side in the noise.
class Layers {
 public:
  Layers(const Bench& bench, const LayerShape& shape, TensorType type, bool packed)
      : bench_(bench),
        shape_(shape),
        type_(type),
        packed_(packed),
        n_pairs_(shape.pair_rows.size()),
        x_(bench, shape.n_tokens, shape.d_model),
        out_(kStreams * n_pairs_ * shape.d_model * 4),
        pair_rows_(n_pairs_ * 4) {
    for (uint32_t s = 0; s < kStreams; ++s) hidden_.emplace_back(bench, static_cast<uint32_t>(n_pairs_), shape.d_ff);
    in_bytes_ = static_cast<uint64_t>(shape.d_ff) * format::row_bytes(type, shape.d_model);
    down_bytes_ = static_cast<uint64_t>(shape.d_model) * format::row_bytes(type, shape.d_ff);
    in_stride_ = packed ? packed_bytes(type, shape.d_ff, shape.d_model) : in_bytes_;
    down_stride_ = packed ? packed_bytes(type, shape.d_model, shape.d_ff) : down_bytes_;
    n_layers_ = kRotate / (shape_.n_experts * (2 * in_stride_ + down_stride_));
    n_jobs_ = shape.has_job_a_pair ? static_cast<uint32_t>(n_pairs_) : shape.n_experts;
    jobs_ = DeviceBuffer(2 * n_layers_ * n_jobs_ * sizeof(ProductJob));
    handed_ = DeviceBuffer(n_layers_ * n_pairs_ * shape.d_ff * 4);
    cuda_check(cudaMemcpy(pair_rows_.data(), shape.pair_rows.data(), n_pairs_ * 4, cudaMemcpyHostToDevice), "copy");
    upload_jobs();
    GatedArgs& in = args_.in;
    ProductArgs& down = args_.down;
    in.in.type = type, in.in.n_rows = shape.d_ff, in.in.k = shape.d_model, in.in.n_jobs = n_jobs_;
    in.in.x = x_.view(), in.in.token_rows = pair_rows_.as<uint32_t>();
    in.in.packed = down.packed = packed;
    down.type = type, down.n_rows = shape.d_model, down.k = shape.d_ff, down.n_jobs = n_jobs_;
    down.x = hidden_[0].view(), down.out_stride = shape.d_model;
  }

  uint64_t n_layers() const { return n_layers_; }
  uint64_t layer_bytes() const { return shape_.n_experts * (2 * in_bytes_ + down_bytes_); }
  uint64_t bytes_of(Way way) const {
    const uint64_t bytes = is_gated_only(way)  ? 2 * in_bytes_
                           : is_down_only(way) ? down_bytes_
                                               : 2 * in_bytes_ + down_bytes_;
    return bytes * shape_.n_experts;
  }

  // `same`: every layer reads the first one's weights.
  Times run(Way way, uint32_t most_pairs, bool same) {
    return time_graph(bench_.stream, [&] {
      if (way >= Way::kHanded) {
        cuda_check(cudaMemsetAsync(handed_.data(), 0xFF, handed_.n_bytes(), bench_.stream.get()), "cudaMemsetAsync");
      }
      if (is_free(way)) return queue_free(way, most_pairs);
      for (uint64_t i = 0; i < n_layers_; ++i) queue(way, most_pairs, i, same ? 0 : i, 0);
    });
  }

 private:
  void upload_jobs() {
    const uint64_t slab = 2 * in_stride_ + down_stride_;
    std::vector<ProductJob> jobs;
    for (const bool is_down : {false, true}) {
      for (uint64_t layer = 0; layer < n_layers_; ++layer) {
        uint32_t begin = 0;
        for (uint32_t i = 0; i < shape_.n_experts; begin += shape_.n_pairs[i++]) {
          const std::byte* at = bench_.noise.data() + (layer * shape_.n_experts + i) * slab;
          const uint32_t each = shape_.has_job_a_pair ? 1 : shape_.n_pairs[i];
          for (uint32_t pair = 0; pair < shape_.n_pairs[i]; pair += each) {
            jobs.push_back(
                {is_down ? at + 2 * in_stride_ : at, is_down ? nullptr : at + in_stride_, begin + pair, each});
          }
        }
      }
    }
    cuda_check(cudaMemcpy(jobs_.data(), jobs.data(), jobs_.n_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  // Launch after launch on stream after stream.
  void queue_free(Way way, uint32_t most_pairs) {
    events_[0].record(bench_.stream);
    for (uint32_t s = 1; s < kStreams; ++s) events_[0].make_wait(streams_[s]);
    uint64_t n = 0;
    for (uint64_t at = 0; at < kFreeRounds * n_layers_; ++at) {
      const uint64_t i = at % n_layers_;
      if (way != Way::kDownFree) queue(Way::kGatedFree, most_pairs, i, i, n++ % kStreams);
      if (way != Way::kGatedFree) queue(Way::kDownFree, most_pairs, i, i, n++ % kStreams);
    }
    for (uint32_t s = 1; s < kStreams; ++s) {
      events_[s].record(streams_[s]);
      events_[s].make_wait(bench_.stream);
    }
  }
  void queue(Way way, uint32_t most_pairs, uint64_t layer, uint64_t weights_of, uint64_t on) {
    const cudaStream_t stream = on == 0 ? bench_.stream.get() : streams_[on].get();
    ExpertLayerArgs args = args_;
    args.in.in.jobs = jobs_.as<ProductJob>() + weights_of * n_jobs_;
    args.down.jobs = jobs_.as<ProductJob>() + (n_layers_ + weights_of) * n_jobs_;
    args.in.in.most_pairs = args.down.most_pairs = most_pairs;
    args.in.in.ahead = way == Way::kTwoAhead || way == Way::kHandedAhead || way == Way::kGatedAhead || is_free(way);
    args.down.ahead = way == Way::kTwoDownAhead || way == Way::kTwoAhead || way == Way::kDownAhead || is_free(way);
    args.in.in.beside = args.down.beside = is_free(way);
    args.in.hidden = hidden_[on].rows();
    args.down.out = out_.as<float>() + on * n_pairs_ * shape_.d_model;
    if (way == Way::kHanded || way == Way::kHandedAhead) {
      args.handed = handed_.as<float>() + layer * n_pairs_ * shape_.d_ff;
      return expert_layer(args, stream);
    }
    if (!is_down_only(way)) gated_product(args.in, stream);
    if (!is_gated_only(way)) product(args.down, stream);
  }

  const Bench& bench_;
  const LayerShape& shape_;
  uint64_t n_pairs_;
  TensorType type_;
  bool packed_;
  uint64_t in_bytes_ = 0, down_bytes_ = 0;    // of a matrix in the file: what rates count
  uint64_t in_stride_ = 0, down_stride_ = 0;  // and as it lies here
  uint64_t n_layers_ = 0;
  uint32_t n_jobs_ = 0;
  Acts x_;
  std::vector<Acts> hidden_;  // of each stream
  DeviceBuffer out_, pair_rows_, jobs_, handed_;
  std::array<Stream, kStreams> streams_;  // the first is unused: the bench's own
  std::array<Event, kStreams> events_;
  ExpertLayerArgs args_;
};

void bench_layer(const Bench& bench, const LayerShape& shape, std::span<const TensorType> types,
                 std::span<const std::pair<Way, const char*>> ways, bool with_cached, bool packed = false) {
  const uint32_t most = shape.has_job_a_pair ? 1 : *std::max_element(shape.n_pairs.begin(), shape.n_pairs.end());
  for (const TensorType type : types) {
    const uint32_t block = format::type_info(type).block_elems;
    if (shape.d_model % block != 0 || shape.d_ff % block != 0) continue;
    Layers layers(bench, shape, type, packed);
    const std::string name = std::string(packed ? " packed " : " ") + type_name(type) + " " + name_of(shape);
    const auto row = [&](const std::string& what, const Times& t, uint64_t bytes, uint32_t rounds = 1) {
      const uint64_t n = rounds * layers.n_layers();
      bench.row("experts " + what + name, t, n, static_cast<double>(bytes * n), "GB/s", bench.copy_rate);
    };
    for (const auto& [way, what] : ways) {
      const uint32_t rounds = is_free(way) ? kFreeRounds : 1;
      row(what, layers.run(way, most, false), layers.bytes_of(way), rounds);
      if (most > 1 && way < Way::kHanded && !packed) {
        row(std::string(what) + " one token at once", layers.run(way, 1, false), layers.bytes_of(way));
      }
    }
    if (with_cached) {
      for (const auto& [way, what] : {std::pair{Way::kTwoAhead, "two launches ahead weights in the L2"},
                                      std::pair{Way::kHandedAhead, "handed over ahead weights in the L2"}}) {
        if (packed && way == Way::kHandedAhead) continue;
        row(what, layers.run(way, most, true), layers.bytes_of(way));
      }
    }
  }
}

// Launches that read as many bytes as a layer has and do nothing with them.
void bench_floor(const Bench& bench, const LayerShape& shape, TensorType type) {
  const uint64_t layer =
      shape.n_experts * 3 * static_cast<uint64_t>(shape.d_ff) * format::row_bytes(type, shape.d_model);
  const DeviceBuffer out(4 << 20);
  for (const uint32_t block_kib : {8U, 16U, 32U, 64U}) {
    const uint32_t n_blocks = static_cast<uint32_t>((layer + block_kib * 1024 - 1) / (block_kib * 1024));
    const auto block_bytes = static_cast<uint32_t>((layer / n_blocks + 15) / 16 * 16);
    const uint64_t bytes = static_cast<uint64_t>(block_bytes) * n_blocks;
    const uint64_t n_layers = kRotate / bytes;
    for (const auto& [floor_way, what] :
         {std::pair{FloorWay::kAfter, "each launch after the other"},
          std::pair{FloorWay::kBehind, "overlapped reading when the one before is done"},
          std::pair{FloorWay::kAhead, "overlapped reading ahead"}}) {
      const Times t = time_graph(bench.stream, [&] {
        for (uint64_t i = 0; i < n_layers; ++i) {
          read_floor({bench.noise.data() + i * bytes, block_bytes, out.as<uint32_t>(), floor_way}, n_blocks,
                     bench.stream.get());
        }
      });
      bench.row("floor " + type_name(type) + " " + name_of(shape) + " blocks of " + std::to_string(block_kib) +
                    " KiB " + what,
                t, n_layers, static_cast<double>(bytes * n_layers), "GB/s", bench.copy_rate);
    }
  }
}

// The three matrices of an expert, or of eight, to the packed layout.
void bench_pack(const Bench& bench, TensorType type, uint32_t d_model, uint32_t d_ff, uint32_t n_experts) {
  const uint64_t in_bytes = static_cast<uint64_t>(d_ff) * format::row_bytes(type, d_model);
  const uint64_t down_bytes = static_cast<uint64_t>(d_model) * format::row_bytes(type, d_ff);
  const uint64_t slab = 2 * in_bytes + down_bytes;
  const uint64_t to_in = packed_bytes(type, d_ff, d_model), to_down = packed_bytes(type, d_model, d_ff);
  const uint64_t n_slabs = kRotate / slab / n_experts * n_experts;
  const DeviceBuffer to(n_slabs * (2 * to_in + to_down));
  const Times t = time_graph(bench.stream, [&] {
    for (uint64_t first = 0; first < n_slabs; first += n_experts) {
      std::vector<PackedMatrix> in, down;
      for (uint64_t i = first; i < first + n_experts; ++i) {
        const std::byte* from = bench.noise.data() + i * slab;
        std::byte* at = to.data() + i * (2 * to_in + to_down);
        in.push_back({from, at}), in.push_back({from + in_bytes, at + to_in});
        down.push_back({from + 2 * in_bytes, at + 2 * to_in});
      }
      pack({type, d_ff, d_model, in.data(), 2 * n_experts}, bench.stream.get());
      pack({type, d_model, d_ff, down.data(), n_experts}, bench.stream.get());
    }
  });
  bench.row("pack " + type_name(type) + " " + std::to_string(n_experts) + " of " + std::to_string(d_model) + "x" +
                std::to_string(d_ff),
            t, n_slabs / n_experts, 2.0 * static_cast<double>(n_slabs * slab), "GB/s", bench.copy_rate);
}

}  // namespace

void bench_packed(const Bench& bench) {
  constexpr std::array<std::pair<Way, const char*>, 5> kWays = {{{Way::kGatedFree, "gate+up independent"},
                                                                 {Way::kDownFree, "down independent"},
                                                                 {Way::kBothFree, "gate+up and down independent"},
                                                                 {Way::kTwo, "two launches"},
                                                                 {Way::kTwoAhead, "two launches both ahead"}}};
  const std::span<const TensorType> types = kMainTypes;
  for (const TensorType type : types) {
    for (const uint32_t n_experts : {1U, 8U}) bench_pack(bench, type, 2048, 768, n_experts);
  }
  bench_layer(bench, same_experts(8, 2048, 768, 1), types, kWays, true, true);
  bench_layer(bench, same_experts(10, 2560, 640, 1), types, kWays, true, true);
  bench_layer(bench, same_experts(8, 2048, 768, 1), types, std::span(kWays).first(3), false);
  bench_layer(bench, same_experts(10, 2560, 640, 1), types, std::span(kWays).first(3), false);
  LayerShape drawn = drawn_experts(128, 8, 2048, 768, 8);
  bench_layer(bench, drawn, types, std::span(kWays).subspan(4), false, true);
  drawn.has_job_a_pair = true;
  bench_layer(bench, drawn, types, std::span(kWays).subspan(4), false, true);
}

void bench_experts(const Bench& bench) {
  constexpr std::array<std::pair<Way, const char*>, 12> kWays = {{{Way::kGatedOnly, "gate+up"},
                                                                  {Way::kDownOnly, "down"},
                                                                  {Way::kGatedAhead, "gate+up ahead"},
                                                                  {Way::kDownAhead, "down ahead"},
                                                                  {Way::kGatedFree, "gate+up independent"},
                                                                  {Way::kDownFree, "down independent"},
                                                                  {Way::kBothFree, "gate+up and down independent"},
                                                                  {Way::kTwo, "two launches"},
                                                                  {Way::kTwoDownAhead, "two launches down ahead"},
                                                                  {Way::kTwoAhead, "two launches both ahead"},
                                                                  {Way::kHanded, "handed over"},
                                                                  {Way::kHandedAhead, "handed over ahead"}}};
  const LayerShape eight = same_experts(8, 2048, 768, 1);
  const LayerShape ten = same_experts(10, 2560, 640, 1);
  const LayerShape drawn = drawn_experts(128, 8, 2048, 768, 8);
  for (const LayerShape* shape : {&eight, &ten, &drawn}) {
    for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) bench_floor(bench, *shape, type);
  }
  bench_layer(bench, eight, kMainTypes, kWays, true);
  bench_layer(bench, ten, kMainTypes, kWays, true);
  bench_layer(bench, same_experts(8, 2048, 768, 4), kMainTypes, std::span(kWays).subspan(7), false);
  bench_layer(bench, drawn, kMainTypes, std::span(kWays).subspan(7), false);
  LayerShape by_pair = drawn;
  by_pair.has_job_a_pair = true;
  bench_layer(bench, by_pair, kMainTypes, std::span(kWays).subspan(7), false);
}

}  // namespace outrider::cuda

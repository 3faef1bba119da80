// SPDX-License-Identifier: Apache-2.0
// Attention for decode and prefill over every cache type, against the scalar reference, row by row.
#include <limits>
#include <thread>

#include "outrider/cuda/test/harness.h"

namespace outrider::cuda::test {
namespace {

using kernels::KvType;

struct Case {
  KvType k_type, v_type;
  uint32_t dk, dv, n_heads, n_kv_heads, n_rows, position, window;
  bool sink, faulty;
};

std::vector<std::byte> random_cache(KvType type, uint32_t width, uint32_t n_heads, uint32_t n_positions,
                                    uint64_t stride, bool faulty, Random& rng) {
  std::vector<std::byte> cache(n_positions * stride, std::byte{0xA5});
  const uint64_t row = kernels::kv_row_bytes(type, width);
  for (uint32_t p = 0; p < n_positions; ++p) {
    for (uint32_t h = 0; h < n_heads; ++h) {
      std::vector<float> x = random_floats(rng, width);
      if (faulty && rng.below(40) == 0) x[rng.below(width)] = std::numeric_limits<float>::infinity();
      kernels::choose_store_kv(Isa::kScalar)(x.data(), width, type, cache.data() + p * stride + h * row);
    }
  }
  return cache;
}

void test_case(Tally& tally, const Case& c, Random& rng) {
  const uint32_t n_positions = c.position + c.n_rows;
  const uint64_t k_row = kernels::kv_row_bytes(c.k_type, c.dk);
  const uint64_t v_row = kernels::kv_row_bytes(c.v_type, c.dv);
  const uint64_t k_stride =
      c.position % 3 == 0 ? c.n_kv_heads * k_row + 4 : (c.n_kv_heads * k_row + 31) / 16 * 16;  // staged or not
  const uint64_t v_stride = (c.n_kv_heads * v_row + 47) / 16 * 16;
  const std::vector<float> q = random_floats(rng, static_cast<uint64_t>(c.n_rows) * c.n_heads * c.dk);
  const std::vector<float> sink = random_floats(rng, c.n_heads);
  const auto keys = random_cache(c.k_type, c.dk, c.n_kv_heads, n_positions, k_stride, c.faulty, rng);
  const auto values = random_cache(c.v_type, c.dv, c.n_kv_heads, n_positions, v_stride, false, rng);
  const uint32_t group = c.n_heads / c.n_kv_heads;
  const uint64_t row_out = static_cast<uint64_t>(c.n_heads) * c.dv;
  std::vector<float> want(c.n_rows * row_out);
  std::vector<std::thread> threads;
  for (uint32_t g = 0; g < c.n_kv_heads; ++g) {
    threads.emplace_back([&, g] {
      std::vector<float> scratch(kernels::attention_scratch_floats(c.dv));
      for (uint32_t t = 0; t < c.n_rows; ++t) {
        const uint32_t end = c.position + t + 1;
        kernels::AttentionArgs args;
        args.q = q.data() + (static_cast<uint64_t>(t) * c.n_heads + g * group) * c.dk;
        args.k_cache = keys.data() + g * k_row, args.v_cache = values.data() + g * v_row;
        args.k_stride = k_stride, args.v_stride = v_stride, args.k_type = c.k_type, args.v_type = c.v_type;
        args.dk = c.dk, args.dv = c.dv, args.scale = 0.11F;
        args.begin = c.window != 0 && end > c.window ? end - c.window : 0, args.end = end;
        args.sink = c.sink ? sink.data() + g * group : nullptr;
        args.scratch = scratch.data(), args.n_heads = group;
        args.out = want.data() + t * row_out + static_cast<uint64_t>(g) * group * c.dv;
        kernels::choose_attention(Isa::kScalar)(args);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const DeviceBuffer q_device = upload(q), sink_device = upload(sink), k_device = upload(keys),
                     v_device = upload(values);
  const DeviceBuffer out = poisoned(want.size() * 4);
  AttentionArgs args;
  args.q = q_device.as<float>(), args.k_cache = k_device.data(), args.v_cache = v_device.data();
  args.k_stride = k_stride, args.v_stride = v_stride, args.k_type = c.k_type, args.v_type = c.v_type;
  args.dk = c.dk, args.dv = c.dv, args.n_rows = c.n_rows, args.n_heads = c.n_heads, args.n_kv_heads = c.n_kv_heads;
  args.position = c.position, args.window = c.window, args.scale = 0.11F;
  args.sink = c.sink ? sink_device.as<float>() : nullptr, args.out = out.as<float>();
  const DeviceBuffer scratch = poisoned(attention_scratch_floats(args) * 4);
  args.scratch = scratch.as<float>();
  args.ahead = c.position % 2 != 0;
  const char* const types[] = {"f16", "f32", "q8_0"};
  const std::string group_name = std::string("attention ") + types[static_cast<int>(c.k_type)];
  const std::string name = "dk " + std::to_string(c.dk) + " heads " + std::to_string(c.n_heads) + " rows " +
                           std::to_string(c.n_rows) + " position " + std::to_string(c.position) + " window " +
                           std::to_string(c.window);
  attention(args, nullptr);
  tally.compare(group_name, name, want.data(), download<float>(out, want.size()).data(), want.size());
}

}  // namespace

void test_attention(Tally& tally, uint64_t seed, bool few) {
  Random rng(seed);
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    for (const uint32_t position : {0U, 1U, 126U, 127U, 128U, 129U, 255U, 256U, 1000U}) {
      test_case(tally, {type, type, 128, 128, 8, 2, 1, position, 0, position % 2 == 0, false}, rng);
    }
    test_case(tally, {type, type, 64, 64, 3, 3, 4, 130, 0, false, false}, rng);      // no sharing
    test_case(tally, {type, type, 64, 64, 4, 2, 37, 100, 0, true, false}, rng);      // two a group, prefill
    test_case(tally, {type, type, 128, 128, 16, 2, 3, 700, 0, false, false}, rng);   // eight a group
    test_case(tally, {type, type, 128, 128, 3, 3, 2, 290, 0, true, false}, rng);     // 128 wide: one a group
    test_case(tally, {type, type, 128, 128, 4, 2, 2, 290, 0, false, true}, rng);     // two, faulty
    test_case(tally, {type, type, 128, 128, 15, 3, 2, 290, 0, false, false}, rng);   // five: four and one
    test_case(tally, {type, type, 128, 128, 12, 4, 9, 500, 100, true, false}, rng);  // three, a window
    test_case(tally, {type, type, 128, 128, 8, 2, 140, 1, 0, false, false}, rng);    // prefill from the second position
    test_case(tally, {type, type, 96, 64, 12, 1, 2, 300, 0, true, false}, rng);      // twelve: two passes
    test_case(tally, {type, type, 192, 128, 6, 2, 2, 129, 0, false, false}, rng);    // three a group, dk != dv
    test_case(tally, {type, type, 576, 512, 5, 1, 1, 200, 0, false, false}, rng);    // too wide to stage
    test_case(tally, {type, type, 64, 64, 8, 1, 9, 500, 128, true, false}, rng);     // sliding windows
    test_case(tally, {type, type, 64, 64, 8, 2, 5, 300, 1, false, false}, rng);
    test_case(tally, {type, type, 64, 64, 8, 2, 200, 0, 100, true, false}, rng);
    if (few) continue;
    test_case(tally, {type, type, 128, 128, 8, 2, 1, 4500, 0, true, false},
              rng);                                                             // more chunks than a warp scans at once
    test_case(tally, {type, type, 64, 64, 8, 2, 3, 400, 0, false, true}, rng);  // infinity among the keys
  }
  test_case(tally, {KvType::kF16, KvType::kQ8_0, 80, 96, 4, 4, 2, 300, 0, false, false},
            rng);  // dk not a multiple of 32
  test_case(tally, {KvType::kF32, KvType::kF16, 33, 17, 4, 2, 2, 140, 0, true, false}, rng);
  if (few) return;
  test_case(tally, {KvType::kF16, KvType::kF16, 128, 128, 4, 1, 1, 33000, 0, true, false},
            rng);  // merged in two rounds
  test_case(tally, {KvType::kF16, KvType::kF16, 128, 128, 2, 1, 1, 70000, 0, true, false}, rng);  // in three
}

}  // namespace outrider::cuda::test

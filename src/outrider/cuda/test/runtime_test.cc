// SPDX-License-Identifier: Apache-2.0
// The device layer: messages, ownership, ordering; the moves.
#include "outrider/base/error.h"
#include "outrider/cuda/test/harness.h"

namespace outrider::cuda::test {
namespace {

template <typename Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

void test_errors(Tally& tally) {
  int n_devices = 0;
  cuda_check(cudaGetDeviceCount(&n_devices), "cudaGetDeviceCount");
  tally.expect("runtime", "a missing device is told in one line",
               message_of([] { open_device(99); }) ==
                   "cuda: device 99 wanted, but there are " + std::to_string(n_devices) + " (numbered from 0)");
  const std::string memory = message_of([] { DeviceBuffer buffer(1ULL << 60); });
  tally.expect("runtime", "too much memory names call, size and device: " + memory,
               has(memory, "cudaMalloc of 1152921504606846976 bytes") && has(memory, "device 0"));
  tally.expect("runtime", "an error does not stay for the next launch",
               message_of([] { check_launch("none"); }).empty());
}

void test_ownership(Tally& tally) {
  DeviceBuffer a(1000);
  std::byte* const data = a.data();
  DeviceBuffer b(std::move(a));
  tally.expect("runtime", "a moved buffer owns", b.data() == data && b.n_bytes() == 1000);
  DeviceBuffer c;
  c = std::move(b);
  tally.expect("runtime", "an assigned buffer owns", c.data() == data);
  tally.expect("runtime", "an empty buffer is empty",
               DeviceBuffer(0).data() == nullptr && PinnedBuffer(0).data() == nullptr);
}

void test_order(Tally& tally, Random& rng) {
  const uint64_t n = 1 << 20;
  const PinnedBuffer from(n * 4), to(n * 4);
  const DeviceBuffer middle(n * 4);
  auto* words = reinterpret_cast<uint32_t*>(from.data());
  for (uint64_t i = 0; i < n; ++i) words[i] = static_cast<uint32_t>(rng.next_u64());
  const Stream first, second;
  Event copied, done(Event::Timing::kOn), start(Event::Timing::kOn);
  start.record(first);
  copy_to_device(middle.data(), from.data(), n * 4, first.get());
  copied.record(first);
  copied.make_wait(second);
  copy_to_host(to.data(), middle.data(), n * 4, second.get());
  done.record(second);
  done.synchronize();
  tally.expect("runtime", "events order streams and measure", done.is_done() && done.milliseconds_since(start) > 0);
  tally.compare_bytes("moves", "there and back", words, reinterpret_cast<const uint32_t*>(to.data()), n);
}

void test_moves(Tally& tally, Random& rng) {
  const uint64_t sizes[] = {16, 48, 4096, 16384, 17 * 16, 1 << 20, 3 * 16};
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += size;
  const PinnedBuffer from(total), list(sizeof(Move) * std::size(sizes));
  for (uint64_t i = 0; i < total; ++i) from.data()[i] = static_cast<std::byte>(rng.next_u64());
  for (const bool by_kernel : {false, true}) {
    const DeviceBuffer to = poisoned(total);
    auto* moves = reinterpret_cast<Move*>(list.data());
    uint64_t at = 0;
    for (size_t i = 0; i < std::size(sizes); at += sizes[i], ++i) {
      moves[i] = {to.data() + at, (by_kernel ? from.device_data() : from.data()) + at, sizes[i]};
    }
    const Stream stream;
    if (by_kernel)
      gather(reinterpret_cast<const Move*>(list.device_data()), std::size(sizes), 3, stream.get());
    else
      copy_batch(moves, std::size(sizes), stream.get());
    stream.synchronize();
    tally.compare_bytes("moves", by_kernel ? "gather" : "batch", from.data(), download<std::byte>(to, total).data(),
                        total);
  }
}

}  // namespace

void test_runtime(Tally& tally, uint64_t seed) {
  Random rng(seed);
  test_errors(tally);
  test_ownership(tally);
  test_order(tally, rng);
  test_moves(tally, rng);
}

}  // namespace outrider::cuda::test

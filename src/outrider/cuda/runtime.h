// SPDX-License-Identifier: Apache-2.0
// The device layer: streams, events, device memory and pinned host memory as move-only types, and what is read of a
// device once. Every runtime call is checked; an error names the call, its sizes and the device.
// Why thin: kernels take a cudaStream_t and plain pointers, so that a launch allocates nothing, synchronizes nothing
// and can be captured in a graph. Threads: thread-compatible; the objects belong to the device that was current when
// made.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace outrider::cuda {

// Throws Error unless `status` is cudaSuccess: kOutOfMemory for memory, else kEnvironment. `call` is the function,
// `bytes` its size where it has one.
void cuda_check(cudaError_t status, const char* call, uint64_t bytes = 0);

// Checks the launch before it; `kernel` names it.
void check_launch(const char* kernel);

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  uint32_t sm = 0;  // 90 for compute capability 9.0
  uint32_t n_multiprocessors = 0;
  uint32_t most_shared_bytes = 0;  // of one block, opt-in
  uint64_t l2_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // when it was read
};

inline constexpr uint32_t kLeastSm = 80;  // int8 m16n8k32, cp.async

// Makes device `ordinal` the current one and reads it. Throws Error(kEnvironment), one line, when there is no driver,
// no such device, or one older than kLeastSm.
DeviceInfo open_device(int ordinal);

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  cudaStream_t get() const noexcept { return stream_; }
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  enum class Timing : uint8_t { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  void record(const Stream& stream);
  // Work queued on `stream` after this waits for the event.
  void make_wait(const Stream& stream) const;
  void synchronize() const;
  [[nodiscard]] bool is_done() const;
  // Both with Timing::kOn and done.
  float milliseconds_since(const Event& earlier) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory, 256-byte aligned at least. Empty when made with 0 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(uint64_t n_bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  std::byte* data() const noexcept { return data_; }
  template <typename T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }
  uint64_t n_bytes() const noexcept { return n_bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t n_bytes_ = 0;
};

// Page-locked host memory that the device can address too: device_data() is the same bytes as data().
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(uint64_t n_bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        device_data_(std::exchange(other.device_data_, nullptr)),
        n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(device_data_, other.device_data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  std::byte* data() const noexcept { return data_; }
  std::byte* device_data() const noexcept { return device_data_; }
  uint64_t n_bytes() const noexcept { return n_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* device_data_ = nullptr;
  uint64_t n_bytes_ = 0;
};

// Asynchronous copies; the host side should be pinned, and whoever holds the event after it keeps it alive.
void copy_to_device(void* to, const void* from, uint64_t n_bytes, cudaStream_t stream);
void copy_to_host(void* to, const void* from, uint64_t n_bytes, cudaStream_t stream);

}  // namespace outrider::cuda

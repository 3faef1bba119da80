// SPDX-License-Identifier: Apache-2.0
#include "outrider/cuda/runtime.h"

#include "outrider/base/error.h"

namespace outrider::cuda {
namespace {

// Released in destructors, where nothing can be thrown: a failure there means that the context is gone already.
void ignore(cudaError_t) noexcept {}

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void cuda_check(cudaError_t status, const char* call, uint64_t bytes) {
  if (status == cudaSuccess) return;
  int ordinal = -1;
  ignore(cudaGetDevice(&ordinal));
  ignore(cudaGetLastError());  // a failed call must not be blamed on the next launch
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::kOutOfMemory : ErrorKind::kEnvironment;
  if (bytes != 0) {
    fail(kind, "cuda device {}: {} of {} bytes: {} ({})", ordinal, call, bytes, cudaGetErrorString(status),
         cudaGetErrorName(status));
  }
  fail(kind, "cuda device {}: {}: {} ({})", ordinal, call, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check_launch(const char* kernel) { cuda_check(cudaPeekAtLastError(), kernel); }

DeviceInfo open_device(int ordinal) {
  int n_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status != cudaSuccess) {
    ignore(cudaGetLastError());
    fail(ErrorKind::kEnvironment, "cuda: no usable device: {} ({})", cudaGetErrorString(status),
         cudaGetErrorName(status));
  }
  if (ordinal < 0 || ordinal >= n_devices) {
    fail(ErrorKind::kEnvironment, "cuda: device {} wanted, but there are {} (numbered from 0)", ordinal, n_devices);
  }
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.sm = static_cast<uint32_t>(properties.major * 10 + properties.minor);
  if (info.sm < kLeastSm) {
    fail(ErrorKind::kEnvironment, "cuda device {} ({}): compute capability {}.{}, wanted at least {}.{}", ordinal,
         info.name, properties.major, properties.minor, kLeastSm / 10, kLeastSm % 10);
  }
  cuda_check(cudaSetDevice(ordinal), "cudaSetDevice");
  info.n_multiprocessors = static_cast<uint32_t>(attribute(cudaDevAttrMultiProcessorCount, ordinal));
  info.most_shared_bytes = static_cast<uint32_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
  info.l2_bytes = static_cast<uint64_t>(attribute(cudaDevAttrL2CacheSize, ordinal));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  info.free_bytes = free_bytes;
  info.total_bytes = total_bytes;
  return info;
}

Stream::Stream() {
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
Stream::~Stream() {
  if (stream_ != nullptr) ignore(cudaStreamDestroy(stream_));
}
void Stream::synchronize() const { cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

Event::Event(Timing timing) {
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  cuda_check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags");
}
Event::~Event() {
  if (event_ != nullptr) ignore(cudaEventDestroy(event_));
}
void Event::record(const Stream& stream) { cuda_check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
void Event::make_wait(const Stream& stream) const {
  cuda_check(cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent");
}
void Event::synchronize() const { cuda_check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
bool Event::is_done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    ignore(cudaGetLastError());
    return false;
  }
  cuda_check(status, "cudaEventQuery");
  return true;
}
float Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
  return milliseconds;
}

DeviceBuffer::DeviceBuffer(uint64_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = nullptr;
  cuda_check(cudaMalloc(&data, n_bytes), "cudaMalloc", n_bytes);
  data_ = static_cast<std::byte*>(data);
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) ignore(cudaFree(data_));
}

PinnedBuffer::PinnedBuffer(uint64_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = nullptr;
  cuda_check(cudaHostAlloc(&data, n_bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc", n_bytes);
  data_ = static_cast<std::byte*>(data);
  void* device_data = nullptr;
  const cudaError_t status = cudaHostGetDevicePointer(&device_data, data, 0);
  if (status != cudaSuccess) {
    ignore(cudaFreeHost(data));
    cuda_check(status, "cudaHostGetDevicePointer", n_bytes);
  }
  device_data_ = static_cast<std::byte*>(device_data);
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) ignore(cudaFreeHost(data_));
}

void copy_to_device(void* to, const void* from, uint64_t n_bytes, cudaStream_t stream) {
  cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync to device", n_bytes);
}
void copy_to_host(void* to, const void* from, uint64_t n_bytes, cudaStream_t stream) {
  cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync to host", n_bytes);
}

}  // namespace outrider::cuda

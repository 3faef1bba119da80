// SPDX-License-Identifier: Apache-2.0
// The device of the processor: kernels of one instruction set over a thread pool. Every operation is cut into tasks by
// rows of weights or rows of activations; a task computes whole results, so the cut never reaches a bit.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/isa.h"
#include "outrider/base/thread_pool.h"
#include "outrider/engine/device.h"
#include "outrider/kernels/elementwise/elementwise.h"
#include "outrider/kernels/quantize_act/quantize_act.h"
#include "outrider/kernels/rms_norm/rms_norm.h"

namespace outrider::engine {

class CpuDevice final : public Device {
 public:
  // `max_experts` and `dv` size the scratch memory of the workers (scratch_bytes()).
  CpuDevice(Isa isa, uint32_t n_threads, uint32_t max_experts, uint32_t dv);

  static uint64_t scratch_bytes(uint32_t n_threads, uint32_t max_experts, uint32_t dv) noexcept;

  std::byte* allocate(uint64_t n_bytes, const char* what) override;
  void write(std::byte* to, uint64_t n_bytes, FunctionRef<void(std::byte*)> fill) override;
  void embed(const kernels::Weights& embedding, std::span<const int32_t> tokens, float* out) override;
  void norm(const NormArgs& args) override;
  void quantize(const Rows& rows, uint32_t n_rows) override;
  void linear(std::span<const LinearOp> ops, const Rows& x, uint32_t n_rows) override;
  void linear_some(const LinearOp& op, const Rows& x, std::span<const uint32_t> rows) override;
  void make_sketch(const DeviceLinear& linear, const kernels::Sketch& sketch) override;
  void sketch_scores(const kernels::Sketch& sketch, const float* x, std::byte* tables, float* scores) override;
  void rope_store(const AttentionShape& shape, const RopeStoreArgs& args, const KvLayer& kv,
                  std::span<const RowPlace> rows) override;
  void attention(const AttentionShape& shape, const float* q, const KvLayer& kv, std::span<const RowPlace> rows,
                 float* out) override;
  uint32_t route(const RouteArgs& args) override;
  void swiglu(const Rows& hidden, const float* up, bool has_gate, bool quantize, uint32_t n_rows) override;
  void experts(const ExpertArgs& args) override;
  void combine(const CombineArgs& args) override;
  void add(float* y, const float* x, uint64_t n_elems) override;

 private:
  // Cuts n_rows rows of about `row_cost` element operations each into tasks and runs body(row) for each row.
  void for_rows(uint32_t n_rows, uint64_t row_cost, FunctionRef<void(uint32_t row, uint32_t worker)> body);
  void quantize_row(const Rows& rows, uint32_t row) const noexcept;
  void activate_row(const Rows& hidden, const float* up, bool has_gate, bool quantize, uint32_t row) const noexcept;
  kernels::MatmulFn matmul_for(format::TensorType type) noexcept;
  enum class ExpertMatrix : uint8_t { kGate, kUp, kDown };
  // One block of rows of one matrix of one expert, for all its pairs.
  void expert_block(const ExpertArgs& args, ExpertMatrix which, const ExpertJob& job, uint32_t block,
                    uint32_t n_blocks) noexcept;
  void activate_experts(const ExpertArgs& args) noexcept;
  // Runs matmul for rows [begin, end) and applies scale and bias.
  void linear_rows(const DeviceLinear& linear, kernels::MatmulArgs args) noexcept;
  float* worker_scratch(uint32_t worker) noexcept { return scratch_.as<float>() + worker * scratch_floats_; }

  static constexpr uint32_t kTypeIds = 64;  // beyond the largest tensor type id

  Isa isa_;
  ThreadPool pool_;
  kernels::RmsNormFn rms_norm_;
  kernels::QuantizeActFn quantize_act_;
  kernels::RopeFn rope_;
  kernels::AttentionFn attention_;
  kernels::RouteFn route_;
  kernels::StoreKvFn store_kv_;
  kernels::SketchScoresFn sketch_scores_;
  const kernels::ElementwiseFns& elementwise_;
  std::array<kernels::MatmulFn, kTypeIds> matmul_ = {};
  uint64_t scratch_floats_;
  AlignedBuffer scratch_;
  std::vector<AlignedBuffer> buffers_;
};

}  // namespace outrider::engine

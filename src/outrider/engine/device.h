// SPDX-License-Identifier: Apache-2.0
// The seam between engine and hardware: the operations a layer is made of. layers.cc is written once against it; a
// device implements each operation so that the bits of a row's result are those of docs/numerics.md, whatever the other
// rows and however the work is split. All pointers are memory of the device; small index lists (row numbers, job lists)
// are memory of the host. Operations run in the order of the calls. Threads: owned by the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "outrider/base/function_ref.h"
#include "outrider/kernels/attention/attention.h"
#include "outrider/kernels/matmul/matmul.h"
#include "outrider/kernels/rope/rope.h"
#include "outrider/kernels/router/router.h"
#include "outrider/kernels/sketch/sketch.h"
#include "outrider/residency/expert_store.h"

namespace outrider::engine {

// y = scale * (W x) + bias. Empty when w.data is nullptr.
struct DeviceLinear {
  kernels::Weights w;
  const float* bias = nullptr;  // (n_rows)
  float scale = 1;
  explicit operator bool() const noexcept { return w.data != nullptr; }
  bool wants_quantized() const noexcept {
    return w.data != nullptr && kernels::activation_form(w.type) == kernels::ActivationForm::kQuantized;
  }
};

struct DeviceFfn {
  DeviceLinear gate, up, down;  // gate may be empty: silu(up x)
  explicit operator bool() const noexcept { return static_cast<bool>(down); }
};

// The shape that all experts of a layer share; `data` of the matrices is nullptr, a slab supplies it.
struct ExpertShape {
  kernels::Weights gate, up, down;  // (ff, d_model), (ff, d_model), (d_model, ff)
  bool has_gate = true;
  uint32_t gate_part = 0, up_part = 0, down_part = 0;  // into ReadySlab::parts
  uint64_t up_offset = 0;                              // bytes from the part's begin: gate_up holds gate first
  const float* gate_scale = nullptr;                   // (n_experts), or nullptr: 1
  const float* up_scale = nullptr;
  const float* down_scale = nullptr;
};

// Activations of some rows, row r at f32 + r * k: as floats and, once quantised, in the law's int8 form.
struct Rows {
  float* f32 = nullptr;      // (rows, k)
  int8_t* q = nullptr;       // (rows, k)
  float* d = nullptr;        // (rows, k / 32)
  int32_t* sum32 = nullptr;  // (rows, k / 32)
  int16_t* sum16 = nullptr;  // (rows, k / 16)
  uint32_t k = 0;
};

struct LinearOp {
  const DeviceLinear* linear = nullptr;
  float* out = nullptr;  // (rows, n_rows), contiguous
};

struct NormArgs {
  const float* x = nullptr;           // (rows, k)
  const uint32_t* row_idx = nullptr;  // row of x for output row i; nullptr = identity
  const float* weight = nullptr;      // (k)
  float eps = 0;
  uint32_t n_rows = 0;
  bool quantize = false;  // fill in the int8 form of y, too
  Rows y;
};

// The head vectors of new rows: norm of q and k where weights are given, rotary on q and k, and k and v into the cache.
struct RopeStoreArgs {
  float* q = nullptr;        // (rows, n_heads, dk), in place
  float* k = nullptr;        // (rows, n_kv_heads, dk), in place
  const float* v = nullptr;  // (rows, n_kv_heads, dv)
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  bool norm_full_width = false;  // else per head
  float eps = 0;
  const float* cos_sin = nullptr;  // (rows, n_rot)
  uint32_t n_rot = 0;
  kernels::RopePairing pairing = kernels::RopePairing::kHalves;
};

// Where the keys and values of one layer lie: kv head h of row r's sequence s is at begin + (s * n_kv_heads + h) *
// head_stride, position p at p * row_bytes from there.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  uint64_t k_head_stride = 0, v_head_stride = 0;
  uint64_t k_row_bytes = 0, v_row_bytes = 0;
  kernels::KvType type = kernels::KvType::kF16;
};

struct AttentionShape {
  uint32_t n_heads = 0, n_kv_heads = 0, dk = 0, dv = 0;
  float scale = 1;
};

// Sequence and position of each row of the pass.
struct RowPlace {
  uint32_t sequence = 0;
  uint32_t position = 0;
};

struct RouteArgs {
  kernels::RouterSpec spec;
  const float* logits = nullptr;          // (rows, n_experts)
  const float* selection_bias = nullptr;  // (n_experts), or nullptr
  uint32_t n_rows = 0;
  uint32_t* ids = nullptr;   // (rows, n_used), host memory
  float* weights = nullptr;  // (rows, n_used), host memory
};

// One expert's share of a pass. Pairs (row, rank) are numbered so that those of one expert follow each other.
struct ExpertJob {
  residency::ReadySlab slab;
  uint32_t pair_begin = 0, n_pairs = 0;
  uint32_t scratch_begin = 0;  // rows of the scratch that the pairs take
};

// gate and up give the hidden rows, which down takes.
enum class ExpertStage : uint8_t { kAll, kHidden, kDown };

struct ExpertArgs {
  const ExpertShape* shape = nullptr;
  ExpertStage stage = ExpertStage::kAll;
  std::span<const ExpertJob> jobs;
  Rows x;                              // the FFN input, by row
  const uint32_t* pair_row = nullptr;  // row of x for each pair
  Rows hidden;                         // (scratch rows, ff): gate, then the gated product and its int8 form
  float* up = nullptr;                 // (scratch rows, ff)
  float* out = nullptr;                // (pairs, d_model), by pair
};

struct CombineArgs {
  float* x = nullptr;                  // (rows, d_model): the residual stream, in place
  const float* from = nullptr;         // ... or out of this one, of whose rows row_idx is the list; nullptr: in place
  const uint32_t* row_idx = nullptr;   // (rows): of `from`, shared and shared_gate; nullptr = identity
  const float* expert_out = nullptr;   // (pairs, d_model)
  const uint32_t* pair_of = nullptr;   // (rows, n_used): the pair of each rank
  const float* weights = nullptr;      // (rows, n_used)
  const float* shared = nullptr;       // (rows, d_model), or nullptr
  const float* shared_gate = nullptr;  // (rows) logits of the gate, or nullptr: 1
  float* sum = nullptr;                // (rows, d_model) scratch
  uint32_t n_rows = 0, n_used = 0, d_model = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Zeroed memory that lives as long as the device, aligned to 4096, its pages resident: what was planned is taken
  // before the first token. Throws Error(kOutOfMemory) naming `what`.
  virtual std::byte* allocate(uint64_t n_bytes, const char* what) = 0;
  // Fills device memory: `fill` writes n_bytes to the host pointer it is given.
  virtual void write(std::byte* to, uint64_t n_bytes, FunctionRef<void(std::byte*)> fill) = 0;

  // out row i = row tokens[i] of the embedding, widened exactly.
  virtual void embed(const kernels::Weights& embedding, std::span<const int32_t> tokens, float* out) = 0;
  // kernels/rms_norm.h
  virtual void norm(const NormArgs& args) = 0;
  virtual void quantize(const Rows& rows, uint32_t n_rows) = 0;
  // Several matrices over one input. kernels/matmul.h; then times scale, then plus bias.
  virtual void linear(std::span<const LinearOp> ops, const Rows& x, uint32_t n_rows) = 0;
  // The listed rows of linear() for one row of x, each at its place of op.out.
  virtual void linear_some(const LinearOp& op, const Rows& x, std::span<const uint32_t> rows) = 0;
  // kernels/sketch/sketch.h: a coarse copy of a matrix, and its products with x (k). tables: sketch_table_bytes(k).
  virtual void make_sketch(const DeviceLinear& linear, const kernels::Sketch& sketch) = 0;
  virtual void sketch_scores(const kernels::Sketch& sketch, const float* x, std::byte* tables, float* scores) = 0;
  virtual void rope_store(const AttentionShape& shape, const RopeStoreArgs& args, const KvLayer& kv,
                          std::span<const RowPlace> rows) = 0;
  // Row r attends to positions 0..position of its sequence. out: (rows, n_heads, dv). kernels/attention.h
  virtual void attention(const AttentionShape& shape, const float* q, const KvLayer& kv, std::span<const RowPlace> rows,
                         float* out) = 0;
  // kernels/router.h. Returns the lowest row whose logits or selection values hold a NaN, or n_rows.
  virtual uint32_t route(const RouteArgs& args) = 0;
  // hidden = silu(hidden) * up, or silu(up) where there is no gate; and its int8 form when `quantize`.
  virtual void swiglu(const Rows& hidden, const float* up, bool has_gate, bool quantize, uint32_t n_rows) = 0;
  virtual void experts(const ExpertArgs& args) = 0;
  // x += (sum over ranks, from 0, of fma(weight, expert_out, sum)) + shared expert (fma with sigmoid(gate), where
  // gated).
  virtual void combine(const CombineArgs& args) = 0;
  // y += x
  virtual void add(float* y, const float* x, uint64_t n_elems) = 0;
};

}  // namespace outrider::engine

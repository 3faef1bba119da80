// SPDX-License-Identifier: Apache-2.0
// The operations of a layer on the device. Every launcher takes a stream, launches and returns: no allocation, no
// synchronization, launch shapes that depend on its arguments alone, so a captured graph replays it. All results have
// the bits of the scalar CPU functions (kernels/*_ref.cc, docs/numerics.md); all are exact variants.
// Pointers are device pointers (mapped host memory works too) unless said otherwise. Threads: stateless.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "outrider/format/tensor_type.h"
#include "outrider/kernels/attention/attention.h"
#include "outrider/kernels/rope/rope.h"
#include "outrider/kernels/router/router.h"
#include "outrider/numerics/activation.h"

namespace outrider::cuda {

// The codebooks that dequantisation needs, in device memory, and the size of them. Upload once per device.
struct Codebooks {
  const int8_t* iq2_xxs = nullptr;
  const int8_t* iq2_xs = nullptr;
  const int8_t* iq2_s = nullptr;
  const int8_t* iq3_xxs = nullptr;
  const int8_t* iq3_s = nullptr;
  const int8_t* iq1 = nullptr;
};
uint64_t codebook_bytes() noexcept;
// `memory`: codebook_bytes() of device memory, which must outlive the result. Synchronous.
Codebooks upload_codebooks(std::byte* memory);

// ---- activations ----

// Row t starts at t * k (q), t * k / 32 (d, sum32), t * k / 16 (sum16), as in numerics::Activations.
struct QuantizedRows {
  int8_t* q = nullptr;
  float* d = nullptr;
  int32_t* sum32 = nullptr;
  int16_t* sum16 = nullptr;
};
// kernels/quantize_act.h. x row t at x + t * x_stride; k a multiple of 32.
void quantize_act(const float* x, uint64_t x_stride, uint32_t n_rows, uint32_t k, const QuantizedRows& out,
                  cudaStream_t stream);

// ---- packed weights ----

// A second layout of a matrix, of nearly as many bytes, in the order in which row kernels read it (product/packed.h).
bool has_packed(format::TensorType type) noexcept;
uint64_t packed_bytes(format::TensorType type, uint32_t n_rows, uint32_t k) noexcept;
struct PackedMatrix {
  const std::byte* from = nullptr;  // as ProductJob::weights
  std::byte* to = nullptr;          // packed_bytes(), 16-byte aligned
};
struct PackArgs {
  format::TensorType type = format::TensorType::kF32;  // one that has_packed()
  uint32_t n_rows = 0, k = 0;
  const PackedMatrix* matrices = nullptr;  // host memory
  uint32_t n_matrices = 0;
};
void pack(const PackArgs& args, cudaStream_t stream);

// ---- products ----

// One weight matrix of a launch, or one expert of it, and the tokens that take part. Output row of its token i:
// pair_begin + i. `weights` is 16-byte aligned and stored as in the file, row after row; bytes up to the next multiple
// of 16 past its last row are readable. Where most experts have one token, a job for each pair is the fastest, those of
// an expert side by side: all but the first read its weights from the L2.
struct ProductJob {
  const std::byte* weights = nullptr;
  const std::byte* gate = nullptr;  // gated products: same shape and type as `weights` (up)
  uint32_t pair_begin = 0;
  uint32_t n_pairs = 0;
};

struct ProductArgs {
  format::TensorType type = format::TensorType::kF32;
  uint32_t n_rows = 0, k = 0;        // k a whole number of blocks
  ProductJob job;                    // used when `jobs` is nullptr
  const ProductJob* jobs = nullptr;  // (n_jobs) in device memory: experts of one shape and type
  uint32_t n_jobs = 1;
  // Chooses the kernel, never a bit: the largest n_pairs of any job, or 1 where most jobs have one.
  uint32_t most_pairs = 0;
  numerics::Activations x;               // the form that activation_form(type) names
  const uint32_t* token_rows = nullptr;  // row of x for each pair; nullptr: the pair's own number
  float* out = nullptr;                  // out[pair * out_stride + r]
  uint64_t out_stride = 0;
  Codebooks codebooks;  // types without an integer unit
  // The jobs, their weights and token_rows do not come from the launch before this one on the stream (nor from one
  // before that which may still run), so reading them may begin while it runs. All else is read when it is done.
  bool ahead = false;
  // All weights of the jobs are packed: pack() wrote them. product() and gated_product() of few tokens; no tiles, no
  // expert_layer(). A block of threads holds its rows while it goes through the tokens of its job.
  bool packed = false;
  // Other launches run beside this one and fill the device with it. Chooses the kernel of one token, never a bit.
  bool beside = false;
  // product_scratch_bytes() of device memory, 128-byte aligned, where more than 64 tokens are laid out for the tiles of
  // compute capability 9.0; or nullptr: tiles that need none. `is_scratch_made`: the product before this one on the
  // stream had the same scratch, x, k, token_rows, most_pairs and pairs of each job (gate and up; q, k and v).
  std::byte* scratch = nullptr;
  bool is_scratch_made = false;
};
uint64_t product_scratch_bytes(uint32_t k, uint32_t n_jobs, uint32_t most_pairs) noexcept;

// kernels/matmul.h for every weight type: integer units, or dequantised weights by the float law.
void product(const ProductArgs& args, cudaStream_t stream);

// Rows per kernel choice: up to this many tokens a job go to the row kernels, more to the tiles.
inline constexpr uint32_t kMostRowTokens = 16;
// Whether `type` has an integer unit; the same as activation_form(type) == kQuantized.
bool has_unit(format::TensorType type) noexcept;

struct GatedArgs {
  ProductArgs in;   // jobs carry weights (up) and gate; in.out may be nullptr; n_rows a multiple of 32
  float alpha = 0;  // not 0: the clamped SwiGLU of gpt-oss
  float limit = 0;
  QuantizedRows
      hidden;  // (pairs, n_rows): swiglu(gate . x, up . x) as activations of the product after it; or q nullptr
};
// Gate, up and SwiGLU in one launch, with the activation format of the result; in.out gets the f32 values if not
// nullptr. Types with an integer unit.
void gated_product(const GatedArgs& args, cudaStream_t stream);

// The products of an expert layer with few tokens an expert (one is best): as gated_product, then product with the
// hidden values, in two launches that overlap. Types with an integer unit; `in` and `down` have a job for each expert.
struct ExpertLayerArgs {
  GatedArgs in;      // in.hidden and in.in.out are unused
  ProductArgs down;  // x is unused; k is in.in.n_rows
  // (pairs, k) f32 for hidden values on their way: every byte is 0xFF when the launch begins, and where in.in.ahead is
  // set, when the launch before it begins. A decoder has one for each layer and fills all at once, once a token.
  float* handed = nullptr;
};
void expert_layer(const ExpertLayerArgs& args, cudaStream_t stream);

// What gated_product does after its products, for the many tokens that go through product() twice: rows of
// swiglu(gate, up), n a multiple of 32, as activations, and as f32 into `out` (row t at t * n) if not nullptr.
struct ActivateArgs {
  const float* gate = nullptr;  // (n_rows, n); nullptr: silu(up)
  const float* up = nullptr;    // (n_rows, n)
  float alpha = 0, limit = 0;
  uint32_t n = 0, n_rows = 0;
  QuantizedRows hidden;
  float* out = nullptr;
};
void activate(const ActivateArgs& args, cudaStream_t stream);

// sum = +0; rank by rank sum_j = fma(weight, expert_j, sum_j); then the shared expert; then x_j + sum_j
// (docs/numerics.md "Experts"). Fields as engine::CombineArgs, in device memory.
struct CombineArgs {
  float* x = nullptr;                  // (rows, d_model), in place
  const float* expert_out = nullptr;   // (pairs, d_model)
  const uint32_t* pair_of = nullptr;   // (rows, n_used)
  const float* weights = nullptr;      // (rows, n_used)
  const float* shared = nullptr;       // (rows, d_model), or nullptr
  const float* shared_gate = nullptr;  // (rows) logits, or nullptr: 1
  uint32_t n_rows = 0, n_used = 0, d_model = 0;
};
void combine(const CombineArgs& args, cudaStream_t stream);

// ---- the rest of a layer ----

// Rows of n: y = w * (x * r), kernels/rms_norm.h, and the result as activations of the products after it.
struct RmsNormArgs {
  const float* x = nullptr;  // row t at x + t * x_stride
  uint64_t x_stride = 0;
  const float* weight = nullptr;  // (n) or nullptr
  float eps = 0;
  uint32_t n = 0, n_rows = 0;
  float* y = nullptr;  // may be x
  uint64_t y_stride = 0;
  QuantizedRows quantized;  // q nullptr: not wanted; else n is a multiple of 32
};
void rms_norm(const RmsNormArgs& args, cudaStream_t stream);

// Head vectors in place: an RMS norm per head when `norm` is not nullptr (QK norm), then the rotation, kernels/rope.h.
struct RopeArgs {
  float* x = nullptr;  // row t, head h at x + t * row_stride + h * width
  uint64_t row_stride = 0;
  uint32_t n_rows = 0, n_heads = 0, width = 0;
  const float* norm = nullptr;  // (width)
  float eps = 0;
  const float* cos_sin = nullptr;  // row t at cos_sin + t * n_rot
  uint32_t n_rot = 0;              // 0: no rotation
  kernels::RopePairing pairing = kernels::RopePairing::kHalves;
};
void rope(const RopeArgs& args, cudaStream_t stream);

// Stores head vectors as cache rows (kernels/attention.h StoreKvFn): row t, head h at
// cache + (position + t) * stride + h * kv_row_bytes(type, width).
struct StoreKvArgs {
  const float* x = nullptr;  // (n_rows, n_heads, width) with row_stride
  uint64_t row_stride = 0;
  uint32_t n_rows = 0, n_heads = 0, width = 0;
  kernels::KvType type = kernels::KvType::kF16;
  std::byte* cache = nullptr;
  uint64_t stride = 0;
  uint32_t position = 0;
};
void store_kv(const StoreKvArgs& args, cudaStream_t stream);

// kernels/attention.h for n_rows queries at positions position, position + 1, ...: row t sees [begin_t, position + t +
// 1) with begin_t = position + t + 1 - window, at least 0 (window 0: no window).
struct AttentionArgs {
  const float* q = nullptr;            // (n_rows, n_heads, dk)
  const std::byte* k_cache = nullptr;  // position p, kv head g at k_cache + p * k_stride + g * kv_row_bytes(k_type, dk)
  const std::byte* v_cache = nullptr;
  uint64_t k_stride = 0, v_stride = 0;
  kernels::KvType k_type = kernels::KvType::kF16, v_type = kernels::KvType::kF16;
  uint32_t dk = 0, dv = 0;  // at most kMostHeadWidth
  uint32_t n_rows = 1, n_heads = 0, n_kv_heads = 0;
  uint32_t position = 0, window = 0;
  float scale = 1;
  const float* sink = nullptr;  // (n_heads)
  float* scratch = nullptr;     // attention_scratch_floats(); 16-byte aligned
  float* out = nullptr;         // (n_rows, n_heads, dv)
  // Positions below `position` were in the cache before the launch before this one began, so reading them may begin
  // while it runs.
  bool ahead = false;
};
inline constexpr uint32_t kMostHeadWidth = 576;
uint64_t attention_scratch_floats(const AttentionArgs& args) noexcept;
void attention(const AttentionArgs& args, cudaStream_t stream);

// kernels/router.h per row; failed[row] is 1 where route() returns false.
struct RouteArgs {
  kernels::RouterSpec spec;
  const float* logits = nullptr;          // (n_rows, n_experts)
  const float* selection_bias = nullptr;  // (n_experts) or nullptr
  uint32_t n_rows = 0;
  uint32_t* ids = nullptr;     // (n_rows, n_used)
  float* weights = nullptr;    // (n_rows, n_used)
  uint32_t* failed = nullptr;  // (n_rows)
};
inline constexpr uint32_t kMostExperts = 1025;
void route(const RouteArgs& args, cudaStream_t stream);

// y_i += x_i.
void add(float* y, const float* x, uint64_t n, cudaStream_t stream);
// Row i of out (n_tokens, k) = row tokens[i] of the matrix, widened exactly (the rounding formats round as on the CPU).
void embed(format::TensorType type, const std::byte* weights, uint32_t k, const int32_t* tokens, uint32_t n_tokens,
           const Codebooks& codebooks, float* out, cudaStream_t stream);
// Per row the index of the largest value, the lowest on ties; n when nothing is a number.
void argmax(const float* x, uint64_t row_stride, uint32_t n, uint32_t n_rows, uint32_t* index, cudaStream_t stream);

// ---- moves ----

struct Move {
  std::byte* to;
  const std::byte* from;
  uint64_t n_bytes;
};
// Copies host memory to the device, n copies in one call where the runtime has it (one by one before CUDA 13). `moves`
// is host memory. Not capturable.
void copy_batch(const Move* moves, uint32_t n, cudaStream_t stream);
// A kernel reads slabs of mapped pinned memory. `moves` is device-readable; addresses and sizes are multiples of 16.
// n_blocks thread blocks a slab.
void gather(const Move* moves, uint32_t n, uint32_t n_blocks, cudaStream_t stream);

}  // namespace outrider::cuda

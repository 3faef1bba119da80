// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/work_buffers.h"

#include <algorithm>

#include "outrider/base/checked.h"
#include "outrider/engine/lookahead.h"
#include "outrider/engine/token_ahead.h"

namespace outrider::engine {
namespace {

// Hands out consecutive pieces of one block, each on a cache line of its own.
class Bump {
 public:
  explicit Bump(std::byte* base) noexcept : base_(base) {}

  template <typename T>
  void take(T*& out, uint64_t n) noexcept {
    out = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + n_bytes_);
    n_bytes_ = align_up(n_bytes_ + n * sizeof(T), 64);
  }

  // Rows of width k with their int8 form (which only widths of whole blocks have).
  void take(Rows& out, uint64_t n, uint32_t k) noexcept {
    out.k = k;
    take(out.f32, n * k);
    if (k % 32 != 0) return;
    take(out.q, n * k);
    take(out.d, n * (k / 32));
    take(out.sum32, n * (k / 32));
    take(out.sum16, n * (k / 16));
  }

  uint64_t n_bytes() const noexcept { return n_bytes_; }
  // Goes back to `n_bytes`: what is taken next shares memory with what was taken since.
  void rewind(uint64_t n_bytes) noexcept { n_bytes_ = n_bytes; }

 private:
  std::byte* base_;
  uint64_t n_bytes_ = 0;
};

// Most pairs that a call of Device::experts works on at once. More gain nothing and cost memory.
constexpr uint64_t kMaxWavePairs = 1024;

void lay_out_lasting(const model::ModelSpec& spec, const EngineOptions& options, Bump& bump,
                     WorkBuffers& out) noexcept {
  const uint64_t c = options.chunk;
  const uint32_t d = spec.d_model;
  bump.take(out.x, c * d);
  bump.take(out.normed, c, d);
  bump.take(out.projected, c * d);
  bump.take(out.cos_sin, c * spec.rope.n_rot);
  if (spec.is_moe()) {
    const uint64_t n_experts = spec.router.n_experts;
    const uint64_t pairs = c * spec.router.n_used;
    bump.take(out.router_logits, c * n_experts);
    bump.take(out.shared_gate, c);
    bump.take(out.ids, pairs);
    bump.take(out.weights, pairs);
    bump.take(out.pair_row, pairs);
    bump.take(out.pair_of, pairs);
    bump.take(out.expert_begin, n_experts + 1);
    bump.take(out.expert_fill, n_experts);
    bump.take(out.demanded, n_experts);
    bump.take(out.uses, n_experts);
    bump.take(out.jobs, n_experts + 1);
    bump.take(out.has_hidden, n_experts);
    if (options.lookahead != 0) {
      const uint64_t n_ids = uint64_t{kMaxAheadRows} * LookAhead::router_width(spec);
      bump.take(out.ahead_x, uint64_t{kMaxAheadRows} * d);
      bump.take(out.ahead_in, kMaxAheadRows, d);
      bump.take(out.ahead_logits, kMaxAheadRows * n_experts);
      bump.take(out.ahead_ids, n_ids);
      bump.take(out.ahead_weights, n_ids);
      bump.take(out.ahead_pair_of, uint64_t{kMaxAheadRows} * spec.router.n_used);
      bump.take(out.ahead_mix, uint64_t{kMaxAheadRows} * spec.router.n_used);
      bump.take(out.is_computed, n_experts);
    }
  }
  bump.take(out.head_in, options.logit_rows, d);
  if (TokenAhead::is_of_use(spec, options)) bump.take(out.guessed_logits, spec.n_vocab);
  bump.take(out.places, c);
  bump.take(out.tokens, c);
  bump.take(out.wanted, c);
}

void lay_out_attention(const model::ModelSpec& spec, const EngineOptions& options, Bump& bump,
                       WorkBuffers& out) noexcept {
  const uint64_t c = options.chunk;
  bump.take(out.q, c * spec.n_heads * spec.dk);
  bump.take(out.k, c * spec.n_kv_heads * spec.dk);
  bump.take(out.v, c * spec.n_kv_heads * spec.dv);
  bump.take(out.attended, c, spec.n_heads * spec.dv);
}

// One buffer for dense and shared FFNs, which run at different times: as wide as the wider of the two.
void lay_out_ffn(const model::ModelSpec& spec, const EngineOptions& options, Bump& bump, WorkBuffers& out) noexcept {
  const uint32_t ff = std::max(spec.n_leading_dense > 0 ? spec.dense_ff : 0, spec.shared_ff);
  if (ff == 0) return;
  bump.take(out.ffn_hidden, options.chunk, static_cast<uint32_t>(align_up(ff, 32)));
  bump.take(out.ffn_up, uint64_t{options.chunk} * ff);
}

void lay_out_experts(const model::ModelSpec& spec, const EngineOptions& options, Bump& bump,
                     WorkBuffers& out) noexcept {
  if (!spec.is_moe()) return;
  const uint64_t pairs = uint64_t{options.chunk} * spec.router.n_used;
  out.n_wave_pairs = static_cast<uint32_t>(std::min(pairs, kMaxWavePairs));
  bump.take(out.expert_hidden, out.n_wave_pairs, spec.expert_ff);
  bump.take(out.expert_up, uint64_t{out.n_wave_pairs} * spec.expert_ff);
  bump.take(out.expert_out, pairs * spec.d_model);
}

void lay_out_head(const model::ModelSpec& spec, const EngineOptions& options, Bump& bump, WorkBuffers& out) noexcept {
  bump.take(out.logits, static_cast<uint64_t>(options.logit_rows) * spec.n_vocab);
}

}  // namespace

uint64_t WorkBuffers::lay_out(const model::ModelSpec& spec, const EngineOptions& options, std::byte* base,
                              WorkBuffers& out) noexcept {
  Bump bump(base);
  lay_out_lasting(spec, options, bump, out);
  // What is used one after the other within a layer, and the head after all layers, shares one place.
  const uint64_t shared_begin = bump.n_bytes();
  uint64_t end = shared_begin;
  for (const auto lay_out_phase : {lay_out_attention, lay_out_ffn, lay_out_experts, lay_out_head}) {
    bump.rewind(shared_begin);
    lay_out_phase(spec, options, bump, out);
    end = std::max(end, bump.n_bytes());
  }
  return end;
}

KvLayout kv_layout(const model::ModelSpec& spec, const EngineOptions& options) noexcept {
  KvLayout kv;
  kv.type = options.kv_type;
  kv.k_row_bytes = kernels::kv_row_bytes(options.kv_type, spec.dk);
  kv.v_row_bytes = kernels::kv_row_bytes(options.kv_type, spec.dv);
  kv.k_head_stride = align_up(kv.k_row_bytes * options.context, 64);
  kv.v_head_stride = align_up(kv.v_row_bytes * options.context, 64);
  const uint64_t n_heads = static_cast<uint64_t>(options.n_sequences) * spec.n_kv_heads;
  kv.k_bytes = n_heads * kv.k_head_stride;
  kv.layer_bytes = kv.k_bytes + n_heads * kv.v_head_stride;
  kv.total_bytes = kv.layer_bytes * spec.n_layers;
  return kv;
}

}  // namespace outrider::engine

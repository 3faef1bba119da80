// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/layers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "outrider/base/error.h"
#include "outrider/engine/embedding_rows.h"
#include "outrider/engine/head_work.h"
#include "outrider/engine/lookahead.h"
#include "outrider/engine/token_ahead.h"

namespace outrider::engine {
namespace {

// A guessed pass goes no further when its layers have taken so much beside the head that was done in their waits: if it
// is wrong that is lost, and the head is late.
constexpr uint64_t kMostBesideShare = 2;
constexpr uint64_t kMostBesideNs = 3'000'000;

std::span<const RowPlace> places_of(const PassContext& pass, uint32_t n_rows) { return {pass.work.places, n_rows}; }

void run_attention(const PassContext& pass, const DeviceLayer& layer, uint32_t layer_idx, uint32_t n_rows) {
  const model::ModelSpec& spec = pass.spec;
  const WorkBuffers& work = pass.work;
  pass.device.norm({.x = work.x,
                    .weight = layer.attn_norm,
                    .eps = spec.eps,
                    .n_rows = n_rows,
                    .quantize = layer.quantize_attn_in,
                    .y = work.normed});
  const std::array<LinearOp, 3> qkv = {{{&layer.q, work.q}, {&layer.k, work.k}, {&layer.v, work.v}}};
  pass.device.linear(qkv, work.normed, n_rows);

  const AttentionShape shape = {spec.n_heads, spec.n_kv_heads, spec.dk, spec.dv, spec.attention_scale};
  std::byte* kv = pass.kv + layer_idx * pass.kv_layout.layer_bytes;
  const KvLayer cache = {.k = kv,
                         .v = kv + pass.kv_layout.k_bytes,
                         .k_head_stride = pass.kv_layout.k_head_stride,
                         .v_head_stride = pass.kv_layout.v_head_stride,
                         .k_row_bytes = pass.kv_layout.k_row_bytes,
                         .v_row_bytes = pass.kv_layout.v_row_bytes,
                         .type = pass.kv_layout.type};
  pass.device.rope_store(shape,
                         {.q = work.q,
                          .k = work.k,
                          .v = work.v,
                          .q_norm = layer.q_norm,
                          .k_norm = layer.k_norm,
                          .norm_full_width = spec.qk_norm == model::QkNorm::kFullWidth,
                          .eps = spec.eps,
                          .cos_sin = work.cos_sin,
                          .n_rot = spec.rope.n_rot,
                          .pairing = spec.rope.pairing},
                         cache, places_of(pass, n_rows));
  pass.device.attention(shape, work.q, cache, places_of(pass, n_rows), work.attended.f32);
  if (layer.quantize_attn_out) pass.device.quantize(work.attended, n_rows);
  const LinearOp output = {&layer.attn_output, work.projected};
  pass.device.linear({&output, 1}, work.attended, n_rows);
  pass.device.add(work.x, work.projected, static_cast<uint64_t>(n_rows) * spec.d_model);
  pass.clock.mark(&PhaseTimes::attention);
}

// out = down(silu(gate x) * up x) for a resident FFN.
void run_ffn(const PassContext& pass, const DeviceFfn& ffn, uint32_t n_rows, float* out) {
  Rows hidden = pass.work.ffn_hidden;
  hidden.k = ffn.down.w.k;
  const std::array<LinearOp, 2> in = {{{&ffn.up, pass.work.ffn_up}, {&ffn.gate, hidden.f32}}};
  const bool has_gate = static_cast<bool>(ffn.gate);
  pass.device.linear({in.data(), has_gate ? 2U : 1U}, pass.work.normed, n_rows);
  pass.device.swiglu(hidden, pass.work.ffn_up, has_gate, ffn.down.wants_quantized(), n_rows);
  const LinearOp down = {&ffn.down, out};
  pass.device.linear({&down, 1}, hidden, n_rows);
}

void run_router(const PassContext& pass, const DeviceLayer& layer, uint32_t layer_idx, uint32_t n_rows) {
  const WorkBuffers& work = pass.work;
  const kernels::RouterSpec& router = pass.spec.router;
  const std::array<LinearOp, 2> ops = {{{&layer.router, work.router_logits}, {&layer.shared_gate, work.shared_gate}}};
  pass.device.linear({ops.data(), layer.shared_gate ? 2U : 1U}, work.normed, n_rows);
  const uint32_t bad_row = pass.device.route({.spec = router,
                                              .logits = work.router_logits,
                                              .selection_bias = layer.selection_bias,
                                              .n_rows = n_rows,
                                              .ids = work.ids,
                                              .weights = work.weights});
  if (bad_row < n_rows) {
    throw RowError(
        bad_row,
        fmt::format("layer {}: the router's scores for token {} at position {} of sequence {} are not numbers "
                    "(NaN, from damaged weights?)",
                    layer_idx, work.tokens[bad_row], work.places[bad_row].position, work.places[bad_row].sequence));
  }
  if (!pass.observer) return;
  for (uint32_t row = 0; row < n_rows; ++row) {
    const size_t at = static_cast<size_t>(row) * router.n_used;
    pass.observer({.moe_layer = layer.moe_idx,
                   .row = row,
                   .ids = {work.ids + at, router.n_used},
                   .weights = {work.weights + at, router.n_used}});
  }
}

// Numbers the (row, rank) pairs so that those of one expert follow each other, rising by row; returns how many distinct
// experts there are. An expert that a row chose twice simply has two pairs.
uint32_t group_pairs(const PassContext& pass, uint32_t n_rows) {
  const WorkBuffers& work = pass.work;
  const uint32_t n_experts = pass.spec.router.n_experts;
  const uint32_t n_pairs = n_rows * pass.spec.router.n_used;
  std::memset(work.expert_begin, 0, (n_experts + 1) * sizeof(uint32_t));
  if (pass.ahead != nullptr) std::memset(work.is_computed, 0, n_experts);
  std::memset(work.has_hidden, 0, n_experts);
  for (uint32_t i = 0; i < n_pairs; ++i) ++work.expert_begin[work.ids[i] + 1];
  uint32_t n_demanded = 0;
  for (uint32_t e = 0; e < n_experts; ++e) {
    const uint32_t uses = work.expert_begin[e + 1];
    if (uses > 0) {
      work.demanded[n_demanded] = e;
      work.uses[n_demanded++] = uses;
    }
    work.expert_begin[e + 1] += work.expert_begin[e];
    work.expert_fill[e] = work.expert_begin[e];
  }
  for (uint32_t i = 0; i < n_pairs; ++i) {
    const uint32_t pair = work.expert_fill[work.ids[i]]++;
    work.pair_row[pair] = i / pass.spec.router.n_used;
    work.pair_of[i] = pair;
  }
  return n_demanded;
}

void tell_demand(const PassContext& pass, uint32_t moe_idx, uint32_t n_rows, uint32_t n_demanded) {
  const WorkBuffers& work = pass.work;
  const uint32_t n_used = pass.spec.router.n_used;
  const LayerDemand demand = {.moe_layer = moe_idx,
                              .n_rows = n_rows,
                              .n_used = n_used,
                              .row_ids = {work.ids, static_cast<size_t>(n_rows) * n_used},
                              .experts = {work.demanded, n_demanded},
                              .uses = {work.uses, n_demanded}};
  for (PassObserver* watcher : pass.watchers) watcher->demand(demand);
}

// The state after a layer as far as it is known: (ahead->rows(), d_model), row i at x + (row_idx ? row_idx[i] : i) *
// d_model.
struct KnownState {
  const float* x = nullptr;
  const uint32_t* row_idx = nullptr;
};

// While reads for the rest of a layer's experts are under way: the state after its attention, plus the shared expert
// and the experts that are computed.
KnownState sum_what_is_there(const PassContext& pass, const DeviceLayer& layer) {
  const WorkBuffers& work = pass.work;
  const std::span<const uint32_t> rows = pass.ahead->rows();
  const uint32_t n_used = pass.spec.router.n_used;
  const auto n_rows = static_cast<uint32_t>(rows.size());
  const auto* any = static_cast<const uint8_t*>(std::memchr(work.is_computed, 1, pass.spec.router.n_experts));
  const uint32_t filler = any != nullptr ? work.expert_begin[any - work.is_computed] : 0;
  for (uint32_t i = 0; i < n_rows * n_used; ++i) {
    const size_t at = size_t{rows[i / n_used]} * n_used + i % n_used;
    const bool is_computed = work.is_computed[work.ids[at]] != 0;
    // In place of those that are not: nothing of one that is.
    work.ahead_pair_of[i] = is_computed ? work.pair_of[at] : filler;
    work.ahead_mix[i] = is_computed ? work.weights[at] : 0;
  }
  pass.device.combine({.x = work.ahead_x,
                       .from = work.x,
                       .row_idx = rows.data(),
                       .expert_out = work.expert_out,
                       .pair_of = work.ahead_pair_of,
                       .weights = work.ahead_mix,
                       .shared = layer.shared ? work.projected : nullptr,
                       .shared_gate = layer.shared_gate ? work.shared_gate : nullptr,
                       .sum = work.ahead_in.f32,
                       .n_rows = n_rows,
                       .n_used = any != nullptr ? n_used : 0,
                       .d_model = pass.spec.d_model});
  return {.x = work.ahead_x};
}

// The ids of a later layer's router on that state; empty when the numbers went wrong, which is for that layer itself to
// tell.
std::span<const uint32_t> router_guess(const PassContext& pass, const DeviceLayer& later, const KnownState& state) {
  const WorkBuffers& work = pass.work;
  const auto n_rows = static_cast<uint32_t>(pass.ahead->rows().size());
  pass.device.norm({.x = state.x,
                    .row_idx = state.row_idx,
                    .weight = later.ffn_norm,
                    .eps = pass.spec.eps,
                    .n_rows = n_rows,
                    .quantize = later.router.wants_quantized(),
                    .y = work.ahead_in});
  const LinearOp router = {&later.router, work.ahead_logits};
  pass.device.linear({&router, 1}, work.ahead_in, n_rows);
  kernels::RouterSpec spec = pass.spec.router;
  spec.n_used = LookAhead::router_width(pass.spec);
  const uint32_t bad_row = pass.device.route({.spec = spec,
                                              .logits = work.ahead_logits,
                                              .selection_bias = later.selection_bias,
                                              .n_rows = n_rows,
                                              .ids = work.ahead_ids,
                                              .weights = work.ahead_weights});
  if (bad_row < n_rows) return {};
  return {work.ahead_ids, static_cast<size_t>(n_rows) * spec.n_used};
}

// Guesses for the MoE layers that follow this one. `state` makes what its router is asked on, when that is wanted.
// is_waiting: the layer has nothing else to do.
void look_ahead(const PassContext& pass, uint32_t layer_idx, bool is_waiting, FunctionRef<KnownState()> make_state) {
  if (pass.ahead == nullptr) return;
  const uint32_t n_layers = pass.spec.n_layers;
  KnownState state;
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t distance = 1; distance <= kMaxAheadDistance && layer_idx + distance < n_layers; ++distance) {
    const DeviceLayer& later = pass.weights.layers[layer_idx + distance];
    if (!later.is_moe || !pass.ahead->wants_guess(later.moe_idx, distance)) break;
    std::span<const uint32_t> router_ids;
    if (pass.ahead->wants_router(later.moe_idx, distance)) {
      if (state.x == nullptr) state = make_state();
      router_ids = router_guess(pass, later, state);
    }
    pass.ahead->guess(later.moe_idx, distance, router_ids);
  }
  if (state.x != nullptr)
    pass.ahead->note_guess_time(is_waiting ? std::chrono::nanoseconds(0) : std::chrono::steady_clock::now() - start);
  pass.clock.mark(&PhaseTimes::router);
}

// When the layer is done.
KnownState whole_state(const PassContext& pass) { return {.x = pass.work.x, .row_idx = pass.ahead->rows().data()}; }

void run_jobs(const PassContext& pass, const DeviceLayer& layer, ExpertStage stage, uint32_t n_jobs) {
  if (n_jobs == 0) return;
  const WorkBuffers& work = pass.work;
  pass.device.experts({.shape = &layer.experts,
                       .stage = stage,
                       .jobs = {work.jobs, n_jobs},
                       .x = work.normed,
                       .pair_row = work.pair_row,
                       .hidden = work.expert_hidden,
                       .up = work.expert_up,
                       .out = work.expert_out});
}

void give_back(const PassContext& pass, residency::LayerPass& slabs, std::span<const residency::ReadySlab> computed) {
  if (pass.ahead != nullptr) {
    for (const residency::ReadySlab& slab : computed) pass.work.is_computed[slab.expert] = 1;
  }
  slabs.done(computed);
}

// Computes the pairs of resident slabs, at most work.n_wave_pairs pairs and most_slabs slabs at once; each slab is
// given back as soon as its last pair is done.
void run_waves(const PassContext& pass, const DeviceLayer& layer, residency::LayerPass& slabs,
               std::span<const residency::ReadySlab> ready, size_t most_slabs) {
  const WorkBuffers& work = pass.work;
  uint32_t n_jobs = 0, n_pairs = 0;
  size_t n_done = 0;  // slabs given back
  const auto run = [&](size_t n_finished) {
    run_jobs(pass, layer, ExpertStage::kAll, n_jobs);
    give_back(pass, slabs, ready.subspan(n_done, n_finished - n_done));
    n_done = n_finished;
    n_jobs = n_pairs = 0;
  };
  for (size_t i = 0; i < ready.size(); ++i) {
    const uint32_t end = work.expert_begin[ready[i].expert + 1];
    for (uint32_t pair = work.expert_begin[ready[i].expert]; pair < end;) {
      const uint32_t n = std::min(end - pair, work.n_wave_pairs - n_pairs);
      work.jobs[n_jobs++] = {.slab = ready[i], .pair_begin = pair, .n_pairs = n, .scratch_begin = n_pairs};
      pair += n;
      n_pairs += n;
      if (n_pairs == work.n_wave_pairs) run(pair == end ? i + 1 : i);
    }
    if (n_jobs > 0 && i + 1 - n_done >= most_slabs) run(i + 1);
  }
  if (n_jobs > 0) run(ready.size());
}

// All pairs of an expert, with scratch rows of their own.
ExpertJob job_of(const WorkBuffers& work, const residency::ReadySlab& slab) {
  const uint32_t begin = work.expert_begin[slab.expert];
  return {
      .slab = slab, .pair_begin = begin, .n_pairs = work.expert_begin[slab.expert + 1] - begin, .scratch_begin = begin};
}

// Does what is left of the head while slabs are waited for.
void fill_wait(const PassContext& pass, residency::LayerPass& slabs) {
  const auto may_step = [&] { return !pass.head->is_done() && slabs.would_wait() && !slabs.has_begun(); };
  if (pass.head == nullptr || !may_step()) return;
  pass.clock.mark(&PhaseTimes::experts);
  const auto start = std::chrono::steady_clock::now();
  do {
    pass.head->step();
  } while (may_step());
  slabs.note_filled(std::chrono::steady_clock::now() - start);
  pass.clock.mark(&PhaseTimes::head);
}

// In the last layer's wait: looks for tokens that may come next, by the state as far as it is known.
void search_next_token(const PassContext& pass, const DeviceLayer& layer, residency::LayerPass& slabs) {
  const WorkBuffers& work = pass.work;
  pass.clock.mark(&PhaseTimes::experts);
  const auto start = std::chrono::steady_clock::now();
  const KnownState state = sum_what_is_there(pass, layer);
  pass.device.norm(
      {.x = state.x, .weight = pass.weights.output_norm, .eps = pass.spec.eps, .n_rows = 1, .y = work.ahead_in});
  pass.token_ahead->search_early(work.ahead_in, work.guessed_logits, *pass.next);
  const auto taken = std::chrono::steady_clock::now() - start;
  const bool still_waits = slabs.would_wait();
  slabs.note_filled(still_waits ? taken : taken / 2);  // nobody knows when in it the wait ended
  pass.token_ahead->note_early_search(still_waits ? std::chrono::nanoseconds(0) : taken);
  pass.clock.mark(&PhaseTimes::head);
}

// Where each pair has scratch rows of its own: computes gate and up of experts whose down is still on its way, so that
// when a layer's last byte lands one product of one expert is left. Returns when next() need not wait.
void run_begun(const PassContext& pass, const DeviceLayer& layer, residency::LayerPass& slabs) {
  const WorkBuffers& work = pass.work;
  for (;;) {
    fill_wait(pass, slabs);
    const std::span<const residency::ReadySlab> begun = slabs.next_begun();
    if (begun.empty()) return;
    uint32_t n_jobs = 0;
    for (const residency::ReadySlab& slab : begun) {
      work.jobs[n_jobs++] = job_of(work, slab);
      work.has_hidden[slab.expert] = 1;
    }
    run_jobs(pass, layer, ExpertStage::kHidden, n_jobs);
  }
}

// The same for slabs that are there whole.
void run_few(const PassContext& pass, const DeviceLayer& layer, residency::LayerPass& slabs,
             std::span<const residency::ReadySlab> ready) {
  const WorkBuffers& work = pass.work;
  for (const ExpertStage stage : {ExpertStage::kAll, ExpertStage::kDown}) {
    uint32_t n_jobs = 0;
    for (const residency::ReadySlab& slab : ready) {
      const bool wants_down_only = work.has_hidden[slab.expert] != 0;
      if (wants_down_only == (stage == ExpertStage::kDown)) work.jobs[n_jobs++] = job_of(work, slab);
    }
    run_jobs(pass, layer, stage, n_jobs);
  }
  give_back(pass, slabs, ready);
}

void run_experts(const PassContext& pass, const DeviceLayer& layer, uint32_t layer_idx, uint32_t n_rows) {
  const WorkBuffers& work = pass.work;
  const uint32_t n_demanded = group_pairs(pass, n_rows);
  if (!pass.watchers.empty()) tell_demand(pass, layer.moe_idx, n_rows, n_demanded);
  pass.clock.mark(&PhaseTimes::router);
  const uint64_t stall_before = pass.store->counters().stall_ns;
  residency::LayerPass slabs = pass.store->begin(layer.moe_idx, {work.demanded, n_demanded}, {work.uses, n_demanded});
  pass.clock.mark(&PhaseTimes::experts);
  // The shared expert needs no slab: it runs while the first reads are on their way.
  if (layer.shared) {
    run_ffn(pass, layer.shared, n_rows, work.projected);
    pass.clock.mark(&PhaseTimes::dense);
  }
  // While demanded experts wait for slots, slots are given back a few at a time, so that the drive reads into some
  // while others are computed with. Otherwise larger waves split better over the threads.
  const uint32_t n_slots = pass.store->slots_per_layer();
  const size_t most_slabs = n_demanded > n_slots ? std::max(1U, n_slots / 4) : n_demanded;
  const bool are_few = n_rows * pass.spec.router.n_used <= work.n_wave_pairs && n_demanded <= n_slots;
  // Guesses queue behind the demand's reads: they are soon enough, and best, when all has been computed that is there.
  bool has_guessed = pass.ahead == nullptr;
  bool has_searched = pass.token_ahead == nullptr || layer_idx + 1 != pass.spec.n_layers;
  const auto guess = [&](bool is_waiting, FunctionRef<KnownState()> state) {
    pass.clock.mark(&PhaseTimes::experts);
    pass.ahead->demand(layer.moe_idx, {work.ids, static_cast<size_t>(n_rows) * pass.spec.router.n_used}, n_demanded);
    look_ahead(pass, layer_idx, is_waiting, state);
    has_guessed = true;
  };
  for (;;) {
    if (!has_guessed && slabs.would_wait()) guess(true, [&] { return sum_what_is_there(pass, layer); });
    if (!has_searched && slabs.would_wait()) {
      search_next_token(pass, layer, slabs);
      has_searched = true;
    }
    if (are_few) {
      run_begun(pass, layer, slabs);
    } else {
      fill_wait(pass, slabs);
    }
    const std::span<const residency::ReadySlab> ready = slabs.next();
    if (ready.empty()) break;
    if (are_few) {
      run_few(pass, layer, slabs, ready);
    } else {
      run_waves(pass, layer, slabs, ready, most_slabs);
    }
  }
  pass.device.combine({.x = work.x,
                       .expert_out = work.expert_out,
                       .pair_of = work.pair_of,
                       .weights = work.weights,
                       .shared = layer.shared ? work.projected : nullptr,
                       .shared_gate = layer.shared_gate ? work.shared_gate : nullptr,
                       .sum = work.normed.f32,
                       .n_rows = n_rows,
                       .n_used = pass.spec.router.n_used,
                       .d_model = pass.spec.d_model});
  if (!has_guessed) guess(false, [&] { return whole_state(pass); });
  pass.clock.mark(&PhaseTimes::experts);
  pass.clock.move_to_stall(&PhaseTimes::experts, pass.store->counters().stall_ns - stall_before);
  for (PassObserver* watcher : pass.watchers) watcher->end_layer(layer.moe_idx);
}

void run_layer(const PassContext& pass, uint32_t layer_idx, uint32_t n_rows) {
  const DeviceLayer& layer = pass.weights.layers[layer_idx];
  const WorkBuffers& work = pass.work;
  run_attention(pass, layer, layer_idx, n_rows);
  pass.device.norm({.x = work.x,
                    .weight = layer.ffn_norm,
                    .eps = pass.spec.eps,
                    .n_rows = n_rows,
                    .quantize = layer.quantize_ffn_in,
                    .y = work.normed});
  if (layer.is_moe) {
    run_router(pass, layer, layer_idx, n_rows);
    run_experts(pass, layer, layer_idx, n_rows);
    return;
  }
  run_ffn(pass, layer.dense, n_rows, work.projected);
  pass.device.add(work.x, work.projected, static_cast<uint64_t>(n_rows) * pass.spec.d_model);
  pass.clock.mark(&PhaseTimes::dense);
  look_ahead(pass, layer_idx, false, [&] { return whole_state(pass); });
}

// The residual stream's first value and the rotary angles of each row.
void embed_rows(const PassContext& pass, uint32_t n_rows) {
  const WorkBuffers& work = pass.work;
  if (pass.embedding_rows != nullptr) {
    pass.device.embed(pass.embedding_rows->read({work.tokens, n_rows}), pass.embedding_rows->row_numbers(n_rows),
                      work.x);
  } else {
    pass.device.embed(pass.weights.embedding, {work.tokens, n_rows}, work.x);
  }
  for (uint32_t row = 0; row < n_rows; ++row) {
    pass.rope.fill(work.places[row].position, work.cos_sin + static_cast<uint64_t>(row) * pass.spec.rope.n_rot);
  }
  pass.clock.mark(&PhaseTimes::other);
}

}  // namespace

void run_layers(const PassContext& pass, uint32_t n_rows, uint32_t first_layer) {
  if (first_layer == 0) {
    if (pass.store != nullptr) pass.store->begin_step();
    if (pass.ahead != nullptr) pass.ahead->begin_pass({pass.work.tokens, n_rows});
    embed_rows(pass, n_rows);
  }
  for (uint32_t layer_idx = first_layer; layer_idx < pass.spec.n_layers; ++layer_idx) {
    if (pass.cancel != nullptr && pass.cancel->load(std::memory_order_relaxed)) {
      fail(ErrorKind::kCancelled, "cancelled before layer {} of {}", layer_idx, pass.spec.n_layers);
    }
    run_layer(pass, layer_idx, n_rows);
  }
}

uint32_t begin_guessed(const PassContext& pass) noexcept try {
  pass.store->begin_step();
  pass.ahead->begin_guessed_pass({pass.work.tokens, 1});
  embed_rows(pass, 1);
  const uint64_t begin_ns = pass.clock.times().total(), head_ns = pass.clock.times().head;
  uint32_t n_done = 0;
  while (n_done < pass.spec.n_layers && !pass.head->is_done()) {
    if (pass.cancel != nullptr && pass.cancel->load(std::memory_order_relaxed)) return 0;
    run_layer(pass, n_done++, 1);
    const uint64_t hidden_ns = pass.clock.times().head - head_ns;
    const uint64_t beside_ns = pass.clock.times().total() - begin_ns - hidden_ns;
    if (beside_ns > kMostBesideShare * hidden_ns + kMostBesideNs) break;  // hardly anything is waited for
  }
  return n_done;
} catch (...) {
  return 0;
}

void norm_head(const PassContext& pass, const uint32_t* row_idx, uint32_t n) {
  const WorkBuffers& work = pass.work;
  pass.device.norm({.x = work.x,
                    .row_idx = row_idx,
                    .weight = pass.weights.output_norm,
                    .eps = pass.spec.eps,
                    .n_rows = n,
                    .quantize = pass.weights.head.wants_quantized(),
                    .y = work.head_in});
  pass.clock.mark(&PhaseTimes::head);
}

void run_head(const PassContext& pass, uint32_t n) {
  const LinearOp head = {&pass.weights.head, pass.work.logits};
  pass.device.linear({&head, 1}, pass.work.head_in, n);
  pass.clock.mark(&PhaseTimes::head);
}

}  // namespace outrider::engine

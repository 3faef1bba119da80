// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "outrider/base/check.h"
#include "outrider/base/checked.h"
#include "outrider/numerics/dequant.h"

namespace outrider::engine {
namespace {

// Tasks per thread: enough that a slow core, or one that the host takes away, does not hold up the others (4 against
// 16: decode a sixth slower on a noisy virtual machine).
constexpr uint32_t kTasksPerThread = 16;
// Below this many element operations a task costs little more than handing it to another thread.
constexpr uint64_t kMinTaskCost = 65536;
// Rows of a weight matrix in a task: at least this many, so that kernels can work on several at once.
constexpr uint32_t kMinTaskRows = 8;
// Larger tasks are multiples of the rows that the widest kernel takes at a time.
constexpr uint32_t kTileRows = 32;
// Rows from which the columns of a sketch are judged.
constexpr uint32_t kSketchSample = 1024;
// Up to so many rows a task has a power of two: most matrices are cut without a rest then, so that tasks are equal.
constexpr uint64_t kMostEvenRows = 128;

numerics::Activations view(const Rows& rows) noexcept {
  return {.f32 = rows.f32,
          .f32_stride = rows.k,
          .q = rows.q,
          .d = rows.d,
          .sum32 = rows.sum32,
          .sum16 = rows.sum16,
          .k = rows.k};
}

// The activations from row `begin` on.
numerics::Activations view(const Rows& rows, uint64_t begin) noexcept {
  Rows part = rows;
  part.f32 += begin * rows.k;
  if (rows.q != nullptr) {
    part.q += begin * rows.k;
    part.d += begin * (rows.k / 32);
    part.sum32 += begin * (rows.k / 32);
    part.sum16 += begin * (rows.k / 16);
  }
  return view(part);
}

uint64_t worker_floats(uint32_t max_experts, uint32_t dv) noexcept {
  const uint64_t floats = std::max<uint64_t>(3ULL * max_experts, kernels::attention_scratch_floats(dv));
  return align_up(floats, 64);  // 256 bytes apart: workers share no cache line
}

// For so many element operations: from one task a thread on as many for each, as three equal ones keep two threads as
// long as four would.
uint64_t tasks_of(uint64_t cost, uint64_t n_threads) noexcept {
  const uint64_t n = cost / kMinTaskCost + 1;
  return n < n_threads ? n : std::min(ceil_div(n, n_threads) * n_threads, n_threads * kTasksPerThread);
}

// Of all matrices together.
uint64_t rows_of_task(uint64_t n_rows, uint64_t n_tasks) noexcept {
  const uint64_t fair = std::max<uint64_t>(ceil_div(n_rows, n_tasks), kMinTaskRows);
  return fair <= kMostEvenRows ? std::bit_ceil(fair) : align_up(fair, kTileRows);
}

// Heads of one KV head that a task attends with together (the same bits): the largest divisor of the group that leaves
// each thread two tasks, or one when it is so few heads that sharing keys pays more.
uint32_t heads_together(uint32_t group, uint32_t n_items, uint32_t n_threads) noexcept {
  for (uint32_t n = group; n > 1; --n) {
    const uint32_t wanted = n <= kernels::kAttentionHeadsAtOnce ? n_threads : 2 * n_threads;
    if (group % n == 0 && n_items / n >= wanted) return n;
  }
  return 1;
}

// Rows from `first` on, at most n, that are neighbouring positions of one sequence.
uint32_t neighbours(std::span<const RowPlace> rows, uint32_t first, uint32_t n) noexcept {
  uint32_t count = 1;
  for (; count < n && first + count < rows.size(); ++count) {
    const RowPlace& before = rows[first + count - 1];
    const RowPlace& row = rows[first + count];
    if (row.sequence != before.sequence || row.position != before.position + 1) break;
  }
  return count;
}

// Rows that attend in one task, `heads` of each: what the kernel can use, while there are tasks enough. 1 where rows
// are of different sequences from the first on, as in decode of several.
uint32_t rows_together(std::span<const RowPlace> rows, uint32_t heads, uint32_t n_heads, uint64_t n_tasks) noexcept {
  const uint64_t most = rows.size() * (n_heads / heads) / n_tasks;
  const auto n = static_cast<uint32_t>(std::min<uint64_t>(most, kernels::kAttentionQueriesAtOnce / heads));
  return n > 1 && neighbours(rows, 0, 2) == 2 ? std::bit_floor(n) : 1;
}

}  // namespace

CpuDevice::CpuDevice(Isa isa, uint32_t n_threads, uint32_t max_experts, uint32_t dv)
    : isa_(isa),
      pool_(n_threads),
      rms_norm_(kernels::choose_rms_norm(isa)),
      quantize_act_(kernels::choose_quantize_act(isa)),
      rope_(kernels::choose_rope(isa)),
      attention_(kernels::choose_attention(isa)),
      route_(kernels::choose_route(isa)),
      store_kv_(kernels::choose_store_kv(isa)),
      sketch_scores_(kernels::choose_sketch_scores(isa)),
      elementwise_(kernels::choose_elementwise(isa)),
      scratch_floats_(worker_floats(max_experts, dv)),
      scratch_(scratch_bytes(n_threads, max_experts, dv), "scratch of the workers") {}

uint64_t CpuDevice::scratch_bytes(uint32_t n_threads, uint32_t max_experts, uint32_t dv) noexcept {
  return n_threads * worker_floats(max_experts, dv) * sizeof(float);
}

std::byte* CpuDevice::allocate(uint64_t n_bytes, const char* what) {
  constexpr uint64_t kLargePage = 2ULL << 20;
  AlignedBuffer& buffer = buffers_.emplace_back(n_bytes, what);
  pool_.run(static_cast<uint32_t>(ceil_div(n_bytes, kLargePage)),
            [&](uint32_t page, uint32_t) { buffer.populate(page * kLargePage, kLargePage); });
  return buffer.data();
}

void CpuDevice::write(std::byte* to, uint64_t, FunctionRef<void(std::byte*)> fill) { fill(to); }

void CpuDevice::for_rows(uint32_t n_rows, uint64_t row_cost, FunctionRef<void(uint32_t, uint32_t)> body) {
  const uint64_t by_cost = n_rows * row_cost / kMinTaskCost + 1;
  const auto n_tasks = static_cast<uint32_t>(
      std::min<uint64_t>({n_rows, by_cost, static_cast<uint64_t>(pool_.n_threads()) * kTasksPerThread}));
  pool_.run(n_tasks, [&](uint32_t task, uint32_t worker) {
    const auto begin = static_cast<uint32_t>(static_cast<uint64_t>(n_rows) * task / n_tasks);
    const auto end = static_cast<uint32_t>(static_cast<uint64_t>(n_rows) * (task + 1) / n_tasks);
    for (uint32_t row = begin; row < end; ++row) body(row, worker);
  });
}

void CpuDevice::quantize_row(const Rows& rows, uint32_t row) const noexcept {
  const uint64_t k = rows.k;
  quantize_act_(rows.f32 + row * k, rows.k, rows.q + row * k, rows.d + row * (k / 32), rows.sum32 + row * (k / 32),
                rows.sum16 + row * (k / 16));
}

void CpuDevice::embed(const kernels::Weights& embedding, std::span<const int32_t> tokens, float* out) {
  const numerics::DequantizeFn dequantize = numerics::dequantize_fn(embedding.type);
  for_rows(static_cast<uint32_t>(tokens.size()), embedding.k, [&](uint32_t row, uint32_t) {
    dequantize(embedding.data + static_cast<uint64_t>(tokens[row]) * embedding.row_bytes,
               out + static_cast<uint64_t>(row) * embedding.k, embedding.k);
  });
}

void CpuDevice::norm(const NormArgs& args) {
  const uint64_t k = args.y.k;
  for_rows(args.n_rows, 4 * k, [&](uint32_t row, uint32_t) {
    const uint64_t from = args.row_idx != nullptr ? args.row_idx[row] : row;
    rms_norm_(args.x + from * k, args.weight, args.eps, args.y.k, args.y.f32 + row * k);
    if (args.quantize) quantize_row(args.y, row);
  });
}

void CpuDevice::quantize(const Rows& rows, uint32_t n_rows) {
  for_rows(n_rows, 2ULL * rows.k, [&](uint32_t row, uint32_t) { quantize_row(rows, row); });
}

kernels::MatmulFn CpuDevice::matmul_for(format::TensorType type) noexcept {
  const auto id = static_cast<uint32_t>(type);
  OUTRIDER_CHECK(id < kTypeIds);
  if (matmul_[id] == nullptr) matmul_[id] = kernels::choose_matmul(isa_, type);
  return matmul_[id];
}

void CpuDevice::linear_rows(const DeviceLinear& linear, kernels::MatmulArgs args) noexcept {
  matmul_[static_cast<uint32_t>(linear.w.type)](args);
  if (linear.scale == 1 && linear.bias == nullptr) return;
  for (uint64_t i = 0; i < args.n_tokens; ++i) {
    float* out = args.out + i * args.out_stride;
    if (linear.scale != 1) {
      for (uint32_t r = args.row_begin; r < args.row_end; ++r) out[r] *= linear.scale;
    }
    if (linear.bias != nullptr) {
      for (uint32_t r = args.row_begin; r < args.row_end; ++r) out[r] += linear.bias[r];
    }
  }
}

void CpuDevice::linear(std::span<const LinearOp> ops, const Rows& x, uint32_t n_rows) {
  uint64_t n_weight_rows = 0, cost = 0;
  for (const LinearOp& op : ops) {
    const kernels::Weights& w = op.linear->w;
    n_weight_rows += w.n_rows;
    cost += w.n_rows * std::max<uint64_t>(uint64_t{x.k} * n_rows, w.row_bytes);  // few tokens: reading is what it costs
    matmul_for(w.type);
  }
  const uint64_t task_rows = rows_of_task(n_weight_rows, tasks_of(cost, pool_.n_threads()));
  uint32_t n_tasks = 0;
  for (const LinearOp& op : ops) n_tasks += static_cast<uint32_t>(ceil_div(op.linear->w.n_rows, task_rows));
  pool_.run(n_tasks, [&](uint32_t task, uint32_t) {
    for (const LinearOp& op : ops) {
      const kernels::Weights& w = op.linear->w;
      const auto op_tasks = static_cast<uint32_t>(ceil_div(w.n_rows, task_rows));
      if (task >= op_tasks) {
        task -= op_tasks;
        continue;
      }
      linear_rows(*op.linear, {.weights = w,
                               .row_begin = static_cast<uint32_t>(task * task_rows),
                               .row_end = static_cast<uint32_t>(std::min<uint64_t>((task + 1) * task_rows, w.n_rows)),
                               .x = view(x),
                               .n_tokens = n_rows,
                               .out = op.out,
                               .out_stride = w.n_rows});
      return;
    }
  });
}

void CpuDevice::linear_some(const LinearOp& op, const Rows& x, std::span<const uint32_t> rows) {
  const kernels::Weights& w = op.linear->w;
  matmul_for(w.type);
  for_rows(static_cast<uint32_t>(rows.size()), std::max<uint64_t>(x.k, w.row_bytes), [&](uint32_t i, uint32_t) {
    linear_rows(*op.linear, {.weights = w,
                             .row_begin = rows[i],
                             .row_end = rows[i] + 1,
                             .x = view(x),
                             .n_tokens = 1,
                             .out = op.out,
                             .out_stride = w.n_rows});
  });
}

void CpuDevice::make_sketch(const DeviceLinear& linear, const kernels::Sketch& sketch) {
  const kernels::Weights& w = linear.w;
  const numerics::DequantizeFn dequantize = numerics::dequantize_fn(w.type);
  const auto row = [&](uint32_t i) { return w.data + i * w.row_bytes; };
  const uint32_t n_sample = std::min(w.n_rows, kSketchSample);
  std::vector<float> rows(size_t{std::max(n_sample, kernels::kSketchBlockRows * pool_.n_threads())} * w.k);
  for_rows(n_sample, w.k, [&](uint32_t i, uint32_t) {
    dequantize(row(static_cast<uint32_t>(uint64_t{w.n_rows} * i / n_sample)), rows.data() + size_t{i} * w.k, w.k);
  });
  kernels::sketch_columns(sketch, rows.data(), n_sample);
  const kernels::SketchBlockFn sketch_block = kernels::choose_sketch_block(isa_);
  pool_.run(static_cast<uint32_t>(ceil_div(w.n_rows, kernels::kSketchBlockRows)), [&](uint32_t block, uint32_t worker) {
    const uint32_t begin = block * kernels::kSketchBlockRows;
    const uint32_t n = std::min(kernels::kSketchBlockRows, w.n_rows - begin);
    float* from = rows.data() + size_t{worker} * kernels::kSketchBlockRows * w.k;
    for (uint32_t i = 0; i < n; ++i) dequantize(row(begin + i), from + size_t{i} * w.k, w.k);
    sketch_block(sketch, block, from, n);
  });
}

void CpuDevice::sketch_scores(const kernels::Sketch& sketch, const float* x, std::byte* tables, float* scores) {
  kernels::sketch_tables(sketch, x, tables);
  const uint64_t task_blocks =
      rows_of_task(sketch.n_rows, uint64_t{pool_.n_threads()} * kTasksPerThread) / kernels::kSketchBlockRows + 1;
  const uint64_t n_blocks = ceil_div(sketch.n_rows, kernels::kSketchBlockRows);
  pool_.run(static_cast<uint32_t>(ceil_div(n_blocks, task_blocks)), [&](uint32_t task, uint32_t) {
    sketch_scores_(sketch, tables, static_cast<uint32_t>(task * task_blocks),
                   static_cast<uint32_t>(std::min((task + 1) * task_blocks, n_blocks)), scores);
  });
}

void CpuDevice::rope_store(const AttentionShape& shape, const RopeStoreArgs& args, const KvLayer& kv,
                           std::span<const RowPlace> rows) {
  const auto [n_heads, n_kv_heads, dk, dv, scale] = shape;
  const uint64_t q_width = static_cast<uint64_t>(n_heads) * dk;
  const uint64_t k_width = static_cast<uint64_t>(n_kv_heads) * dk;
  const uint64_t v_width = static_cast<uint64_t>(n_kv_heads) * dv;
  for_rows(static_cast<uint32_t>(rows.size()), 4 * (q_width + k_width), [&](uint32_t row, uint32_t) {
    float* q = args.q + row * q_width;
    float* k = args.k + row * k_width;
    const float* v = args.v + row * v_width;
    const float* cos_sin = args.cos_sin + static_cast<uint64_t>(row) * args.n_rot;
    if (args.q_norm != nullptr && args.norm_full_width) {
      rms_norm_(q, args.q_norm, args.eps, static_cast<uint32_t>(q_width), q);
      rms_norm_(k, args.k_norm, args.eps, static_cast<uint32_t>(k_width), k);
    }
    const bool per_head = args.q_norm != nullptr && !args.norm_full_width;
    for (uint32_t h = 0; h < n_heads; ++h, q += dk) {
      if (per_head) rms_norm_(q, args.q_norm, args.eps, dk, q);
      rope_(q, cos_sin, args.n_rot, args.pairing);
    }
    const uint64_t head_begin = static_cast<uint64_t>(rows[row].sequence) * n_kv_heads;
    for (uint32_t h = 0; h < n_kv_heads; ++h, k += dk, v += dv) {
      if (per_head) rms_norm_(k, args.k_norm, args.eps, dk, k);
      rope_(k, cos_sin, args.n_rot, args.pairing);
      store_kv_(k, dk, kv.type, kv.k + (head_begin + h) * kv.k_head_stride + rows[row].position * kv.k_row_bytes);
      store_kv_(v, dv, kv.type, kv.v + (head_begin + h) * kv.v_head_stride + rows[row].position * kv.v_row_bytes);
    }
  });
}

void CpuDevice::attention(const AttentionShape& shape, const float* q, const KvLayer& kv,
                          std::span<const RowPlace> rows, float* out) {
  const auto [n_heads, n_kv_heads, dk, dv, scale] = shape;
  const uint32_t group = n_heads / n_kv_heads;
  const uint32_t longest =
      std::max_element(rows.begin(), rows.end(),
                       [](const RowPlace& a, const RowPlace& b) { return a.position < b.position; })
          ->position +
      1;
  const auto n_rows = static_cast<uint32_t>(rows.size());
  const uint32_t heads = heads_together(group, n_rows * n_heads, pool_.n_threads());
  const uint32_t n_parts = n_heads / heads;  // of a row's heads
  const uint32_t together =
      rows_together(rows, heads, n_heads, static_cast<uint64_t>(pool_.n_threads()) * kTasksPerThread);
  const auto n_blocks = static_cast<uint32_t>(ceil_div(n_rows, together));
  const uint64_t q_width = static_cast<uint64_t>(n_heads) * dk;
  const uint64_t out_width = static_cast<uint64_t>(n_heads) * dv;
  for_rows(n_blocks * n_parts, static_cast<uint64_t>(longest) * (dk + dv) * heads * together,
           [&](uint32_t item, uint32_t worker) {
             const uint32_t head = item % n_parts * heads;
             const uint32_t end = std::min(item / n_parts * together + together, n_rows);
             for (uint32_t row = item / n_parts * together, n_tokens = 0; row < end; row += n_tokens) {
               n_tokens = neighbours(rows, row, end - row);
               const uint64_t kv_head = static_cast<uint64_t>(rows[row].sequence) * n_kv_heads + head / group;
               attention_({.q = q + row * q_width + static_cast<uint64_t>(head) * dk,
                           .k_cache = kv.k + kv_head * kv.k_head_stride,
                           .v_cache = kv.v + kv_head * kv.v_head_stride,
                           .k_stride = kv.k_row_bytes,
                           .v_stride = kv.v_row_bytes,
                           .k_type = kv.type,
                           .v_type = kv.type,
                           .dk = dk,
                           .dv = dv,
                           .begin = 0,
                           .end = rows[row].position + 1,
                           .scale = scale,
                           .scratch = worker_scratch(worker),
                           .out = out + row * out_width + static_cast<uint64_t>(head) * dv,
                           .n_heads = heads,
                           .n_tokens = n_tokens,
                           .q_stride = q_width,
                           .out_stride = out_width});
             }
           });
}

uint32_t CpuDevice::route(const RouteArgs& args) {
  std::atomic<uint32_t> bad_row{args.n_rows};
  for_rows(args.n_rows, 16ULL * args.spec.n_experts, [&](uint32_t row, uint32_t worker) {
    const uint64_t at = static_cast<uint64_t>(row) * args.spec.n_used;
    if (route_(args.spec, args.logits + static_cast<uint64_t>(row) * args.spec.n_experts, args.selection_bias,
               worker_scratch(worker), args.ids + at, args.weights + at)) {
      return;
    }
    uint32_t seen = bad_row.load(std::memory_order_relaxed);
    while (row < seen && !bad_row.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
    }
  });
  return bad_row.load(std::memory_order_relaxed);
}

void CpuDevice::activate_row(const Rows& hidden, const float* up, bool has_gate, bool quantize,
                             uint32_t row) const noexcept {
  const uint64_t at = static_cast<uint64_t>(row) * hidden.k;
  if (has_gate) {
    elementwise_.swiglu(hidden.f32 + at, up + at, hidden.f32 + at, hidden.k);
  } else {
    elementwise_.silu(up + at, hidden.f32 + at, hidden.k);
  }
  if (quantize) quantize_row(hidden, row);
}

void CpuDevice::swiglu(const Rows& hidden, const float* up, bool has_gate, bool quantize, uint32_t n_rows) {
  for_rows(n_rows, 16ULL * hidden.k,
           [&](uint32_t row, uint32_t) { activate_row(hidden, up, has_gate, quantize, row); });
}

void CpuDevice::expert_block(const ExpertArgs& args, ExpertMatrix which, const ExpertJob& job, uint32_t block,
                             uint32_t n_blocks) noexcept {
  const ExpertShape& shape = *args.shape;
  DeviceLinear linear;
  const std::byte* data = nullptr;
  const float* scales = nullptr;
  float* out = nullptr;
  switch (which) {
    case ExpertMatrix::kGate:
      linear.w = shape.gate, data = job.slab.parts[shape.gate_part], scales = shape.gate_scale, out = args.hidden.f32;
      break;
    case ExpertMatrix::kUp:
      linear.w = shape.up, data = job.slab.parts[shape.up_part] + shape.up_offset, scales = shape.up_scale,
      out = args.up;
      break;
    case ExpertMatrix::kDown:
      linear.w = shape.down, data = job.slab.parts[shape.down_part], scales = shape.down_scale, out = args.out;
      break;
  }
  const bool reads_rows = which != ExpertMatrix::kDown;  // else the pairs' own hidden rows
  const uint64_t n_rows = linear.w.n_rows;
  linear.w.data = data;
  if (scales != nullptr) linear.scale = scales[job.slab.expert];
  linear_rows(linear, {.weights = linear.w,
                       .row_begin = static_cast<uint32_t>(n_rows * block / n_blocks),
                       .row_end = static_cast<uint32_t>(n_rows * (block + 1) / n_blocks),
                       .x = reads_rows ? view(args.x) : view(args.hidden, job.scratch_begin),
                       .token_rows = reads_rows ? args.pair_row + job.pair_begin : nullptr,
                       .n_tokens = job.n_pairs,
                       .out = out + (reads_rows ? job.scratch_begin : job.pair_begin) * n_rows,
                       .out_stride = n_rows});
}

void CpuDevice::activate_experts(const ExpertArgs& args) noexcept {
  const ExpertShape& shape = *args.shape;
  const bool quantize = kernels::activation_form(shape.down.type) == kernels::ActivationForm::kQuantized;
  const auto n_jobs = static_cast<uint32_t>(args.jobs.size());
  uint64_t n_pairs = 0;
  for (const ExpertJob& job : args.jobs) n_pairs += job.n_pairs;
  const bool alone = n_pairs * 16 * args.hidden.k < kMinTaskCost;
  const uint32_t splits = alone ? 1 : std::max(1U, pool_.n_threads() * kTasksPerThread / n_jobs);
  const auto activate = [&](uint32_t task, uint32_t) {
    const ExpertJob& job = args.jobs[task / splits];
    const uint64_t split = task % splits;
    for (uint64_t i = job.n_pairs * split / splits; i < job.n_pairs * (split + 1) / splits; ++i) {
      activate_row(args.hidden, args.up, shape.has_gate, quantize, static_cast<uint32_t>(job.scratch_begin + i));
    }
  };
  if (!alone) return pool_.run(n_jobs * splits, activate);
  for (uint32_t job = 0; job < n_jobs; ++job) activate(job, 0);
}

void CpuDevice::experts(const ExpertArgs& args) {
  const ExpertShape& shape = *args.shape;
  const auto n_jobs = static_cast<uint32_t>(args.jobs.size());
  matmul_for(shape.up.type);
  matmul_for(shape.down.type);
  if (shape.has_gate) matmul_for(shape.gate.type);
  uint64_t n_pairs = 0;
  for (const ExpertJob& job : args.jobs) n_pairs += job.n_pairs;
  const auto blocks_of = [&](uint32_t n_matrices, const kernels::Weights& w) {
    const uint64_t cost = n_pairs * w.n_rows * w.k / n_jobs;  // of one matrix, on average
    const uint64_t most = std::min<uint64_t>(cost / kMinTaskCost, w.n_rows / kMinTaskRows);
    return static_cast<uint32_t>(
        std::clamp<uint64_t>(pool_.n_threads() * kTasksPerThread / n_matrices, 1, std::max<uint64_t>(1, most)));
  };
  if (args.stage != ExpertStage::kDown) {
    const uint32_t n_in = shape.has_gate ? 2 : 1;
    const uint32_t blocks = blocks_of(n_jobs * n_in, shape.up);
    pool_.run(n_jobs * n_in * blocks, [&](uint32_t task, uint32_t) {
      const auto which = (task / blocks + 1) % n_in == 0 ? ExpertMatrix::kUp : ExpertMatrix::kGate;
      expert_block(args, which, args.jobs[task / (n_in * blocks)], task % blocks, blocks);
    });
    activate_experts(args);
  }
  if (args.stage == ExpertStage::kHidden) return;
  const uint32_t blocks = blocks_of(n_jobs, shape.down);
  pool_.run(n_jobs * blocks, [&](uint32_t task, uint32_t) {
    expert_block(args, ExpertMatrix::kDown, args.jobs[task / blocks], task % blocks, blocks);
  });
}

void CpuDevice::combine(const CombineArgs& args) {
  const uint64_t d = args.d_model;
  for_rows(args.n_rows, (args.n_used + 2) * d, [&](uint32_t row, uint32_t) {
    const uint64_t source = args.row_idx != nullptr ? args.row_idx[row] : row;
    float* sum = args.sum + row * d;
    std::memset(sum, 0, d * sizeof(float));
    for (uint32_t rank = 0; rank < args.n_used; ++rank) {
      const uint64_t at = static_cast<uint64_t>(row) * args.n_used + rank;
      elementwise_.add_scaled(sum, args.expert_out + args.pair_of[at] * d, args.weights[at], d);
    }
    if (args.shared != nullptr && args.shared_gate != nullptr) {
      elementwise_.add_scaled(sum, args.shared + source * d, kernels::sigmoid_f32(args.shared_gate[source]), d);
    } else if (args.shared != nullptr) {
      elementwise_.add(sum, args.shared + source * d, d);
    }
    if (args.from != nullptr) std::memcpy(args.x + row * d, args.from + source * d, d * sizeof(float));
    elementwise_.add(args.x + row * d, sum, d);
  });
}

void CpuDevice::add(float* y, const float* x, uint64_t n_elems) {
  constexpr uint64_t kSpan = 16384;
  for_rows(static_cast<uint32_t>(ceil_div(n_elems, kSpan)), kSpan, [&](uint32_t i, uint32_t) {
    elementwise_.add(y + i * kSpan, x + i * kSpan, std::min(kSpan, n_elems - i * kSpan));
  });
}

}  // namespace outrider::engine

// SPDX-License-Identifier: Apache-2.0
// Options with their limits, and the memory plan: both from the directory alone.
#include <algorithm>

#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/engine/cpu_device.h"
#include "outrider/engine/embedding_rows.h"
#include "outrider/engine/engine.h"
#include "outrider/engine/lookahead.h"
#include "outrider/engine/token_ahead.h"
#include "outrider/engine/weights.h"
#include "outrider/engine/work_buffers.h"

namespace outrider::engine {
namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr uint32_t kDefaultChunk = 512;
constexpr uint32_t kMaxSequences = 4096;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxChunk = 65536;
constexpr double kMaxKvBytes = 1e15;  // far beyond any machine: keeps the exact sums below from wrapping

void check_range(const char* option, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return;
  fail(ErrorKind::kBadArgument, "{} is {}, wanted {}..{}", option, value, low, high);
}

void check_kv(const model::ModelSpec& spec, const EngineOptions& options) {
  if (options.kv_type == kernels::KvType::kQ8_0 && (spec.dk % 32 != 0 || spec.dv % 32 != 0)) {
    fail(ErrorKind::kBadArgument,
         "KV type q8_0 wants head widths that are multiples of 32, this model has {} and {}; wanted f16 or f32",
         spec.dk, spec.dv);
  }
  const double per_position =
      static_cast<double>(spec.n_layers) * options.n_sequences * spec.n_kv_heads * 4.0 * (spec.dk + spec.dv);
  if (per_position * options.context > kMaxKvBytes) {
    fail(ErrorKind::kBadArgument, "context of {} positions times {} sequences needs a KV cache of over {:.0f} TB",
         options.context, options.n_sequences, kMaxKvBytes / 1e12);
  }
}

}  // namespace

EngineOptions resolve(const model::Model& model, EngineOptions options) {
  const model::ModelSpec& spec = model.spec;
  if (options.context == 0) options.context = std::min(spec.context_length, kDefaultContext);
  check_range("number of sequences", options.n_sequences, 1, kMaxSequences);
  check_range("number of threads", options.n_threads, 1, kMaxThreads);
  if (options.chunk == 0) options.chunk = kDefaultChunk;
  check_range("chunk", options.chunk, 1, kMaxChunk);
  check_range("logit rows", options.logit_rows, 1, kMaxChunk);
  if (!isa_supported(options.isa)) {
    fail(ErrorKind::kBadArgument, "instruction set {} is not supported by this processor, wanted at most {}",
         isa_name(options.isa), isa_name(best_isa()));
  }
  check_kv(spec, options);
  if (options.lookahead != kLookAheadAuto) check_range("look-ahead width", options.lookahead, 0, kMaxLookAhead);
  check_range("look-ahead distance", options.lookahead_distance, 1, kMaxAheadDistance);
  options.chunk = static_cast<uint32_t>(
      std::min<uint64_t>(options.chunk, static_cast<uint64_t>(options.context) * options.n_sequences));
  options.logit_rows = std::min(options.logit_rows, options.chunk);
  options.embedding_on_drive = options.embedding_on_drive && embedding_can_stay_on_drive(model);
  if (!spec.is_moe() || model.n_moe_layers() == 0) {
    options.slots_per_layer = 0;
    options.lookahead = 0;
    return options;
  }
  const uint32_t n_experts = spec.router.n_experts;
  if (options.slots_per_layer == 0) options.slots_per_layer = n_experts;
  if (options.slots_per_layer < minimum_slots(model)) {
    fail(ErrorKind::kBadArgument,
         "expert cache of {} slots per layer is too small, wanted {}..{}: a token uses {} experts in each layer",
         options.slots_per_layer, minimum_slots(model), n_experts, spec.router.n_used);
  }
  options.slots_per_layer = std::min(options.slots_per_layer, n_experts);
  return options;
}

uint32_t minimum_slots(const model::Model& model) noexcept {
  return model.n_moe_layers() > 0 ? model.spec.router.n_used : 0;
}

std::vector<residency::LayerSource> expert_sources(const model::Model& model) {
  std::vector<residency::LayerSource> sources;
  const uint32_t n_experts = model.spec.router.n_experts;
  for (const model::Layer& layer : model.layers) {
    if (!layer.is_moe) continue;
    residency::LayerSource source{.n_experts = n_experts, .n_parts = 0, .parts = {}};
    const model::ExpertStacks& stacks = layer.experts;
    for (const format::Tensor* stack : {stacks.gate_up, stacks.gate, stacks.up, stacks.down}) {
      if (stack == nullptr) continue;
      source.parts[source.n_parts++] = {.file_idx = stack->file_idx,
                                        .offset = stack->offset,
                                        .n_bytes = stack->n_bytes / n_experts,
                                        .stride = stack->stride};
    }
    sources.push_back(source);
  }
  return sources;
}

std::vector<PlanLine> memory_plan(const model::Model& model, const EngineOptions& options) {
  const EngineOptions resolved = resolve(model, options);
  const model::ModelSpec& spec = model.spec;
  WorkBuffers unused;
  std::vector<PlanLine> plan = {
      {"dense weights", dense_bytes(model, !resolved.embedding_on_drive)},
      {"KV cache", kv_layout(spec, resolved).total_bytes},
      {"work buffers", WorkBuffers::lay_out(spec, resolved, nullptr, unused) +
                           CpuDevice::scratch_bytes(resolved.n_threads, spec.router.n_experts, spec.dv)},
  };
  if (resolved.embedding_on_drive) plan.push_back({"embedding rows", EmbeddingRows::n_bytes(model, resolved.chunk)});
  if (model.n_moe_layers() > 0) {
    const std::vector<residency::LayerSource> sources = expert_sources(model);
    plan.push_back({"expert cache", residency::ExpertStore::arena_bytes_for(sources, resolved.slots_per_layer,
                                                                            resolved.direct, resolved.slot_pool)});
    if (resolved.lookahead != 0) {
      plan.push_back({"look-ahead", LookAhead::n_bytes(spec, model.n_moe_layers()) +
                                        (TokenAhead::is_of_use(spec, resolved) ? TokenAhead::n_bytes(spec) : 0)});
    }
  }
  return plan;
}

}  // namespace outrider::engine

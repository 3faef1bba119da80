// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/engine/embedding_rows.h"

namespace outrider::whatif {

namespace {

// Code, stacks, tokenizer tables, I/O buffers and the directory of tensors: what the process holds besides the engine's
// own allocations. Measured 2026-11-29 (resident set less the other lines): 10.5 MiB with 16,384 tokens and as many
// merges, 24.6 MiB with 151,936 tokens without merges; 151,387 merges beside them take 13.7 MiB more.
uint64_t program_bytes(const model::Model& model) {
  constexpr uint64_t kBase = 15ULL << 19;
  constexpr uint64_t kPerToken = 122, kPerMerge = 100, kPerTensor = 512;
  const format::Value* merges = model.file.metadata.find("tokenizer.ggml.merges");
  return kBase + kPerToken * model.spec.n_vocab + kPerMerge * (merges != nullptr ? merges->n_elements() : 0) +
         kPerTensor * model.file.tensors.size();
}

std::vector<engine::PlanLine> lines_for(const model::Model& model, engine::EngineOptions options, uint32_t slots) {
  options.slots_per_layer = slots;
  std::vector<engine::PlanLine> lines = engine::memory_plan(model, options);
  lines.push_back({"program", program_bytes(model)});
  return lines;
}

uint64_t sum(const std::vector<engine::PlanLine>& lines) {
  uint64_t total = 0;
  for (const engine::PlanLine& line : lines) total += line.bytes;
  return total;
}

// The most slots in [low, high] for which `fits` holds; low - 1 when none does. `fits` is monotone.
template <typename Fits>
uint32_t most_slots(uint32_t low, uint32_t high, const Fits& fits) {
  uint32_t best = low - 1;
  while (low <= high) {
    const uint32_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      best = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

uint32_t requested_slots(const model::Model& model, const engine::EngineOptions& options, const CacheRequest& request,
                         uint64_t usable, Plan& plan) {
  const uint32_t low = plan.minimum_slots, high = plan.all_slots;
  double wanted = 0;
  switch (request.kind) {
    case CacheRequest::Kind::kAuto: {
      const uint32_t slots =
          most_slots(low, high, [&](uint32_t n) { return sum(lines_for(model, options, n)) <= usable; });
      return std::max(slots, low);  // over budget at the minimum: refused below
    }
    case CacheRequest::Kind::kBytes: {
      const auto layers = engine::expert_sources(model);
      wanted = most_slots(1, high, [&](uint32_t n) {
        return static_cast<double>(residency::ExpertStore::arena_bytes_for(layers, n, options.direct,
                                                                           options.slot_pool)) <= request.value;
      });
      if (wanted < low) {
        fail(ErrorKind::kBadArgument, "--expert-cache {}: too small, this model needs at least {} ({} slots per layer)",
             request.text,
             format_bytes(residency::ExpertStore::arena_bytes_for(layers, low, options.direct, options.slot_pool)),
             low);
      }
      return static_cast<uint32_t>(wanted);
    }
    case CacheRequest::Kind::kSlots:
      wanted = request.value;
      break;
    case CacheRequest::Kind::kShare:
      wanted = std::floor(request.value / 100 * high);
      break;
  }
  if (wanted < low) {
    fail(ErrorKind::kBadArgument,
         "--expert-cache {}: too small, this model needs at least {}s ({:.3g}%): {} experts a token", request.text, low,
         std::ceil(1000.0 * low / high) / 10, low);
  }
  if (wanted > high) {
    plan.notes.push_back(
        fmt::format("--expert-cache {} is more than all {} experts of a layer: all are resident", request.text, high));
    return high;
  }
  return static_cast<uint32_t>(wanted);
}

constexpr uint32_t kUsualChunk = 512, kMostChunk = 2048;

// Settles what the options leave open: see plan.h.
class Chooser {
 public:
  Chooser(const model::Model& model, const engine::EngineOptions& options, const CacheRequest& request, uint64_t usable,
          const Plan& limits, const MachineRates& rates)
      : model_(model), options_(options), request_(request), usable_(usable), limits_(limits), rates_(rates) {}

  engine::EngineOptions choose(EmbeddingPlace embedding) const {
    engine::EngineOptions chosen = with(false, options_.chunk != 0 ? options_.chunk : kUsualChunk);
    chosen.embedding_on_drive =
        embedding == EmbeddingPlace::kDrive || (embedding == EmbeddingPlace::kAuto && drive_is_better(chosen));
    if (options_.chunk == 0) chosen.chunk = choose_chunk(chosen.embedding_on_drive);
    return chosen;
  }
  engine::EngineOptions smallest(EmbeddingPlace embedding) const {
    return with(embedding != EmbeddingPlace::kRam, options_.chunk != 0 ? options_.chunk : 1);
  }
  engine::EngineOptions largest(EmbeddingPlace embedding) const {
    return with(embedding == EmbeddingPlace::kDrive, options_.chunk != 0 ? options_.chunk : kUsualChunk);
  }

 private:
  engine::EngineOptions with(bool on_drive, uint32_t chunk) const {
    engine::EngineOptions options = options_;
    options.embedding_on_drive = on_drive && engine::embedding_can_stay_on_drive(model_);
    options.chunk = chunk;
    return options;
  }
  bool is_auto() const noexcept { return request_.kind == CacheRequest::Kind::kAuto; }
  uint64_t bytes(const engine::EngineOptions& options, uint32_t slots) const {
    return sum(lines_for(model_, options, slots));
  }
  // The slots that must fit, at least.
  uint32_t asked_slots(const engine::EngineOptions& options) const {
    if (limits_.all_slots == 0) return 0;
    Plan scratch = limits_;
    return is_auto() ? limits_.minimum_slots : requested_slots(model_, options, request_, usable_, scratch);
  }

  bool drive_is_better(const engine::EngineOptions& resident) const {
    const uint32_t slots = limits_.minimum_slots;
    if (bytes(with(true, resident.chunk), slots) >= bytes(resident, slots)) return false;  // a small vocabulary
    return bytes(resident, is_auto() ? limits_.all_slots : asked_slots(resident)) > usable_;
  }

  uint32_t choose_chunk(bool on_drive) const {
    uint32_t best = kUsualChunk;
    while (best > 1 && !is_affordable(with(on_drive, best))) best /= 2;
    if (best < kUsualChunk) return best;
    const ModelWork work = model_work(model_);
    Speed speed = prefill_speed(work, with(on_drive, best));
    while (speed.by == BoundBy::kDrive && 2 * best <= kMostChunk && is_affordable(with(on_drive, 2 * best))) {
      const Speed larger = prefill_speed(work, with(on_drive, 2 * best));
      if (larger.expected_tps < 1.1 * speed.expected_tps) break;
      best *= 2;
      speed = larger;
    }
    return best;
  }

  bool is_affordable(const engine::EngineOptions& options) const {
    const uint64_t needed = bytes(options, asked_slots(options));
    if (needed > usable_) return false;
    if (!is_auto() || limits_.all_slots == 0) return true;
    // What experts and buffers share, and what the buffers take of it beyond those of one row.
    const uint64_t buffers = needed - bytes(with(options.embedding_on_drive, 1), limits_.minimum_slots);
    const uint64_t cache = residency::ExpertStore::arena_bytes_for(
        engine::expert_sources(model_), limits_.minimum_slots, options.direct, options.slot_pool);
    return bytes(options, limits_.all_slots) <= usable_ || buffers <= (usable_ - needed + buffers + cache) / 8;
  }

  // Bound by memory when the drive's rate is not known.
  Speed prefill_speed(const ModelWork& work, const engine::EngineOptions& options) const {
    if (rates_.drive_gbps <= 0 || limits_.all_slots == 0) return {};
    Plan scratch = limits_;
    const uint32_t slots = requested_slots(model_, options, request_, usable_, scratch);
    return predict(work, rates_,
                   {.miss_rate = uniform_miss_rate(work, slots), .chunk = engine::resolve(model_, options).chunk})
        .prefill;
  }

  const model::Model& model_;
  const engine::EngineOptions options_;
  const CacheRequest& request_;
  const uint64_t usable_;
  const Plan& limits_;
  const MachineRates& rates_;
};

}  // namespace

CacheRequest parse_cache_request(std::string_view text, const char* option) {
  CacheRequest request;
  request.text = std::string(text);
  const auto refuse = [&]() {
    fail(ErrorKind::kBadArgument, "{} {}: wanted auto, a size (2GiB), slots per layer (48s) or a share (25%)", option,
         printable(text));
  };
  if (text == "auto") return request;
  if (text.empty()) refuse();
  if (text.back() == 's' || text.back() == '%') {
    const auto number = parse_double(text.substr(0, text.size() - 1));
    if (!number || !(*number >= 0) || *number > 1e9) refuse();
    request.kind = text.back() == 's' ? CacheRequest::Kind::kSlots : CacheRequest::Kind::kShare;
    if (text.back() == 's' && *number != std::floor(*number)) refuse();
    request.value = *number;
    return request;
  }
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse();
  // "16" can only be meant otherwise: no cache is that small, and no layer has that many experts.
  if (*bytes < 65'536 && text.find_first_not_of("0123456789") == std::string_view::npos) {
    fail(ErrorKind::kBadArgument, "{} {}: wanted a unit: {}s (slots per layer), {}% (a share) or {}GiB (a size)",
         option, text, text, text, text);
  }
  request.kind = CacheRequest::Kind::kBytes;
  request.value = static_cast<double>(*bytes);
  return request;
}

uint64_t budget_margin(const MemoryBudget& budget) noexcept {
  return std::max<uint64_t>(64ULL << 20, budget.available_bytes / 20);
}

Plan make_plan(const model::Model& model, engine::EngineOptions options, const CacheRequest& request,
               const MemoryBudget& budget, EmbeddingPlace embedding, const MachineRates& rates) {
  Plan plan;
  plan.budget = budget;
  plan.margin_bytes = budget_margin(budget);
  const uint64_t usable = budget.available_bytes > plan.margin_bytes ? budget.available_bytes - plan.margin_bytes : 0;
  if (model.spec.is_moe()) {
    plan.minimum_slots = engine::minimum_slots(model);
    plan.all_slots = model.spec.router.n_experts;
  }
  if (embedding == EmbeddingPlace::kDrive && !engine::embedding_can_stay_on_drive(model)) {
    fail(ErrorKind::kBadArgument,
         "--embedding drive: the head of this model uses the token embedding, so it must be resident; wanted auto or "
         "ram");
  }
  plan.is_chunk_chosen = options.chunk == 0;
  const Chooser chooser(model, options, request, usable, plan, rates);
  options = chooser.choose(embedding);
  if (model.spec.is_moe()) plan.slots_per_layer = requested_slots(model, options, request, usable, plan);
  plan.chunk = engine::resolve(model, options).chunk;
  plan.embedding_on_drive = options.embedding_on_drive;
  plan.lines = lines_for(model, options, plan.slots_per_layer);
  plan.total_bytes = sum(plan.lines);
  plan.minimum_bytes = sum(lines_for(model, chooser.smallest(embedding), plan.minimum_slots));
  plan.everything_bytes = sum(lines_for(model, chooser.largest(embedding), plan.all_slots));
  if (plan.total_bytes > usable) {
    fail(ErrorKind::kOutOfMemory,
         "the plan needs {} but {} may be taken ({} left by {}, less {} kept free); the smallest plan needs {}",
         format_bytes(plan.total_bytes), format_bytes(usable), format_bytes(budget.available_bytes), budget.ruled_by,
         format_bytes(plan.margin_bytes), format_bytes(plan.minimum_bytes));
  }
  return plan;
}

engine::EngineOptions planned(engine::EngineOptions options, const Plan& plan) {
  options.slots_per_layer = plan.slots_per_layer;
  options.chunk = plan.chunk;
  options.embedding_on_drive = plan.embedding_on_drive;
  return options;
}

std::string format_plan(const Plan& plan) {
  std::string out = fmt::format("plan: {} of {} ({})\n", format_bytes(plan.total_bytes),
                                format_bytes(plan.budget.available_bytes), plan.budget.ruled_by);
  for (const engine::PlanLine& line : plan.lines) {
    out += fmt::format("  {:<16} {:>10}", line.name, format_bytes(line.bytes));
    if (line.name == "expert cache") {
      out += fmt::format("   {} of {} experts per layer{}", plan.slots_per_layer, plan.all_slots,
                         plan.slots_per_layer == plan.all_slots ? ", all resident" : "");
    } else if (line.name == "work buffers") {
      out += fmt::format("   chunk of {}{}", plan.chunk, plan.is_chunk_chosen ? ", chosen" : "");
    } else if (line.name == "embedding rows") {
      out += "   the token embedding stays on the drive";
    }
    out += '\n';
  }
  for (const std::string& note : plan.notes) out += "  note: " + note + "\n";
  return out;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
#include "outrider/whatif/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "outrider/base/error.h"
#include "outrider/base/units.h"

namespace outrider::whatif {

namespace {

// Code, stacks, tokenizer tables, I/O buffers and the directory of tensors: what the process holds besides the engine's
// own allocations. Measured 2026-11-29 on the demo model: 14 MiB; a 150,000-token vocabulary adds about 40.
uint64_t program_bytes(const model::Model& model) {
  constexpr uint64_t kBase = 16ULL << 20;
  constexpr uint64_t kPerToken = 320, kPerTensor = 512;
  return kBase + kPerToken * model.spec.n_vocab + kPerTensor * model.file.tensors.size();
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
        return static_cast<double>(residency::ExpertStore::arena_bytes_for(layers, n, options.direct)) <= request.value;
      });
      if (wanted < low) {
        fail(ErrorKind::kBadArgument, "--expert-cache {}: too small, this model needs at least {} ({} slots per layer)",
             request.text, format_bytes(residency::ExpertStore::arena_bytes_for(layers, low, options.direct)), low);
      }
      return static_cast<uint32_t>(wanted);
    }
    case CacheRequest::Kind::kSlots: wanted = request.value; break;
    case CacheRequest::Kind::kShare: wanted = std::floor(request.value / 100 * high); break;
  }
  if (wanted < low) {
    fail(ErrorKind::kBadArgument, "--expert-cache {}: too small, this model needs at least {}s ({:.3g}%): {} experts a token",
         request.text, low, std::ceil(1000.0 * low / high) / 10, low);
  }
  if (wanted > high) {
    plan.notes.push_back(fmt::format("--expert-cache {} is more than all {} experts of a layer: all are resident", request.text, high));
    return high;
  }
  return static_cast<uint32_t>(wanted);
}

}  // namespace

CacheRequest parse_cache_request(std::string_view text, const char* option) {
  CacheRequest request;
  request.text = std::string(text);
  const auto refuse = [&]() {
    fail(ErrorKind::kBadArgument, "{} {}: wanted auto, a size (2GiB), slots per layer (48s) or a share (25%)",
         option, printable(text));
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
    fail(ErrorKind::kBadArgument, "{} {}: wanted a unit: {}s (slots per layer), {}% (a share) or {}GiB (a size)", option, text, text,
         text, text);
  }
  request.kind = CacheRequest::Kind::kBytes;
  request.value = static_cast<double>(*bytes);
  return request;
}

uint64_t budget_margin(const MemoryBudget& budget) noexcept {
  return std::max<uint64_t>(64ULL << 20, budget.available_bytes / 20);
}

Plan make_plan(const model::Model& model, engine::EngineOptions options, const CacheRequest& request,
               const MemoryBudget& budget) {
  Plan plan;
  plan.budget = budget;
  plan.margin_bytes = budget_margin(budget);
  const uint64_t usable = budget.available_bytes > plan.margin_bytes ? budget.available_bytes - plan.margin_bytes : 0;
  if (model.spec.is_moe()) {
    plan.minimum_slots = engine::minimum_slots(model);
    plan.all_slots = model.spec.router.n_experts;
    plan.slots_per_layer = requested_slots(model, options, request, usable, plan);
  }
  plan.lines = lines_for(model, options, plan.slots_per_layer);
  plan.total_bytes = sum(plan.lines);
  plan.minimum_bytes = sum(lines_for(model, options, plan.minimum_slots));
  plan.everything_bytes = sum(lines_for(model, options, plan.all_slots));
  if (plan.total_bytes > usable) {
    fail(ErrorKind::kOutOfMemory, "the plan needs {} but {} may be taken ({} left by {}, less {} kept free); the smallest plan needs {}",
         format_bytes(plan.total_bytes), format_bytes(usable), format_bytes(budget.available_bytes), budget.ruled_by,
         format_bytes(plan.margin_bytes), format_bytes(plan.minimum_bytes));
  }
  return plan;
}

std::string format_plan(const Plan& plan) {
  std::string out = fmt::format("plan: {} of {} ({})\n", format_bytes(plan.total_bytes),
                                format_bytes(plan.budget.available_bytes), plan.budget.ruled_by);
  for (const engine::PlanLine& line : plan.lines) {
    out += fmt::format("  {:<16} {:>10}", line.name, format_bytes(line.bytes));
    if (line.name == "expert cache") {
      out += fmt::format("   {} of {} experts per layer{}", plan.slots_per_layer, plan.all_slots,
                         plan.slots_per_layer == plan.all_slots ? ", all resident" : "");
    }
    out += '\n';
  }
  for (const std::string& note : plan.notes) out += "  note: " + note + "\n";
  return out;
}

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
// Who lives where: the memory plan made before a weight is read. Dense weights, KV cache and work buffers are what the
// engine will allocate; the expert cache takes what was asked for, or what is left of the budget. A plan that does not
// fit is refused with the smallest one that would.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/base/memory_budget.h"
#include "outrider/engine/engine.h"
#include "outrider/model/model.h"

namespace outrider::whatif {

// --expert-cache: "auto", "2GiB" (bytes of arena), "48s" (slots per MoE layer), "25%" (share of all experts).
struct CacheRequest {
  enum class Kind : uint8_t { kAuto, kBytes, kSlots, kShare };
  Kind kind = Kind::kAuto;
  double value = 0;  // bytes, slots, or 0..100+
  std::string text = "auto";
};

// Throws Error(kBadArgument) naming the option, the value and the forms.
CacheRequest parse_cache_request(std::string_view text, const char* option = "--expert-cache");

struct Plan {
  std::vector<engine::PlanLine> lines;  // named parts of the process's memory
  uint64_t total_bytes = 0;
  uint64_t minimum_bytes = 0;           // the same with the fewest slots
  uint64_t everything_bytes = 0;        // the same with every expert resident
  uint64_t margin_bytes = 0;            // kept free of the budget
  MemoryBudget budget;
  uint32_t slots_per_layer = 0, minimum_slots = 0, all_slots = 0;  // 0 in a dense model
  std::vector<std::string> notes;       // e.g. a cache that was capped
};

// What is left of a budget for us: 5 % of it, at least 64 MiB, stays free.
uint64_t budget_margin(const MemoryBudget& budget) noexcept;

// Throws Error(kBadArgument) for a cache below the minimum (stating it), Error(kOutOfMemory) for a plan over the budget
// (stating need, budget, its rule and the smallest plan).
Plan make_plan(const model::Model& model, engine::EngineOptions options, const CacheRequest& request, const MemoryBudget& budget);

// The plan as a table, for people.
std::string format_plan(const Plan& plan);

}  // namespace outrider::whatif

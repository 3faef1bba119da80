// SPDX-License-Identifier: Apache-2.0
// Who lives where: the memory plan made before a weight is read. Dense weights, KV cache and work buffers are what the
// engine will allocate; the expert cache takes what was asked for, or what is left of the budget. What was left to the
// plan is chosen so that it fits, or else it is refused with the smallest one that would:
//   token embedding  on the drive when otherwise not every expert would be resident (or nothing would fit): a token
//                    needs one row of it, but a demanded expert as a whole;
//   chunk            the largest power of two up to 512 whose buffers leave the experts 7/8 of what they could have;
//                    up to 2,048 where the drive is expected to bound prefill, since each chunk reads its experts once.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/base/memory_budget.h"
#include "outrider/engine/engine.h"
#include "outrider/model/model.h"
#include "outrider/whatif/predict.h"

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

enum class EmbeddingPlace : uint8_t { kAuto, kRam, kDrive };

struct Plan {
  std::vector<engine::PlanLine> lines;  // named parts of the process's memory
  uint64_t total_bytes = 0;
  uint64_t minimum_bytes = 0;     // the same with the fewest slots
  uint64_t everything_bytes = 0;  // the same with every expert resident
  uint64_t margin_bytes = 0;      // kept free of the budget
  MemoryBudget budget;
  uint32_t slots_per_layer = 0, minimum_slots = 0, all_slots = 0;  // 0 in a dense model
  uint32_t chunk = 0;
  bool is_chunk_chosen = false;  // by the plan
  bool embedding_on_drive = false;
  std::vector<std::string> notes;  // e.g. a cache that was capped
};

// What is left of a budget for us: 5 % of it, at least 64 MiB, stays free.
uint64_t budget_margin(const MemoryBudget& budget) noexcept;

// Throws Error(kBadArgument) for a cache below the minimum (stating it), Error(kOutOfMemory) for a plan over the budget
// (stating need, budget, its rule and the smallest plan). options.chunk 0: the plan's choice. `rates` of 0 are unknown.
Plan make_plan(const model::Model& model, engine::EngineOptions options, const CacheRequest& request,
               const MemoryBudget& budget, EmbeddingPlace embedding = EmbeddingPlace::kAuto,
               const MachineRates& rates = {});

// The options with what the plan settled.
engine::EngineOptions planned(engine::EngineOptions options, const Plan& plan);

// The plan as a table, for people.
std::string format_plan(const Plan& plan);

}  // namespace outrider::whatif

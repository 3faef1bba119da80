// SPDX-License-Identifier: Apache-2.0
// Replays a recorded trace against a cache of any size: with the placer and the policies of the live store, so that
// hits and misses are the live run's at every step, or with knowledge of what comes, which bounds every policy.
// Threads: thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/observe/trace.h"

namespace outrider::whatif {

struct Replay {
  std::string policy;
  uint32_t slots_per_layer = 0;
  uint64_t demanded = 0, hits = 0, misses = 0;
  uint64_t bytes = 0;                   // of the misses
  std::vector<uint32_t> demand_misses;  // by demand of the trace
};

// A policy of the table (residency/policy.h), from an empty cache.
Replay replay_policy(const observe::Trace& trace, std::string_view policy, uint32_t slots_per_layer,
                     double lfu_half_life_tokens);

// Belady's bound: keeps what is demanded soonest. Like the placer it must hold all of a demand that fits; of one that
// does not, it may end with any part, which is more than the placer may. So no policy has more hits.
Replay replay_belady(const observe::Trace& trace, uint32_t slots_per_layer);

// The same with sight of the next `horizon` steps only. Beyond them it keeps the most recently used, or what guarded
// would: the better of the two, so it says what that much foresight is worth.
Replay replay_horizon(const observe::Trace& trace, uint32_t slots_per_layer, uint32_t horizon,
                      double lfu_half_life_tokens);

// The trace as if all layers shared one pool of slots: one layer with all experts. Layers keep their own demands.
observe::Trace pool_layers(const observe::Trace& trace);

}  // namespace outrider::whatif

// SPDX-License-Identifier: Apache-2.0
// Expected speed of a model on a machine, from bytes and multiply-adds alone. Stated in full, so that it can be disputed:
//   miss rate m   measured (a replayed trace) or, without one, that of uniform routing, 1 - slots / experts: the worst case
//   decode        ns a token = max(dense + used experts + KV bytes / DRAM, m * used expert bytes / drive)
//   prefill       a chunk of C tokens touches E (1 - (1 - k / E)^C) of E experts a layer, k a token;
//                 ns a chunk = max(C * MACs / int8 rate of all cores, dense + touched bytes / DRAM, m * touched bytes / drive)
// The bound takes each rate as measured and lets everything overlap. The expected speed takes the shares of it that the
// program aims at: 80 % of DRAM, 90 % of the drive, 60 % of the int8 rate; and since only experts are computed while a
// layer's are read, the dense parts' time comes on top of the experts'. Attention's arithmetic, sampling and what look-ahead
// hides are left out.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "outrider/model/model.h"

namespace outrider::whatif {

struct MachineRates {
  double dram_gbps = 0, drive_gbps = 0;  // bytes per nanosecond
  double int8_gmacs = 0;                 // all threads
};

// Of one decoded token unless said otherwise.
struct ModelWork {
  double dense_bytes = 0;        // resident weights read
  double used_expert_bytes = 0;  // of the experts of one token, all layers
  double all_expert_bytes = 0;
  double kv_bytes = 0;           // read at the context asked about
  double macs = 0;               // the head left out: prefill runs it once
  double expert_macs = 0;        // of them
  uint32_t n_experts = 0, n_used = 0;  // 0: a dense model
};

// Reads the directory only. `kv_bytes` is the caller's.
ModelWork model_work(const model::Model& model);

enum class BoundBy : uint8_t { kMemory, kDrive, kArithmetic };
std::string_view bound_name(BoundBy bound) noexcept;

struct Speed {
  double expected_tps = 0, bound_tps = 0;
  BoundBy by = BoundBy::kMemory;
};

struct Prediction {
  Speed decode, prefill;
  double missed_bytes = 0;  // a decoded token
};

// 1 - slots / experts; 0 in a dense model.
double uniform_miss_rate(const ModelWork& work, uint32_t slots) noexcept;

// A rate of 0 counts as unknown and never bounds.
Prediction predict(const ModelWork& work, const MachineRates& rates, double miss_rate, uint32_t chunk) noexcept;

}  // namespace outrider::whatif

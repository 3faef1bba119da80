// SPDX-License-Identifier: Apache-2.0
// Expected speed of a model on a machine. Stated in full, so that it can be disputed:
//   miss rate m   measured (a replayed trace) or, without one, that of uniform routing, 1 - slots / experts: the
//                 worst case
//   bound         decode: ns a token = max(dense + used experts + KV bytes / DRAM, m * used expert bytes / drive)
//                 prefill: a chunk of C tokens touches E (1 - (1 - k / E)^C) of E experts a layer, k a token;
//                 ns a chunk = max(C * MACs / int8 rate of all cores, dense + touched bytes / DRAM,
//                 m * touched bytes / drive)
//   expected      dense parts + max(experts' products, missed bytes / 90 % of the drive, 75 % in prefill), since only
//                 experts are computed while a layer's are read. Products go at the rates that the probe timed for
//                 their weight types, one token from memory, a chunk by tokens an expert; dense parts are products,
//                 attention, norms, the router's choice, sums of experts, forks, and in decode the head and the
//                 sampler. A type that was not timed goes at 80 % of DRAM and 60 % of the int8 rate.
//   look-ahead    in decode: the longer one of all that is computed and of reading, and 15 % of the shorter one
//                 (measured: docs/performance.md, "The plan against a run"); where the next token is not guessed the
//                 head comes on top, where it is, the search for it is computed, too. Never slower than without.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "outrider/kernels/attention/attention.h"
#include "outrider/model/model.h"
#include "outrider/whatif/operations.h"

namespace outrider::whatif {

struct MachineRates {
  double dram_gbps = 0, drive_gbps = 0;  // bytes per nanosecond
  double int8_gmacs = 0;                 // all threads
  uint32_t n_threads = 1;
  OperationRates operations = {};  // of n_threads
};

// Products with weights of one type.
struct TypeWork {
  format::TensorType type = format::TensorType::kF32;
  double dense_macs = 0, expert_macs = 0, head_macs = 0;  // of one token
  double bytes(double macs) const noexcept;               // of that many weights
};

// Of one decoded token unless said otherwise.
struct ModelWork {
  double dense_bytes = 0;        // resident weights read
  double used_expert_bytes = 0;  // of the experts of one token, all layers
  double all_expert_bytes = 0;
  double kv_bytes = 0;                 // a position of the context
  double macs = 0;                     // the head left out: prefill runs it once
  double expert_macs = 0;              // of them
  uint32_t n_experts = 0, n_used = 0;  // 0: a dense model
  std::vector<TypeWork> types;
  kernels::KvType kv_type = kernels::KvType::kF16;
  double attention_macs = 0;                                      // a position of the context
  double norm_elems = 0, combined_elems = 0, routed_experts = 0;  // all layers
  double n_logits = 0;
  double n_forks = 0;       // a pass
  double sketch_bytes = 0;  // of the head, read to guess the next token; 0: there can be none
};

// Reads the directory only.
ModelWork model_work(const model::Model& model, kernels::KvType kv_type = kernels::KvType::kF16);

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

// Of the experts that a chunk touches, expected under uniform routing, all layers.
double touched_expert_bytes(const ModelWork& work, double n_tokens) noexcept;
// 1 - slots / experts; 0 in a dense model.
double uniform_miss_rate(const ModelWork& work, uint32_t slots) noexcept;

// What is read before it is demanded, in decode: nothing, a layer's experts, or those of the next token, too.
enum class ReadsAhead : uint8_t { kNothing, kLayers, kNextToken };

// Of a pass: `chunk` tokens of prefill, or one of decode, after `context` others. A rate of 0 counts as unknown and
// never bounds.
struct PassShape {
  double miss_rate = 0;
  uint32_t chunk = 0, context = 0;
  ReadsAhead ahead = ReadsAhead::kNothing;
};
Prediction predict(const ModelWork& work, const MachineRates& rates, const PassShape& pass) noexcept;

}  // namespace outrider::whatif

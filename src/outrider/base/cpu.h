// SPDX-License-Identifier: Apache-2.0
// What this process may use of the processor: instruction sets, cores, quota. Detected, never assumed.
#pragma once

#include <cstdint>
#include <string>

#include "outrider/base/isa.h"

namespace outrider {

// True when the processor and the operating system both support the set. kScalar is always supported.
bool isa_supported(Isa isa) noexcept;

// The best supported set.
Isa best_isa() noexcept;

// The processor's name as the system tells it ("AMD EPYC"), or "unknown".
std::string cpu_name();

struct CoreBudget {
  uint32_t affinity_cpus = 1;    // logical processors this process may be scheduled on
  uint32_t physical_cores = 1;   // distinct physical cores among them
  double quota_cpus = 0;         // smallest cgroup quota (v1 or v2) of this group and its parents; 0 = none
  uint32_t default_threads = 1;  // min(physical_cores, ceil(quota)), at least 1
};

// `root` is prefixed to /proc and /sys, so that tests can describe other machines.
CoreBudget core_budget(const std::string& root = "");

}  // namespace outrider

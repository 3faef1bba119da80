// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take: the smallest of what the system has free and what the control groups
// (v1 and v2, this group and every parent) leave. Why: a container sees the host's memory, and a plan made from that
// is killed by the kernel (bug log MEM-1).
#pragma once

#include <cstdint>
#include <string>

namespace outrider {

struct MemoryBudget {
  uint64_t total_bytes = 0;      // of the machine
  uint64_t available_bytes = 0;  // what may still be taken, under the rule named below
  std::string ruled_by;          // "MemAvailable", "cgroup v2 memory.max of /a/b", ...
  uint64_t limit_bytes = 0;      // the ruling limit itself; 0 when free memory rules
};

// A group leaves limit - usage + its own file cache, less what is mapped of it. memory.high and the v1 soft limit count
// as limits: past them the kernel throttles or reclaims first. `root` is prefixed to /proc and /sys, so that tests can
// describe machines.
MemoryBudget memory_budget(const std::string& root = "");

// Peak resident set of this process so far, in bytes.
uint64_t peak_rss_bytes();

}  // namespace outrider

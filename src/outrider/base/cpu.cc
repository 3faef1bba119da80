// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/cpu.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace outrider {

#if defined(__x86_64__)
namespace {
// By CPUID leaf 1, because clang before 17 knows no __builtin_cpu_supports("f16c").
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
}  // namespace
#endif

bool isa_supported(Isa isa) noexcept {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::kAvx512:
      return isa_supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return isa == Isa::kScalar;
#endif
}

Isa best_isa() noexcept {
  Isa best = Isa::kScalar;
  for (const Isa isa : kAllIsas) {
    if (isa_supported(isa)) best = isa;
  }
  return best;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) == 0) {
      const auto colon = line.find(':');
      if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

namespace {

// The first word of a small file under `root`, or "" when there is none.
std::string read_word(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// Smallest quota, in processors, over the group `path` and its parents; 0 when none is set.
double v2_quota(const std::string& mount, std::string path) {
  double quota = 0;
  for (;;) {
    std::ifstream in(mount + path + "/cpu.max");
    std::string limit;
    double period = 0;
    if (in >> limit >> period && limit != "max" && period > 0) {
      const double cpus = std::strtod(limit.c_str(), nullptr) / period;
      if (cpus > 0 && (quota == 0 || cpus < quota)) quota = cpus;
    }
    if (path.empty()) return quota;
    path = path.substr(0, path.find_last_of('/'));
  }
}

double v1_quota(const std::string& mount, std::string path) {
  double quota = 0;
  for (;;) {
    const double limit = std::strtod(read_word(mount + path + "/cpu.cfs_quota_us").c_str(), nullptr);
    const double period = std::strtod(read_word(mount + path + "/cpu.cfs_period_us").c_str(), nullptr);
    if (limit > 0 && period > 0 && (quota == 0 || limit / period < quota)) quota = limit / period;
    if (path.empty()) return quota;
    path = path.substr(0, path.find_last_of('/'));
  }
}

double cgroup_quota(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  double quota = 0;
  const auto take = [&quota](double cpus) {
    if (cpus > 0 && (quota == 0 || cpus < quota)) quota = cpus;
  };
  while (std::getline(in, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      take(v2_quota(root + "/sys/fs/cgroup", path));
      take(v2_quota(root + "/sys/fs/cgroup/unified", path));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      take(v1_quota(root + "/sys/fs/cgroup/cpu", path));
      take(v1_quota(root + "/sys/fs/cgroup/cpu,cpuacct", path));
    }
  }
  return quota;
}

std::vector<uint32_t> affinity() {
  std::vector<uint32_t> cpus;
  for (size_t n_cpus = 1024; n_cpus <= (1U << 20); n_cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(n_cpus);
    const size_t bytes = CPU_ALLOC_SIZE(n_cpus);
    CPU_ZERO_S(bytes, set);
    const int result = sched_getaffinity(0, bytes, set);
    for (uint32_t cpu = 0; result == 0 && cpu < n_cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (result == 0) break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

}  // namespace

CoreBudget core_budget(const std::string& root) {
  CoreBudget budget;
  const std::vector<uint32_t> cpus = affinity();
  budget.affinity_cpus = static_cast<uint32_t>(cpus.size());
  std::set<std::string> cores;
  for (const uint32_t cpu : cpus) {
    const std::string topology = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string core = read_word(topology + "core_id");
    const std::string package = read_word(topology + "physical_package_id");
    cores.insert(core.empty() ? "cpu" + std::to_string(cpu) : package + ":" + core);
  }
  budget.physical_cores = static_cast<uint32_t>(cores.size());
  budget.quota_cpus = cgroup_quota(root);
  budget.default_threads = budget.physical_cores;
  if (budget.quota_cpus > 0) {
    const auto limit = static_cast<uint32_t>(std::min(std::ceil(budget.quota_cpus), 1e6));
    budget.default_threads = std::min(budget.default_threads, limit);
  }
  budget.default_threads = std::max(budget.default_threads, 1U);
  return budget;
}

}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/memory_budget.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "outrider/base/units.h"

namespace outrider {

namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  const auto value = parse_int(word);  // "max" and absurdly large numbers are no limit
  if (!value || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

// The number after `key` in a file of "key number ..." lines.
std::optional<uint64_t> read_field(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  std::string name;
  while (in >> name) {
    std::string value;
    if (name == key && in >> value) {
      const auto number = parse_int(value);
      if (number && *number >= 0) return static_cast<uint64_t>(*number);
      return std::nullopt;
    }
    std::getline(in, value);
  }
  return std::nullopt;
}

struct Layout {
  const char* version;
  const char* usage;
  const char* inactive_file;  // of memory.stat
  const char* active_file;
  const char* mapped_file;
  const char* limits[2];
};
constexpr Layout kV2 = {"v2",          "memory.current", "inactive_file",
                        "active_file", "file_mapped",    {"memory.max", "memory.high"}};
constexpr Layout kV1 = {"v1",
                        "memory.usage_in_bytes",
                        "total_inactive_file",
                        "total_active_file",
                        "total_mapped_file",
                        {"memory.limit_in_bytes", "memory.soft_limit_in_bytes"}};

// File cache that the kernel drops before it kills. Active pages count too, or each run on a model would leave less for
// the next one, whose dense weights the cache then holds; but not what programs of the group have mapped and use.
uint64_t reclaimable_bytes(const Layout& layout, const std::string& dir) {
  const std::string stat = dir + "memory.stat";
  const uint64_t active = read_field(stat, layout.active_file).value_or(0);
  const uint64_t mapped = read_field(stat, layout.mapped_file).value_or(0);
  return read_field(stat, layout.inactive_file).value_or(0) + (active > mapped ? active - mapped : 0);
}

// Lowers `budget` by every limit of the group `path` and its parents.
void apply_group(const Layout& layout, const std::string& mount, std::string path, MemoryBudget& budget) {
  for (;;) {
    const std::string dir = mount + path + "/";
    for (const char* name : layout.limits) {
      const auto limit = read_number(dir + name);
      if (!limit || *limit >= budget.total_bytes) continue;  // v1 writes 2^63 - 4096 for "no limit"
      const uint64_t usage = read_number(dir + layout.usage).value_or(0);
      const uint64_t reclaimable = std::min(usage, reclaimable_bytes(layout, dir));
      const uint64_t used = usage - reclaimable;
      const uint64_t left = *limit > used ? *limit - used : 0;
      if (left < budget.available_bytes) {
        budget.available_bytes = left;
        budget.limit_bytes = *limit;
        budget.ruled_by = std::string("cgroup ") + layout.version + " " + name + " of " + (path.empty() ? "/" : path);
      }
    }
    if (path.empty()) return;
    path = path.substr(0, path.find_last_of('/'));
  }
}

}  // namespace

MemoryBudget memory_budget(const std::string& root) {
  MemoryBudget budget;
  const std::string meminfo = root + "/proc/meminfo";
  budget.total_bytes = read_field(meminfo, "MemTotal:").value_or(0) * 1024;
  budget.available_bytes = read_field(meminfo, "MemAvailable:").value_or(budget.total_bytes / 1024) * 1024;
  budget.ruled_by = "MemAvailable";
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") {
      apply_group(kV2, root + "/sys/fs/cgroup", path, budget);
      apply_group(kV2, root + "/sys/fs/cgroup/unified", path, budget);
    } else if (controllers.find(",memory,") != std::string::npos) {
      apply_group(kV1, root + "/sys/fs/cgroup/memory", path, budget);
    }
  }
  return budget;
}

uint64_t peak_rss_bytes() {
  // VmHWM where the system tells it: unlike ru_maxrss it does not carry over the parent's peak across exec.
  if (const auto kib = read_field("/proc/self/status", "VmHWM:")) return *kib * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace outrider

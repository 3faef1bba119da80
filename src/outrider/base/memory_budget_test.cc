// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/memory_budget.h"

#include "outrider/base/fake_machine.h"

namespace outrider {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

class MemoryBudgetTest : public FakeMachine {
 protected:
  // 64 GiB, 60 available.
  void host() { write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   62914560 kB\n"); }
};

TEST_F(MemoryBudgetTest, FreeMemoryRulesWithoutLimits) {
  host();
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "max\n");
  const MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.total_bytes, 64 * kGiB);
  EXPECT_EQ(budget.available_bytes, 60 * kGiB);
  EXPECT_EQ(budget.ruled_by, "MemAvailable");
  EXPECT_EQ(budget.limit_bytes, 0U);
}

TEST_F(MemoryBudgetTest, OwnLimitLessUsageButNotLessCache) {
  host();
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  write("sys/fs/cgroup/a/b/memory.current", "734003200\n");              // 700 MiB
  write("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 524288000\n");  // 500 MiB of it is cache
  const MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, kGiB - (200U << 20));
  EXPECT_EQ(budget.ruled_by, "cgroup v2 memory.max of /a/b");
}

TEST_F(MemoryBudgetTest, LimitOnAParentGroupOnly) {
  host();
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", "2147483648\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  const MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, 2 * kGiB);
  EXPECT_EQ(budget.ruled_by, "cgroup v2 memory.max of /a");
}

TEST_F(MemoryBudgetTest, SoftLimitOnly) {
  host();
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.high", "1073741824\n");
  EXPECT_EQ(memory_budget(root()).ruled_by, "cgroup v2 memory.high of /a");
}

TEST_F(MemoryBudgetTest, VersionOneLayout) {
  host();
  write("proc/self/cgroup", "9:memory:/x\n5:cpu,cpuacct:/x\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "104857600\n");
  const MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, kGiB - (100U << 20));
  EXPECT_EQ(budget.ruled_by, "cgroup v1 memory.limit_in_bytes of /x");
}

TEST_F(MemoryBudgetTest, UsageOverTheLimitLeavesNothing) {
  host();
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000\n");
  write("sys/fs/cgroup/a/memory.current", "5000\n");
  EXPECT_EQ(memory_budget(root()).available_bytes, 0U);
}

TEST(MemoryBudget, ThisMachineHasSome) {
  EXPECT_GT(memory_budget().available_bytes, 0U);
  EXPECT_GT(peak_rss_bytes(), 1U << 20);
}

}  // namespace
}  // namespace outrider

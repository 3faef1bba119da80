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
  write("sys/fs/cgroup/a/b/memory.current", "734003200\n");                     // 700 MiB
  write("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file 524288000\n");  // 500 MiB of it is cache
  const MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, kGiB - (200U << 20));
  EXPECT_EQ(budget.ruled_by, "cgroup v2 memory.max of /a/b");
}

TEST_F(MemoryBudgetTest, ActiveCacheCountsUnlessMapped) {
  host();
  for (const bool is_v1 : {true, false}) {
    write("proc/self/cgroup", is_v1 ? "9:memory:/x\n" : "0::/a\n");
    const std::string dir = is_v1 ? "sys/fs/cgroup/memory/x/memory." : "sys/fs/cgroup/a/memory.";
    write(dir + (is_v1 ? "limit_in_bytes" : "max"), "1073741824\n");
    write(dir + (is_v1 ? "usage_in_bytes" : "current"),
          "734003200\n");  // 700 MiB: 100 inactive, 300 active, of them 80 mapped
    write(dir + "stat", is_v1 ? "cache 1\nactive_file 1\ntotal_mapped_file 83886080\ntotal_inactive_file "
                                "104857600\ntotal_active_file 314572800\n"
                              : "anon 1\nfile_mapped 83886080\ninactive_file 104857600\nactive_file 314572800\n");
    EXPECT_EQ(memory_budget(root()).available_bytes, kGiB - (380U << 20)) << is_v1;
  }
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

TEST_F(MemoryBudgetTest, VersionOneParentAndSoftLimits) {
  host();
  write("proc/self/cgroup", "9:memory:/x/y\n");
  const std::string none = "9223372036854771712\n";
  for (const char* group : {"", "/x", "/x/y"}) {
    const std::string dir = std::string("sys/fs/cgroup/memory") + group;
    write(dir + "/memory.limit_in_bytes", group == std::string("/x") ? "2147483648\n" : none);
    write(dir + "/memory.soft_limit_in_bytes", none);
  }
  MemoryBudget budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, 2 * kGiB);
  EXPECT_EQ(budget.ruled_by, "cgroup v1 memory.limit_in_bytes of /x");
  write("sys/fs/cgroup/memory/x/y/memory.soft_limit_in_bytes", "1073741824\n");
  budget = memory_budget(root());
  EXPECT_EQ(budget.available_bytes, kGiB);
  EXPECT_EQ(budget.ruled_by, "cgroup v1 memory.soft_limit_in_bytes of /x/y");
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

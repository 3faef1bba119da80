// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/checked.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/fake_machine.h"
#include "outrider/base/test_rng.h"
#include "outrider/base/thread_pool.h"
#include "outrider/base/units.h"

namespace outrider {
namespace {

TEST(Checked, NeverWrapsAtTheBorders) {
  const uint64_t top = UINT64_MAX;
  EXPECT_EQ(checked_add(top, 0), top);
  EXPECT_FALSE(checked_add(top, 1));
  EXPECT_EQ(checked_mul(1ULL << 32, (1ULL << 32) - 1), top - (1ULL << 32) + 1);
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 32));
  EXPECT_TRUE(sub_range(5, 5, 10));
  EXPECT_FALSE(sub_range(5, 6, 10));
  EXPECT_FALSE(sub_range(top, top, 10));
  EXPECT_FALSE(checked_align_up(top, 4096));
  EXPECT_EQ(align_up((1ULL << 31) - 1, 4096), 1ULL << 31);
  EXPECT_EQ(align_up((1ULL << 32) + 1, 4096), (1ULL << 32) + 4096);
}

TEST(Units, BytesReadAndWritten) {
  EXPECT_EQ(parse_bytes("512"), 512U);
  EXPECT_EQ(parse_bytes("2GiB"), 2ULL << 30);
  EXPECT_EQ(parse_bytes("1.5MiB"), 3ULL << 19);
  EXPECT_EQ(parse_bytes("2GB"), 2000000000ULL);
  EXPECT_FALSE(parse_bytes("two"));
  EXPECT_FALSE(parse_bytes("-1"));
  EXPECT_FALSE(parse_bytes("5 parsecs"));
  EXPECT_FALSE(parse_bytes("99999999999TiB"));
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(46854592), "44.7 MiB");
}

TEST(Error, PrintableKeepsOneLine) {
  EXPECT_EQ(printable("a\nb\x01\xff"), "a\\x0ab\\x01\\xff");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(ThreadPool, RunsEveryTaskOnceForAnyThreadCount) {
  for (const uint32_t n_threads : {1U, 2U, 3U, 8U, 20U}) {
    ThreadPool pool(n_threads);
    for (uint32_t round = 0; round < 200; ++round) {
      const uint32_t n_tasks = round % 37;
      std::vector<std::atomic<int>> hits(n_tasks);
      pool.run(n_tasks, [&](uint32_t task, uint32_t worker) {
        ASSERT_LT(worker, n_threads);
        hits[task].fetch_add(1);
      });
      for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(Random, BelowIsInRangeAndReproducible) {
  TestRng rng;
  for (int i = 0; i < 1000; ++i) ASSERT_LT(rng.below(7), 7U);
  EXPECT_EQ(Random(7).next_u64(), Random(7).next_u64());
}

TEST(AlignedBuffer, AlignedAndZeroed) {
  AlignedBuffer small(100, "test");
  EXPECT_EQ(reinterpret_cast<uint64_t>(small.data()) % 4096, 0U);
  AlignedBuffer big(5U << 20, "test");
  EXPECT_EQ(reinterpret_cast<uint64_t>(big.data()) % (2U << 20), 0U);
  EXPECT_EQ(std::accumulate(big.as<uint8_t>(), big.as<uint8_t>() + big.size(), 0), 0);
  EXPECT_THROW(AlignedBuffer(UINT64_MAX - 5, "test"), Error);
}

TEST(AlignedBuffer, PopulatedPagesAreResident) {
  for (const uint64_t n_bytes : {100ULL, 12288ULL, 5ULL << 20}) {
    AlignedBuffer buffer(n_bytes, "test");
    buffer.as<uint8_t>()[0] = 7;
    buffer.populate();
    std::vector<unsigned char> is_resident((n_bytes + 4095) / 4096);
    ASSERT_EQ(mincore(buffer.data(), n_bytes, is_resident.data()), 0);
    for (const unsigned char page : is_resident) ASSERT_EQ(page & 1, 1);
    EXPECT_EQ(std::accumulate(buffer.as<uint8_t>(), buffer.as<uint8_t>() + n_bytes, 0), 7);
  }
}

TEST_F(FakeMachine, DefaultThreadsHeedsQuotaOfAParentGroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  const CoreBudget budget = core_budget(root());
  EXPECT_DOUBLE_EQ(budget.quota_cpus, 1.5);
  EXPECT_LE(budget.default_threads, 2U);
}

TEST_F(FakeMachine, DefaultThreadsHeedsV1Quota) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/x\n");
  write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  const CoreBudget budget = core_budget(root());
  EXPECT_DOUBLE_EQ(budget.quota_cpus, 0.5);
  EXPECT_EQ(budget.default_threads, 1U);
}

TEST_F(FakeMachine, HyperThreadsCountOnce) {
  for (int cpu = 0; cpu < 1024; ++cpu) {
    const std::string dir = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    write(dir + "core_id", "0\n");
    write(dir + "physical_package_id", "0\n");
  }
  EXPECT_EQ(core_budget(root()).physical_cores, 1U);
}

}  // namespace
}  // namespace outrider

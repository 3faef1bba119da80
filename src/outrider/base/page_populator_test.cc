// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/page_populator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "outrider/base/aligned_buffer.h"

namespace outrider {
namespace {

constexpr int kPopulateWrite = 23;

uint64_t n_resident(AlignedBuffer& buffer) {
  std::vector<unsigned char> is_resident((buffer.size() + 4095) / 4096);
  EXPECT_EQ(mincore(buffer.data(), buffer.size(), is_resident.data()), 0);
  return static_cast<uint64_t>(
      std::count_if(is_resident.begin(), is_resident.end(), [](auto page) { return page & 1; }));
}

TEST(PagePopulator, EveryPageComesAndNoByteChanges) {
  AlignedBuffer probe(4096, "test");
  if (madvise(probe.data(), probe.size(), kPopulateWrite) != 0)
    GTEST_SKIP() << "no MADV_POPULATE_WRITE: " << std::strerror(errno);
  for (const uint64_t n_bytes : {2ULL << 20, (9ULL << 20) + 4100}) {
    for (const uint32_t n_threads : {1U, 3U, 20U}) {
      AlignedBuffer buffer(n_bytes, "test");
      buffer.as<uint8_t>()[n_bytes / 2] = 7;
      PagePopulator populator({buffer.data(), buffer.size()}, n_threads);
      for (uint64_t at = 0; at < n_bytes; at += 4096) buffer.as<uint8_t>()[at] = 1;  // as reads do meanwhile
      populator.wait();
      EXPECT_EQ(n_resident(buffer), (n_bytes + 4095) / 4096);
      EXPECT_EQ(buffer.as<uint8_t>()[n_bytes / 2], n_bytes / 2 % 4096 == 0 ? 1 : 7);
      for (uint64_t at = 0; at < n_bytes; at += 4096) ASSERT_EQ(buffer.as<uint8_t>()[at], 1) << at;
    }
  }
}

TEST(PagePopulator, WithoutWritersThePagesComeToo) {
  AlignedBuffer probe(4096, "test");
  if (madvise(probe.data(), probe.size(), kPopulateWrite) != 0)
    GTEST_SKIP() << "no MADV_POPULATE_WRITE: " << std::strerror(errno);
  AlignedBuffer buffer((4ULL << 20) + 4096, "test");
  ASSERT_EQ(n_resident(buffer), 0U);
  PagePopulator({buffer.data(), buffer.size()}, 2).wait();
  EXPECT_EQ(n_resident(buffer), 1025U);
}

TEST(PagePopulator, LittleMemoryIsLeftToItsWriter) {
  AlignedBuffer buffer(8192, "test");
  PagePopulator({buffer.data(), buffer.size()}, 4).wait();
  PagePopulator({buffer.data(), buffer.size()}, 0).wait();
  EXPECT_EQ(n_resident(buffer), 0U);
}

}  // namespace
}  // namespace outrider

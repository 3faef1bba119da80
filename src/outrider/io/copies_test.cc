// SPDX-License-Identifier: Apache-2.0
// Copies of the files on several drives: the balance between them alone, and a reader whose copies are slow or die.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/error.h"
#include "outrider/io/copy_balance.h"
#include "outrider/io/reader.h"
#include "outrider/io/test_faults.h"

namespace outrider::io {
namespace {

// Drives that serve one read after the other, each at its own rate, on a clock of our own.
std::vector<uint64_t> simulate(const std::vector<double>& bytes_per_ns, uint32_t depth, uint32_t n_reads,
                               uint64_t read_bytes) {
  const auto n = static_cast<uint32_t>(bytes_per_ns.size());
  CopyBalance balance(n, depth);
  std::vector<double> busy_until(n, 0);
  struct Flight {
    double begin, end;
    uint32_t n_flying;
  };
  std::vector<std::vector<Flight>> flights(n);
  double now = 0;
  uint32_t n_left = n_reads, n_flying = 0;
  while (n_left > 0 || n_flying > 0) {
    for (bool took = true; took && n_left > 0;) {
      took = false;
      for (uint32_t copy = 0; copy < n && n_left > 0; ++copy) {
        if (!balance.may_take(copy)) continue;
        const uint32_t n_now = balance.begin(copy, static_cast<uint64_t>(now));
        busy_until[copy] = std::max(busy_until[copy], now) + static_cast<double>(read_bytes) / bytes_per_ns[copy];
        flights[copy].push_back({now, busy_until[copy], n_now});
        --n_left, ++n_flying;
        took = true;
      }
    }
    uint32_t first = n;
    for (uint32_t copy = 0; copy < n; ++copy) {
      if (!flights[copy].empty() && (first == n || flights[copy].front().end < flights[first].front().end))
        first = copy;
    }
    const Flight done = flights[first].front();
    now = done.end;
    flights[first].erase(flights[first].begin());
    balance.end(first, first, read_bytes, done.n_flying, static_cast<uint64_t>(done.begin), static_cast<uint64_t>(now));
    --n_flying;
  }
  std::vector<uint64_t> bytes;
  for (uint32_t copy = 0; copy < n; ++copy) bytes.push_back(balance.bytes(copy));
  return bytes;
}

TEST(CopyBalance, BytesSplitInProportionToTheRates) {
  for (const double ratio : {1.0, 2.0, 3.0, 8.0}) {
    const std::vector<uint64_t> bytes = simulate({ratio, 1.0}, 16, 4000, 1 << 20);
    EXPECT_EQ(bytes[0] + bytes[1], 4000ULL << 20);
    EXPECT_NEAR(static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]), ratio, 0.1 * ratio) << ratio;
  }
  const std::vector<uint64_t> three = simulate({3, 2, 1}, 16, 6000, 1 << 20);
  EXPECT_NEAR(static_cast<double>(three[0]) / 6000 / (1 << 20), 0.5, 0.05);
  EXPECT_NEAR(static_cast<double>(three[2]) / 6000 / (1 << 20), 1.0 / 6, 0.03);
}

TEST(CopyBalance, ACopyThatWasSlowIsTriedAgain) {
  CopyBalance balance(2, 4);
  uint64_t now = 0;
  for (int i = 0; i < 20; ++i) {  // a hundred times slower
    for (const uint32_t copy : {0U, 1U}) {
      const uint64_t begin = now;
      balance.begin(copy, begin);
      now += copy == 0 ? 1000 : 100000;
      balance.end(copy, copy, 1000, 1, begin, now);
    }
  }
  uint32_t n_first = 0;
  for (; !balance.may_take(1) && n_first < 1000; ++n_first) {
    balance.begin(0, now);
    now += 1000;
    balance.end(0, 0, 1000, 1, now - 1000, now);
  }
  EXPECT_EQ(n_first, 64U);
}

TEST(CopyBalance, TheLastCopyIsNeverGivenUp) {
  CopyBalance balance(3, 4);
  bool is_news = false;
  EXPECT_EQ(balance.lose(0, is_news), 1U);
  EXPECT_TRUE(is_news);
  EXPECT_EQ(balance.lose(0, is_news), 1U);
  EXPECT_FALSE(is_news);
  EXPECT_FALSE(balance.may_take(0));
  EXPECT_EQ(balance.lose(1, is_news), 2U);
  EXPECT_EQ(balance.lose(2, is_news), CopyBalance::kNone);
  EXPECT_FALSE(balance.is_lost(2));
  EXPECT_TRUE(balance.may_take(2));
}

// Each read of a copy takes its time, one after the other for all threads of that copy.
class SlowCopies : public FaultPlan {
 public:
  SlowCopies(std::string slow, std::chrono::microseconds fast_us, std::chrono::microseconds slow_us)
      : slow_(std::move(slow)), fast_us_(fast_us), slow_us_(slow_us) {}
  bool may_block() const noexcept override { return true; }
  ReadFault on_read(const ReadOp& op) override {
    const bool is_slow = op.path == slow_;
    const std::lock_guard lock(mutex_[is_slow ? 1 : 0]);
    std::this_thread::sleep_for(is_slow ? slow_us_ : fast_us_);
    return {};
  }

 private:
  std::mutex mutex_[2];
  const std::string slow_;
  const std::chrono::microseconds fast_us_, slow_us_;
};

class Copies : public testing::TestWithParam<std::pair<IoMode, DirectMode>> {
 protected:
  static constexpr uint64_t kBytes = 2000003, kRequest = 60000, kRoom = 72U << 10;
  static constexpr uint32_t kAtOnce = 16;

  ReaderOptions options(FaultPlan* faults) const {
    return {.files = {first_.path()},
            .mirrors = {{second_.path()}},
            .io = GetParam().first,
            .direct = GetParam().second,
            .queue_depth = 4,
            .max_requests = kAtOnce,
            .piece_bytes = 64U << 10,
            .faults = faults};
  }
  // Reads n_requests ranges and checks each; returns the warnings that came with them.
  std::vector<std::string> read(Reader& reader, uint32_t n_requests) {
    std::vector<std::string> warnings;
    for (uint32_t begin = 0; begin < n_requests; begin += kAtOnce) {
      std::vector<ReadRequest> requests;
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        requests.push_back({.offset = (begin + i) * 7919ULL % (kBytes - kRequest),
                            .n_bytes = kRequest,
                            .dst = memory_.data() + i * kRoom,
                            .dst_bytes = kRoom});
      }
      EXPECT_TRUE(reader.submit(requests));
      std::vector<ReadDone> done(kAtOnce);
      for (uint32_t n = 0; n < kAtOnce;) {
        const uint32_t n_new = reader.wait(done);
        for (uint32_t i = 0; i < n_new; ++i) {
          EXPECT_EQ(done[i].status, ReadStatus::kOk) << reader.error_text(done[i]);
          const bool is_right = done[i].status == ReadStatus::kOk &&
                                std::memcmp(done[i].data, first_.bytes(done[i].offset, kRequest).data(), kRequest) == 0;
          EXPECT_TRUE(is_right) << done[i].offset;
          if (done[i].lost_copy != kNoCopy) warnings.push_back(reader.warning_text(done[i]));
        }
        n += n_new;
      }
    }
    return warnings;
  }

  TestFile first_{kBytes, 3}, second_{kBytes, 3};
  AlignedBuffer memory_{kAtOnce * kRoom, "test"};
};

TEST_P(Copies, TheFasterCopyReadsMore) {
  using std::chrono::microseconds;
  SlowCopies faults(second_.path(), microseconds(1000), microseconds(3000));
  Reader reader(options(&faults));
  EXPECT_TRUE(read(reader, 320).empty());
  const std::vector<CopyReads> reads = reader.copy_reads();
  ASSERT_EQ(reads.size(), 2U);
  const double ratio = static_cast<double>(reads[0].n_bytes) / static_cast<double>(reads[1].n_bytes);
  // Three to one on a quiet machine; CopyBalance is held to the proportion above, without a clock.
  EXPECT_GT(ratio, 1.0) << reads[0].n_bytes << " and " << reads[1].n_bytes;
  EXPECT_GE(reads[0].n_bytes + reads[1].n_bytes, 320 * kRequest);
}

TEST_P(Copies, ACopyThatDiesIsLeftWithOneWarning) {
  for (const bool is_first : {true, false}) {
    const std::string dead = is_first ? first_.path() : second_.path();
    TestFaults faults({});
    Reader reader(options(&faults));
    EXPECT_TRUE(read(reader, 64).empty());
    faults.set({.file = dead, .bad_begin = 0, .bad_end = kBytes, .bad_error = ENODEV});
    // A busy machine may make it look slow for a while, so that it is asked late; but asked it is.
    std::vector<std::string> warnings;
    for (int i = 0; i < 50 && warnings.empty(); ++i) warnings = read(reader, 160);
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_EQ(warnings[0], dead + ": cannot be read any more (ENODEV): the other copies serve instead");
    const uint64_t bytes_then = reader.copy_reads()[is_first ? 0 : 1].n_bytes;
    faults.set({});  // too late: it stays left
    EXPECT_TRUE(read(reader, 32).empty());
    EXPECT_TRUE(reader.copy_reads()[is_first ? 0 : 1].is_lost);
    EXPECT_EQ(reader.copy_reads()[is_first ? 0 : 1].n_bytes, bytes_then);
  }
}

TEST_P(Copies, ARangeThatNoCopyHasFailsAsWithOneFile) {
  TestFaults faults({});
  Reader reader(options(&faults));
  faults.set({.bad_begin = 100000, .bad_end = 100001, .bad_error = ENXIO});
  const std::array<ReadRequest, 1> bad = {
      {{.offset = 90000, .n_bytes = kRequest, .dst = memory_.data(), .dst_bytes = kRoom}}};
  ASSERT_TRUE(reader.submit(bad));
  std::array<ReadDone, 1> done;
  ASSERT_EQ(reader.wait(done), 1U);
  EXPECT_EQ(done[0].status, ReadStatus::kFailed);
  EXPECT_EQ(done[0].error, ENXIO);
  const std::string text = reader.error_text(done[0]);
  EXPECT_TRUE(text.starts_with(first_.path()) || text.starts_with(second_.path())) << text;
  faults.set({});
  EXPECT_TRUE(read(reader, 32).empty());
}

TEST_P(Copies, OnlyOneCopyRefusesDirectReads) {
  if (GetParam().second == DirectMode::kOff) GTEST_SKIP() << "no direct reads";
  class OnlySecond : public FaultPlan {
   public:
    explicit OnlySecond(std::string path) : path_(std::move(path)) {}
    int on_open(std::string_view path, bool direct) override { return direct && path == path_ ? EINVAL : 0; }

   private:
    std::string path_;
  } faults(second_.path());
  Reader reader(options(&faults));
  ASSERT_EQ(reader.warnings().size(), 1U);
  EXPECT_EQ(reader.warnings()[0], "direct reads refused on " + second_.path() + " (EINVAL), using buffered");
  // Both serve, sooner or later.
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(read(reader, 128).empty());
    if (reader.copy_reads()[0].n_bytes > 0 && reader.copy_reads()[1].n_bytes > 0) break;
  }
  EXPECT_GT(reader.copy_reads()[0].n_bytes, 0U);
  EXPECT_GT(reader.copy_reads()[1].n_bytes, 0U);
}

TEST_P(Copies, AnotherSizeIsRefusedInOneLine) {
  const TestFile shorter(kBytes - 1, 3);
  ReaderOptions opts = options(nullptr);
  opts.mirrors = {{shorter.path()}};
  try {
    const Reader reader(opts);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              shorter.path() + ": is not a copy of " + first_.path() + ": has 2000002 bytes, wanted 2000003");
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Copies,
                         testing::Values(std::pair(IoMode::kUring, DirectMode::kOn),
                                         std::pair(IoMode::kUring, DirectMode::kOff),
                                         std::pair(IoMode::kThreads, DirectMode::kOn),
                                         std::pair(IoMode::kThreads, DirectMode::kOff)));

}  // namespace
}  // namespace outrider::io

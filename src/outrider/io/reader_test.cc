// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <map>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/io/file.h"
#include "outrider/io/test_faults.h"

namespace outrider::io {
namespace {

struct Path {
  IoMode io;
  DirectMode direct;
};
constexpr std::array kPaths = {Path{IoMode::kUring, DirectMode::kOn}, Path{IoMode::kUring, DirectMode::kOff},
                               Path{IoMode::kThreads, DirectMode::kOn}, Path{IoMode::kThreads, DirectMode::kOff}};

std::string describe(const Path& path) {
  return std::string(path.io == IoMode::kUring ? "uring" : "threads") +
         (path.direct == DirectMode::kOn ? " direct" : " buffered");
}

// Ends in the middle of a block, of 512 bytes as of 64 KiB.
constexpr uint64_t kFileBytes = 700001;
constexpr uint64_t kRoom = 512U << 10;  // of a destination

class ReaderTest : public testing::Test {
 protected:
  ReaderOptions options(const Path& path, FaultPlan* faults = nullptr) const {
    return {.files = {file_.path()},
            .io = path.io,
            .direct = path.direct,
            .queue_depth = 4,
            .max_requests = 16,
            .piece_bytes = 64U << 10,
            .max_block_bytes = 64U << 10,
            .faults = faults};
  }
  ReadRequest request(uint32_t i, uint64_t offset, uint64_t n_bytes, ReadClass cls = ReadClass::kDemand) {
    return {.file_idx = 0,
            .offset = offset,
            .n_bytes = n_bytes,
            .dst = memory_.data() + i * kRoom,
            .dst_bytes = kRoom,
            .cls = cls,
            .tag = i};
  }
  void expect_read(const ReadDone& done) {
    ASSERT_EQ(done.status, ReadStatus::kOk);
    ASSERT_EQ(done.got_bytes, done.n_bytes);
    ASSERT_EQ(std::memcmp(done.data, file_.bytes(done.offset, done.n_bytes).data(), done.n_bytes), 0)
        << "offset " << done.offset << " bytes " << done.n_bytes;
  }
  // Reads many ranges, several at a time: the borders of blocks, the tail of the file, and random ones.
  void read_everywhere(Reader& reader) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges = {{0, 1},
                                                         {0, 4096},
                                                         {511, 2},
                                                         {512, 512},
                                                         {4095, 1},
                                                         {4095, 2},
                                                         {4096, 8192},
                                                         {65535, 65537},
                                                         {1, 400000},
                                                         {kFileBytes - 1, 1},
                                                         {kFileBytes - 513, 513},
                                                         {kFileBytes - 5000, 5000},
                                                         {kFileBytes - 65536, 65536}};
    TestRng rng;
    for (int i = 0; i < 30; ++i) {
      const uint64_t offset = rng.below(kFileBytes);
      ranges.emplace_back(offset, 1 + rng.below(std::min<uint64_t>(kFileBytes - offset, 300000)));
    }
    std::array<ReadDone, 8> done;
    for (size_t first = 0; first < ranges.size(); first += 8) {
      std::vector<ReadRequest> batch;
      for (size_t i = first; i < std::min(first + 8, ranges.size()); ++i) {
        batch.push_back(request(static_cast<uint32_t>(i - first), ranges[i].first, ranges[i].second));
      }
      ASSERT_TRUE(reader.submit(batch));
      for (size_t n_left = batch.size(); n_left > 0;) {
        const uint32_t n_done = reader.wait(done);
        ASSERT_GT(n_done, 0U);
        for (uint32_t i = 0; i < n_done; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_read(done[i]));
          if (done[i].direct_error != 0) ++n_refusals_;
        }
        n_left -= n_done;
      }
    }
    EXPECT_EQ(reader.wait(done), 0U);
  }
  ReadDone read_one(Reader& reader, const ReadRequest& one) {
    EXPECT_TRUE(reader.submit({&one, 1}));
    ReadDone done;
    EXPECT_EQ(reader.wait({&done, 1}), 1U);
    return done;
  }
  bool can_read_directly() const {
    int error = 0;
    return File::open_direct(file_.path(), error).is_open();
  }

  TestFile file_{kFileBytes};
  AlignedBuffer memory_{16 * kRoom, "test"};
  uint32_t n_refusals_ = 0;
};

using Strings = std::vector<std::string>;

TEST(ReadLatency, CountsByPowersOfTwo) {
  EXPECT_EQ(ReadLatency::bucket_of(999), 0U);
  EXPECT_EQ(ReadLatency::bucket_of(1000), 1U);
  EXPECT_EQ(ReadLatency::bucket_of(1999), 1U);
  EXPECT_EQ(ReadLatency::bucket_of(2000), 2U);
  EXPECT_EQ(ReadLatency::bucket_of(UINT64_MAX), kLatencyBuckets - 1);
  ReadLatency latency;
  EXPECT_EQ(latency.percentile_us(0.5), 0U);
  latency.counts[3] = 98;
  latency.counts[10] = 2;
  EXPECT_EQ(latency.n_reads(), 100U);
  EXPECT_EQ(latency.percentile_us(0.5), 8U);
  EXPECT_EQ(latency.percentile_us(0.98), 8U);
  EXPECT_EQ(latency.percentile_us(0.99), 1024U);
}

TEST_F(ReaderTest, EveryRangeIsRightOnEveryPath) {
  for (const Path& path : kPaths) {
    SCOPED_TRACE(describe(path));
    Reader reader(options(path));
    EXPECT_EQ(reader.uses_ring(), path.io == IoMode::kUring);
    EXPECT_EQ(reader.warnings(), Strings());
    EXPECT_EQ(reader.block_bytes(0) != 0, path.direct == DirectMode::kOn);
    read_everywhere(reader);
  }
}

// STR-3
TEST_F(ReaderTest, EveryRangeIsRightWhenTheDriveMisbehaves) {
  const std::vector<Faults> all = {
      {.shorten = true},
      {.interrupt_every = 3},
      {.again_every = 3},
      {.n_eio = 1},
      {.n_eio = 3},
      {.reorder = true},
      {.shorten = true, .interrupt_every = 3, .again_every = 5, .n_eio = 1, .reorder = true}};
  for (const Path& path : kPaths) {
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(describe(path) + ", faults " + std::to_string(i));
      // The probe is made with a healthy drive, so that direct reads are what misbehaves.
      TestFaults drive({});
      Reader reader(options(path, &drive));
      drive.set(all[i]);
      read_everywhere(reader);
    }
  }
}

// STR-5
TEST_F(ReaderTest, AnyDemandedAlignmentIsMet) {
  if (!can_read_directly()) GTEST_SKIP() << "no direct reads in " << testing::TempDir();
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    for (const uint64_t alignment : {512ULL, 4096ULL, 65536ULL}) {
      SCOPED_TRACE(alignment);
      TestFaults drive({.direct_alignment = alignment});
      Reader reader(options({io, DirectMode::kOn}, &drive));
      EXPECT_EQ(reader.warnings(), Strings());
      EXPECT_EQ(reader.block_bytes(0) % alignment, 0U);
      EXPECT_NE(reader.block_bytes(0), 0U);
      read_everywhere(reader);
      EXPECT_EQ(n_refusals_, 0U);
    }
  }
}

// STR-5
TEST_F(ReaderTest, RefusedDirectReadsGiveOneWarningAndBufferedReads) {
  if (!can_read_directly()) GTEST_SKIP() << "no direct reads in " << testing::TempDir();
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    for (const int error : {EINVAL, EOPNOTSUPP, EPERM}) {
      TestFaults drive({.direct_open_error = error});
      Reader reader(options({io, DirectMode::kAuto}, &drive));
      EXPECT_EQ(reader.warnings(),
                Strings{"direct reads refused on " + file_.path() + " (" + errno_name(error) + "), using buffered"});
      EXPECT_EQ(reader.block_bytes(0), 0U);
      read_everywhere(reader);
    }
    TestFaults refusing({.n_direct_accepted = 0});
    Reader probed(options({io, DirectMode::kAuto}, &refusing));
    EXPECT_EQ(probed.warnings(), Strings{"direct reads refused on " + file_.path() + " (EINVAL), using buffered"});
    read_everywhere(probed);
    EXPECT_EQ(n_refusals_, 0U);

    TestFaults narrow({.direct_alignment = 65536});
    ReaderOptions narrow_options = options({io, DirectMode::kAuto}, &narrow);
    narrow_options.max_block_bytes = 4096;
    Reader aligned(narrow_options);
    EXPECT_EQ(aligned.warnings(),
              Strings{"direct reads on " + file_.path() +
                      " need an alignment of 65536 bytes, at most 4096 is supported here, using buffered"});
    read_everywhere(aligned);

    // Accepted by the probe, refused at the first or a later real read: told by the completion, once.
    for (const uint32_t n_accepted : {0U, 1U, 20U}) {
      TestFaults later({});
      Reader reader(options({io, DirectMode::kAuto}, &later));
      EXPECT_EQ(reader.warnings(), Strings());
      later.set({.n_direct_accepted = n_accepted});
      n_refusals_ = 0;
      read_everywhere(reader);
      EXPECT_EQ(n_refusals_, 1U);
      EXPECT_EQ(reader.block_bytes(0), 0U);
    }
    n_refusals_ = 0;
  }
}

TEST_F(ReaderTest, WhateverRefusesTheRingThreadsReadInstead) {
  for (int error = 1; error <= 133; ++error) {
    TestFaults drive({.ring_error = error});
    Reader reader(options({IoMode::kUring, DirectMode::kOff}, &drive));
    ASSERT_FALSE(reader.uses_ring());
    ASSERT_EQ(reader.warnings(), Strings{"io: io_uring refused (" + errno_name(error) + "), using threads"});
    ASSERT_NO_FATAL_FAILURE(expect_read(read_one(reader, request(0, 100, 70000))));
  }
}

TEST_F(ReaderTest, FailuresAreToldPerRequestAndLeaveOthersAlone) {
  for (const Path& path : kPaths) {
    SCOPED_TRACE(describe(path));
    TestFaults drive({});
    Reader reader(options(path, &drive));
    drive.set({.bad_begin = 300000, .bad_end = 300001});
    const std::vector<ReadRequest> batch = {request(0, 290000, 9000), request(1, 200000, 150000),
                                            request(2, 400000, 1000)};
    ASSERT_TRUE(reader.submit(batch));
    std::map<uint64_t, ReadDone> by_tag;
    std::array<ReadDone, 4> done;
    while (by_tag.size() < 3) {
      const uint32_t n_done = reader.wait(done);
      for (uint32_t i = 0; i < n_done; ++i) by_tag[done[i].tag] = done[i];
    }
    expect_read(by_tag[2]);
    EXPECT_EQ(by_tag[1].status, ReadStatus::kFailed);
    EXPECT_EQ(by_tag[1].error, EIO);
    EXPECT_GE(by_tag[1].n_retries, 3U);
    EXPECT_LE(by_tag[1].got_bytes, 100000U);
    EXPECT_EQ(reader.error_text(by_tag[1]), file_.path() + ": read at offset 200000: wanted 150000 bytes, got " +
                                                std::to_string(by_tag[1].got_bytes) + ": Input/output error (EIO)");
    drive.set({});
    expect_read(read_one(reader, request(1, 200000, 150000)));

    // The file ends early for this process only, in the middle of the range.
    drive.set({.ends_at = 500123});
    const ReadDone cut = read_one(reader, request(0, 500000, 1000));
    EXPECT_EQ(reader.error_text(cut),
              file_.path() + ": read at offset 500000: wanted 1000 bytes, got 123: end of file");
    drive.set({});
    // And really: past its end.
    const ReadDone past = read_one(reader, request(0, kFileBytes - 10, 100));
    EXPECT_EQ(past.status, ReadStatus::kFailed);
    EXPECT_EQ(reader.error_text(past), file_.path() + ": read at offset 699991: wanted 100 bytes, got 10: end of file");
  }
}

// Holds every read back until it is told to go on.
class Gate : public FaultPlan {
 public:
  bool may_block() const noexcept override { return true; }
  ReadFault on_read(const ReadOp& /*op*/) override {
    if (closed_) {
      if (!is_reached_.exchange(true)) reached_.count_down();
      open_.wait();
      closed_ = false;
    }
    return {};
  }
  void close() { closed_ = true; }
  void wait_until_reached() { reached_.wait(); }
  void open() { open_.count_down(); }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<bool> is_reached_{false};
  std::latch reached_{1};
  std::latch open_{1};
};

TEST_F(ReaderTest, PredictionWaitsForDemandAndCanBeTakenBack) {
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    Gate gate;
    Reader reader(options({io, DirectMode::kOff}, &gate));
    gate.close();
    // Two: behind the last demanded piece a guess may start.
    const std::array demand = {request(0, 0, 1000), request(4, 4000, 1000)};
    ASSERT_TRUE(reader.submit(demand));
    gate.wait_until_reached();
    const std::array guesses = {request(1, 1000, 1000, ReadClass::kPrediction),
                                request(2, 2000, 1000, ReadClass::kPrediction),
                                request(3, 3000, 1000, ReadClass::kBackground)};
    std::array<ReadId, 3> ids;
    ASSERT_TRUE(reader.submit(guesses, ids));
    EXPECT_TRUE(reader.cancel(ids[1]));  // it cannot have started: demand waits or is in flight
    EXPECT_TRUE(reader.cancel(ids[2]));
    gate.open();
    std::map<uint64_t, ReadDone> by_tag;
    std::array<ReadDone, 4> done;
    while (by_tag.size() < 5) {
      const uint32_t n_done = reader.wait(done);
      ASSERT_GT(n_done, 0U);
      for (uint32_t i = 0; i < n_done; ++i) by_tag[done[i].tag] = done[i];
    }
    expect_read(by_tag[0]);
    expect_read(by_tag[1]);
    expect_read(by_tag[4]);
    EXPECT_EQ(by_tag[2].status, ReadStatus::kCancelled);
    EXPECT_EQ(by_tag[3].status, ReadStatus::kCancelled);
    EXPECT_EQ(reader.wait(done), 0U);
    EXPECT_EQ(reader.poll(done), 0U);
  }
}

TEST_F(ReaderTest, FullIsAValueAndHasNoSideEffect) {
  Reader reader(options({IoMode::kAuto, DirectMode::kOff}));
  std::vector<ReadRequest> batch;
  for (uint32_t i = 0; i < 16; ++i) batch.push_back(request(i, i * 1000, 1000));
  ASSERT_TRUE(reader.submit(std::span(batch).first(10)));
  EXPECT_FALSE(reader.submit(std::span(batch).first(7)));
  ASSERT_TRUE(reader.submit(std::span(batch).subspan(10)));
  std::array<ReadDone, 32> done;
  uint32_t n_done = 0;
  while (const uint32_t n = reader.wait(std::span(done).subspan(n_done))) n_done += n;
  EXPECT_EQ(n_done, 16U);
}

TEST_F(ReaderTest, MayBeDestroyedWithReadsUnderWay) {
  for (const Path& path : kPaths) {
    for (int round = 0; round < 10; ++round) {
      Reader reader(options(path));
      std::vector<ReadRequest> batch;
      for (uint32_t i = 0; i < 16; ++i) batch.push_back(request(i, i * 10000, 300000));
      ASSERT_TRUE(reader.submit(batch));
    }
  }
}

TEST_F(ReaderTest, SeveralFilesAtOnce) {
  const TestFile other(5000, 99);
  ReaderOptions two = options(kPaths[0]);
  two.files.push_back(other.path());
  Reader reader(two);
  EXPECT_EQ(reader.n_files(), 2U);
  EXPECT_EQ(reader.file_bytes(1), 5000U);
  ReadRequest second = request(1, 4000, 1000);
  second.file_idx = 1;
  const ReadDone done = read_one(reader, second);
  EXPECT_EQ(std::memcmp(done.data, other.bytes(4000, 1000).data(), 1000), 0);
  two.files.push_back("/nowhere/part-3.gguf");
  EXPECT_THROW(Reader{two}, Error);
}

}  // namespace
}  // namespace outrider::io

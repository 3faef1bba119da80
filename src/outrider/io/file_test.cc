// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/io/piece.h"
#include "outrider/io/ring.h"
#include "outrider/io/test_faults.h"

namespace outrider::io {
namespace {

std::string error_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    return error.what();
  }
  return "no error";
}

TEST(File, OpenErrorNamesThePathAndTheReason) {
  EXPECT_EQ(error_of([] { File::open("/nowhere/m.gguf"); }),
            "/nowhere/m.gguf: cannot open: No such file or directory (ENOENT)");
  EXPECT_EQ(error_of([] { File::open("/"); }), "/: cannot open: is a directory");
}

TEST(File, ReadsExactlyTheRangeForAnyOffset) {
  const TestFile data(10001);
  const File file = File::open(data.path());
  EXPECT_EQ(file.n_bytes(), 10001U);
  TestRng rng;
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = rng.below(10001);
    std::vector<std::byte> out(rng.below(10001 - offset + 1));
    file.read_exact(offset, out);
    const auto wanted = data.bytes(offset, out.size());
    ASSERT_TRUE(std::equal(out.begin(), out.end(), wanted.begin())) << offset << " " << out.size();
  }
}

// STR-3
TEST(File, ShortInterruptedAndHealingReadsAreFinished) {
  const TestFile data(10001);
  const File file = File::open(data.path());
  for (const Faults& faults :
       {Faults{.shorten = true}, Faults{.interrupt_every = 3}, Faults{.again_every = 2}, Faults{.n_eio = 3},
        Faults{.shorten = true, .interrupt_every = 3, .again_every = 4, .n_eio = 1}}) {
    TestFaults drive(faults);
    std::vector<std::byte> out(9001);
    for (uint64_t i = 0; i < 9001; i += 1000) {
      file.read_exact(1000 + i, std::span(out).subspan(i, std::min<uint64_t>(1000, 9001 - i)), &drive);
    }
    EXPECT_TRUE(std::equal(out.begin(), out.end(), data.bytes(1000, 9001).begin()));
    EXPECT_GT(drive.n_reads(), 10U);
  }
}

// STR-3
TEST(File, EarlyEndAndErrorsSayFileOffsetWantedAndGot) {
  const TestFile data(1000);
  const File file = File::open(data.path());
  std::vector<std::byte> out(500);
  EXPECT_EQ(error_of([&] { file.read_exact(600, out); }),
            data.path() + ": read at offset 600: wanted 500 bytes, got 400: end of file");
  TestFaults bad({.bad_begin = 650, .bad_end = 651});
  EXPECT_EQ(error_of([&] { file.read_exact(600, std::span(out).first(100), &bad); }),
            data.path() + ": read at offset 600: wanted 100 bytes, got 0: Input/output error (EIO)");
  EXPECT_EQ(bad.n_reads(), 1 + kMaxErrorRetries);
  TestFaults gone({.bad_begin = 0, .bad_end = 1, .bad_error = ESTALE});
  EXPECT_EQ(error_of([&] { file.read_exact(0, out, &gone); }),
            data.path() + ": read at offset 0: wanted 500 bytes, got 0: Stale file handle (ESTALE)");
  EXPECT_EQ(gone.n_reads(), 1U);
}

TEST(File, InterruptsWithoutEndAreAnErrorNotAHang) {
  const TestFile data(100);
  const File file = File::open(data.path());
  TestFaults drive({.interrupt_every = 1});
  std::vector<std::byte> out(100);
  EXPECT_EQ(error_of([&] { file.read_exact(0, out, &drive); }),
            data.path() + ": read at offset 0: wanted 100 bytes, got 0: Interrupted system call (EINTR)");
}

// STR-5
TEST(File, DirectProbeFindsTheAlignmentThatTheDriveDemands) {
  for (const uint64_t n_bytes : {1ULL, 511ULL, 4097ULL, 200001ULL}) {
    const TestFile data(n_bytes);
    int error = 0;
    const File direct = File::open_direct(data.path(), error);
    if (error != 0) GTEST_SKIP() << "no direct reads in " << testing::TempDir() << ": " << errno_name(error);
    for (const uint32_t demanded : {512U, 4096U, 65536U}) {
      TestFaults drive({.direct_alignment = demanded});
      const uint32_t block = probe_direct_block(direct, error, &drive);
      EXPECT_EQ(error, 0);
      EXPECT_GE(block, demanded) << n_bytes;
      EXPECT_LE(block, std::max(demanded, 4096U)) << n_bytes;
    }
    TestFaults refusing({.n_direct_accepted = 0});
    EXPECT_EQ(probe_direct_block(direct, error, &refusing), 0U);
    EXPECT_EQ(error, EINVAL);
  }
}

TEST(File, DirectOpenRefusalIsAValue) {
  const TestFile data(100);
  TestFaults drive({.direct_open_error = EINVAL});
  int error = 0;
  EXPECT_FALSE(File::open_direct(data.path(), error, &drive).is_open());
  EXPECT_EQ(error, EINVAL);
}

// A real refusal by the kernel: no descriptor is left for the ring.
TEST(Ring, RefusalByTheKernelIsAValue) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit tight = limit;
  tight.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  int error = 0;
  const std::unique_ptr<Ring> ring = Ring::make(4, error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ring, nullptr);
  EXPECT_NE(error, 0);
}

TEST(Ring, ReadsComeBackWithTheirIds) {
  const TestFile data(64 << 10);
  const File file = File::open(data.path());
  int error = 0;
  const std::unique_ptr<Ring> ring = Ring::make(8, error);
  if (ring == nullptr) GTEST_SKIP() << "io_uring refused: " << errno_name(error);
  std::vector<std::byte> out(8 * 1000);
  for (uint64_t i = 0; i < 8; ++i) ring->push(file.fd(), i * 7919, out.data() + i * 1000, 1000, i);
  std::vector<RingDone> done(8);
  uint32_t n_done = 0;
  EXPECT_TRUE(ring->submit());
  while (n_done < 8) {
    ring->wait();
    n_done += ring->reap(std::span(done).subspan(n_done));
  }
  EXPECT_EQ(ring->reap(done), 0U);
  ring->wake();
  ring->wait();
  RingDone woken;
  EXPECT_EQ(ring->reap({&woken, 1}), 1U);
  EXPECT_EQ(woken.id, kWakeId);
  uint64_t ids = 0;
  for (const RingDone& one : done) {
    EXPECT_EQ(one.result, 1000);
    ids |= 1ULL << one.id;
  }
  EXPECT_EQ(ids, 255U);
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(std::memcmp(out.data() + i * 1000, data.bytes(i * 7919, 1000).data(), 1000), 0) << i;
  }
}

Piece direct_piece() { return {.pos = 4096, .end = 12288, .wanted_end = 9000, .dst = nullptr, .direct = true}; }

TEST(Piece, DirectReadThatCoversTheWantedBytesIsDone) {
  Piece whole = direct_piece();
  EXPECT_EQ(advance(whole, 8192), PieceStep::kDone);
  Piece tail = direct_piece();  // the file ends at 9000, in the middle of a block
  EXPECT_EQ(advance(tail, 9000 - 4096), PieceStep::kDone);
}

TEST(Piece, ShortOrRefusedDirectReadGoesOnBuffered) {
  Piece cut = direct_piece();
  EXPECT_EQ(advance(cut, 100), PieceStep::kAgain);
  EXPECT_FALSE(cut.direct);
  EXPECT_EQ(cut.pos, 4196U);
  EXPECT_EQ(cut.end, 9000U);
  EXPECT_EQ(cut.direct_error, 0);
  Piece refused = direct_piece();
  EXPECT_EQ(advance(refused, -EINVAL), PieceStep::kAgain);
  EXPECT_FALSE(refused.direct);
  EXPECT_EQ(refused.pos, 4096U);
  EXPECT_EQ(refused.direct_error, EINVAL);
  EXPECT_EQ(advance(refused, -EINVAL), PieceStep::kFailed);  // buffered, it is an error like others
  Piece silent = direct_piece();
  EXPECT_EQ(advance(silent, 0), PieceStep::kAgain);
  EXPECT_EQ(advance(silent, 0), PieceStep::kFailed);  // the file really ends there
  EXPECT_EQ(silent.error, 0);
}

}  // namespace
}  // namespace outrider::io

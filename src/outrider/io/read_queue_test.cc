// SPDX-License-Identifier: Apache-2.0
#include "outrider/io/read_queue.h"

#include <gtest/gtest.h>

#include "outrider/base/test_rng.h"

namespace outrider::io {
namespace {

constexpr uint64_t kPiece = 1000;

// A queue that reads nothing: offsets stand for bytes.
class Queue {
 public:
  explicit Queue(uint32_t max_requests = 8) : queue(max_requests, kPiece) {}

  ReadId push(ReadClass cls, uint64_t offset, uint64_t n_bytes, uint64_t tag) {
    const auto id = queue.push(
        {.offset = offset, .n_bytes = n_bytes, .dst = memory, .dst_bytes = sizeof memory, .cls = cls, .tag = tag},
        {.begin = offset, .end = offset + n_bytes});
    EXPECT_TRUE(id.has_value());
    return id.value_or(ReadId{});
  }
  // Offset of the next piece, or -1.
  int64_t take() {
    Piece piece;
    if (!queue.take(piece)) return -1;
    flying.push_back(piece);
    return static_cast<int64_t>(piece.pos);
  }
  void finish(size_t i, bool failed = false) {
    queue.finish(flying[i], failed);
    flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // Tag of the next completion, or -1.
  int64_t pop() {
    if (!queue.pop_done(done)) return -1;
    return static_cast<int64_t>(done.tag);
  }

  ReadQueue queue;
  std::vector<Piece> flying;
  ReadDone done;
  std::byte memory[8192] = {};
};

TEST(ReadQueue, DemandGoesFirstAndLowerClassesWaitUntilItsLastPieceFlies) {
  Queue q;
  q.push(ReadClass::kBackground, 300, 10, 3);
  q.push(ReadClass::kPrediction, 200, 2 * kPiece, 2);
  q.push(ReadClass::kDemand, 100, kPiece + 10, 1);
  EXPECT_EQ(q.take(), 100);
  EXPECT_EQ(q.take(), 1100);
  EXPECT_EQ(q.take(), -1);  // two pieces of the demand are in flight
  q.finish(0);
  EXPECT_EQ(q.take(), 200);                // behind its last one, so that the drive never stands still
  q.push(ReadClass::kDemand, 110, 10, 4);  // demand does not wait for a prediction in flight
  EXPECT_EQ(q.take(), 110);
  EXPECT_EQ(q.take(), -1);
  q.finish(0);
  EXPECT_EQ(q.take(), 1200);
  EXPECT_EQ(q.take(), -1);  // two pieces of the prediction are in flight
  q.finish(1);
  q.finish(0);
  EXPECT_EQ(q.take(), 300);
  q.finish(0);
  q.finish(0);
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.pop(), 4);
  EXPECT_EQ(q.pop(), 2);
  EXPECT_EQ(q.pop(), 3);
  EXPECT_EQ(q.pop(), -1);
}

TEST(ReadQueue, ACompletionIsToldOnceWhenTheLastPieceIsBack) {
  Queue q;
  q.push(ReadClass::kDemand, 0, 2500, 1);
  q.push(ReadClass::kDemand, 5000, 1000, 2);
  EXPECT_EQ(q.take(), 0);
  EXPECT_EQ(q.take(), 1000);
  EXPECT_EQ(q.take(), 2000);
  EXPECT_EQ(q.take(), 5000);
  EXPECT_EQ(q.take(), -1);
  EXPECT_EQ(q.flying[2].end, 2500U);
  q.finish(2);
  q.finish(0);
  EXPECT_EQ(q.pop(), -1);
  q.finish(1);
  EXPECT_EQ(q.pop(), 2);
  q.finish(0);
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.done.got_bytes, 2500U);
  EXPECT_EQ(q.done.status, ReadStatus::kOk);
}

TEST(ReadQueue, AFailedPieceDropsTheRestAndTellsTheFirstBadByte) {
  Queue q;
  q.push(ReadClass::kDemand, 100, 5000, 1);
  q.push(ReadClass::kDemand, 9000, 10, 2);
  for (const int64_t offset : {100, 1100, 2100}) EXPECT_EQ(q.take(), offset);
  q.flying[2].error = EIO;
  q.finish(2, true);
  EXPECT_EQ(q.take(), 9000);  // not 3100
  q.flying[1].pos = 1500;     // this one came further before it failed
  q.flying[1].error = ENXIO;
  q.finish(1, true);
  EXPECT_EQ(q.pop(), -1);  // a read into the destination is still under way
  q.finish(0);
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.done.status, ReadStatus::kFailed);
  EXPECT_EQ(q.done.error, ENXIO);
  EXPECT_EQ(q.done.got_bytes, 1400U);
  q.finish(0);
  EXPECT_EQ(q.pop(), 2);
}

TEST(ReadQueue, OnlyQueuedPredictionsAreCancelled) {
  Queue q;
  const ReadId demand = q.push(ReadClass::kDemand, 0, 10, 0);
  const ReadId first = q.push(ReadClass::kPrediction, 100, 1500, 1);
  const ReadId middle = q.push(ReadClass::kPrediction, 200, 10, 2);
  const ReadId last = q.push(ReadClass::kPrediction, 300, 10, 3);
  EXPECT_FALSE(q.queue.cancel(demand));
  EXPECT_EQ(q.take(), 0);
  q.finish(0);
  EXPECT_EQ(q.take(), 100);
  EXPECT_FALSE(q.queue.cancel(first));  // has begun
  EXPECT_TRUE(q.queue.cancel(last));
  EXPECT_FALSE(q.queue.cancel(last));
  EXPECT_TRUE(q.queue.cancel(middle));
  EXPECT_EQ(q.take(), 1100);
  const ReadId late = q.push(ReadClass::kPrediction, 400, 10, 4);
  EXPECT_EQ(q.take(), 400);
  EXPECT_EQ(q.pop(), 0);
  EXPECT_EQ(q.pop(), 3);
  EXPECT_EQ(q.done.status, ReadStatus::kCancelled);
  EXPECT_EQ(q.pop(), 2);
  EXPECT_EQ(q.done.status, ReadStatus::kCancelled);
  EXPECT_EQ(q.queue.n_pending(), 2U);
  // The same place again: the id of its past is no key to it.
  const ReadId again = q.push(ReadClass::kPrediction, 500, 10, 5);
  EXPECT_TRUE(again.entry == middle.entry || again.entry == last.entry || again.entry == demand.entry);
  EXPECT_FALSE(q.queue.cancel(middle));
  EXPECT_FALSE(q.queue.cancel(last));
  EXPECT_FALSE(q.queue.cancel({.entry = 99, .generation = 1}));
  EXPECT_FALSE(q.queue.cancel(late));
  EXPECT_TRUE(q.queue.cancel(again));
}

TEST(ReadQueue, APromotedReadGoesWithTheDemands) {
  Queue q;
  const ReadId first = q.push(ReadClass::kPrediction, 0, 3 * kPiece, 1);
  const ReadId second = q.push(ReadClass::kPrediction, 5000, 2 * kPiece, 2);
  const ReadId third = q.push(ReadClass::kBackground, 6000, 10, 3);
  EXPECT_EQ(q.take(), 0);
  EXPECT_FALSE(q.queue.is_queued(first));
  EXPECT_TRUE(q.queue.is_queued(second));
  q.push(ReadClass::kDemand, 7000, 10, 4);
  q.queue.promote(first);  // started, with two pieces left
  q.queue.promote(third);
  q.queue.promote(third);  // once more changes nothing
  EXPECT_FALSE(q.queue.cancel(third));
  EXPECT_EQ(q.take(), 7000);
  EXPECT_EQ(q.take(), 1000);
  EXPECT_EQ(q.take(), 2000);
  EXPECT_EQ(q.take(), 6000);
  EXPECT_EQ(q.take(), -1);  // the second is still a prediction
  while (!q.flying.empty()) q.finish(0);
  EXPECT_EQ(q.take(), 5000);
  EXPECT_EQ(q.take(), 6000);
  q.queue.promote(second);  // in flight, nothing left: lower classes wait for it now
  q.push(ReadClass::kPrediction, 8000, 10, 5);
  EXPECT_EQ(q.take(), -1);
  q.finish(0);
  q.finish(0);
  std::vector<int64_t> tags;
  for (int64_t tag = q.pop(); tag >= 0; tag = q.pop()) tags.push_back(tag);
  EXPECT_EQ(tags, (std::vector<int64_t>{4, 1, 3, 2}));
  q.queue.promote(first);  // of the past
  EXPECT_FALSE(q.queue.is_queued(first));
  EXPECT_EQ(q.take(), 8000);
}

TEST(ReadQueue, AFailedPieceOfAPromotedReadDropsItsRest) {
  Queue q;
  const ReadId ahead = q.push(ReadClass::kPrediction, 0, 2 * kPiece, 1);
  EXPECT_EQ(q.take(), 0);
  q.push(ReadClass::kDemand, 5000, 2 * kPiece, 2);
  q.queue.promote(ahead);
  q.finish(0, true);  // it stood behind the demand
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.done.status, ReadStatus::kFailed);
  EXPECT_EQ(q.take(), 5000);
  EXPECT_EQ(q.take(), 6000);
  EXPECT_EQ(q.take(), -1);
}

TEST(ReadQueue, FullIsAValue) {
  Queue q(2);
  q.push(ReadClass::kDemand, 0, 10, 1);
  q.push(ReadClass::kDemand, 20, 10, 2);
  const ReadRequest third = {.offset = 40, .n_bytes = 10, .dst = q.memory, .dst_bytes = sizeof q.memory};
  EXPECT_FALSE(q.queue.push(third, {.begin = 40, .end = 50}).has_value());
  EXPECT_EQ(q.take(), 0);
  q.finish(0);
  EXPECT_FALSE(q.queue.push(third, {.begin = 40, .end = 50}).has_value());  // its completion is not collected yet
  EXPECT_EQ(q.pop(), 1);
  EXPECT_TRUE(q.queue.push(third, {.begin = 40, .end = 50}).has_value());
}

TEST(ReadQueue, SlackBehindTheWantedBytesIsNeverReadAlone) {
  Queue q;
  ASSERT_TRUE(q.queue
                  .push({.offset = 100, .n_bytes = 1890, .dst = q.memory, .dst_bytes = sizeof q.memory},
                        {.begin = 0, .end = 2100, .direct = true})
                  .has_value());
  EXPECT_EQ(q.take(), 0);
  EXPECT_EQ(q.take(), 1000);
  EXPECT_EQ(q.flying[1].wanted_end, 1990U);
  EXPECT_EQ(q.take(), -1);
  q.finish(0);
  q.finish(0);
  EXPECT_EQ(q.pop(), 0);
  EXPECT_EQ(q.done.data, q.memory + 100);
}

// Every request completes exactly once, whatever the interleaving of push, take, finish, fail and cancel.
TEST(ReadQueue, EveryRequestCompletesOnceForAnyInterleaving) {
  TestRng rng;
  for (int round = 0; round < 50; ++round) {
    Queue q(8);
    std::vector<uint32_t> n_done(200, 0);
    std::vector<ReadId> ids;
    for (uint64_t n_pushed = 0; n_pushed < 200 || q.queue.n_pending() != 0 || q.queue.n_done() != 0;) {
      switch (rng.below(6)) {
        case 0:
        case 1:
          if (n_pushed < 200 && q.queue.n_free() > 0) {
            ids.push_back(q.push(static_cast<ReadClass>(rng.below(3)), rng.below(5000), 1 + rng.below(3500), n_pushed));
            ++n_pushed;
          }
          break;
        case 2:
          q.take();
          break;
        case 3:
          if (!q.flying.empty()) q.finish(rng.below(q.flying.size()), rng.below(10) == 0);
          break;
        case 4:
          if (!ids.empty()) q.queue.cancel(ids[rng.below(ids.size())]);
          break;
        case 5:
          if (const int64_t tag = q.pop(); tag >= 0) ++n_done[static_cast<size_t>(tag)];
          break;
      }
    }
    EXPECT_TRUE(q.flying.empty());
    EXPECT_EQ(q.queue.n_free(), 8U);
    for (const uint32_t n : n_done) ASSERT_EQ(n, 1U);
  }
}

TEST(ReadQueue, LowerClassesHaveFewPiecesInFlight) {
  Queue q;
  q.queue.set_low_depth(2);
  const ReadId first = q.push(ReadClass::kPrediction, 0, 4 * kPiece, 1);
  q.push(ReadClass::kPrediction, 5000, 10, 2);
  EXPECT_EQ(q.take(), 0);
  EXPECT_EQ(q.take(), 1000);
  EXPECT_EQ(q.take(), -1);  // two are in flight
  q.finish(0);
  EXPECT_EQ(q.take(), 2000);
  EXPECT_EQ(q.take(), -1);
  // Demanded after all: its pieces count no longer, and the rest has no limit.
  q.queue.promote(first);
  EXPECT_EQ(q.take(), 3000);
  EXPECT_EQ(q.take(), -1);  // the other guess waits for the demand
  while (!q.flying.empty()) q.finish(0);
  EXPECT_EQ(q.pop(), 1);
  EXPECT_EQ(q.take(), 5000);
  q.finish(0, true);
  // What failed gave its place back.
  q.push(ReadClass::kBackground, 6000, 2 * kPiece, 3);
  EXPECT_EQ(q.take(), 6000);
  EXPECT_EQ(q.take(), 7000);
  EXPECT_EQ(q.take(), -1);
}

}  // namespace
}  // namespace outrider::io

// SPDX-License-Identifier: Apache-2.0
// Slabs that are begun: told when all but their last part has landed, once, and never by the wrong bytes.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "outrider/base/error.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/test_store_model.h"

namespace outrider::residency {
namespace {

// gate, up, down of 8 experts, each a stack of its own.
const Geometry kThreeParts = {.offset = 100, .n_experts = {8}, .part_bytes = {{3000, 3000, 3000}}};

// A drive that holds reads of a range back until it is let go, and then may refuse some of them.
class HoldingDrive : public io::FaultPlan {
 public:
  bool may_block() const noexcept override { return true; }
  io::ReadFault on_read(const io::ReadOp& op) override {
    std::unique_lock lock(mutex_);
    if (op.path != path_ || op.offset < begin_ || op.offset >= end_) return {};
    changed_.wait(lock, [this] { return !holds_; });
    if (n_bad_ == 0) return {};
    --n_bad_;
    return {.error = EBADF};
  }
  void hold(const PartSource& part, const std::string& path, uint32_t expert) {
    const std::lock_guard lock(mutex_);
    path_ = path;
    begin_ = part.offset + expert * part.step();
    end_ = begin_ + part.n_bytes;
    holds_ = true;
  }
  void let_go(uint32_t n_bad = 0) {
    const std::lock_guard lock(mutex_);
    holds_ = false;
    n_bad_ = n_bad;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string path_;
  uint64_t begin_ = 0, end_ = 0;
  uint32_t n_bad_ = 0;
  bool holds_ = false;
};

class Begun : public ::testing::Test {
 protected:
  Begun() : model(kThreeParts) {
    StoreOptions options = model.options(4);
    options.io = IoMode::kThreads;
    options.direct = DirectMode::kOff;
    options.queue_depth = 4;
    options.faults = &drive;
    store.emplace(options);
  }
  ~Begun() override { drive.let_go(); }
  void hold_down(uint32_t expert) {
    const PartSource& down = model.layers[0].parts[2];
    drive.hold(down, model.files[down.file_idx]->path(), expert);
  }
  LayerPass demand(std::vector<uint32_t> experts) {
    return store->begin(0, experts, std::vector<uint32_t>(experts.size(), 1));
  }
  // The experts that next_begun() tells of, checked.
  std::vector<uint32_t> begun_of(LayerPass& pass) {
    std::vector<uint32_t> experts;
    for (const ReadySlab& slab : pass.next_begun()) {
      model.expect_bytes(0, slab, 1);
      experts.push_back(slab.expert);
    }
    return experts;
  }
  std::vector<uint32_t> whole_of(LayerPass& pass) {
    std::vector<uint32_t> experts;
    const auto slabs = pass.next();
    for (const ReadySlab& slab : slabs) {
      model.expect_bytes(0, slab);
      experts.push_back(slab.expert);
    }
    pass.done(slabs);
    return experts;
  }

  HoldingDrive drive;
  Model model;
  std::optional<ExpertStore> store;
};

using Experts = std::vector<uint32_t>;

TEST_F(Begun, ASlabIsToldWithoutItsLastPartAndComesWholeAfterwards) {
  hold_down(5);
  LayerPass pass = demand({5});
  EXPECT_EQ(begun_of(pass), Experts{5});
  EXPECT_FALSE(store->is_resident(0, 5));  // its last byte has not landed
  EXPECT_TRUE(pass.would_wait());
  drive.let_go();
  EXPECT_EQ(begun_of(pass), Experts{});
  EXPECT_EQ(whole_of(pass), Experts{5});
  EXPECT_EQ(begun_of(pass), Experts{});
  EXPECT_EQ(whole_of(pass), Experts{});
}

TEST_F(Begun, WhatIsThereWholeGoesFirst) {
  {
    LayerPass pass = demand({1});
    while (!whole_of(pass).empty()) {
    }
  }
  hold_down(5);
  LayerPass pass = demand({1, 5});
  EXPECT_EQ(begun_of(pass), Experts{});
  EXPECT_EQ(whole_of(pass), Experts{1});
  EXPECT_EQ(begun_of(pass), Experts{5});
  drive.let_go();
  EXPECT_EQ(whole_of(pass), Experts{5});
}

TEST_F(Begun, ALastPartThatFailsIsToldAndTheSlabIsReadAnew) {
  hold_down(5);
  {
    LayerPass pass = demand({5});
    EXPECT_EQ(begun_of(pass), Experts{5});
    drive.let_go(1);
    EXPECT_EQ(begun_of(pass), Experts{});
    EXPECT_THROW(static_cast<void>(pass.next()), Error);
  }
  EXPECT_FALSE(store->is_resident(0, 5));
  hold_down(5);
  LayerPass pass = demand({5});
  EXPECT_EQ(begun_of(pass), Experts{5});
  drive.let_go();
  EXPECT_EQ(whole_of(pass), Experts{5});
}

TEST_F(Begun, ADroppedPassWaitsForTheLastPart) {
  hold_down(5);
  {
    LayerPass pass = demand({5});
    EXPECT_EQ(begun_of(pass), Experts{5});
    drive.let_go();
  }
  EXPECT_TRUE(store->is_resident(0, 5));
}

TEST_F(Begun, AGuessThatTheDemandTakesOverIsBegun) {
  hold_down(5);
  const std::vector<uint32_t> guess = {5};
  store->predict(0, guess);
  while (store->counters().reads == 0) store->predict(0, {});  // the first of its parts has landed
  LayerPass pass = demand({5});
  EXPECT_EQ(begun_of(pass), Experts{5});
  EXPECT_FALSE(store->is_resident(0, 5));
  drive.let_go();
  EXPECT_EQ(whole_of(pass), Experts{5});
  EXPECT_EQ(store->counters().predicted_used, 1U);
}

// The demand reads a slab anew whose guess has failed: what was told of it once is not told again.
TEST_F(Begun, AGuessThatFailsAfterItWasBegunIsToldOnce) {
  hold_down(5);
  const std::vector<uint32_t> guess = {5};
  store->predict(0, guess);
  while (store->counters().reads == 0) store->predict(0, {});
  LayerPass pass = demand({5});
  EXPECT_EQ(begun_of(pass), Experts{5});
  drive.let_go(1);
  EXPECT_EQ(begun_of(pass), Experts{});
  EXPECT_EQ(whole_of(pass), Experts{5});
}

TEST(BegunPacked, ASlabThatIsOneReadIsNeverBegun) {
  const Model model({.offset = 4096, .n_experts = {8}, .part_bytes = {{1000, 1000, 1000}}, .packed_stride = 4096});
  ExpertStore store(model.options(4));
  const std::vector<uint32_t> experts = {1, 2, 3}, uses = {1, 1, 1};
  LayerPass pass = store.begin(0, experts, uses);
  uint32_t n_whole = 0;
  for (;;) {
    EXPECT_TRUE(pass.next_begun().empty());
    const auto slabs = pass.next();
    if (slabs.empty()) break;
    n_whole += static_cast<uint32_t>(slabs.size());
    pass.done(slabs);
  }
  EXPECT_EQ(n_whole, 3U);
}

}  // namespace
}  // namespace outrider::residency

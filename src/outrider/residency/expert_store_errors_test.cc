// SPDX-License-Identifier: Apache-2.0
// What a store refuses, what a failed read leads to, and what misuse by the engine meets.
#include <gtest/gtest.h>

#include "outrider/base/error.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/expert_store.h"
#include "outrider/residency/test_store_model.h"

namespace outrider::residency {
namespace {

std::string message_of(ErrorKind kind, auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST(Residency, ReadErrorsNameFileOffsetWantedAndGot) {
  const Model model(kOdd);
  const PartSource& part = model.layers[0].parts[2];  // the last part in its file that expert 3 has
  const std::string& path = model.files[part.file_idx]->path();
  const uint64_t offset = part.offset + 3 * part.n_bytes;
  for (const IoMode io : {IoMode::kUring, IoMode::kThreads}) {
    TestFaults drive({});
    StoreOptions options = model.options(4);
    options.io = io;
    options.direct = DirectMode::kOff;
    options.faults = &drive;
    ExpertStore store(options);
    const auto demand_expert_3 = [&] {
      const uint32_t expert = 3;
      const uint32_t uses = 1;
      LayerPass pass = store.begin(0, {&expert, 1}, {&uses, 1});
      while (true) {
        const auto slabs = pass.next();
        if (slabs.empty()) break;
        pass.done(slabs);
      }
    };
    drive.set({.file = path, .bad_begin = offset, .bad_end = offset + 1});
    EXPECT_EQ(message_of(ErrorKind::kIo, demand_expert_3), path + ": read at offset " + std::to_string(offset) +
                                                               ": wanted 4608 bytes, got 0: Input/output error (EIO)");
    drive.set({.file = path, .ends_at = offset + 5});
    EXPECT_EQ(message_of(ErrorKind::kIo, demand_expert_3),
              path + ": read at offset " + std::to_string(offset) + ": wanted 4608 bytes, got 5: end of file");
    drive.set({});
    EXPECT_EQ(message_of(ErrorKind::kIo, demand_expert_3), "no error");
    EXPECT_EQ(store.counters().evicted, 0U);  // the failed loads gave their slots back
  }
}

// STR-2
TEST(Residency, TooSmallIsRefusedAndTooLargeIsCapped) {
  const Model model(kOdd);
  EXPECT_EQ(message_of(ErrorKind::kBadArgument, [&] { ExpertStore store(model.options(0)); }),
            "expert cache: 0 slots a layer, wanted at least 1");
  ExpertStore huge(model.options(100000));
  EXPECT_EQ(huge.slots_per_layer(), 16U);
  EXPECT_EQ(huge.arena_bytes(), ExpertStore::arena_bytes_for(model.layers, 16, DirectMode::kAuto));
  EXPECT_EQ(ExpertStore::arena_bytes_for(model.layers, 100000, DirectMode::kAuto), huge.arena_bytes());
  uint64_t payload = 0;
  for (uint32_t layer = 0; layer < 3; ++layer) payload += model.slab_bytes(layer) * model.layers[layer].n_experts;
  EXPECT_GE(huge.arena_bytes(), payload);
  EXPECT_LE(ExpertStore::arena_bytes_for(model.layers, 16, DirectMode::kOff), payload + 41 * 3 * 64);
  // Experts that lie on blocks cost no slack.
  const std::array aligned = {LayerSource{
      .n_experts = 8, .n_parts = 1, .parts = {PartSource{.file_idx = 0, .offset = 8192, .n_bytes = 12288}}}};
  EXPECT_EQ(ExpertStore::arena_bytes_for(aligned, 3, DirectMode::kOn), 3 * 12288U);
  // A slot of a pool holds the largest slab: 5000 and 10007 bytes, each part on a line of 64.
  EXPECT_EQ(ExpertStore::arena_bytes_for(model.layers, 4, DirectMode::kOff, SlotPool::kGlobal), 12U * (5056 + 10048));
}

TEST(Residency, BadInputIsToldInOneLine) {
  const Model model(kOdd);
  StoreOptions options = model.options(4);
  options.policy = "clever";
  EXPECT_EQ(message_of(ErrorKind::kBadArgument, [&] { ExpertStore store(options); }),
            "eviction policy 'clever' is unknown; valid: lru, lfu, recent1, protect, class-lru, guarded");
  options = model.options(4);
  options.policy = "lfu";
  options.lfu_half_life_tokens = 0;
  EXPECT_EQ(message_of(ErrorKind::kBadArgument, [&] { ExpertStore store(options); }),
            "half-life of the counts: 0 tokens, wanted at least 1");
  options = model.options(4);
  options.queue_depth = 0;
  EXPECT_EQ(message_of(ErrorKind::kBadArgument, [&] { ExpertStore store(options); }),
            "io: queue depth 0, wanted 1 to 1024");
  options = model.options(4);
  options.layers[2].n_experts = 17;
  const PartSource& last = options.layers[2].parts[1];  // it ends where its file ends
  const uint64_t file_bytes = model.files[last.file_idx]->bytes().size();
  EXPECT_EQ(message_of(ErrorKind::kBadFile, [&] { ExpertStore store(options); }),
            model.files[1]->path() + ": experts of MoE layer 2, part 1: data ends at byte " +
                std::to_string(file_bytes + 4096) + " but the file has " + std::to_string(file_bytes) +
                " (truncated?)");
  options = model.options(4);
  options.files[1] = "/nowhere/part-2.gguf";
  EXPECT_EQ(message_of(ErrorKind::kIo, [&] { ExpertStore store(options); }),
            "/nowhere/part-2.gguf: cannot open: No such file or directory (ENOENT)");
}

TEST(ResidencyDeathTest, MisuseByTheEngineIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Model model(kOdd);
  ExpertStore store(model.options(2));
  const std::vector<uint32_t> twice = {1, 2, 1};
  const std::vector<uint32_t> uses = {1, 1, 1};
  EXPECT_DEATH(static_cast<void>(store.begin(0, twice, uses)), "layer 0 expert 1 is demanded twice");
  const std::vector<uint32_t> three = {1, 2, 3};
  EXPECT_DEATH(
      {
        LayerPass pass = store.begin(0, three, uses);
        while (!pass.next().empty()) {
        }
      },
      "next\\(\\) before done\\(\\): 1 experts of layer 0 wait for slots");
}

}  // namespace
}  // namespace outrider::residency

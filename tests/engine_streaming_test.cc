// SPDX-License-Identifier: Apache-2.0
// The engine on tiny models: where bytes come from (the drive for the embedding, copies of the model) and how often.
#include "outrider/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/io/test_faults.h"
#include "outrider/model/mirror.h"
#include "temp_model.h"

namespace outrider {
namespace {

using engine::EngineOptions;
using test::error_of;
using test::some_ids;
using test::tiny_moe;
using test::tiny_options;
using test::TinyModel;

using TinyFile = test::TempModel;

TEST(Engine, EmbeddingOnTheDriveIsTheSameBitsAndTakesItsPlaceOnly) {
  for (const format::TensorType type : {format::TensorType::kF32, format::TensorType::kQ8_0}) {
    TinyModel tiny = tiny_moe();
    tiny.type = type;
    const TinyFile file(tiny);
    const model::Model model = model::open(file.path());
    const std::vector<int32_t> ids = some_ids(40, 96);
    const std::string want = test::run_digest(model, tiny_options(), ids, 4);
    EngineOptions options = tiny_options();
    options.embedding_on_drive = true;
    for (const uint32_t chunk : {1U, 7U, 64U}) {
      options.chunk = chunk;
      EXPECT_EQ(test::run_digest(model, options, ids, 4), want) << "chunk " << chunk;
    }
    options.chunk = 8;
    EngineOptions resident = options;
    resident.embedding_on_drive = false;
    const auto in_ram = engine::memory_plan(model, resident), on_drive = engine::memory_plan(model, options);
    ASSERT_EQ(on_drive[3].name, "embedding rows");
    EXPECT_EQ(in_ram[0].bytes - on_drive[0].bytes, model.embedding->n_bytes);
    EXPECT_EQ(on_drive[3].bytes, 8 * (model.embedding->row_bytes() + 4));
  }
}

TEST(Engine, EmbeddingThatIsTheHeadStaysResident) {
  TinyModel tiny = tiny_moe();
  tiny.tied = true;
  const TinyFile file(tiny);
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.embedding_on_drive = true;
  EXPECT_FALSE(engine::resolve(model, options).embedding_on_drive);
  EXPECT_EQ(test::run_digest(model, options, some_ids(5, 96), 2),
            test::run_digest(model, tiny_options(), some_ids(5, 96), 2));
}

TEST(Engine, EmbeddingRowThatCannotBeReadFailsThePassOnly) {
  const TinyFile file(tiny_moe());
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.embedding_on_drive = true;
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
  const std::string want = test::run_digest(model, options, ids, 2);
  const uint64_t row = model.embedding->offset + 5 * model.embedding->row_bytes();
  io::TestFaults faults({});
  options.faults = &faults;
  engine::Engine engine(model, options);
  faults.set({.bad_begin = row, .bad_end = row + model.embedding->row_bytes(), .bad_error = ENXIO});
  engine.prefill(0, std::span(ids).first(4));
  EXPECT_EQ(error_of([&] { engine.prefill(0, std::span(ids).subspan(4)); }),
            fmt::format("{}: read at offset {}: wanted {} bytes, got 0: No such device or address (ENXIO)", file.path(),
                        row, model.embedding->row_bytes()));
  EXPECT_EQ(engine.n_tokens(0), 4U);
  faults.set({});
  engine.keep(0, 0);
  EXPECT_EQ(test::run_digest(engine, ids, 2), want);
}

// A mirror that dies in the middle of a run changes no bit, and is told once.
TEST(Engine, MirrorsAliveDyingOrDeadChangeNoBit) {
  const TinyFile file(tiny_moe()), copy(tiny_moe());
  const model::Model model = model::open(file.path());
  const std::vector<std::string> mirror = model::files_of_copy(model, copy.path());
  const std::vector<int32_t> ids = some_ids(24, 96);
  const std::string want = test::run_digest(model, tiny_options(), ids, 8);
  for (const auto io : {residency::IoMode::kUring, residency::IoMode::kThreads}) {
    for (const std::string& dead : {std::string(), file.path(), copy.path()}) {
      EngineOptions options = tiny_options();
      options.io = io;
      options.slots_per_layer = 2;
      options.chunk = 4;
      options.mirrors = {mirror};
      io::TestFaults faults({});
      options.faults = &faults;
      engine::Engine engine(model, options);
      engine.prefill(0, std::span(ids).first(12));
      engine.keep(0, 0);
      if (!dead.empty()) faults.set({.file = dead, .bad_begin = 0, .bad_end = UINT64_MAX, .bad_error = EIO});
      EXPECT_EQ(test::run_digest(engine, ids, 8), want) << dead;
      const std::vector<io::CopyReads> reads = engine.copy_reads();
      ASSERT_EQ(reads.size(), 2U);
      // Which copy serves what is a matter of time (io/copies_test.cc has it on counters); a copy that is asked no more
      // after its death is not found dead.
      EXPECT_GT(reads[0].n_bytes + reads[1].n_bytes, 0U);
      EXPECT_LE(engine.warnings().size(), dead.empty() ? 0U : 1U);
      for (const std::string& warning : engine.warnings()) {
        EXPECT_EQ(warning, dead + ": cannot be read any more (EIO): the other copies serve instead");
      }
    }
  }
}

TEST(Engine, WhatIsNoCopyIsRefusedInOneLine) {
  TinyModel other = tiny_moe();
  other.seed = 2;
  TinyModel larger = tiny_moe();
  larger.expert_ff = 64;
  const TinyFile file(tiny_moe()), other_file(other), larger_file(larger);
  const model::Model model = model::open(file.path());
  const auto refusal = [&](const std::string& path) { return error_of([&] { model::files_of_copy(model, path); }); };
  const std::string head = ": is not a copy of " + file.path() + ": ";
  EXPECT_EQ(refusal(other_file.path()),
            "--mirror " + other_file.path() + head + "the same size, but other bytes (fingerprint)");
  EXPECT_EQ(
      refusal(larger_file.path()).rfind("--mirror " + larger_file.path() + head + larger_file.path() + " has ", 0), 0U);
  EXPECT_NE(refusal("/nowhere/model.gguf").find("/nowhere/model.gguf"), std::string::npos);
}

// A prefill that demands more experts than there are slots, and more pairs than a wave holds.
TEST(Engine, EachExpertIsReadOnceAChunkHoweverFewTheSlots) {
  TinyModel tiny = tiny_moe();
  tiny.n_experts = 16;
  tiny.n_used = 4;
  tiny.context = 1024;
  const TinyFile file(tiny);
  const model::Model model = model::open(file.path());
  EngineOptions options = tiny_options();
  options.context = 700;
  options.chunk = 600;  // 2,400 pairs
  const std::vector<int32_t> ids = some_ids(600, 96);
  const std::string want = test::run_digest(model, options, ids, 1);
  for (const uint32_t slots : {4U, 5U, 9U}) {
    options.slots_per_layer = slots;
    engine::Engine engine(model, options);
    engine.prefill(0, ids);
    const residency::StoreCounters counters = engine.counters().experts;
    EXPECT_EQ(counters.misses, 2U * 16) << slots;
    EXPECT_EQ(counters.bytes_read, model.expert_bytes()) << slots;
    EXPECT_EQ(test::run_digest(model, options, ids, 1), want) << slots;
  }
}

// STR-2: the default works for any top-k; too small is refused with the minimum; too large is capped.

}  // namespace
}  // namespace outrider

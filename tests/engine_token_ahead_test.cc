// SPDX-License-Identifier: Apache-2.0
// The guess of the next token never reaches a bit: whether it is right, wrong or absurd, whatever comes in between.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "engine_run.h"
#include "outrider/io/test_faults.h"
#include "outrider/observe/trace_file.h"
#include "temp_model.h"
#include "tiny_model.h"

namespace outrider {
namespace {

using engine::Candidate;
using engine::EngineOptions;

constexpr uint32_t kGreedy = 24;

int32_t best_of(std::span<const Candidate> likeliest) {
  const auto best = std::max_element(likeliest.begin(), likeliest.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
  });
  return best->id;
}

// What is named: the right token, never the right one, one after the other, none, or no token at all.
enum class Naming { kRight, kWrong, kMixed, kNone, kAbsurd };
constexpr std::array kNamings = {Naming::kRight, Naming::kWrong, Naming::kMixed, Naming::kNone, Naming::kAbsurd};

class Chooser final : public engine::NextTokenChooser {
 public:
  explicit Chooser(Naming naming) : naming_(naming) {}
  void shape(std::span<float> /*scores*/) const noexcept override {}
  int32_t choose(std::span<const Candidate> likeliest) noexcept override {
    told.assign(likeliest.begin(), likeliest.end());
    const int32_t best = best_of(likeliest);
    switch (naming_) {
      case Naming::kRight:
        return best;
      case Naming::kWrong:
        return best == 0 ? 1 : best - 1;
      case Naming::kMixed:
        return n_asked_++ % 2 == 0 ? best : 0;
      case Naming::kNone:
        return -1;
      case Naming::kAbsurd:
        return INT32_MAX;
    }
    return -1;
  }

  std::vector<Candidate> told;  // when last asked

 private:
  const Naming naming_;
  uint32_t n_asked_ = 0;
};

// Greedy text after a prompt; what fails for the drive's sake is run again.
std::string digest_of(engine::Engine& engine, std::span<const int32_t> prompt, engine::NextTokenChooser* next,
                      uint32_t sequence = 0) {
  observe::Digest digest;
  const auto again = [&](auto&& run) {
    for (int i = 0;; ++i) {
      try {
        const std::span<const float> logits = run();
        digest.add(logits);
        return test::best_token(logits);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kIo || i == 200) throw;
      }
    }
  };
  int32_t token = again([&] { return engine.prefill(sequence, prompt); });
  for (uint32_t i = 0; i < kGreedy; ++i) {
    token = again([&] {
      const engine::PassRow row = {sequence, engine.n_tokens(sequence), token, true};
      return engine.pass({&row, 1}, next);
    });
  }
  return digest.hex();
}

std::string digest_of(const model::Model& model, const EngineOptions& options, std::span<const int32_t> prompt,
                      Naming naming) {
  engine::Engine engine(model, options);
  Chooser chooser(naming);
  return digest_of(engine, prompt, &chooser);
}

EngineOptions ahead_options(uint32_t slots) {
  EngineOptions options = test::tiny_options();
  options.slots_per_layer = slots;
  options.lookahead = engine::kLookAheadAuto;
  options.token_ahead = engine::TokenAheadMode::kAlways;
  return options;
}

test::TinyModel routed_model() {
  test::TinyModel tiny;
  tiny.n_layers = 3;
  tiny.n_experts = 16;
  tiny.n_used = 3;
  tiny.qk_norm = true;
  return tiny;
}

const model::Model& routed() {
  static const test::TempModel file(routed_model());
  static const model::Model model = model::open(file.path());
  return model;
}

std::string resident_digest(const model::Model& model, std::span<const int32_t> prompt) {
  engine::Engine engine(model, test::tiny_options());
  return digest_of(engine, prompt, nullptr);
}

TEST(TokenAhead, DigestIsTheSameWhateverIsNamed) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  const std::string want = resident_digest(routed(), prompt);
  for (const uint32_t slots : {3U, 4U, 8U, 16U}) {
    for (const uint32_t lookahead : {2U, engine::kLookAheadAuto}) {
      for (const Naming naming : kNamings) {
        EngineOptions options = ahead_options(slots);
        options.lookahead = lookahead;
        options.lookahead_distance = lookahead == 2 ? 2 : 1;
        options.n_threads = slots == 4 ? 2 : 1;
        EXPECT_EQ(digest_of(routed(), options, prompt, naming), want)
            << slots << " slots, width " << lookahead << ", naming " << static_cast<int>(naming);
      }
    }
  }
}

TEST(TokenAhead, DigestIsTheSameOnADriveThatFailsOrReorders) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  const std::string want = resident_digest(routed(), prompt);
  for (const io::Faults& faults : {io::Faults{.n_eio = 5}, io::Faults{.shorten = true, .reorder = true}}) {
    for (const Naming naming : {Naming::kRight, Naming::kMixed}) {
      io::TestFaults plan(faults, 7);
      EngineOptions options = ahead_options(4);
      options.embedding_on_drive = true;  // whose reads fail, too
      options.faults = &plan;
      EXPECT_EQ(digest_of(routed(), options, prompt, naming), want) << static_cast<int>(naming);
    }
  }
}

// Leading dense layers are run for the guess as well; shared experts and selection biases go through the same.
TEST(TokenAhead, DigestIsTheSameForEveryArchitecture) {
  for (const test::TinyCase& test_case : test::golden_cases()) {
    if (test_case.model.n_experts == 0) continue;
    const test::TempModel file(test_case.model);
    const model::Model model = model::open(file.path());
    const std::vector<int32_t> prompt = test::golden_ids(test_case.model);
    const std::string want = resident_digest(model, prompt);
    for (const Naming naming : {Naming::kRight, Naming::kMixed}) {
      EXPECT_EQ(digest_of(model, ahead_options(engine::minimum_slots(model)), prompt, naming), want)
          << test_case.name << ", naming " << static_cast<int>(naming);
    }
  }
}

// Two thirds of the tiny vocabulary are candidates, so that the best of them is the token that comes.
TEST(TokenAhead, RightGuessesAreCountedAndReadFor) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  engine::Engine engine(routed(), ahead_options(4));
  Chooser right(Naming::kRight), wrong(Naming::kWrong);
  digest_of(engine, prompt, &right);
  const engine::NextTokenScore score = engine.next_token_score();
  EXPECT_EQ(score.guessed, kGreedy - 1);  // the last one has no next pass
  EXPECT_EQ(score.right, score.guessed);
  EXPECT_GT(engine.counters().experts.predicted_used, 0U);

  engine::Engine misled(routed(), ahead_options(4));
  digest_of(misled, prompt, &wrong);
  EXPECT_EQ(misled.next_token_score().guessed, kGreedy - 1);
  EXPECT_EQ(misled.next_token_score().right, 0U);
}

TEST(TokenAhead, CandidatesHaveTheLogitsOfTheHead) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  engine::Engine engine(routed(), ahead_options(4));
  Chooser chooser(Naming::kRight);
  engine.prefill(0, prompt);
  for (uint32_t i = 0; i < 4; ++i) {
    const engine::PassRow row = {0, engine.n_tokens(0), static_cast<int32_t>(i), true};
    const std::span<const float> logits = engine.pass({&row, 1}, &chooser);
    ASSERT_EQ(chooser.told.size(), 64U);  // of 96
    for (const Candidate& c : chooser.told) EXPECT_EQ(c.logit, logits[static_cast<size_t>(c.id)]) << c.id;
  }
}

// Every read takes longer than what a tiny layer computes.
class SlowDrive final : public io::FaultPlan {
 public:
  bool may_block() const noexcept override { return true; }
  io::ReadFault on_read(const io::ReadOp& /*op*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  }
};

// The last layer's wait is used to look for the token, by a state that lacks what is waited for.
TEST(TokenAhead, SearchesWhileTheLastLayerWaits) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  const std::string want = resident_digest(routed(), prompt);
  SlowDrive slow;
  EngineOptions options = ahead_options(3);
  options.faults = &slow;
  engine::Engine engine(routed(), options);
  Chooser right(Naming::kRight);
  EXPECT_EQ(digest_of(engine, prompt, &right), want);
  const engine::NextTokenScore score = engine.next_token_score();
  EXPECT_GT(score.searched_early, 0U);
  EXPECT_LE(score.searched_early, kGreedy);
  EXPECT_GT(score.right, kGreedy / 2);
  for (int32_t i = 0; i < 8; ++i) {
    const engine::PassRow row = {0, engine.n_tokens(0), 5 + i, true};
    const std::span<const float> logits = engine.pass({&row, 1}, &right);
    for (const Candidate& c : right.told) EXPECT_EQ(c.logit, logits[static_cast<size_t>(c.id)]) << c.id;
  }
  EXPECT_GT(engine.next_token_score().searched_early, score.searched_early);
}

// Whatever comes instead of the guessed pass: a cut sequence, several rows, another sequence, a refused pass.
TEST(TokenAhead, WhatComesInBetweenIsSafe) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  const std::string want = resident_digest(routed(), prompt);
  EngineOptions options = ahead_options(4);
  options.n_sequences = 2;
  engine::Engine engine(routed(), options);
  Chooser right(Naming::kRight);
  EXPECT_EQ(digest_of(engine, prompt, &right), want);
  EXPECT_EQ(digest_of(engine, prompt, &right, 1), want);
  engine.keep(0, 0);
  EXPECT_EQ(digest_of(engine, prompt, &right), want);
  const auto guess = [&] {  // leaves a guess for sequence 0 open
    engine.keep(0, 5);
    const engine::PassRow row = {0, 5, 3, true};
    engine.pass({&row, 1}, &right);
  };
  observe::Digest alone, between;
  guess();
  const engine::PassRow next = {0, 6, best_of(right.told), true};
  alone.add(engine.pass({&next, 1}));
  guess();
  const engine::PassRow unknown = {0, 6, 1 << 20, true};
  EXPECT_THROW(engine.pass({&unknown, 1}), Error);
  const std::array<engine::PassRow, 2> refused = {{{1, engine.n_tokens(1), 1, false}, {1, 0, 1, false}}};
  EXPECT_THROW(engine.pass(refused), Error);
  between.add(engine.pass({&next, 1}));
  EXPECT_EQ(alone.hex(), between.hex());
  guess();
  engine.keep(0, 6);
  engine.prefill(1, {prompt.data(), 3});
  observe::Digest after_other;
  after_other.add(engine.pass({&next, 1}));
  EXPECT_EQ(alone.hex(), after_other.hex());
  // The same token and place with another history.
  guess();
  engine.keep(0, 4);
  const std::array<engine::PassRow, 2> other = {{{0, 4, 7, false}, {0, 5, 8, false}}};
  engine.pass(other);
  observe::Digest got, expected;
  got.add(engine.pass({&next, 1}));
  engine::Engine fresh(routed(), test::tiny_options());
  fresh.prefill(0, {prompt.data(), 4});
  fresh.pass(other);
  expected.add(fresh.pass({&next, 1}));
  EXPECT_EQ(got.hex(), expected.hex());
}

TEST(TokenAhead, TheLastPositionOfTheContextIsNotGuessedBeyond) {
  EngineOptions options = ahead_options(4);
  options.context = 12;
  engine::Engine engine(routed(), options);
  engine.prefill(0, test::some_ids(11, routed().spec.n_vocab));
  Chooser chooser(Naming::kRight);
  const engine::PassRow row = {0, 11, 1, true};
  engine.pass({&row, 1}, &chooser);
  EXPECT_TRUE(chooser.told.empty());
}

// Names nothing but has the pass cancelled: the guess of a cancelled pass is no guess.
class Canceller final : public engine::NextTokenChooser {
 public:
  explicit Canceller(std::atomic<bool>& cancel) : cancel_(cancel) {}
  void shape(std::span<float> /*scores*/) const noexcept override {}
  int32_t choose(std::span<const Candidate> likeliest) noexcept override {
    cancel_ = true;
    return best_of(likeliest);
  }

 private:
  std::atomic<bool>& cancel_;
};

TEST(TokenAhead, ACancelledGuessLeavesTheLogitsAndTheSequence) {
  const std::vector<int32_t> prompt = test::some_ids(9, routed().spec.n_vocab);
  std::atomic<bool> cancel = false;
  EngineOptions options = ahead_options(4);
  options.cancel = &cancel;
  engine::Engine engine(routed(), options), plain(routed(), test::tiny_options());
  Canceller canceller(cancel);
  engine.prefill(0, prompt);
  plain.prefill(0, prompt);
  const engine::PassRow row = {0, 9, 1, true};
  observe::Digest got, want;
  got.add(engine.pass({&row, 1}, &canceller));
  want.add(plain.pass({&row, 1}));
  EXPECT_EQ(got.hex(), want.hex());
  const engine::PassRow next = {0, 10, 2, true};
  EXPECT_THROW(engine.pass({&next, 1}), Error);
  EXPECT_EQ(engine.n_tokens(0), 10U);
  cancel = false;
  got.add(engine.pass({&next, 1}));
  want.add(plain.pass({&next, 1}));
  EXPECT_EQ(got.hex(), want.hex());
}

// A trace holds what was demanded for guesses that did not come as passes that failed, and can be read.
TEST(TokenAhead, ATraceOfGuessesCanBeRead) {
  const std::string path = ::testing::TempDir() + "outrider_guess_trace_" + std::to_string(::getpid());
  for (const Naming naming : {Naming::kRight, Naming::kMixed}) {
    engine::Engine engine(routed(), ahead_options(4));
    observe::TraceHeader header;
    header.n_used = routed().spec.router.n_used;
    header.layers.assign(routed().n_moe_layers(), {.n_experts = routed().spec.router.n_experts});
    observe::TraceRecorder recorder(path, header, engine.options().chunk);
    engine.add_pass_observer(recorder);
    Chooser chooser(naming);
    digest_of(engine, test::some_ids(9, routed().spec.n_vocab), &chooser);
    recorder.finish();
    const observe::Trace trace = observe::read_trace(path);
    uint64_t n_tokens = 0, n_demanded = 0;
    for (size_t step = 0; step < trace.n_steps(); ++step) n_tokens += trace.step_tokens(step);
    for (size_t i = 0; i < trace.n_demands(); ++i) {
      std::set<uint32_t> distinct(trace.demand(i).row_ids.begin(), trace.demand(i).row_ids.end());
      n_demanded += distinct.size();
    }
    EXPECT_EQ(n_tokens, 9U + kGreedy);
    EXPECT_EQ(n_demanded, engine.counters().experts.demanded);
    if (naming == Naming::kRight) {
      EXPECT_EQ(trace.n_steps(), 2U + kGreedy);  // the last guess has no pass
    } else {
      EXPECT_GT(trace.n_steps(), 2U + kGreedy);
    }
  }
  ::unlink(path.c_str());
}

// Who begins to observe while a guess is open sees a whole pass.
TEST(TokenAhead, AnObserverSeesWholePasses) {
  struct Watcher final : engine::PassObserver {
    void begin_pass(std::span<const engine::PassRow> /*rows*/) noexcept override { ++n_begun; }
    void demand(const engine::LayerDemand& /*demand*/) noexcept override { ++n_demands; }
    uint32_t n_begun = 0, n_demands = 0;
  } watcher;
  engine::Engine engine(routed(), ahead_options(4));
  engine.prefill(0, test::some_ids(9, routed().spec.n_vocab));
  Chooser right(Naming::kRight);
  const engine::PassRow row = {0, 9, 1, true};
  engine.pass({&row, 1}, &right);
  engine.add_pass_observer(watcher);
  const engine::PassRow next = {0, 10, best_of(right.told), true};
  engine.pass({&next, 1});
  EXPECT_EQ(watcher.n_begun, 1U);
  EXPECT_EQ(watcher.n_demands, routed().n_moe_layers());
}

// Resident experts need no guess, and neither does who did not ask for look-ahead.
TEST(TokenAhead, OffWhereNothingStreams) {
  const auto look_ahead_bytes = [](const EngineOptions& options) {
    for (const engine::PlanLine& line : engine::memory_plan(routed(), options)) {
      if (line.name == "look-ahead") return line.bytes;
    }
    return uint64_t{0};
  };
  EngineOptions options = ahead_options(4);
  const uint64_t with = look_ahead_bytes(options);
  options.token_ahead = engine::TokenAheadMode::kOff;
  const uint64_t without = look_ahead_bytes(options);
  EXPECT_GT(with, without);
  EXPECT_EQ(look_ahead_bytes(ahead_options(16)), without);
  options = ahead_options(4);
  options.lookahead = 0;
  EXPECT_EQ(look_ahead_bytes(options), 0U);
}

}  // namespace
}  // namespace outrider

// SPDX-License-Identifier: Apache-2.0
// The token loop does not allocate (style rule 6): every operator new of the program is counted here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "outrider/base/cpu.h"
#include "outrider/engine/engine.h"
#include "outrider/engine/sampler.h"
#include "outrider/observe/ledger.h"
#include "outrider/observe/trace_file.h"

namespace {
std::atomic<uint64_t> n_allocations{0};

void* counted(std::size_t n_bytes) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(n_bytes > 0 ? n_bytes : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t n_bytes) { return counted(n_bytes); }
void* operator new[](std::size_t n_bytes) { return counted(n_bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace outrider {
namespace {

TEST(EngineAllocations, NoneInTheTokenLoop) {
  const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  for (const uint32_t lookahead : {0U, 4U, engine::kLookAheadAuto}) {
    const auto io = lookahead == 4 ? residency::IoMode::kThreads : residency::IoMode::kUring;
    engine::EngineOptions options;
    options.lookahead = lookahead;
    options.token_ahead = engine::TokenAheadMode::kAlways;
    options.context = 256;
    options.isa = best_isa();
    options.n_threads = 2;
    options.slots_per_layer = 8;  // misses at every step
    options.io = io;
    engine::Engine engine(model, options);
    observe::TraceHeader header;
    header.n_used = model.spec.router.n_used;
    header.layers.assign(model.n_moe_layers(), {.n_experts = model.spec.router.n_experts});
    observe::TraceRecorder trace("/dev/null", header, options.chunk);
    observe::StepLedger ledger("/dev/null", engine, true);
    engine.add_pass_observer(trace);
    engine.add_pass_observer(ledger);
    std::vector<int32_t> ids(64);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 251 % model.spec.n_vocab);
    engine::Sampler sampler({}, model.spec.n_vocab);
    const uint64_t before = n_allocations.load();
    ASSERT_GT(before, 0U);  // the counter counts
    engine.prefill(0, ids);
    for (int32_t token = 0; token < 12; ++token) engine.prefill(0, {&token, 1});
    for (int32_t token = 0; token < 12; ++token) {  // guessed by a sampler, right or wrong
      const engine::PassRow row = {0, engine.n_tokens(0), token, true};
      sampler.sample(engine.pass({&row, 1}, &sampler));
    }
    EXPECT_EQ(n_allocations.load() - before, 0U) << "look-ahead " << lookahead;
    EXPECT_GT(engine.counters().experts.misses, 0U);
  }
}

}  // namespace
}  // namespace outrider

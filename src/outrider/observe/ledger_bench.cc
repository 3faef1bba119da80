// SPDX-License-Identifier: Apache-2.0
// What the step ledger costs a token, whole: everything that a pass calls, with the line formatted and written (to
// /dev/null), on the demo model; and, beside it, the decode of a token without it. Build with -DOUTRIDER_BENCHES=ON, run
// outrider_observe_bench.
#include <benchmark/benchmark.h>

#include <chrono>

#include "outrider/base/cpu.h"
#include "outrider/engine/phase_clock.h"
#include "outrider/observe/ledger.h"

namespace outrider::observe {
namespace {

engine::Engine& demo() {
  static const model::Model model = model::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  static engine::Engine engine = [] {
    engine::EngineOptions options;
    options.context = 128;
    options.isa = best_isa();
    return engine::Engine(model, options);
  }();
  return engine;
}

void token(benchmark::State& state) {
  engine::Engine& engine = demo();
  const int32_t id = 7;
  for (auto _ : state) {
    if (engine.n_tokens(0) == 100) engine.keep(0, 0);
    benchmark::DoNotOptimize(engine.prefill(0, {&id, 1}).data());
  }
}
BENCHMARK(token)->UseRealTime();

// Only the ledger's part of a token is timed; the token runs between, so that the lines have real numbers and the caches
// are as a token leaves them.
void line(benchmark::State& state, bool with_layers) {
  engine::Engine& engine = demo();
  StepLedger ledger("/dev/null", engine, with_layers);
  const int32_t id = 7;
  const engine::PassRow row = {.sequence = 0, .position = 0, .token = id, .wants_logits = true};
  using Clock = std::chrono::steady_clock;
  for (auto _ : state) {
    const auto begin = Clock::now();
    ledger.begin_pass({&row, 1});
    for (uint32_t layer = 0; layer < engine.model().n_moe_layers(); ++layer) ledger.end_layer(layer);
    ledger.end_pass();
    ledger.begin_sampling();
    ledger.end_sampling();
    const auto end = Clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
    if (engine.n_tokens(0) == 100) engine.keep(0, 0);
    benchmark::DoNotOptimize(engine.prefill(0, {&id, 1}).data());
  }
}
BENCHMARK_CAPTURE(line, plain, false)->UseManualTime()->Iterations(300);
BENCHMARK_CAPTURE(line, with_layers, true)->UseManualTime()->Iterations(300);

// Kept with or without a ledger: the clock reads between the phases of a layer.
void mark(benchmark::State& state) {
  engine::PhaseClock clock;
  clock.start();
  for (auto _ : state) clock.mark(&engine::PhaseTimes::experts);
}
BENCHMARK(mark);

}  // namespace
}  // namespace outrider::observe

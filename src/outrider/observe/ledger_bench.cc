// SPDX-License-Identifier: Apache-2.0
// What the step ledger costs a token, whole: everything that a pass calls, with the line formatted and written (to
// /dev/null), beside the decode of the token, on the demo model with all experts resident. Build with
// -DOUTRIDER_BENCHES=ON, run outrider_observe_bench.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

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

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Each token is timed, and the ledger's part of it beside it: counters line_us and token_us are medians, which a
// machine that is shared hardly moves, and share is their ratio. The ledger is no observer of the engine here: the
// token between two lines gives them real numbers, and leaves the caches as a token does.
void line(benchmark::State& state, bool with_layers) {
  engine::Engine& engine = demo();
  StepLedger ledger("/dev/null", engine, with_layers);
  const int32_t id = 7;
  const engine::PassRow row = {.sequence = 0, .position = 0, .token = id, .wants_logits = true};
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  std::vector<double> lines, tokens;
  for (auto _ : state) {
    const auto begin = Clock::now();
    ledger.begin_pass({&row, 1});
    for (uint32_t layer = 0; layer < engine.model().n_moe_layers(); ++layer) ledger.end_layer(layer);
    ledger.end_pass();
    ledger.begin_sampling();
    ledger.end_sampling();
    const auto middle = Clock::now();
    if (engine.n_tokens(0) == 100) engine.keep(0, 0);
    benchmark::DoNotOptimize(engine.prefill(0, {&id, 1}).data());
    lines.push_back(us(middle - begin));
    tokens.push_back(us(Clock::now() - middle));
  }
  state.counters["line_us"] = median(lines);
  state.counters["token_us"] = median(tokens);
  state.counters["share"] = median(lines) / median(tokens);
}
BENCHMARK_CAPTURE(line, plain, false)->Iterations(500);
BENCHMARK_CAPTURE(line, with_layers, true)->Iterations(500);

// Kept with or without a ledger: the clock reads between the phases of a layer.
void mark(benchmark::State& state) {
  engine::PhaseClock clock;
  clock.start();
  for (auto _ : state) clock.mark(&engine::PhaseTimes::experts);
}
BENCHMARK(mark);

}  // namespace
}  // namespace outrider::observe

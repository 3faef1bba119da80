// SPDX-License-Identifier: Apache-2.0
// Decode speed by look-ahead width on a drive that is made slow: every read sleeps for a while before the kernel is
// asked, one after the other (the ring's thread does the sleeping), so that the drive is the bottleneck whatever else
// the machine does. Prints one line per width; docs/lookahead.md holds what it measured.
// Usage: outrider_slow_drive MODEL SLOTS DELAY_US TOKENS REPEATS ISA
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine_run.h"
#include "outrider/base/isa.h"
#include "outrider/base/cpu.h"
#include "outrider/io/fault.h"

namespace {

using outrider::engine::Engine;
using outrider::engine::EngineOptions;
using outrider::engine::kLookAheadAuto;

class SlowDrive final : public outrider::io::FaultPlan {
 public:
  explicit SlowDrive(std::chrono::microseconds delay) : delay_(delay) {}
  outrider::io::ReadFault on_read(const outrider::io::ReadOp& /*op*/) override {
    if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
    return {};
  }

 private:
  std::chrono::microseconds delay_;
};

struct Result {
  double tokens_per_s = 0, stall_s = 0, other_s = 0, in_time = 0, wasted = 0;
  uint32_t width = 0;
  std::string report;
};

Result measure(const outrider::model::Model& model, uint32_t width, uint32_t slots, std::chrono::microseconds delay, uint32_t n_tokens,
               outrider::Isa isa) {
  SlowDrive drive(delay);
  EngineOptions options;
  options.context = 1024;
  options.isa = isa;
  options.slots_per_layer = slots;
  options.evict = "guarded";
  options.lookahead = width;
  options.faults = &drive;
  Engine engine(model, options);
  // A prompt token by token, so that the cache and the predictors have seen something; then what is timed.
  int32_t token = 1;
  for (uint32_t i = 0; i < 24; ++i) token = outrider::test::best_token(engine.prefill(0, {&token, 1}));
  const auto before = engine.counters().experts;
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < n_tokens; ++i) token = outrider::test::best_token(engine.prefill(0, {&token, 1}));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto after = engine.counters().experts;
  Result result;
  result.tokens_per_s = n_tokens / seconds;
  result.stall_s = static_cast<double>(after.stall_ns - before.stall_ns) / 1e9;
  result.other_s = seconds - result.stall_s;
  const auto used = static_cast<double>(after.predicted_used - before.predicted_used);
  result.in_time = used > 0 ? static_cast<double>(after.predicted_in_time - before.predicted_in_time) / used : 0;
  result.wasted = static_cast<double>(after.bytes_predicted_wasted - before.bytes_predicted_wasted) / static_cast<double>(after.bytes_read - before.bytes_read);
  result.width = engine.lookahead_width();
  result.report = engine.lookahead_report();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: outrider_slow_drive MODEL SLOTS DELAY_US TOKENS REPEATS ISA\n");
    return 2;
  }
  const outrider::model::Model model = outrider::model::open(argv[1]);
  const auto slots = static_cast<uint32_t>(std::atoi(argv[2]));
  const std::chrono::microseconds delay(std::atoi(argv[3]));
  const auto n_tokens = static_cast<uint32_t>(std::atoi(argv[4]));
  // A slower instruction set stands for a model with more arithmetic between its reads.
  const outrider::Isa isa = outrider::parse_isa(argv[6]).value_or(outrider::best_isa());
  const int n_repeats = std::atoi(argv[5]);
  const std::vector<uint32_t> widths = {0, 1, 2, 4, 8, kLookAheadAuto};
  std::vector<std::vector<Result>> results(widths.size());
  // Interleaved: what else runs on the machine falls on all of them alike.
  for (int i = 0; i < n_repeats; ++i) {
    for (size_t w = 0; w < widths.size(); ++w) results[w].push_back(measure(model, widths[w], slots, delay, n_tokens, isa));
  }
  const auto median = [&](size_t w, auto field) {
    std::vector<double> values;
    for (const Result& result : results[w]) values.push_back(field(result));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  const double stall_off = median(0, [](const Result& r) { return r.stall_s; });
  const double other_off = median(0, [](const Result& r) { return r.other_s; });
  std::printf("width  tokens/s  against off  stall ms/token  in time  wasted  hidden of hideable\n");
  for (size_t w = 0; w < widths.size(); ++w) {
    std::vector<double> ratios;
    for (size_t i = 0; i < results[w].size(); ++i) ratios.push_back(results[w][i].tokens_per_s / results[0][i].tokens_per_s);
    std::sort(ratios.begin(), ratios.end());
    const double stall = median(w, [](const Result& r) { return r.stall_s; });
    std::printf("%5s  %8.2f  %11.3f  %14.2f  %7.2f  %6.2f  %18.2f\n",
                widths[w] == kLookAheadAuto ? "auto" : std::to_string(widths[w]).c_str(),
                median(w, [](const Result& r) { return r.tokens_per_s; }), ratios[ratios.size() / 2], stall * 1e3 / n_tokens,
                median(w, [](const Result& r) { return r.in_time; }), median(w, [](const Result& r) { return r.wasted; }),
                (stall_off - stall) / std::min(stall_off, other_off));
  }
  std::printf("%s\n", results.back().back().report.c_str());
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Speed with one copy of a model against two, on drives that are made slow: a copy serves one read at a time, at a rate
// of its own, whatever the machine's only real drive does. Prints a line for each copy alone and for both, interleaved.
// Usage: outrider_slow_copies MODEL COPY SLOTS MB_PER_S MB_PER_S_OF_COPY PREFILL DECODE REPEATS [uring|threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/io/fault.h"
#include "outrider/model/mirror.h"

namespace {

using outrider::engine::Engine;
using outrider::engine::EngineOptions;
using Clock = std::chrono::steady_clock;

class SlowCopies final : public outrider::io::FaultPlan {
 public:
  SlowCopies(std::string path, double mb_per_s, double others_mb_per_s)
      : path_(std::move(path)), mb_per_s_{mb_per_s, others_mb_per_s} {}
  bool may_block() const noexcept override { return true; }
  outrider::io::ReadFault on_read(const outrider::io::ReadOp& op) override {
    const int drive = op.path == path_ ? 0 : 1;
    const std::lock_guard lock(mutex_[drive]);
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::micro>(static_cast<double>(op.n_bytes) / mb_per_s_[drive]));
    return {};
  }

 private:
  const std::string path_;
  const double mb_per_s_[2];
  std::mutex mutex_[2];
};

struct Result {
  double prefill_tps = 0, decode_tps = 0;
  double mirror_share = 0;  // of the bytes
};

Result measure(const outrider::model::Model& model, const EngineOptions& options, const std::vector<int32_t>& prompt,
               uint32_t n_decode) {
  Engine engine(model, options);
  engine.prefill(0, std::span(prompt).first(8));
  engine.keep(0, 0);
  const auto begin = Clock::now();
  int32_t token = outrider::test::best_token(engine.prefill(0, prompt));
  const auto middle = Clock::now();
  for (uint32_t i = 0; i < n_decode; ++i) token = outrider::test::best_token(engine.prefill(0, {&token, 1}));
  const auto end = Clock::now();
  const auto reads = engine.copy_reads();
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  return {.prefill_tps = static_cast<double>(prompt.size()) / seconds(begin, middle),
          .decode_tps = n_decode / seconds(middle, end),
          .mirror_share = reads.size() == 2 ? static_cast<double>(reads[1].n_bytes) /
                                                  static_cast<double>(reads[0].n_bytes + reads[1].n_bytes)
                                            : 0};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9) {
    std::fprintf(stderr,
                 "usage: outrider_slow_copies MODEL COPY SLOTS MB_PER_S MB_PER_S_OF_COPY PREFILL DECODE REPEATS "
                 "[uring|threads]\n");
    return 2;
  }
  const outrider::model::Model model = outrider::model::open(argv[1]), copy = outrider::model::open(argv[2]);
  SlowCopies drives(model.file.files[0].path, std::atof(argv[4]), std::atof(argv[5]));
  EngineOptions options;
  options.context = 1024;
  options.isa = outrider::best_isa();
  options.n_threads = outrider::core_budget().default_threads;
  options.slots_per_layer = static_cast<uint32_t>(std::atoi(argv[3]));
  options.lookahead = outrider::engine::kLookAheadAuto;
  options.io = argc > 9 && std::string(argv[9]) == "threads" ? outrider::residency::IoMode::kThreads
                                                             : outrider::residency::IoMode::kUring;
  options.faults = &drives;
  EngineOptions both = options;
  both.mirrors = {outrider::model::files_of_copy(model, argv[2])};
  std::vector<int32_t> prompt(static_cast<size_t>(std::atoi(argv[6])));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7919 % model.spec.n_vocab);
  const auto n_decode = static_cast<uint32_t>(std::atoi(argv[7]));
  std::vector<Result> results[3];
  for (int i = 0; i < std::atoi(argv[8]); ++i) {
    results[0].push_back(measure(model, options, prompt, n_decode));
    results[1].push_back(measure(copy, options, prompt, n_decode));
    results[2].push_back(measure(model, both, prompt, n_decode));
  }
  const auto median = [](const std::vector<Result>& rows, double Result::*field) {
    std::vector<double> values;
    for (const Result& row : rows) values.push_back(row.*field);
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  std::printf("drives         prefill t/s  decode t/s  bytes from the copy\n");
  const char* names[3] = {"model's alone", "copy's alone", "both"};
  for (int i = 0; i < 3; ++i) {
    std::printf("%-13s  %11.2f  %10.2f  %18.1f%%\n", names[i], median(results[i], &Result::prefill_tps),
                median(results[i], &Result::decode_tps), 100 * median(results[i], &Result::mirror_share));
  }
  return 0;
}

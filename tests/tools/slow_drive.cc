// SPDX-License-Identifier: Apache-2.0
// Decode speed by look-ahead width on a drive, and layers, that are made slow. All widths run the same text side by
// side in blocks of a few tokens, so that what else runs on the machine falls on all of them alike; ratios are medians
// over blocks against `off`. docs/lookahead.md says what was measured with it.
//
// Drives: --read-us N: every piece of a read sleeps that long first. One after the other with --io uring (the ring's
// thread does the sleeping), up to 16 beside each other with --io threads. --layer-us N: each layer sleeps that long
// after its experts, which stands for a model with more arithmetic between its reads, free of this machine's noise.
// --seconds FILE appends each side's name and the seconds of its timed blocks, for lookahead_pairs.py.
// --guess right|wrong: in place of the predictors, what `off` has just chosen, or always something else.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/isa.h"
#include "outrider/io/fault.h"
#include "outrider/text/tokenizer.h"

namespace {

using outrider::engine::Engine;
using outrider::engine::EngineOptions;
using outrider::engine::kLookAheadAuto;
using Clock = std::chrono::steady_clock;

// Both are at full speed for most of the warm-up, so that predictors see a long text in little time.
std::atomic<bool> g_is_slow{false};

class SlowDrive final : public outrider::io::FaultPlan {
 public:
  explicit SlowDrive(std::chrono::microseconds delay) : delay_(delay) {}
  bool may_block() const noexcept override { return true; }
  outrider::io::ReadFault on_read(const outrider::io::ReadOp& /*op*/) override {
    if (g_is_slow.load()) std::this_thread::sleep_for(delay_);
    return {};
  }

 private:
  std::chrono::microseconds delay_;
};

// What `off` chose, by pass and layer of the run so far.
using Choices = std::vector<std::vector<std::vector<uint32_t>>>;

class Oracle final : public outrider::residency::Predictor {
 public:
  Oracle(const Choices& choices, bool is_right, uint32_t n_experts)
      : choices_(choices), is_right_(is_right), n_experts_(n_experts) {}
  std::string_view name() const noexcept override { return "oracle"; }
  void observe(uint32_t /*layer*/, std::span<const int32_t> /*tokens*/, std::span<const uint32_t> /*ids*/,
               uint32_t /*n_used*/) noexcept override {}
  uint32_t predict(uint32_t layer, int32_t /*token*/, std::span<uint32_t> out) noexcept override {
    const std::vector<uint32_t>& chosen = choices_[pass][layer];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_experts_ && n < std::min(chosen.size(), out.size()); ++i) {
      const uint32_t expert = is_right_ ? chosen[i] : (i * 7 + static_cast<uint32_t>(pass)) % n_experts_;
      if (is_right_ || std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) out[n++] = expert;
    }
    return n;
  }
  size_t pass = 0;

 private:
  const Choices& choices_;
  bool is_right_;
  uint32_t n_experts_;
};

struct Flags {
  std::string model, text, seconds, isa = "auto", io = "auto", direct = "auto", guess = "own";
  std::vector<std::string> widths = {"off", "2", "4", "8", "auto"};
  uint32_t slots = 0, read_us = 0, layer_us = 0, block = 8, blocks = 8, warm = 256, settle = 32, threads = 1,
           depth = 16, distance = 1;
};

class SlowLayers final : public outrider::engine::PassObserver {
 public:
  explicit SlowLayers(uint32_t layer_us) : layer_us_(layer_us) {}
  void end_layer(uint32_t /*moe_layer*/) noexcept override {
    if (layer_us_ > 0 && g_is_slow.load()) std::this_thread::sleep_for(std::chrono::microseconds(layer_us_));
  }

 private:
  uint32_t layer_us_;
};

struct Side {
  std::string name;
  std::unique_ptr<Oracle> oracle;
  std::unique_ptr<Engine> engine;
  std::vector<double> seconds;  // by timed block
  outrider::residency::StoreCounters before, after;
};

std::vector<int32_t> tokens_of(const Flags& flags, const outrider::model::Model& model, size_t n) {
  std::vector<int32_t> ids;
  if (!flags.text.empty()) {
    std::ifstream file(flags.text, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ids = outrider::text::Tokenizer::load(model.file.metadata)
              ->encode(text, {.add_special = true, .parse_special = false});
  } else {
    // A wander through a few hundred ids, some of them often.
    uint64_t state = 1;
    while (ids.size() < n) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const uint64_t a = state >> 40, b = (state >> 20) & 0xFFFFF;
      ids.push_back(static_cast<int32_t>(std::min(a % 512, b % 512) % model.spec.n_vocab));
    }
  }
  if (ids.size() < n) {
    std::fprintf(stderr, "the text has %zu tokens, wanted %zu\n", ids.size(), n);
    std::exit(1);
  }
  return ids;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(const Flags& flags, const std::vector<Side>& sides) {
  const Side& off = sides[0];
  const double n_tokens = flags.block * flags.blocks;
  const auto spent = [](const Side& side, uint64_t outrider::residency::StoreCounters::*field) {
    return static_cast<double>(side.after.*field - side.before.*field);
  };
  using C = outrider::residency::StoreCounters;
  const double hideable = spent(off, &C::hideable_ns), stall_off = spent(off, &C::stall_ns);
  std::printf("off: stall %.3f ms a token, idle %.3f, hideable %.3f\n", stall_off / n_tokens / 1e6,
              spent(off, &C::idle_ns) / n_tokens / 1e6, hideable / n_tokens / 1e6);
  std::printf(
      "width,tokens_per_s,ratio,ratio_min,ratio_max,stall_ms,hidden,misses,in_time,read_mb,wasted_mb,evicted_unused,"
      "dropped\n");
  for (const Side& side : sides) {
    std::vector<double> ratios;
    for (size_t i = 0; i < side.seconds.size(); ++i) ratios.push_back(off.seconds[i] / side.seconds[i]);
    const double used = spent(side, &C::predicted_used);
    std::printf("%s,%.2f,%.3f,%.3f,%.3f,%.3f,%.2f,%.2f,%.2f,%.3f,%.3f,%.0f,%.0f\n", side.name.c_str(),
                flags.block / median(side.seconds), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
                *std::max_element(ratios.begin(), ratios.end()), spent(side, &C::stall_ns) / n_tokens / 1e6,
                hideable > 0 ? (stall_off - spent(side, &C::stall_ns)) / hideable : 0.0,
                spent(side, &C::misses) / n_tokens, used > 0 ? spent(side, &C::predicted_in_time) / used : 0.0,
                spent(side, &C::bytes_read) / n_tokens / 1e6, spent(side, &C::bytes_predicted_wasted) / n_tokens / 1e6,
                spent(side, &C::evicted_unused), spent(side, &C::dropped));
  }
  std::printf("%s\n", sides.back().engine->lookahead_report().c_str());
  for (const auto& score : sides.back().engine->lookahead_scores()) {
    if (score.width % 2 == 0 && score.width <= 8) {
      std::printf("distance %u width %u: precision %.3f coverage %.3f in time %.3f\n", score.distance, score.width,
                  score.precision, score.coverage, score.in_time);
    }
  }
}

int measure(const Flags& flags) {
  const outrider::model::Model model = outrider::model::open(flags.model);
  SlowDrive drive{std::chrono::microseconds(flags.read_us)};
  SlowLayers layers(flags.layer_us);
  const size_t n_warm = flags.warm - flags.warm % flags.block;
  const size_t n_tokens = n_warm + size_t{flags.block} * flags.blocks;
  const std::vector<int32_t> ids = tokens_of(flags, model, n_tokens);
  Choices choices;
  std::vector<Side> sides;
  for (const std::string& width : flags.widths) {
    EngineOptions options;
    options.context = static_cast<uint32_t>(n_tokens);
    options.isa = outrider::parse_isa(flags.isa).value_or(outrider::best_isa());
    options.n_threads = flags.threads;
    options.slots_per_layer = flags.slots;
    options.lookahead = width == "off"    ? 0
                        : width == "auto" ? kLookAheadAuto
                                          : static_cast<uint32_t>(std::stoul(width));
    options.lookahead_distance = flags.distance;
    options.queue_depth = flags.depth;
    options.io = flags.io == "uring"     ? outrider::residency::IoMode::kUring
                 : flags.io == "threads" ? outrider::residency::IoMode::kThreads
                                         : outrider::residency::IoMode::kAuto;
    options.direct =
        flags.direct == "off" ? outrider::residency::DirectMode::kOff : outrider::residency::DirectMode::kAuto;
    if (flags.read_us > 0) options.faults = &drive;
    Side side;
    side.name = width;
    if (options.lookahead != 0 && flags.guess != "own") {
      side.oracle = std::make_unique<Oracle>(choices, flags.guess == "right", model.spec.router.n_experts);
      options.guesses = side.oracle.get();
    }
    side.engine = std::make_unique<Engine>(model, options);
    side.engine->add_pass_observer(layers);
    sides.push_back(std::move(side));
  }
  sides[0].engine->set_routing_observer([&](const outrider::engine::Routing& routing) {
    if (routing.moe_layer == 0) choices.emplace_back();
    choices.back().emplace_back(routing.ids.begin(), routing.ids.end());
  });
  for (size_t begin = 0; begin < n_tokens; begin += flags.block) {
    const bool is_timed = begin >= n_warm;
    g_is_slow = begin + flags.settle >= n_warm;
    // Turn about, but `off` goes first: the oracles learn from it.
    for (size_t s = 0; s < sides.size(); ++s) {
      Side& side = sides[s == 0 ? 0 : 1 + (s - 1 + begin / flags.block) % (sides.size() - 1)];
      if (begin == n_warm) side.before = side.engine->counters().experts;
      const auto start = Clock::now();
      for (size_t i = begin; i < begin + flags.block; ++i) {
        if (side.oracle) side.oracle->pass = i;
        side.engine->prefill(0, {&ids[i], 1});
      }
      if (is_timed) side.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      side.after = side.engine->counters().experts;
    }
  }
  report(flags, sides);
  if (!flags.seconds.empty()) {
    std::ofstream file(flags.seconds, std::ios::app);
    for (const Side& side : sides) {
      file << side.name;
      for (const double seconds : side.seconds) file << ' ' << seconds;
      file << '\n';
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Decode speed by look-ahead width on a drive and layers that are made slow");
  app.add_option("MODEL", flags.model)->required();
  app.add_option("--slots", flags.slots, "Expert slots a layer")->required();
  app.add_option("--text", flags.text, "File to run (default: a made-up sequence of ids)");
  app.add_option("--seconds", flags.seconds, "File to append the seconds of each timed block to");
  app.add_option("--read-us", flags.read_us, "Sleep before each piece of a read");
  app.add_option("--layer-us", flags.layer_us, "Sleep after each MoE layer");
  app.add_option("--widths", flags.widths, "First `off`, then the others")->delimiter(',');
  app.add_option("--distance", flags.distance, "Layers ahead at most");
  app.add_option("--guess", flags.guess, "own, right or wrong")->check(CLI::IsMember({"own", "right", "wrong"}));
  app.add_option("--warm", flags.warm, "Tokens before the timed ones");
  app.add_option("--settle", flags.settle, "The last of those are slow like the timed ones");
  app.add_option("--block", flags.block, "Tokens a block");
  app.add_option("--blocks", flags.blocks, "Timed blocks");
  app.add_option("--threads", flags.threads);
  app.add_option("--depth", flags.depth, "Reads in flight");
  app.add_option("--isa", flags.isa);
  app.add_option("--io", flags.io)->check(CLI::IsMember({"auto", "uring", "threads"}));
  app.add_option("--direct", flags.direct)->check(CLI::IsMember({"auto", "off"}));
  CLI11_PARSE(app, argc, argv);
  try {
    return measure(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "outrider_slow_drive: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
// outrider perplexity: exp of the mean negative log-likelihood over the second half of each window of W tokens, stride
// W (the way llama.cpp scores, without its BOS at each window's start unless the model wants one).
#include <cmath>
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/error.h"
#include "progress.h"

namespace outrider::apps {

namespace {

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  uint32_t window = 0;
  bool json = false;
};

// -log softmax(logits)[target], in double.
double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  double top = -INFINITY;
  for (const float x : logits) top = std::max(top, static_cast<double>(x));
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x) - top);
  return std::log(total) + top - static_cast<double>(logits[static_cast<size_t>(target)]);
}

void perplexity(const PerplexityFlags& flags) {
  const std::string content = read_text_file(flags.file);
  auto loaded = load_model(flags.engine, nullptr, [&](const model::Model& model, engine::EngineOptions& options) {
    if (flags.window == 0) return;
    if (flags.window > model.spec.context_length) {
      fail(ErrorKind::kBadArgument, "--window {}: the model's context is {}", flags.window, model.spec.context_length);
    }
    if (options.context == 0) options.context = flags.window;
  });
  const text::Tokenizer& tokenizer = require_tokenizer(*loaded);
  const uint32_t window = flags.window != 0 ? flags.window : loaded->engine->options().context;
  if (window > loaded->engine->options().context) {
    fail(ErrorKind::kBadArgument, "--window {}: the context is {} (--ctx)", window, loaded->engine->options().context);
  }
  const std::vector<int32_t> ids = tokenizer.encode(content, {.add_special = true, .parse_special = false});
  const size_t n_windows = ids.size() / window;
  if (n_windows == 0)
    fail(ErrorKind::kBadArgument, "{}: {} tokens are less than one window of {}", printable(flags.file), ids.size(),
         window);
  const uint32_t half = window / 2;
  double total = 0;
  uint64_t n_scored = 0;
  Progress progress("perplexity", flags.engine.no_progress || flags.engine.quiet);
  for (size_t w = 0; w < n_windows; ++w) {
    std::vector<int32_t> tokens(ids.begin() + static_cast<ptrdiff_t>(w * window),
                                ids.begin() + static_cast<ptrdiff_t>((w + 1) * window));
    if (tokenizer.add_bos() && tokenizer.bos() != text::kNoToken) tokens[0] = tokenizer.bos();
    loaded->engine->keep(0, 0);
    const std::span<const int32_t> all(tokens);
    // Position half - 1 predicts the first scored token; the last token is only a target.
    if (half > 1) loaded->engine->prefill(0, all.first(half - 1));
    loaded->engine->prefill(0, all.subspan(half - 1, window - half), [&](uint32_t i, std::span<const float> logits) {
      total += negative_log_likelihood(logits, tokens[half + i]);
      ++n_scored;
    });
    progress.update(w + 1, n_windows);
  }
  progress.finish();
  const double result = std::exp(total / static_cast<double>(n_scored));
  if (flags.json) {
    std::printf("%s\n", Json{{"perplexity", result}, {"tokens_scored", n_scored}, {"window", window}}.dump().c_str());
  } else {
    std::printf("perplexity %.6f over %llu tokens (windows of %u, second halves)\n", result,
                static_cast<unsigned long long>(n_scored), window);
  }
}

}  // namespace

void add_perplexity(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "Score a text: perplexity over the second half of each window");
  auto flags = std::make_shared<PerplexityFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("FILE", flags->file, "Text file, - for standard input")->required();
  command->add_option("--window", flags->window, "Tokens of a window (default: the context)")
      ->check(CLI::Range(2, 1 << 30));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { perplexity(*flags); });
}

}  // namespace outrider::apps

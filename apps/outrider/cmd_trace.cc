// SPDX-License-Identifier: Apache-2.0
// outrider trace: how well the experts of each layer are guessed ahead on a text.
#include <algorithm>
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/error.h"
#include "progress.h"

namespace outrider::apps {

namespace {

struct TraceFlags {
  EngineFlags engine;
  std::string file, ids;
  std::vector<uint32_t> widths = {2, 4, 6, 8};
  bool json = false;
};

void trace(TraceFlags flags) {
  if (flags.file.empty() == flags.ids.empty())
    fail(ErrorKind::kBadArgument, "trace: wanted one of -f FILE and --ids LIST");
  const uint32_t widest = *std::max_element(flags.widths.begin(), flags.widths.end());
  flags.engine.lookahead = std::to_string(widest);
  auto loaded = load_model(flags.engine);
  engine::Engine& engine = *loaded->engine;
  const std::vector<int32_t> ids =
      flags.ids.empty()
          ? require_tokenizer(*loaded).encode(read_text_file(flags.file), {.add_special = true, .parse_special = false})
          : parse_ids(flags.ids, "--ids");
  // Token by token, as decode does: in a prompt's chunk only a few rows are guessed for.
  Progress progress("running the text", flags.engine.no_progress || flags.engine.quiet);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (engine.n_tokens(0) == engine.options().context) engine.keep(0, 0);
    engine.prefill(0, {&ids[i], 1});
    progress.update(i + 1, ids.size());
  }
  progress.finish();
  const std::vector<engine::LookAheadScore> scores = engine.lookahead_scores();
  if (scores.empty()) fail(ErrorKind::kBadArgument, "{}: the model has no routed experts", flags.engine.model_path);
  Json rows = Json::array();
  if (!flags.json)
    std::printf("%zu tokens\n%8s  %5s  %9s  %8s  %7s\n", ids.size(), "distance", "width", "precision", "coverage",
                "in time");
  const uint32_t n_distances = flags.engine.lookahead_distance;
  const size_t n_widths = scores.size() / n_distances;
  for (uint32_t distance = 1; distance <= n_distances; ++distance) {
    for (const uint32_t width : flags.widths) {
      const engine::LookAheadScore& score = scores[(distance - 1) * n_widths + std::min<size_t>(width, n_widths) - 1];
      rows.push_back({{"width", width},
                      {"distance", distance},
                      {"precision", score.precision},
                      {"coverage", score.coverage},
                      {"in_time", score.in_time}});
      if (!flags.json)
        std::printf("%8u  %5u  %9.3f  %8.3f  %7.3f\n", distance, width, score.precision, score.coverage, score.in_time);
    }
  }
  if (!flags.json) return;
  Json out;
  out["tokens"] = ids.size();
  out["widths"] = rows;
  out["experts"] = experts_json(*loaded, engine.counters().experts);
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace

void add_trace(CLI::App& app) {
  CLI::App* command = app.add_subcommand("trace", "Score the look-ahead on a text: guessed against chosen experts");
  auto flags = std::make_shared<TraceFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("-f,--file", flags->file, "Text to run, - for standard input");
  command->add_option("--ids", flags->ids, "Token ids instead: 1,2,3 or @FILE");
  command->add_option("--widths", flags->widths, "Experts guessed for each token")
      ->delimiter(',')
      ->check(CLI::Range(1U, engine::kMaxLookAhead))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { trace(*flags); });
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// outrider fit: the cost model of a recorded ledger.
#include <cstdio>
#include <fstream>

#include "command.h"
#include "engine_flags.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/whatif/fit.h"
#include "plots.h"

namespace outrider::apps {

namespace {

struct FitFlags {
  std::string stats, svg, html;
  bool json = false;
};

struct Step {
  uint64_t tokens = 0;
  whatif::StepPoint point;
};

Step parse_step(const std::string& path, size_t line_number, const std::string& line) {
  const Json step = Json::parse(line, nullptr, false);
  const auto number = [&](const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_number()) {
      fail(ErrorKind::kBadFile, "{}: line {}: has no number '{}': wanted a step of run --stats", printable(path),
           line_number, key);
    }
    return object[key].get<double>();
  };
  Step out;
  out.tokens = static_cast<uint64_t>(number(step, "tokens"));
  out.point.ms = number(step, "ms");
  number(step, "demanded");
  if (!step.contains("bytes"))
    fail(ErrorKind::kBadFile, "{}: line {}: has no 'bytes': wanted a step of run --stats", printable(path),
         line_number);
  out.point.bytes = number(step["bytes"], "demand");
  return out;
}

// Steps of one token; all steps when there are none.
std::vector<whatif::StepPoint> read_points(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(ErrorKind::kIo, "{}: cannot be opened for reading", printable(path));
  std::vector<whatif::StepPoint> single, all;
  size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty()) continue;
    const Step step = parse_step(path, line_number, line);
    if (step.tokens == 0) continue;
    all.push_back(step.point);
    if (step.tokens == 1) single.push_back(step.point);
  }
  if (all.size() < 3)
    fail(ErrorKind::kBadFile, "{}: {} steps, wanted a ledger of at least 3", printable(path), all.size());
  return single.empty() ? all : single;
}

void run_fit(const FitFlags& flags) {
  const std::vector<whatif::StepPoint> points = read_points(flags.stats);
  const whatif::CostFit fit = whatif::fit_cost(points);
  if (flags.json) {
    const Json out = {{"floor_ms", fit.floor_ms},
                      {"bytes_per_s", fit.bytes_per_s()},
                      {"ms_per_mib", fit.ms_per_byte * 1048576},
                      {"r2", fit.r2},
                      {"steps", fit.n_steps}};
    std::printf("%s\n", out.dump().c_str());
  } else {
    std::printf("ms = %.4g + demand bytes / (%s/s), r2 %.4f, over %llu steps\n", fit.floor_ms,
                format_bytes(static_cast<uint64_t>(fit.bytes_per_s())).c_str(), fit.r2,
                static_cast<unsigned long long>(fit.n_steps));
    if (fit.floor_ms > 0 && fit.bytes_per_s() > 0) {
      std::printf("simulate with: --compute-floor %.4g --drive %.0f\n", fit.floor_ms, fit.bytes_per_s());
    }
  }
  write_plots(flags.svg, flags.html, "Time of a step against the bytes it demanded", {whatif::plot_fit(points, fit)});
}

}  // namespace

void add_fit(CLI::App& app) {
  CLI::App* command = app.add_subcommand("fit", "Fit ms = floor + bytes / rate to a step ledger");
  auto flags = std::make_shared<FitFlags>();
  command->add_option("STATS", flags->stats, "File of run --stats")->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_plot_flags(*command, flags->svg, flags->html);
  command->callback([flags] { run_fit(*flags); });
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// What a run or a bench measured, from the files they write.
#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "outrider/base/error.h"
#include "plan_speed.h"

namespace outrider::apps {
namespace {

double number(const Json& object, const char* key, const std::string& where, const char* wanted) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number() || object[key].get<double>() < 0)
    fail(ErrorKind::kBadFile, "{}: has no number '{}': wanted {}", where, key, wanted);
  return object[key].get<double>();
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

MeasuredRun of_ledger(const std::string& text, const std::string& path) {
  MeasuredRun run = {{.is_prefill = true, .is_first = true}, {}};
  std::array<double, 2> demanded = {}, misses = {};
  size_t line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.empty()) continue;
    const Json step = Json::parse(line, nullptr, false);
    const auto get = [&](const char* key) {
      return number(step, key, fmt::format("{}: line {}", path, line_number), "a step of run --stats");
    };
    const double n_tokens = get("tokens"), seconds = get("ms") / 1e3;
    const size_t kind = n_tokens == 1 ? 1 : 0;
    run[kind].n_tokens += static_cast<uint64_t>(n_tokens);
    run[kind].seconds += seconds;
    demanded[kind] += get("demanded");
    misses[kind] += get("misses");
  }
  if (run[0].n_tokens + run[1].n_tokens == 0)
    fail(ErrorKind::kBadFile, "{}: has no step, wanted what run --stats, run --json or bench --json wrote", path);
  for (size_t kind = 0; kind < 2; ++kind) run[kind].miss_rate = share(misses[kind], demanded[kind]);
  run[1].context = run[0].n_tokens;
  return run;
}

MeasuredRun of_run(const Json& out, const std::string& path) {
  const auto get = [&](const Json& object, const char* key) {
    return number(object, key, path, "what run --json printed");
  };
  const Json& timing = out["timing"];
  MeasuredRun run(2);
  for (size_t kind = 0; kind < 2; ++kind) {
    const std::string name = kind == 0 ? "prefill" : "decode";
    run[kind].n_tokens = static_cast<uint64_t>(get(timing, (name + "_tokens").c_str()));
    run[kind].seconds = share(static_cast<double>(run[kind].n_tokens), get(timing, (name + "_tokens_per_s").c_str()));
  }
  const Json experts = out.value("experts", Json::object()), first = experts.value("prefill", Json::object());
  const double demanded = get(first, "demanded"), misses = get(first, "misses");
  run[0].is_prefill = run[0].is_first = true;
  run[0].miss_rate = share(misses, demanded);
  run[1].miss_rate = share(get(experts, "misses") - misses, get(experts, "demanded") - demanded);
  run[1].context = run[0].n_tokens;
  return run;
}

MeasuredRun of_bench(const Json& out, const std::string& path) {
  const auto get = [&](const Json& object, const char* key) {
    return number(object, key, path, "what bench --json printed");
  };
  MeasuredRun run;
  for (const char* kind : {"prefill", "decode"}) {
    for (const Json& row : out[kind]) {
      const double n_tokens = get(row, "tokens");
      run.push_back({.is_prefill = kind[0] == 'p',
                     .is_first = out.value("caches", "") == "cold",
                     .n_tokens = static_cast<uint64_t>(n_tokens),
                     .context = static_cast<uint64_t>(get(row, "context")),
                     .seconds = share(n_tokens, get(row.value("tokens_per_s", Json()), "median")),
                     .read_bytes = get(row, "read_bytes_per_token"),
                     .is_given = !out.value("generated", false)});
    }
  }
  return run;
}

}  // namespace

MeasuredRun read_measured(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorKind::kIo, "{}: cannot be opened for reading", printable(path));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const Json whole = Json::parse(text, nullptr, false);
  if (whole.is_object() && whole.contains("timing")) return of_run(whole, printable(path));
  if (whole.is_object() && whole.contains("machine")) return of_bench(whole, printable(path));
  return of_ledger(text, printable(path));
}

}  // namespace outrider::apps

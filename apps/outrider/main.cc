// SPDX-License-Identifier: Apache-2.0
// The outrider program: parses the command line, runs one command, prints one line on failure.
// Exit codes: 0 done, 1 a one-line error on stderr, 2 usage.
#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <new>

#include "command.h"
#include "outrider/base/error.h"

namespace {

// --expert-cache also reads OUTRIDER_EXPERT_CACHE. CLI11 parses the value as if given, so "=0" means 0, not presence.
void read_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || names[0] == "help" || names[0] == "version") continue;
    std::string variable = "OUTRIDER_";
    for (const char c : names[0]) variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname(variable);
  }
  for (CLI::App* sub : app.get_subcommands(nullptr)) read_environment(*sub);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Outrider: exact, bounded, explained inference for mixture-of-experts models larger than memory.");
  app.name("outrider");
  app.set_version_flag("--version", "outrider " OUTRIDER_VERSION);
  app.require_subcommand(1);
  // In the order --help shows them.
  outrider::apps::add_run(app);
  outrider::apps::add_bench(app);
  outrider::apps::add_plan(app);
  outrider::apps::add_perplexity(app);
  outrider::apps::add_logits(app);
  outrider::apps::add_simulate(app);
  outrider::apps::add_trace_info(app);
  outrider::apps::add_fit(app);
  outrider::apps::add_inspect(app);
  outrider::apps::add_tokenize(app);
  outrider::apps::add_quantize(app);
  outrider::apps::add_synth(app);
  outrider::apps::add_synth_trace(app);
  read_environment(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : (app.exit(error), 2);
  } catch (const outrider::Error& error) {
    std::fprintf(stderr, "outrider: %s\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "outrider: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "outrider: %s\n", error.what());
    return 1;
  }
  return 0;
}

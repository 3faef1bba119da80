// SPDX-License-Identifier: Apache-2.0
// The outrider program: parses the command line, runs one command, prints one line on failure.
// Exit codes: 0 done, 1 a one-line error on stderr, 2 usage, 128 + N ended by signal N.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "command.h"
#include "interrupt.h"
#include "outrider/base/error.h"

namespace {

// --expert-cache also reads OUTRIDER_EXPERT_CACHE. CLI11 parses the value as if given, so "=0" means 0, not presence.
void read_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || names[0] == "help" || names[0] == "version") continue;
    std::string variable = "OUTRIDER_";
    for (const char c : names[0])
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname(variable);
  }
  for (CLI::App* sub : app.get_subcommands(nullptr)) read_environment(*sub);
}

// A program started with standard input, output or error closed would give their numbers to the first files it opens: a
// model would be read as the prompt, and messages written into an output file. Opened the wrong way round, so that use
// of a closed stream still fails.
void fill_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::string wanted_type(const std::string& type_name) {
  if (type_name == "UINT") return "a whole number, not negative and not too large";
  if (type_name == "INT") return "a whole number, not too large";
  return type_name == "FLOAT" ? "a number" : "another value";
}

// The one line for a command line that cannot be understood.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  if (parsed.empty() && error.get_name() == "RequiredError") {
    std::string names;
    for (const CLI::App* sub : app.get_subcommands(nullptr)) names += (names.empty() ? "" : ", ") + sub->get_name();
    return "wanted a command: one of " + names;
  }
  std::string text = error.what();
  constexpr std::string_view kConversion = "Could not convert: ";
  const size_t split = text.find(" = ");
  if (text.starts_with(kConversion) && split != std::string::npos && !parsed.empty()) {
    const std::string name = text.substr(kConversion.size(), split - kConversion.size());
    const CLI::Option* option = parsed[0]->get_option_no_throw(name);
    text = name + " " + text.substr(split + 3) + ": wanted " +
           wanted_type(option != nullptr ? option->get_type_name() : "");
  }
  return text + " (outrider " + (parsed.empty() ? "" : parsed[0]->get_name() + " ") + "--help lists the options)";
}

int run_command(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "outrider: %s\n", outrider::printable(usage_line(app, error), 2000).c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "outrider: out of memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "outrider: %s\n", error.what());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  CLI::App app("Outrider: exact, bounded, explained inference for mixture-of-experts models larger than memory.");
  app.name("outrider");
  app.set_version_flag("--version", "outrider " OUTRIDER_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 failed, one line on stderr says why; 2 not understood; 130 and 143 ended by Ctrl-C or "
      "SIGTERM\n"
      "(128 + the signal), after what had begun was brought to an end in order.");
  // In the order --help shows them.
  outrider::apps::add_run(app);
  outrider::apps::add_bench(app);
  outrider::apps::add_plan(app);
  outrider::apps::add_probe(app);
  outrider::apps::add_perplexity(app);
  outrider::apps::add_logits(app);
  outrider::apps::add_simulate(app);
  outrider::apps::add_trace_info(app);
  outrider::apps::add_fit(app);
  outrider::apps::add_inspect(app);
  outrider::apps::add_tokenize(app);
  outrider::apps::add_trace(app);
  outrider::apps::add_quantize(app);
  outrider::apps::add_pack(app);
  outrider::apps::add_synth(app);
  outrider::apps::add_synth_trace(app);
  read_environment(app);
  const int exit_code = run_command(app, argc, argv);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (exit_code == 0)
      std::fprintf(stderr, "outrider: standard output: cannot be written: %s\n", std::strerror(errno));
    return exit_code == 0 ? 1 : exit_code;
  }
  if (const int signal = outrider::apps::pending_signal(); signal != 0) return 128 + signal;
  return exit_code;
}

// SPDX-License-Identifier: Apache-2.0
// Runs the outrider program as a user would: through the shell, with its exit code, standard output and standard error.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace outrider::test {

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string out, err;
  std::string text() const { return out + err; }
};

// `arguments` as typed after the program's name; `before` stands in front (variables, a pipe).
inline Outcome run_program(const std::string& arguments, const std::string& before = "") {
  Outcome outcome;
  const std::string err_path = "/tmp/outrider_program_err_" + std::to_string(::getpid());
  // What runs remember about models stays out of the user's cache.
  ::setenv("XDG_CACHE_HOME", "/tmp/outrider_program_cache", 1);
  const std::string command = before + " " + OUTRIDER_PROGRAM + " " + arguments + " 2>" + err_path;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  size_t n_read = 0;
  while ((n_read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) outcome.out.append(buffer.data(), n_read);
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream err(err_path);
  outcome.err.assign(std::istreambuf_iterator<char>(err), {});
  ::unlink(err_path.c_str());
  return outcome;
}

}  // namespace outrider::test

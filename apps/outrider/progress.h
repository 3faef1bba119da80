// SPDX-License-Identifier: Apache-2.0
// A progress bar on stderr for long work, when stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace outrider::apps {

class Progress {
 public:
  explicit Progress(std::string label, bool off = false);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(uint64_t done, uint64_t total);
  // Clears the line. Safe to call twice.
  void finish();

 private:
  std::string label_;
  bool on_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace outrider::apps

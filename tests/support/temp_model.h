// SPDX-License-Identifier: Apache-2.0
// A tiny model in a file of its own, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tiny_model.h"

namespace outrider::test {

class TempModel {
 public:
  explicit TempModel(const TinyModel& tiny) : TempModel(build(tiny)) {}
  explicit TempModel(const format::GgufWriter& writer) : path_(unique_path()) { writer.write(path_); }
  ~TempModel() { std::remove(path_.c_str()); }
  TempModel(const TempModel&) = delete;
  TempModel& operator=(const TempModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  static std::string unique_path() {
    static int counter = 0;
    return ::testing::TempDir() + "outrider_" + std::to_string(::getpid()) + "_" + std::to_string(counter++) + ".gguf";
  }
  std::string path_;
};

}  // namespace outrider::test

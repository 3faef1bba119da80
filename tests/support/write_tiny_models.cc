// SPDX-License-Identifier: Apache-2.0
// Writes every golden case as DIR/NAME.gguf and DIR/NAME.ids, for tools/peer/make_arch_goldens.sh.
#include <cstdio>
#include <fstream>

#include "outrider/base/error.h"
#include "tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_tiny_models DIR\n");
    return 2;
  }
  try {
    for (const auto& [name, tiny] : outrider::test::golden_cases()) {
      const std::string stem = std::string(argv[1]) + "/" + name;
      outrider::test::write_tiny_model(tiny, stem + ".gguf");
      std::ofstream ids(stem + ".ids");
      const char* separator = "";
      for (const int32_t id : outrider::test::golden_ids(tiny)) {
        ids << separator << id;
        separator = ",";
      }
      std::printf("%s\n", name.c_str());
    }
  } catch (const outrider::Error& error) {
    std::fprintf(stderr, "write_tiny_models: %s\n", error.what());
    return 1;
  }
  return 0;
}

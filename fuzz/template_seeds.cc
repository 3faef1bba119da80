// SPDX-License-Identifier: Apache-2.0
// Writes the templates of tests/golden/templates/cases.json as seeds. usage: template_seeds FOLDER
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: template_seeds FOLDER\n";
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  std::ifstream file(OUTRIDER_TEMPLATE_CASES);
  int n = 0;
  const auto golden = nlohmann::json::parse(file);
  for (const auto& one : golden["cases"]) {
    std::ofstream seed(std::filesystem::path(argv[1]) / ("case" + std::to_string(n)), std::ios::binary);
    seed << static_cast<char>('0' + n % 4) << one["template"].get<std::string>();
    ++n;
  }
  return 0;
}

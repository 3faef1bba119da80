// SPDX-License-Identifier: Apache-2.0
#include "outrider/model/arch.h"

#include <array>

namespace outrider::model {
namespace {

constexpr std::array<Architecture, 6> kArchitectures = {{
    {"glm4moe", read_glm4moe},
    {"llama", read_llama},
    {"olmoe", read_olmoe},
    {"qwen2moe", read_qwen2moe},
    {"qwen3", read_qwen3},
    {"qwen3moe", read_qwen3moe},
}};

}  // namespace

std::span<const Architecture> architectures() noexcept { return kArchitectures; }

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace outrider::model

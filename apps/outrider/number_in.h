// SPDX-License-Identifier: Apache-2.0
// The check of an option that takes a real number. CLI::Range lets "nan" through, which is in no range.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "outrider/base/units.h"

namespace outrider::apps {

inline CLI::Validator number_in(double low, double high) {
  return {[low, high](const std::string& text) -> std::string {
            const auto value = parse_double(text);
            if (value && *value >= low && *value <= high) return {};
            return fmt::format("{}: wanted a number in {}..{}", text, low, high);
          },
          fmt::format("FLOAT in [{} - {}]", low, high)};
}

}  // namespace outrider::apps

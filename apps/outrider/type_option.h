// SPDX-License-Identifier: Apache-2.0
// A command-line option whose value is a tensor type; an unknown one is a usage error that lists the valid names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "convert/tensor_rules.h"

namespace outrider::apps {

// `wanted`: which types the command takes. Leaves `type` alone when the option is not given.
inline CLI::Option* add_type_option(CLI::App& command, const std::string& name, format::TensorType& type,
                                    const std::string& help, bool (*wanted)(format::TensorType) noexcept) {
  return command
      .add_option_function<std::string>(
          name, [&type](const std::string& text) { type = *format::parse_tensor_type(text); }, help)
      ->check([wanted](const std::string& text) -> std::string {
        const auto parsed = format::parse_tensor_type(text);
        if (parsed && wanted(*parsed)) return {};
        return "type " + text + ": wanted one of " + type_names(wanted);
      })
      ->type_name("TYPE");
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// Template text to syntax tree. Nesting deeper than kMaxNesting is refused, so that neither the parser nor the
// interpreter can run out of stack on a hostile template.
#pragma once

#include <string_view>

#include "outrider/text/jinja/ast.h"

namespace outrider::text::jinja {

inline constexpr int kMaxNesting = 100;

// Throws Fault with line and reason.
Program parse(std::string_view source);

}  // namespace outrider::text::jinja

// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/tensor_type.h"

namespace outrider::format {

namespace {
constexpr char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}
}  // namespace

std::optional<TensorType> parse_tensor_type(std::string_view name) noexcept {
  for (const TypeInfo& info : kTensorTypes) {
    if (same_ignoring_case(info.name, name)) return info.type;
  }
  return std::nullopt;
}

}  // namespace outrider::format

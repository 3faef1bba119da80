// SPDX-License-Identifier: Apache-2.0
// Checks for bugs of ours. On in every build: prints the condition, the place and the values, then aborts.
// Input never reaches one (error.h is for input). OUTRIDER_DCHECK is on in debug builds only.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace outrider::internal {
[[noreturn]] inline void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "outrider: %s:%d: check failed: %s%s%s\n", file, line, condition, values.empty() ? "" : ": ",
               values.c_str());
  std::abort();
}
inline std::string check_values() { return {}; }
template <typename... Args>
std::string check_values(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
}  // namespace outrider::internal

// OUTRIDER_CHECK(a < b) or OUTRIDER_CHECK(a < b, "a {} b {}", a, b)
#define OUTRIDER_CHECK(condition, ...)                                                     \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::outrider::internal::check_failed(__FILE__, __LINE__, #condition,                   \
                                         ::outrider::internal::check_values(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)

#ifdef NDEBUG
#define OUTRIDER_DCHECK(condition, ...) static_cast<void>(0)
#else
#define OUTRIDER_DCHECK(condition, ...) OUTRIDER_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif

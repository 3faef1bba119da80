// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library: bad input or a bad environment, told in one line that names
// file, field, value and what was wanted. A bug of ours is not an Error: see check.h.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace outrider {

enum class ErrorKind {
  kBadFile,      // a model, trace or pack file says something wrong
  kBadArgument,  // an option, id or request says something wrong
  kEnvironment,  // the machine refuses or lacks something
  kIo,           // a read or write failed after its retries
  kOutOfMemory,  // a plan does not fit
  kNumeric,      // NaN or infinity where a number was needed; fails the request, not the process
  kCancelled,    // the caller asked to stop
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error with a formatted one-line message (no trailing period, no newline).
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// `text` with control characters, quotes and invalid UTF-8 escaped and cut to `limit` bytes, for use in messages:
// a name out of a hostile file must not break the one line.
std::string printable(std::string_view text, std::size_t limit = 80);

}  // namespace outrider

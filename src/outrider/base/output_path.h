// SPDX-License-Identifier: Apache-2.0
// Where a file is written that shall appear under its name only when it is complete: beside it, then renamed onto it.
// Links are followed first, and only a regular file is ever replaced: renaming onto /dev/null, or onto a link such as
// /dev/stdout, would take that name away from everybody else.
#pragma once

#include <string>

namespace outrider {

struct OutputPath {
  std::string target;   // `path` with its links resolved
  std::string partial;  // where to write; equal to `target` for a device or pipe, which is written in place
  bool in_place() const noexcept { return partial == target; }
};

// Throws Error(kIo) for an empty path and for a folder.
OutputPath output_path(const std::string& path);

}  // namespace outrider

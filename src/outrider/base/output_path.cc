// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/output_path.h"

#include <filesystem>

#include "outrider/base/error.h"

namespace outrider {

OutputPath output_path(const std::string& path) {
  if (path.empty()) fail(ErrorKind::kIo, "the name of the file to write is empty");
  OutputPath out{path, ""};
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status))
    fail(ErrorKind::kIo, "{}: is a folder, wanted a file to write", printable(path));
  const bool exists = std::filesystem::exists(status);
  if (exists) {
    // A pipe behind /dev/stdout has no path to resolve to; its link will do.
    const std::filesystem::path resolved = std::filesystem::canonical(path, ignored);
    if (!ignored) out.target = resolved.string();
  }
  out.partial = exists && !std::filesystem::is_regular_file(status) ? out.target : out.target + ".partial";
  return out;
}

}  // namespace outrider

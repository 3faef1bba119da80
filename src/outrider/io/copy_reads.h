// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace outrider::io {

// What has been read of one copy of the files.
struct CopyReads {
  std::string path;      // of its first file
  uint64_t n_bytes = 0;  // asked of it and read, alignment included
  double gbps = 0;       // bytes per nanosecond while it had something to read; 0 = not known yet
  bool is_lost = false;  // it could not be read any more
};

}  // namespace outrider::io

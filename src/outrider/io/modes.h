// SPDX-License-Identifier: Apache-2.0
// How files are read: options of the program, shared by every module that reads.
#pragma once

#include <cstdint>

namespace outrider::io {

// kAuto and kUring: io_uring, or threads with one warning when the kernel refuses the ring. kThreads: pread threads.
enum class IoMode : uint8_t { kAuto, kUring, kThreads };

// kAuto and kOn: past the page cache (O_DIRECT), or buffered with one warning a file that refuses. kOff: buffered.
enum class DirectMode : uint8_t { kAuto, kOn, kOff };

}  // namespace outrider::io

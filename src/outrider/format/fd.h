// SPDX-License-Identifier: Apache-2.0
// Owns a file descriptor; -1 is none.
#pragma once

#include <unistd.h>

namespace outrider::format {

class Fd {
 public:
  explicit Fd(int fd) noexcept : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace outrider::format

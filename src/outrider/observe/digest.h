// SPDX-License-Identifier: Apache-2.0
// One hash over the bits of the logit rows from which a run's tokens were chosen, in order: XXH3 of 128 bits (xxhash).
// Equal text for equal rows on every machine of one byte order; 32 hex digits.
// Threads: thread-compatible.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace outrider::observe {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  // One more row. The row's length is hashed too, so that rows cannot run into each other.
  void add(std::span<const float> logits) noexcept;
  // Likewise bytes, for files that carry a hash over their content.
  void add_bytes(std::span<const std::byte> bytes) noexcept;
  // Of everything added so far; adding may go on.
  std::string hex() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outrider::observe

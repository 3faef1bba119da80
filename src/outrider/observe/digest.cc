// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>

#include "outrider/base/check.h"

namespace outrider::observe {

struct Digest::Impl {
  Impl() : state(XXH3_createState()) {
    OUTRIDER_CHECK(state != nullptr);
    XXH3_128bits_reset(state);
  }
  ~Impl() { XXH3_freeState(state); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  XXH3_state_t* state;
};

Digest::Digest() : impl_(std::make_unique<Impl>()) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const float> logits) noexcept {
  const uint64_t n = logits.size();
  XXH3_128bits_update(impl_->state, &n, sizeof n);
  XXH3_128bits_update(impl_->state, logits.data(), logits.size_bytes());
}

void Digest::add_bytes(std::span<const std::byte> bytes) noexcept {
  const uint64_t n = bytes.size();
  XXH3_128bits_update(impl_->state, &n, sizeof n);
  XXH3_128bits_update(impl_->state, bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(impl_->state);
  return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash.high64), static_cast<uint64_t>(hash.low64));
}

}  // namespace outrider::observe

// SPDX-License-Identifier: Apache-2.0
// Byte strings to dense numbers 0, 1, 2, ... in the order they are first added; a string may hold any byte. One arena
// and one open-addressing table: a quarter of a million entries load in milliseconds.
// Threads: thread-compatible; const members may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/base/check.h"

namespace outrider::text {

class StringTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  void reserve(size_t n_strings, size_t n_bytes) {
    bytes_.reserve(n_bytes);
    entries_.reserve(n_strings);
    size_t n_slots = 16;
    while (n_slots < 2 * n_strings) n_slots *= 2;
    if (n_slots > slots_.size()) rehash(n_slots);
  }

  // The string's number; adds it when it is new.
  uint32_t add(std::string_view text) {
    if (2 * (entries_.size() + 1) > slots_.size()) rehash(slots_.empty() ? 16 : 2 * slots_.size());
    const uint32_t hash = hash_of(text);
    const size_t slot = slot_of(text, hash);
    if (slots_[slot] != kNone) return slots_[slot];
    OUTRIDER_CHECK(entries_.size() < kNone);
    const auto number = static_cast<uint32_t>(entries_.size());
    entries_.push_back({bytes_.size(), static_cast<uint32_t>(text.size()), hash});
    bytes_ += text;
    slots_[slot] = number;
    return number;
  }
  // kNone when it was never added.
  uint32_t find(std::string_view text) const noexcept {
    return slots_.empty() ? kNone : slots_[slot_of(text, hash_of(text))];
  }
  std::string_view at(uint32_t number) const noexcept {
    return std::string_view(bytes_).substr(entries_[number].offset, entries_[number].n_bytes);
  }
  uint32_t size() const noexcept { return static_cast<uint32_t>(entries_.size()); }

 private:
  struct Entry {
    uint64_t offset;
    uint32_t n_bytes;
    uint32_t hash;
  };

  static uint32_t hash_of(std::string_view text) noexcept {
    const uint64_t hash = std::hash<std::string_view>{}(text);
    return static_cast<uint32_t>(hash ^ hash >> 32);
  }
  // Of the string, or the empty slot where it belongs.
  size_t slot_of(std::string_view text, uint32_t hash) const noexcept {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const uint32_t number = slots_[slot];
      if (number == kNone || (entries_[number].hash == hash && at(number) == text)) return slot;
    }
  }
  void rehash(size_t n_slots) {
    slots_.assign(n_slots, kNone);
    for (uint32_t number = 0; number < entries_.size(); ++number) {
      size_t slot = entries_[number].hash & (n_slots - 1);
      while (slots_[slot] != kNone) slot = (slot + 1) & (n_slots - 1);
      slots_[slot] = number;
    }
  }

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // a power of two, at most half full
};

}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "outrider/text/unicode_tables.h"

namespace outrider::text {
namespace {

constexpr uint32_t kEnd = 0x110000;
constexpr uint32_t kPageSize = 256;

// Two steps, page then character, with equal pages kept once: some 140 KB instead of 2 MB.
class Table {
 public:
  Table() {
    std::vector<CharClass> flat(kEnd);
    for (size_t i = 0; i < unicode::kClassStartsSize; ++i) {
      const uint32_t entry = unicode::kClassStarts[i];
      const uint32_t next = i + 1 < unicode::kClassStartsSize ? unicode::kClassStarts[i + 1] >> 8 : kEnd;
      std::fill(flat.begin() + (entry >> 8), flat.begin() + next, static_cast<CharClass>(entry & 0xFF));
    }
    add(flat, unicode::kWhiteSpace, unicode::kWhiteSpaceSize, kSpace);
    add(flat, unicode::kHan, unicode::kHanSize, kHanScript);
    for (uint32_t page = 0; page < kEnd / kPageSize; ++page) pages_[page] = keep(flat.data() + page * kPageSize);
  }

  CharClass at(char32_t code_point) const noexcept {
    return classes_[pages_[code_point / kPageSize] * kPageSize + code_point % kPageSize];
  }

 private:
  static void add(std::vector<CharClass>& flat, const uint32_t* ranges, size_t n, CharClass bit) {
    for (size_t i = 0; i < n; i += 2) {
      for (uint32_t c = ranges[i]; c <= ranges[i + 1]; ++c) flat[c] |= bit;
    }
  }

  uint16_t keep(const CharClass* page) {
    constexpr size_t n_bytes = kPageSize * sizeof(CharClass);
    const size_t n_pages = classes_.size() / kPageSize;
    // Equal pages mostly stand side by side (ideographs, gaps), so look from the end.
    for (size_t i = n_pages; i-- > 0;) {
      if (std::memcmp(classes_.data() + i * kPageSize, page, n_bytes) == 0) return static_cast<uint16_t>(i);
    }
    classes_.insert(classes_.end(), page, page + kPageSize);
    return static_cast<uint16_t>(n_pages);
  }

  std::array<uint16_t, kEnd / kPageSize> pages_;
  std::vector<CharClass> classes_;
};

}  // namespace

CharClass char_class(char32_t code_point) noexcept {
  static const Table table;
  return code_point < kEnd ? table.at(code_point) : 0;
}

}  // namespace outrider::text

// SPDX-License-Identifier: Apache-2.0
#include "outrider/text/special_matcher.h"

#include <algorithm>

namespace outrider::text {
namespace {

constexpr uint32_t kNothing = UINT32_MAX;

bool looks_like_marker(std::string_view text) {
  constexpr std::string_view kWideBar = "\xEF\xBD\x9C";
  const auto framed = [&](std::string_view bar) {
    return text.size() > 2 + 2 * bar.size() && text.front() == '<' && text.back() == '>' &&
           text.substr(1).starts_with(bar) && text.substr(0, text.size() - 1).ends_with(bar);
  };
  return framed("|") || framed(kWideBar);
}

bool white_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool within(const std::vector<Trust::Range>& ranges, size_t begin, size_t end) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](size_t value, const Trust::Range& range) { return value < range.begin; });
  return after != ranges.begin() && end <= std::prev(after)->end;
}

}  // namespace

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary) {
  for (uint32_t i = 0; i < vocabulary.n_tokens(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = vocabulary.type(id);
    const std::string_view text = vocabulary.text(id);
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if ((!control && type != TokenType::kUserDefined) || text.empty()) continue;
    specials_.push_back(
        {id, std::string(text), control || vocabulary.reserved[i], looks_like_marker(text), vocabulary.right_strip[i]});
  }
  std::stable_sort(specials_.begin(), specials_.end(),
                   [](const Special& a, const Special& b) { return a.text.size() > b.text.size(); });
  special_of_node_.push_back(kNothing);
  for (uint32_t i = 0; i < specials_.size(); ++i) add(i);
}

void SpecialMatcher::add(uint32_t special_idx) {
  uint32_t node = 0;
  for (const char c : specials_[special_idx].text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t& child = node == 0 ? root_[byte] : children_[uint64_t{node} << 8 | byte];
    if (child == 0) {
      child = static_cast<uint32_t>(special_of_node_.size());
      special_of_node_.push_back(kNothing);
    }
    node = child;
  }
  // Of two with one text the first is meant, as everywhere.
  if (special_of_node_[node] == kNothing) special_of_node_[node] = special_idx;
}

std::vector<bool> SpecialMatcher::occurring(std::string_view text) const {
  std::vector<bool> found(specials_.size());
  for (size_t pos = 0; pos < text.size(); ++pos) {
    uint32_t node = root_[static_cast<uint8_t>(text[pos])];
    for (size_t at = pos + 1; node != 0; ++at) {
      if (special_of_node_[node] != kNothing) found[special_of_node_[node]] = true;
      if (at == text.size()) break;
      const auto child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[at]));
      node = child == children_.end() ? 0 : child->second;
    }
  }
  return found;
}

std::vector<Fragment> SpecialMatcher::partition(std::string_view text, const Trust& trust) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({0, text.size()});
  const std::vector<bool> found = occurring(text);
  std::vector<Fragment> next;
  for (size_t i = 0; i < specials_.size(); ++i) {
    const Special& special = specials_[i];
    const bool needs_trust = special.control || (trust.guard_markers && special.marker);
    if (!found[i] || (needs_trust && trust.ranges.empty())) continue;
    next.clear();
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        next.push_back(fragment);
        continue;
      }
      const std::string_view raw = text.substr(0, fragment.end);
      size_t begin = fragment.begin;
      size_t pos = raw.find(special.text, begin);
      while (pos != std::string_view::npos) {
        const size_t end = pos + special.text.size();
        if (needs_trust && !within(trust.ranges, pos, end)) {
          pos = raw.find(special.text, pos + 1);
          continue;
        }
        if (begin < pos) next.push_back({begin, pos});
        next.push_back({pos, end, special.id});
        begin = end;
        while (special.right_strip && begin < fragment.end && white_space(text[begin])) ++begin;
        pos = raw.find(special.text, begin);
      }
      if (begin < fragment.end) next.push_back({begin, fragment.end});
    }
    fragments.swap(next);
  }
  return fragments;
}

}  // namespace outrider::text

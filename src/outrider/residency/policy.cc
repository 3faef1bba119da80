// SPDX-License-Identifier: Apache-2.0
#include "outrider/residency/policy.h"

#include <fmt/ranges.h>

#include <array>

#include "outrider/base/error.h"

namespace outrider::residency {

namespace {

struct PolicyEntry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(std::span<const uint32_t> n_experts, const PolicyOptions& options);
};

constexpr std::array kPolicies = {
    PolicyEntry{"lru", make_lru_policy},
    PolicyEntry{"lfu", make_lfu_policy},
    PolicyEntry{"recent1", make_recent1_policy},
    PolicyEntry{"protect", make_protect_policy},
    PolicyEntry{"class-lru", make_class_lru_policy},
    PolicyEntry{"guarded", make_guarded_policy},
};

}  // namespace

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const PolicyEntry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

std::unique_ptr<Policy> make_policy(std::string_view name, std::span<const uint32_t> n_experts,
                                    const PolicyOptions& options) {
  for (const PolicyEntry& entry : kPolicies) {
    if (entry.name != name) continue;
    if (!(options.lfu_half_life_tokens >= 1)) {
      fail(ErrorKind::kBadArgument, "half-life of the counts: {} tokens, wanted at least 1",
           options.lfu_half_life_tokens);
    }
    return entry.make(n_experts, options);
  }
  fail(ErrorKind::kBadArgument, "eviction policy '{}' is unknown; valid: {}", printable(name),
       fmt::join(policy_names(), ", "));
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// Which expert leaves when another needs its slot. A policy is pure: it sees demands and a clock of tokens, and no
// time, file or thread, so that the same object code runs live and in the simulator, and a recorded trace replays to
// the same choice at every step. Ties end at the lowest expert id, so a choice never depends on the order of the
// candidates. Memory is fixed at construction. Threads: thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrider::residency {

class Policy {
 public:
  virtual ~Policy() = default;
  // A pass demands these distinct experts of the layer; `uses[i]` tokens chose experts[i]. Called before the victims
  // of that demand are chosen.
  virtual void observe(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> uses) noexcept = 0;
  // Position in `candidates` (expert ids of the layer, not empty) of the one to evict.
  virtual uint32_t victim(uint32_t layer, std::span<const uint32_t> candidates) const noexcept = 0;
  // May the predicted expert take the slot of `victim`, which was demanded before? Demands are always admitted.
  virtual bool admit(uint32_t layer, uint32_t predicted, uint32_t victim) const noexcept = 0;
  // A predictor names what the layer's next demand may hold, in place of what it named before. The next demand of the
  // layer ends it. A policy may spare those that are resident.
  virtual void expect(uint32_t layer, std::span<const uint32_t> experts) noexcept {
    static_cast<void>(layer);
    static_cast<void>(experts);
  }
  // `n_tokens` more tokens have been processed.
  virtual void end_step(uint32_t n_tokens) noexcept { static_cast<void>(n_tokens); }
};

struct PolicyOptions {
  double lfu_half_life_tokens = 256;  // >= 1; of lfu, class-lru and guarded
};

// The names of the table, in the order of --help.
std::vector<std::string_view> policy_names();

// `n_experts`: experts of each MoE layer. Throws Error(kBadArgument) that lists the valid names.
std::unique_ptr<Policy> make_policy(std::string_view name, std::span<const uint32_t> n_experts,
                                    const PolicyOptions& options);

// One of each kind; the table in policy.cc names them.
std::unique_ptr<Policy> make_lru_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);
std::unique_ptr<Policy> make_lfu_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);
std::unique_ptr<Policy> make_recent1_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);
std::unique_ptr<Policy> make_protect_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);
std::unique_ptr<Policy> make_class_lru_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);
std::unique_ptr<Policy> make_guarded_policy(std::span<const uint32_t> n_experts, const PolicyOptions& options);

}  // namespace outrider::residency

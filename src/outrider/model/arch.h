// SPDX-License-Identifier: Apache-2.0
// How an architecture is described: a function that reads its own keys into the ModelSpec (the common ones are read
// already) and returns the rules that no key states. One short file per architecture, one row in the table of arch.cc.
// Facts per architecture: ../shared/spec/architectures-core.md, sections 2, 6 and 7.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "outrider/format/metadata.h"
#include "outrider/model/model.h"

namespace outrider::model {

inline constexpr uint32_t kMaxExperts = 1025;
inline constexpr uint32_t kMaxWidth = 1U << 24;  // of any hidden width: products of two stay far inside 64 bits

// Reads keys `ARCH.name`, with the range each may have. Errors name file, key, value and range.
class KeyReader {
 public:
  KeyReader(const format::Metadata& metadata, std::string arch) : metadata_(metadata), arch_(std::move(arch)) {}

  const std::string& file() const noexcept { return metadata_.source(); }
  std::string key(std::string_view name) const { return arch_ + "." + std::string(name); }

  // A whole number in low..high. An array (one value per block) is accepted when all its entries are equal.
  std::optional<uint32_t> find_uint(std::string_view name, uint32_t low, uint32_t high) const;
  uint32_t require_uint(std::string_view name, uint32_t low, uint32_t high) const;
  // As find_uint, but of an array that may vary the first entry counts.
  std::optional<uint32_t> find_first_uint(std::string_view name, uint32_t low, uint32_t high) const;
  // A finite number in low..high.
  std::optional<double> find_real(std::string_view name, double low, double high) const;
  double require_real(std::string_view name, double low, double high) const;
  std::optional<bool> find_bool(std::string_view name) const { return metadata_.find_bool(key(name)); }
  std::optional<std::string_view> find_string(std::string_view name) const { return metadata_.find_string(key(name)); }

 private:
  uint32_t in_range(std::string_view name, int64_t value, uint32_t low, uint32_t high) const;

  const format::Metadata& metadata_;
  std::string arch_;
};

// What an architecture fixes and no key says.
struct ArchRules {
  std::string_view ffn_norm = "ffn_norm";  // tensor name of the norm before the FFN
  bool qk_norm_required = false;           // else optional, layer by layer, when spec.qk_norm allows it
  bool selection_bias = false;             // exp_probs_b.bias is there in every MoE layer
  bool shared_gate = false;                // ffn_gate_inp_shexp gates the shared expert
  bool gate_optional = false;              // experts may lack a gate: silu(up x)
  bool rope_freqs = false;                 // rope_freqs.weight is heeded
  bool output_bias = false;                // attn_output.bias is heeded
  bool may_be_dense = false;               // expert_count may be absent or 0
};

struct Architecture {
  std::string_view name;
  ArchRules (*read)(const KeyReader& keys, ModelSpec& spec);
};

std::span<const Architecture> architectures() noexcept;

ArchRules read_glm4moe(const KeyReader& keys, ModelSpec& spec);
ArchRules read_llama(const KeyReader& keys, ModelSpec& spec);
ArchRules read_olmoe(const KeyReader& keys, ModelSpec& spec);
ArchRules read_qwen2moe(const KeyReader& keys, ModelSpec& spec);
ArchRules read_qwen3(const KeyReader& keys, ModelSpec& spec);
ArchRules read_qwen3moe(const KeyReader& keys, ModelSpec& spec);

// Reads the keys that every architecture shares: depth, widths, heads, rotary, experts and groups.
// spec.n_layers counts all blocks at this point; bind() splits off the NextN blocks.
void read_common(const KeyReader& keys, ModelSpec& spec);

// Checks what must hold between the numbers once the architecture has spoken.
void check_spec(const KeyReader& keys, const ModelSpec& spec, const ArchRules& rules);

// feed_forward_length / experts per token, for files without an expert width (spec section 9, T19).
uint32_t expert_ff_from_dense(const KeyReader& keys, const ModelSpec& spec);

// Finds and checks every tensor. `model.spec` is filled in.
void bind(Model& model, const ArchRules& rules, const LoadOptions& options);

}  // namespace outrider::model

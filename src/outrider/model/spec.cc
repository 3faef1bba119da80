// SPDX-License-Identifier: Apache-2.0
// The keys that every architecture shares (../shared/spec/architectures-core.md, section 2.1), and the checks between
// them.
#include <algorithm>
#include <cmath>

#include "outrider/base/error.h"
#include "outrider/model/arch.h"

namespace outrider::model {

uint32_t KeyReader::in_range(std::string_view name, int64_t value, uint32_t low, uint32_t high) const {
  if (value < low || value > high) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted {}..{}", file(), key(name), value, low, high);
  }
  return static_cast<uint32_t>(value);
}

std::optional<uint32_t> KeyReader::find_uint(std::string_view name, uint32_t low, uint32_t high) const {
  const auto values = metadata_.find_ints(key(name));
  if (!values) return std::nullopt;
  if (values->empty())
    fail(ErrorKind::kBadFile, "{}: key {} is an empty array, wanted {}..{}", file(), key(name), low, high);
  const auto other = std::find_if(values->begin(), values->end(), [&](int64_t v) { return v != values->front(); });
  if (other != values->end()) {
    fail(ErrorKind::kBadFile, "{}: key {} is {} for block 0 and {} for block {}, wanted one value for all blocks",
         file(), key(name), values->front(), *other, other - values->begin());
  }
  return in_range(name, values->front(), low, high);
}

uint32_t KeyReader::require_uint(std::string_view name, uint32_t low, uint32_t high) const {
  const auto value = find_uint(name, low, high);
  if (!value) fail(ErrorKind::kBadFile, "{}: key {} is missing, wanted {}..{}", file(), key(name), low, high);
  return *value;
}

std::optional<uint32_t> KeyReader::find_first_uint(std::string_view name, uint32_t low, uint32_t high) const {
  const auto values = metadata_.find_ints(key(name));
  if (!values || values->empty()) return std::nullopt;
  return in_range(name, values->front(), low, high);
}

std::optional<double> KeyReader::find_real(std::string_view name, double low, double high) const {
  const auto value = metadata_.find_real(key(name));
  if (value && !(*value >= low && *value <= high)) {  // so that NaN is refused
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted {}..{}", file(), key(name), *value, low, high);
  }
  return value;
}

double KeyReader::require_real(std::string_view name, double low, double high) const {
  const auto value = find_real(name, low, high);
  if (!value) fail(ErrorKind::kBadFile, "{}: key {} is missing, wanted {}..{}", file(), key(name), low, high);
  return *value;
}

namespace {

void read_attention(const KeyReader& keys, ModelSpec& spec) {
  constexpr uint32_t kMaxHeads = 16384;
  constexpr uint32_t kMaxHeadWidth = 16384;
  spec.n_heads = keys.require_uint("attention.head_count", 1, kMaxHeads);
  spec.n_kv_heads = keys.find_uint("attention.head_count_kv", 1, kMaxHeads).value_or(spec.n_heads);
  if (spec.n_heads % spec.n_kv_heads != 0) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted a divisor of the {} query heads", keys.file(),
         keys.key("attention.head_count_kv"), spec.n_kv_heads, spec.n_heads);
  }
  const uint32_t head_width = std::max(1U, spec.d_model / spec.n_heads);
  spec.dk = keys.find_uint("attention.key_length", 1, kMaxHeadWidth).value_or(head_width);
  spec.dv = keys.find_uint("attention.value_length", 1, kMaxHeadWidth).value_or(head_width);
  spec.eps = static_cast<float>(keys.require_real("attention.layer_norm_rms_epsilon", 0, 1));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.dk)));
  if (!keys.find_bool("attention.causal").value_or(true)) {
    fail(ErrorKind::kBadFile, "{}: key {} is false, wanted true: only causal models are supported", keys.file(),
         keys.key("attention.causal"));
  }
}

void read_rope(const KeyReader& keys, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.n_rot = keys.find_uint("rope.dimension_count", 2, spec.dk).value_or(spec.dk);
  if (rope.n_rot % 2 != 0) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted an even number", keys.file(), keys.key("rope.dimension_count"),
         rope.n_rot);
  }
  rope.base = keys.find_real("rope.freq_base", 1e-3, 1e15).value_or(10000);
  // A factor without a type means linear; a factor of 0 means none.
  const std::string_view type = keys.find_string("rope.scaling.type").value_or("linear");
  double factor = keys.find_real("rope.scaling.factor", 0, 1e6).value_or(0);
  if (factor == 0) factor = keys.find_real("rope.scale_linear", 0, 1e6).value_or(0);
  rope.factor = factor == 0 ? 1 : factor;
  if (type == "none") {
    rope.scaling = RopeScaling::kNone;
    rope.factor = 1;
  } else if (type == "linear") {
    rope.scaling = rope.factor == 1 ? RopeScaling::kNone : RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
  } else {
    fail(ErrorKind::kBadFile, "{}: key {} is \"{}\", wanted none, linear or yarn", keys.file(),
         keys.key("rope.scaling.type"), printable(type));
  }
  rope.original_context =
      keys.find_uint("rope.scaling.original_context_length", 1, UINT32_MAX).value_or(spec.context_length);
  rope.attn_factor = keys.find_real("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
}

void read_experts(const KeyReader& keys, ModelSpec& spec) {
  kernels::RouterSpec& router = spec.router;
  router.n_experts = keys.find_uint("expert_count", 0, kMaxExperts).value_or(0);
  if (router.n_experts == 0) {
    if (const auto used = keys.find_uint("expert_used_count", 0, kMaxExperts); used.value_or(0) != 0) {
      fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted 0: the model has no experts", keys.file(),
           keys.key("expert_used_count"), *used);
    }
    return;
  }
  router.n_used = keys.require_uint("expert_used_count", 1, router.n_experts);
  router.n_groups = keys.find_uint("expert_group_count", 0, router.n_experts).value_or(0);
  router.n_groups_used = keys.find_uint("expert_group_used_count", 0, router.n_experts).value_or(0);
  if (router.n_groups <= 1) return;
  if (router.n_experts % router.n_groups != 0 || router.n_experts == router.n_groups) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted a divisor of the {} experts, with two or more in a group",
         keys.file(), keys.key("expert_group_count"), router.n_groups, router.n_experts);
  }
  if (router.n_groups_used < 1 || router.n_groups_used >= router.n_groups) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted 1..{}", keys.file(), keys.key("expert_group_used_count"),
         router.n_groups_used, router.n_groups - 1);
  }
  if (router.n_used > router.n_experts / router.n_groups * router.n_groups_used) {
    fail(ErrorKind::kBadFile, "{}: key {} is {}, wanted at most the {} experts of the groups in use", keys.file(),
         keys.key("expert_used_count"), router.n_used, router.n_experts / router.n_groups * router.n_groups_used);
  }
}

}  // namespace

void read_common(const KeyReader& keys, ModelSpec& spec) {
  constexpr uint32_t kMaxBlocks = 4096;
  spec.n_layers = keys.require_uint("block_count", 1, kMaxBlocks);
  spec.n_nextn = keys.find_uint("nextn_predict_layers", 0, spec.n_layers - 1).value_or(0);
  spec.context_length = keys.require_uint("context_length", 1, UINT32_MAX);
  spec.d_model = keys.require_uint("embedding_length", 1, kMaxWidth);
  spec.dense_ff = keys.find_uint("feed_forward_length", 0, kMaxWidth).value_or(0);
  read_attention(keys, spec);
  read_rope(keys, spec);
  read_experts(keys, spec);
}

uint32_t expert_ff_from_dense(const KeyReader& keys, const ModelSpec& spec) {
  const uint32_t n_used = std::max(1U, spec.router.n_used);
  if (spec.dense_ff == 0 || spec.dense_ff % n_used != 0) {
    fail(ErrorKind::kBadFile, "{}: key {} is missing and {} ({}) is no multiple of the {} experts per token",
         keys.file(), keys.key("expert_feed_forward_length"), keys.key("feed_forward_length"), spec.dense_ff, n_used);
  }
  return spec.dense_ff / n_used;
}

void check_spec(const KeyReader& keys, const ModelSpec& spec, const ArchRules& rules) {
  if (!spec.is_moe() && !rules.may_be_dense) {
    fail(ErrorKind::kBadFile, "{}: key {} is missing or 0, wanted 1..{}", keys.file(), keys.key("expert_count"),
         kMaxExperts);
  }
  if (spec.is_moe() && (spec.expert_ff < 1 || spec.expert_ff > kMaxWidth)) {
    fail(ErrorKind::kBadFile, "{}: expert width is {}, wanted 1..{} (keys {} and {})", keys.file(), spec.expert_ff,
         kMaxWidth, keys.key("expert_feed_forward_length"), keys.key("feed_forward_length"));
  }
  if (spec.shared_ff > kMaxWidth) {
    fail(ErrorKind::kBadFile, "{}: shared expert width is {}, wanted at most {}", keys.file(), spec.shared_ff,
         kMaxWidth);
  }
  if ((spec.n_leading_dense > 0 || !spec.is_moe()) && spec.dense_ff == 0) {
    fail(ErrorKind::kBadFile, "{}: key {} is missing or 0, wanted 1..{}: the model has dense layers", keys.file(),
         keys.key("feed_forward_length"), kMaxWidth);
  }
}

}  // namespace outrider::model

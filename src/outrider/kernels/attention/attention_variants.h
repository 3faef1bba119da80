// SPDX-License-Identifier: Apache-2.0
// The variants of attention and of the KV store, all exact. Dispatch and tests loop over attention_variants() and
// store_kv_variants().
#pragma once

#include <span>

#include "outrider/kernels/attention/attention.h"

namespace outrider::kernels {

void attention_ref(const AttentionArgs& args) noexcept;
void attention_avx2(const AttentionArgs& args) noexcept;
void attention_avx512(const AttentionArgs& args) noexcept;
void store_kv_ref(const float* x, uint32_t width, KvType type, std::byte* row) noexcept;
void store_kv_avx2(const float* x, uint32_t width, KvType type, std::byte* row) noexcept;

struct AttentionVariant {
  Isa needs;
  AttentionFn fn;
};
struct StoreKvVariant {
  Isa needs;
  StoreKvFn fn;
};
// Rising needs; the first needs nothing.
std::span<const AttentionVariant> attention_variants() noexcept;
std::span<const StoreKvVariant> store_kv_variants() noexcept;

}  // namespace outrider::kernels

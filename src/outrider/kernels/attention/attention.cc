// SPDX-License-Identifier: Apache-2.0
#include "outrider/kernels/attention/attention.h"

#include "outrider/kernels/attention/attention_variants.h"

namespace outrider::kernels {
namespace {

constexpr AttentionVariant kAttentionVariants[] = {
    {Isa::kScalar, attention_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, attention_avx2},
    {Isa::kAvx512, attention_avx512},
#endif
};
constexpr StoreKvVariant kStoreKvVariants[] = {
    {Isa::kScalar, store_kv_ref},
#if defined(__x86_64__)
    {Isa::kAvx2, store_kv_avx2},
#endif
};

}  // namespace

std::span<const AttentionVariant> attention_variants() noexcept { return kAttentionVariants; }
std::span<const StoreKvVariant> store_kv_variants() noexcept { return kStoreKvVariants; }

AttentionFn choose_attention(Isa isa) noexcept {
  AttentionFn best = nullptr;
  for (const AttentionVariant& variant : kAttentionVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

StoreKvFn choose_store_kv(Isa isa) noexcept {
  StoreKvFn best = nullptr;
  for (const StoreKvVariant& variant : kStoreKvVariants) {
    if (variant.needs <= isa) best = variant.fn;
  }
  return best;
}

}  // namespace outrider::kernels

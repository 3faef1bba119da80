// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel of a product by type and number of tokens; every choice gives the same bits.
#include "outrider/base/check.h"
#include "outrider/cuda/product/packed.h"
#include "outrider/cuda/product/token_image.cuh"
#include "outrider/cuda/product/variants.h"
#include "outrider/numerics/iq_grids.h"

namespace outrider::cuda {
namespace {

#define OUTRIDER_ROW(type, name) \
  {format::TensorType::type, rows_##name, gated_##name, tiles_##name, give_##name, take_##name},
constexpr ProductVariant kVariants[] = {OUTRIDER_CUDA_UNITS(OUTRIDER_ROW)};
#undef OUTRIDER_ROW

const ProductVariant* find_variant(format::TensorType type) noexcept {
  for (const ProductVariant& variant : kVariants) {
    if (variant.type == type) return &variant;
  }
  return nullptr;
}

ProductParams params_of(const ProductArgs& args) {
  const format::TypeInfo& info = format::type_info(args.type);
  OUTRIDER_CHECK(info.is_weight && args.k % info.block_elems == 0, "type {} k {}", info.name, args.k);
  OUTRIDER_CHECK(args.jobs != nullptr || args.n_jobs == 1, "{} jobs without a list", args.n_jobs);
  ProductParams p{};
  p.job = args.job;
  p.jobs = args.jobs;
  p.q = args.x.q, p.d = args.x.d, p.sum32 = args.x.sum32, p.sum16 = args.x.sum16;
  p.f32 = args.x.f32, p.f32_stride = args.x.f32_stride;
  p.token_rows = args.token_rows;
  p.out = args.out, p.out_stride = args.out_stride;
  p.n_rows = args.n_rows, p.k = args.k, p.n_blocks = args.k / 32;
  p.row_bytes = args.packed ? packed_places(packed_shape(args.type), p.n_blocks).n_bytes
                            : static_cast<uint32_t>(format::row_bytes(args.type, args.k));
  p.ahead = args.ahead;
  p.beside = args.beside;
  p.image = args.scratch;
  p.is_image_made = args.is_scratch_made;
  return p;
}

struct PackedVariant {
  format::TensorType type;
  ProductKernel rows, gated;
};
#define OUTRIDER_ROW(unit, name, type) {format::TensorType::type, packed_##name, packed_gated_##name},
constexpr PackedVariant kPackedVariants[] = {OUTRIDER_CUDA_PACKED(OUTRIDER_ROW)};
#undef OUTRIDER_ROW

const PackedVariant& packed_variant(format::TensorType type) {
  for (const PackedVariant& variant : kPackedVariants) {
    if (variant.type == type) return variant;
  }
  OUTRIDER_CHECK(false, "type {} is never packed", format::type_info(type).name);
  return kPackedVariants[0];
}

bool is_empty(const ProductArgs& args) noexcept { return args.n_rows == 0 || args.n_jobs == 0 || args.most_pairs == 0; }

}  // namespace

std::span<const ProductVariant> product_variants() noexcept { return kVariants; }

bool has_unit(format::TensorType type) noexcept { return is_integer_type(type); }

uint64_t product_scratch_bytes(uint32_t k, uint32_t n_jobs, uint32_t most_pairs) noexcept {
  return image_piece(n_jobs, image_groups(most_pairs), 0, image_steps(k / 32), 0, 0) * sizeof(ImagePiece);
}

bool has_packed(format::TensorType type) noexcept { return packed_shape(type).codes != 0; }

uint64_t packed_bytes(format::TensorType type, uint32_t n_rows, uint32_t k) noexcept {
  return uint64_t{(n_rows + kQuad - 1) / kQuad} * packed_places(packed_shape(type), k / 32).n_bytes;
}

void pack(const PackArgs& args, cudaStream_t stream) {
  const format::TypeInfo& info = format::type_info(args.type);
  OUTRIDER_CHECK(has_packed(args.type) && args.k % info.block_elems == 0, "type {} k {}", info.name, args.k);
  if (args.n_rows != 0 && args.k != 0) pack_matrices(args, stream);
}

void product(const ProductArgs& args, cudaStream_t stream) {
  if (is_empty(args)) return;
  const ProductParams p = params_of(args);
  if (args.packed) return packed_variant(args.type).rows(p, args.n_jobs, args.most_pairs, stream);
  const ProductVariant* variant = find_variant(args.type);
  if (variant == nullptr) return float_product(args, p, stream);
  const bool few = args.most_pairs <= kMostRowTokens;
  (few ? variant->rows : variant->tiles)(p, args.n_jobs, args.most_pairs, stream);
}

void gated_product(const GatedArgs& args, cudaStream_t stream) {
  if (is_empty(args.in)) return;
  const ProductVariant* variant = find_variant(args.in.type);
  OUTRIDER_CHECK(variant != nullptr && args.in.n_rows % 32 == 0, "type {} rows {}",
                 format::type_info(args.in.type).name, args.in.n_rows);
  ProductParams p = params_of(args.in);
  p.hidden = args.hidden;
  p.alpha = args.alpha, p.limit = args.limit;
  if (args.in.packed) return packed_variant(args.in.type).gated(p, args.in.n_jobs, args.in.most_pairs, stream);
  variant->gated(p, args.in.n_jobs, args.in.most_pairs, stream);
}

void expert_layer(const ExpertLayerArgs& args, cudaStream_t stream) {
  const ProductArgs& in = args.in.in;
  const ProductArgs& down = args.down;
  if (is_empty(in) || down.n_rows == 0) return;
  const ProductVariant* first = find_variant(in.type);
  const ProductVariant* second = find_variant(down.type);
  OUTRIDER_CHECK(first != nullptr && second != nullptr, "types {} and {}", format::type_info(in.type).name,
                 format::type_info(down.type).name);
  OUTRIDER_CHECK(in.jobs != nullptr && down.jobs != nullptr && in.n_jobs == down.n_jobs && in.n_rows == down.k,
                 "{} and {} jobs, {} hidden values and {}", in.n_jobs, down.n_jobs, in.n_rows, down.k);
  OUTRIDER_CHECK(!in.packed && !down.packed, "expert_layer reads the layout of the file");
  ProductParams p = params_of(in);
  p.alpha = args.in.alpha, p.limit = args.in.limit;
  p.handed = args.handed;
  first->give(p, in.n_jobs, stream);
  p = params_of(down);
  p.handed = args.handed;
  second->take(p, down.n_jobs, stream);
}

namespace {

// In the order of Codebooks.
struct BookBytes {
  const void* data;
  uint64_t n_bytes;
};
const BookBytes kBooks[] = {
    {numerics::kIq2XxsGrid.data(), sizeof numerics::kIq2XxsGrid},
    {numerics::kIq2XsGrid.data(), sizeof numerics::kIq2XsGrid},
    {numerics::kIq2SGrid.data(), sizeof numerics::kIq2SGrid},
    {numerics::kIq3XxsGrid.data(), sizeof numerics::kIq3XxsGrid},
    {numerics::kIq3SGrid.data(), sizeof numerics::kIq3SGrid},
    {numerics::kIq1Grid.data(), sizeof numerics::kIq1Grid},
};

}  // namespace

uint64_t codebook_bytes() noexcept {
  uint64_t sum = 0;
  for (const BookBytes& book : kBooks) sum += book.n_bytes;
  return sum;
}

Codebooks upload_codebooks(std::byte* memory) {
  Codebooks books;
  const int8_t** const fields[] = {&books.iq2_xxs, &books.iq2_xs, &books.iq2_s,
                                   &books.iq3_xxs, &books.iq3_s,  &books.iq1};
  for (size_t i = 0; i < std::size(kBooks); ++i) {
    cuda_check(cudaMemcpy(memory, kBooks[i].data, kBooks[i].n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy(codebook)",
               kBooks[i].n_bytes);
    *fields[i] = reinterpret_cast<const int8_t*>(memory);
    memory += kBooks[i].n_bytes;
  }
  return books;
}

}  // namespace outrider::cuda

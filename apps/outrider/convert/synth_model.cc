// SPDX-License-Identifier: Apache-2.0
#include "convert/synth_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "convert/random_blocks.h"
#include "convert/synth_tokenizer.h"
#include "outrider/base/random.h"
#include "outrider/base/thread_pool.h"
#include "outrider/format/gguf_writer.h"

namespace outrider::apps {
namespace {

using format::TensorType;

constexpr uint64_t kPieceBytes = 1 << 20;  // about what one task fills

// Keys of llama.cpp's exact types: u32, f32, bool, string.
format::Metadata synth_metadata(const Geometry& g) {
  format::Metadata metadata;
  const std::string arch(g.arch);
  const auto key = [&](const char* name) { return arch + "." + name; };
  const auto uint = [&](const char* name, uint64_t value) { metadata.set_uint(key(name), value); };
  const auto uint_if = [&](const char* name, uint64_t value) {
    if (value != 0) uint(name, value);
  };
  const auto real_if = [&](const char* name, float value) {
    if (value != 0) metadata.set_real(key(name), static_cast<double>(value));
  };
  metadata.set_string("general.architecture", arch);
  metadata.set_string("general.type", "model");
  metadata.set_string("general.name", "synthetic " + std::string(g.name));
  metadata.set_string("general.description", "random weights, made by outrider synth");
  uint("block_count", g.n_layers + g.n_nextn);
  uint("context_length", g.n_context);
  uint("embedding_length", g.d_model);
  uint("feed_forward_length", g.dense_ff);
  uint("vocab_size", g.n_vocab);
  uint("attention.head_count", g.n_heads);
  const bool latent = g.kv_lora_rank != 0;
  uint("attention.head_count_kv", latent ? 1 : g.n_kv_heads);
  uint("attention.key_length", latent ? g.kv_lora_rank + g.n_rot : g.head_dim);
  uint("attention.value_length", latent ? g.kv_lora_rank : g.head_dim);
  real_if("attention.layer_norm_rms_epsilon", g.eps);
  uint("rope.dimension_count", g.n_rot != 0 ? g.n_rot : g.head_dim);
  real_if("rope.freq_base", g.rope_base);
  uint("expert_count", g.n_experts);
  uint("expert_used_count", g.n_used);
  if (g.arch != "llama" && g.arch != "olmoe") uint("expert_feed_forward_length", g.expert_ff);
  uint_if("nextn_predict_layers", g.n_nextn);
  uint_if("leading_dense_block_count", g.n_leading_dense);
  if (g.arch == "qwen2moe") uint("expert_shared_feed_forward_length", g.shared_ff);
  if (g.arch == "glm4moe" || latent) {
    uint("expert_shared_count", g.n_shared);
    real_if("expert_weights_scale", g.weights_scale);
    metadata.set_bool(key("expert_weights_norm"), g.weights_norm);
    uint("expert_gating_func", g.sigmoid ? 2 : 1);
    uint_if("expert_group_count", g.n_groups);
    uint_if("expert_group_used_count", g.n_groups_used);
  }
  if (latent) {
    uint("attention.q_lora_rank", g.q_lora_rank);  // 0 is right too: llama.cpp wants the key unless there are 27 layers
    uint("attention.kv_lora_rank", g.kv_lora_rank);
    uint("attention.key_length_mla", g.head_dim + g.n_rot);
    uint("attention.value_length_mla", g.v_head_dim);
  }
  if (g.yarn_factor != 0) {
    metadata.set_string(key("rope.scaling.type"), "yarn");
    real_if("rope.scaling.factor", g.yarn_factor);
    uint("rope.scaling.original_context_length", 4096);
    real_if("rope.scaling.yarn_log_multiplier", g.yarn_log_multiplier);
  }
  uint_if("attention.sliding_window", g.sliding_window);
  set_synth_tokenizer(metadata, g.n_vocab);
  return metadata;
}

float rms_of(const SynthTensor& tensor) {
  const auto inputs = static_cast<float>(tensor.dims[0]);
  switch (tensor.kind) {
    case SynthKind::kMatrix:
      return 1.0F / std::sqrt(inputs);
    case SynthKind::kRouter:
      return 1.5F / std::sqrt(inputs);
    case SynthKind::kEmbedding:
      return 1.0F;
    case SynthKind::kNorm:
      return 0.1F;
    case SynthKind::kBias:
      return 0.1F;
    case SynthKind::kSelectionBias:
      return 0.1F;
    case SynthKind::kSink:
      return 1.0F;
  }
  return 0;
}

TensorType type_of(const SynthTensor& tensor, const TypeChoice& types) {
  if (stays_f32(tensor.name, static_cast<uint32_t>(tensor.dims.size()))) return TensorType::kF32;
  const TensorType asked = is_routed_expert(tensor.name)    ? types.experts
                           : tensor.name == "output.weight" ? types.output
                                                            : types.dense;
  return fitting_type(asked, tensor.dims[0]);
}

// Seeds that depend on the tensor's name and not on its place, so that a model cut in layers keeps its weights.
uint64_t seed_of(uint64_t seed, const std::string& name, uint64_t piece) {
  uint64_t hash = Random(seed).next_u64();
  for (const char c : name) hash = Random(hash ^ static_cast<unsigned char>(c)).next_u64();
  return Random(hash ^ (piece + 1)).next_u64();  // mixed, because seeds a step apart would draw shifted copies
}

// Streams a tensor: batches of pieces filled in parallel, handed over in order.
void fill(const SynthTensor& tensor, TensorType type, uint64_t seed, ThreadPool& pool, format::ByteSink sink,
          FunctionRef<void(uint64_t)> progress) {
  const format::TypeInfo& info = format::type_info(type);
  uint64_t n_elems = 1;
  for (const uint64_t dim : tensor.dims) n_elems *= dim;
  const uint64_t n_blocks = n_elems / info.block_elems;
  const uint64_t piece_blocks = std::max<uint64_t>(1, kPieceBytes / info.block_bytes);
  const uint64_t batch_pieces = uint64_t{pool.n_threads()} * 4;
  const RandomBlocks blocks(type, rms_of(tensor));
  std::vector<std::byte> buffer(std::min(n_blocks, batch_pieces * piece_blocks) * info.block_bytes);
  for (uint64_t begin = 0; begin < n_blocks; begin += batch_pieces * piece_blocks) {
    const uint64_t n_here = std::min(batch_pieces * piece_blocks, n_blocks - begin);
    const auto n_tasks = static_cast<uint32_t>((n_here + piece_blocks - 1) / piece_blocks);
    pool.run(n_tasks, [&](uint32_t task, uint32_t) {
      const uint64_t first = task * piece_blocks;
      blocks.fill(buffer.data() + first * info.block_bytes, std::min(piece_blocks, n_here - first),
                  seed_of(seed, tensor.name, begin / piece_blocks + task));
    });
    const std::span<std::byte> made = std::span(buffer).first(n_here * info.block_bytes);
    if (tensor.kind == SynthKind::kNorm) {  // F32, around 1
      for (uint64_t i = 0; i < n_here; ++i) {
        float value;
        std::memcpy(&value, made.data() + 4 * i, 4);
        value += 1.0F;
        std::memcpy(made.data() + 4 * i, &value, 4);
      }
    }
    sink(made);
    progress(made.size());
  }
}

}  // namespace

uint64_t write_synth(const std::string& path, const SynthOptions& options,
                     FunctionRef<void(uint64_t, uint64_t)> progress) {
  ThreadPool pool(options.n_threads);
  format::GgufWriter writer(synth_metadata(options.geometry));
  const std::vector<SynthTensor> tensors = synth_tensors(options.geometry);
  uint64_t n_total = 0, n_done = 0;
  const auto count = [&](uint64_t n_bytes) {
    n_done += n_bytes;
    progress(n_done, n_total);
  };
  bool any_quantized = false;
  for (const SynthTensor& tensor : tensors) {
    const TensorType type = type_of(tensor, options.types);
    any_quantized = any_quantized || format::type_info(type).block_elems > 1;
    uint64_t n_bytes = format::row_bytes(type, tensor.dims[0]);
    for (size_t d = 1; d < tensor.dims.size(); ++d) n_bytes *= tensor.dims[d];
    n_total += n_bytes;
    writer.add(tensor.name, type, tensor.dims,
               [&, type](format::ByteSink sink) { fill(tensor, type, options.seed, pool, sink, count); });
  }
  writer.metadata().set_uint("general.file_type", file_type_of(options.types.experts));
  if (any_quantized) writer.metadata().set_uint("general.quantization_version", 2);
  return writer.write(path);
}

}  // namespace outrider::apps

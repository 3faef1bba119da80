// SPDX-License-Identifier: Apache-2.0
#include "outrider/model/model.h"

#include "outrider/base/error.h"
#include "outrider/model/arch.h"

namespace outrider::model {
namespace {

const Architecture& find_architecture(const format::Metadata& metadata) {
  const std::string_view name = metadata.require_string("general.architecture");
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return architecture;
  }
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  fail(ErrorKind::kBadFile, "{}: key general.architecture is \"{}\", wanted one of {}", metadata.source(),
       printable(name), known);
}

void override_experts_used(const format::Metadata& metadata, const LoadOptions& options, ModelSpec& spec) {
  if (!options.experts_used) return;
  if (!spec.is_moe()) {
    fail(ErrorKind::kBadArgument, "{}: experts per token set to {}, but the model has no experts", metadata.source(),
         *options.experts_used);
  }
  const kernels::RouterSpec& router = spec.router;
  const uint32_t most =
      router.n_groups > 1 ? router.n_experts / router.n_groups * router.n_groups_used : router.n_experts;
  if (*options.experts_used < 1 || *options.experts_used > most) {
    fail(ErrorKind::kBadArgument, "{}: experts per token set to {}, wanted 1..{}", metadata.source(),
         *options.experts_used, most);
  }
  spec.router.n_used = static_cast<uint32_t>(*options.experts_used);
}

uint64_t slab_bytes_of(const ExpertStacks& experts, uint32_t n_experts) noexcept {
  uint64_t n_bytes = 0;
  for (const format::Tensor* stack : {experts.gate, experts.up, experts.gate_up, experts.down}) {
    if (stack != nullptr) n_bytes += stack->n_bytes / n_experts;
  }
  return n_bytes;
}

}  // namespace

uint64_t Model::slab_bytes(uint32_t moe_idx) const noexcept {
  return slab_bytes_of(layers[spec.n_leading_dense + moe_idx].experts, spec.router.n_experts);
}

uint64_t Model::expert_bytes() const noexcept {
  uint64_t n_bytes = 0;
  for (uint32_t i = 0; i < n_moe_layers(); ++i) n_bytes += slab_bytes(i) * spec.router.n_experts;
  return n_bytes;
}

Model load(format::ModelFile file, const LoadOptions& options) {
  Model model;
  model.file = std::move(file);
  const format::Metadata& metadata = model.file.metadata;
  const Architecture& architecture = find_architecture(metadata);
  model.spec.arch = architecture.name;
  model.spec.name = metadata.find_string("general.name").value_or("");
  const KeyReader keys(metadata, model.spec.arch);
  read_common(keys, model.spec);
  const ArchRules rules = architecture.read(keys, model.spec);
  check_spec(keys, model.spec, rules);
  override_experts_used(metadata, options, model.spec);
  bind(model, rules, options);
  return model;
}

Model open(const std::string& path, const LoadOptions& options) { return load(format::ModelFile::open(path), options); }

}  // namespace outrider::model

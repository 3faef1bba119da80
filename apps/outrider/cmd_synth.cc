// SPDX-License-Identifier: Apache-2.0
// outrider synth: a random-weight model of a real geometry.
#include <cstdio>
#include <memory>

#include "command.h"
#include "convert/synth_model.h"
#include "interrupt.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "progress.h"
#include "type_option.h"

namespace outrider::apps {
namespace {

struct SynthFlags {
  std::string out_path, like;
  format::TensorType type = format::TensorType::kQ4_0;
  format::TensorType dense_type = format::TensorType::kQ8_0;
  uint32_t n_layers = 0, n_experts = 0, n_vocab = 0, n_threads = 0;
  uint64_t seed = 1;
  bool list = false, no_progress = false;
};

bool is_weight(format::TensorType type) noexcept { return format::type_info(type).is_weight; }

void list_geometries() {
  std::printf("%-22s %-10s %7s %7s %7s %6s %9s %8s\n", "name", "arch", "layers", "hidden", "experts", "top-k",
              "expert ff", "vocab");
  for (const Geometry& g : geometries()) {
    std::printf("%-22s %-10s %7u %7u %7u %6u %9u %8u\n", std::string(g.name).c_str(), std::string(g.arch).c_str(),
                g.n_layers, g.d_model, g.n_experts, g.n_used, g.expert_ff, g.n_vocab);
  }
}

std::string geometry_error(const std::string& name) {
  if (find_geometry(name) != nullptr) return {};
  std::string names;
  for (const Geometry& g : geometries()) names += (names.empty() ? "" : ", ") + std::string(g.name);
  return printable(name) + ": wanted one of " + names;
}

void synth(const SynthFlags& flags, bool has_dense_type) {
  if (flags.list) return list_geometries();
  if (flags.out_path.empty() || flags.like.empty()) {
    throw CLI::RequiredError(flags.out_path.empty() ? "out" : "--like");
  }
  SynthOptions options;
  options.geometry = cut_geometry(*find_geometry(flags.like), flags.n_layers, flags.n_experts, flags.n_vocab);
  const bool plain = format::type_info(flags.type).block_elems == 1;
  const format::TensorType dense = has_dense_type || !plain ? flags.dense_type : flags.type;
  options.types = {dense, flags.type, dense};
  options.seed = flags.seed;
  options.n_threads = flags.n_threads != 0 ? flags.n_threads : core_budget().default_threads;
  catch_interrupts();
  Progress bar("synth", flags.no_progress);
  const uint64_t n_bytes = write_synth(flags.out_path, options, [&](uint64_t done, uint64_t total) {
    stop_if_interrupted();
    bar.update(done, total);
  });
  bar.finish();
  const Geometry& g = options.geometry;
  std::printf("%s: %s, %u layers, %u experts, top %u, %u tokens, seed %llu: %s\n", flags.out_path.c_str(),
              std::string(g.name).c_str(), g.n_layers, g.n_experts, g.n_used, g.n_vocab,
              static_cast<unsigned long long>(options.seed), format_bytes(n_bytes).c_str());
}

}  // namespace

void add_synth(CLI::App& app) {
  CLI::App* command = app.add_subcommand("synth", "Write a random-weight model of a real geometry");
  auto flags = std::make_shared<SynthFlags>();
  command->add_option("out", flags->out_path, "File to write");
  command->add_option("--like", flags->like, "Geometry; --list shows the names")->check(geometry_error);
  command->add_flag("--list", flags->list, "List the geometries and stop");
  add_type_option(*command, "--type", flags->type, "Type of the routed experts (default q4_0)", is_weight);
  CLI::Option* dense = add_type_option(
      *command, "--dense-type", flags->dense_type,
      "Type of the other matrices (default q8_0; f32, f16 or bf16 if --type is one of them)", is_weight);
  command->add_option("--layers", flags->n_layers, "Layers instead of the model's own")->check(CLI::Range(1U, 511U));
  command->add_option("--experts", flags->n_experts, "Experts a layer instead of the model's own")
      ->check(CLI::Range(1U, 1025U));
  command->add_option("--vocab", flags->n_vocab, "Vocabulary rows instead of the model's own")
      ->check(CLI::Range(1U, 4194304U));
  command->add_option("--seed", flags->seed, "Seed of the weights");
  command->add_option("-t,--threads", flags->n_threads, "Threads (default: physical cores)")
      ->check(CLI::Range(1U, 1024U));
  command->add_flag("--no-progress", flags->no_progress, "No progress bar");
  command->callback([flags, dense] { synth(*flags, !dense->empty()); });
}

}  // namespace outrider::apps

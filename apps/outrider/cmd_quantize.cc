// SPDX-License-Identifier: Apache-2.0
// outrider quantize: a model file with other weight types.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "command.h"
#include "convert/quantize_file.h"
#include "interrupt.h"
#include "outrider/base/cpu.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/numerics/quantize.h"
#include "progress.h"
#include "type_option.h"

namespace outrider::apps {
namespace {

struct QuantizeFlags {
  std::string in_path, out_path;
  format::TensorType type = format::TensorType::kQ8_0;
  format::TensorType experts = format::TensorType::kQ8_0;
  format::TensorType output = format::TensorType::kQ8_0;
  bool allow_requantize = false;
  uint32_t n_threads = 0;
  bool no_progress = false;
};

void quantize(const QuantizeFlags& flags, bool has_experts, bool has_output) {
  const format::ModelFile model = format::ModelFile::open(flags.in_path);
  for (const format::ModelPart& part : model.files) {
    std::error_code ignored;
    if (std::filesystem::equivalent(part.path, flags.out_path, ignored)) {
      fail(ErrorKind::kBadArgument, "{}: is part of the model to read, wanted another name", flags.out_path);
    }
  }
  QuantizeOptions options;
  options.types = {flags.type, has_experts ? flags.experts : flags.type, has_output ? flags.output : flags.type};
  options.allow_requantize = flags.allow_requantize;
  options.n_threads = flags.n_threads != 0 ? flags.n_threads : core_budget().default_threads;
  catch_interrupts();
  Progress bar("quantize", flags.no_progress);
  const QuantizeSummary summary = quantize_file(model, flags.out_path, options, [&](uint64_t done, uint64_t total) {
    stop_if_interrupted();
    bar.update(done, total);
  });
  bar.finish();
  std::printf(
      "%s: %u tensors, %u converted, %u of them to another type than asked for because of their row length; %s -> %s\n",
      flags.out_path.c_str(), summary.n_tensors, summary.n_quantized, summary.n_fallback,
      format_bytes(summary.bytes_in).c_str(), format_bytes(summary.bytes_out).c_str());
}

}  // namespace

void add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "Write a model again with other weight types");
  auto flags = std::make_shared<QuantizeFlags>();
  command->add_option("in", flags->in_path, "Model: a GGUF file, any part of a split set, or its folder")->required();
  command->add_option("out", flags->out_path, "File to write; a split set becomes one file")->required();
  add_type_option(*command, "--type", flags->type, "Type of all matrices but the routers", numerics::can_quantize)
      ->required();
  CLI::Option* experts = add_type_option(*command, "--experts", flags->experts,
                                         "Type of the routed experts (default: --type)", numerics::can_quantize);
  CLI::Option* output = add_type_option(*command, "--output-type", flags->output,
                                        "Type of the output head (default: --type)", numerics::can_quantize);
  command->add_flag("--allow-requantize", flags->allow_requantize, "Convert tensors that are quantised already");
  command->add_option("-t,--threads", flags->n_threads, "Threads (default: physical cores)")
      ->check(CLI::Range(1U, 1024U));
  command->add_flag("--no-progress", flags->no_progress, "No progress bar");
  command->callback([flags, experts, output] { quantize(*flags, !experts->empty(), !output->empty()); });
}

}  // namespace outrider::apps

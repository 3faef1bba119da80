// SPDX-License-Identifier: Apache-2.0
// outrider pack: a model file in which every expert is one aligned read.
#include <cstdio>
#include <memory>

#include "command.h"
#include "convert/pack_file.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "progress.h"

namespace outrider::apps {
namespace {

struct PackFlags {
  std::string in_path, out_path;
  bool verify = false, replace = false, no_progress = false;
};

void pack(const PackFlags& flags) {
  if (flags.verify != flags.out_path.empty()) {
    fail(ErrorKind::kBadArgument, "wanted MODEL and OUT to pack, or --verify and the packed file alone");
  }
  Progress bar(flags.verify ? "verify" : "pack", flags.no_progress);
  const auto update = [&](uint64_t done, uint64_t total) { bar.update(done, total); };
  if (flags.verify) {
    const uint64_t n_bytes = verify_pack(flags.in_path, update);
    bar.finish();
    std::printf("%s: %s read, all hashes agree\n", flags.in_path.c_str(), format_bytes(n_bytes).c_str());
    return;
  }
  const format::ModelFile model = format::ModelFile::open(flags.in_path);
  const PackSummary summary = pack_file(model, flags.out_path, {.replace = flags.replace}, update);
  bar.finish();
  std::printf("%s: %llu experts of %llu layers, %s -> %s, read back and compared", flags.out_path.c_str(),
              static_cast<unsigned long long>(summary.n_slabs), static_cast<unsigned long long>(summary.n_layers),
              format_bytes(summary.bytes_in).c_str(), format_bytes(summary.bytes_out).c_str());
  if (summary.resumed_bytes > 0)
    std::printf("; %s were there from an earlier run", format_bytes(summary.resumed_bytes).c_str());
  std::printf("\n");
}

}  // namespace

void add_pack(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pack", "Copy a model so that each expert is one aligned read");
  auto flags = std::make_shared<PackFlags>();
  command->add_option("MODEL", flags->in_path, "Model: a GGUF file, any part of a split set, or its folder")
      ->required();
  command->add_option("OUT", flags->out_path,
                      "File to write; run takes it like any model. Interrupted work is taken up again");
  command->add_flag("--verify", flags->verify,
                    "Compare the packed file MODEL with the hashes it carries; write nothing");
  command->add_flag("--replace", flags->replace, "Make OUT anew when it is there");
  command->add_flag("--no-progress", flags->no_progress, "No progress bar");
  command->callback([flags] { pack(*flags); });
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// outrider probe: what this machine's drive, memory and arithmetic can do, measured once and kept for plan and bench.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/whatif/probe.h"
#include "progress.h"

namespace outrider::apps {
namespace {

struct ProbeFlags {
  std::string folder = ".";
  bool json = false, fresh = false, no_progress = false;
};

void print_probe(const whatif::Probe& probe) {
  std::printf("%s, %u cores; %s, load %.1f\n", probe.cpu.c_str(), probe.cores, probe.date.c_str(), probe.load);
  if (probe.load > 0.5)
    std::printf("note: the machine was busy: readings are low, repeat with --fresh when it is idle\n");
  for (const whatif::ArithmeticReading& r : probe.arithmetic)
    std::printf("%-5s %-7s %8.1f GMAC/s a core\n", r.kind.c_str(), r.isa.c_str(), r.gmacs);
  for (const whatif::MemoryReading& r : probe.memory) std::printf("DRAM  %2u threads %6.1f GB/s\n", r.threads, r.gbps);
  std::printf("drive at %s, %s reads, GB/s\n", probe.drive_folder.c_str(),
              probe.drive_direct ? "direct" : "buffered (direct ones are refused)");
  uint64_t size = 0;
  for (const whatif::DriveReading& r : probe.drive) {
    if (r.read_bytes != size) std::printf("%s%9s ", size == 0 ? "" : "\n", format_bytes(r.read_bytes).c_str());
    size = r.read_bytes;
    std::printf("  depth %2u %6.2f", r.depth, r.gbps);
  }
  std::printf("\n");
  std::printf("products, all cores: one token GB/s; 8, 32 and 128 tokens an expert, 256 of one matrix, GMAC/s\n");
  for (const whatif::ProductRates& r : probe.operations.products) {
    std::printf("%9s %6.1f; %6.1f %6.1f %6.1f %6.1f\n", std::string(format::type_info(r.type).name).c_str(), r.row_gbps,
                r.expert_gmacs[0], r.expert_gmacs[1], r.expert_gmacs[2], r.dense_gmacs);
  }
}

void probe(const ProbeFlags& flags, bool has_folder) {
  const std::string path = whatif::probe_path();
  std::string note;
  auto kept = flags.fresh || has_folder ? std::nullopt : whatif::load_probe(path, note);
  if (!note.empty()) std::fprintf(stderr, "note: %s: measured anew\n", note.c_str());
  if (!kept) {
    Progress bar("probe", flags.no_progress);
    kept = whatif::run_probe({.folder = flags.folder}, [&](uint64_t done, uint64_t total) { bar.update(done, total); });
    bar.finish();
    if (path.empty()) {
      std::fprintf(stderr, "note: neither XDG_CACHE_HOME nor HOME is set: the probe is not kept\n");
    } else {
      whatif::store_probe(path, *kept);
    }
  }
  if (flags.json) {
    std::fputs(whatif::probe_json(*kept).c_str(), stdout);
  } else {
    print_probe(*kept);
  }
}

}  // namespace

void add_probe(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "probe", "Measure this machine's drive, memory, arithmetic and products, and keep the readings");
  auto flags = std::make_shared<ProbeFlags>();
  CLI::Option* folder =
      command->add_option("--dir", flags->folder, "Folder on the drive that holds the models; measures anew")
          ->capture_default_str();
  command->add_flag("--fresh", flags->fresh, "Measure anew instead of showing what is kept");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--no-progress", flags->no_progress, "No progress bar");
  command->callback([flags, folder] { probe(*flags, !folder->empty()); });
}

}  // namespace outrider::apps

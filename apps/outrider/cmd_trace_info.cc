// SPDX-License-Identifier: Apache-2.0
// outrider trace-info: what a recorded trace says about the workload.
#include <cstdio>

#include "command.h"
#include "engine_flags.h"
#include "outrider/observe/trace_file.h"
#include "outrider/whatif/trace_summary.h"
#include "plots.h"

namespace outrider::apps {

namespace {

struct TraceInfoFlags {
  std::string trace, svg, html;
  bool json = false, csv = false;
};

Json summary_json(const observe::TraceHeader& header, const whatif::TraceSummary& summary) {
  Json out;
  out["model"] = header.model;
  out["source"] = header.source;
  out["tokens"] = summary.n_tokens;
  out["overlap"] = summary.overlap;
  out["top_eighth_share"] = summary.top_eighth_share;
  out["reuse"] = summary.reuse;
  out["first_uses"] = summary.first_uses;
  out["working_set"] = summary.working_set;
  for (const whatif::LayerSummary& layer : summary.layers) {
    out["layers"].push_back({{"experts", layer.n_experts},
                             {"seen", layer.n_seen},
                             {"uses", layer.uses},
                             {"top_eighth_share", layer.top_eighth_share},
                             {"entropy_bits", layer.entropy_bits},
                             {"overlap", layer.overlap},
                             {"expert_uses", layer.expert_uses}});
  }
  return out;
}

void print_summary(const observe::TraceHeader& header, const whatif::TraceSummary& summary) {
  std::printf("%s (%s): %llu tokens, %zu MoE layers, %u experts a token; recorded with %s, %u slots%s\n",
              header.model.c_str(), header.source.c_str(), static_cast<unsigned long long>(summary.n_tokens),
              header.layers.size(), header.n_used, header.policy.empty() ? "no policy" : header.policy.c_str(),
              header.slots_per_layer, header.lookahead ? ", look-ahead or warm start" : "");
  std::printf(
      "two tokens in a row share %.1f%% of their experts; the most used eighth of a layer has %.1f%% of the uses\n",
      100 * summary.overlap, 100 * summary.top_eighth_share);
  uint64_t n = summary.first_uses;
  for (const uint64_t uses : summary.reuse) n += uses;
  std::printf("\nreuse: tokens since the layer last used an expert\n%12s %8s\n", "tokens", "share");
  for (size_t i = 0; i < summary.reuse.size(); ++i) {
    const uint64_t low = i == 0 ? 1 : (uint64_t{1} << (i - 1)) + 1, high = uint64_t{1} << i;
    const std::string range = low == high ? fmt::format("{}", low) : fmt::format("{}-{}", low, high);
    std::printf("%12s %7.2f%%\n", range.c_str(),
                n > 0 ? 100.0 * static_cast<double>(summary.reuse[i]) / static_cast<double>(n) : 0.0);
  }
  std::printf("%12s %7.2f%%\n", "first use",
              n > 0 ? 100.0 * static_cast<double>(summary.first_uses) / static_cast<double>(n) : 0.0);
  std::printf("\nworking set: distinct experts of a layer in a window, mean\n%12s %8s\n", "tokens", "experts");
  for (size_t i = 0; i < summary.working_set.size(); ++i)
    std::printf("%12llu %8.2f\n", 1ULL << i, summary.working_set[i]);
  std::printf("\n%6s %8s %8s %12s %9s %8s\n", "layer", "experts", "seen", "top eighth", "entropy", "overlap");
  for (size_t i = 0; i < summary.layers.size(); ++i) {
    const whatif::LayerSummary& layer = summary.layers[i];
    std::printf("%6zu %8u %8u %11.1f%% %9.2f %7.1f%%\n", i, layer.n_experts, layer.n_seen, 100 * layer.top_eighth_share,
                layer.entropy_bits, 100 * layer.overlap);
  }
}

// One line a choice, for other tools.
void print_csv(const observe::Trace& trace) {
  std::printf("step,tokens,layer,sequence,position,token,rank,expert\n");
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    const auto rows = trace.step_rows(step);
    for (size_t i = trace.first_demand(step); i < trace.first_demand(step + 1); ++i) {
      const observe::TraceDemand demand = trace.demand(i);
      for (size_t k = 0; k < demand.row_ids.size(); ++k) {
        const observe::TraceRow& row = rows[k / trace.header().n_used];
        std::printf("%zu,%u,%u,%u,%u,%d,%zu,%u\n", step, trace.step_tokens(step), demand.layer, row.sequence,
                    row.position, row.token, k % trace.header().n_used, demand.row_ids[k]);
      }
    }
  }
}

void trace_info(const TraceInfoFlags& flags) {
  const observe::Trace trace = observe::read_trace(flags.trace);
  if (flags.csv) {
    print_csv(trace);
    return;
  }
  const whatif::TraceSummary summary = whatif::summarize(trace);
  if (flags.json) {
    std::printf("%s\n",
                summary_json(trace.header(), summary).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    print_summary(trace.header(), summary);
  }
  write_plots(flags.svg, flags.html, "Trace of " + trace.header().model,
              {whatif::plot_heat_map(summary), whatif::plot_working_set(summary)});
}

}  // namespace

void add_trace_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("trace-info", "Summarise a recorded trace: reuse, skew, overlap, working sets");
  auto flags = std::make_shared<TraceInfoFlags>();
  command->add_option("TRACE", flags->trace, "File of run --trace, or of synth-trace")->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--csv", flags->csv, "Print one line for each choice instead")->excludes("--json");
  add_plot_flags(*command, flags->svg, flags->html);
  command->callback([flags] { trace_info(*flags); });
}

}  // namespace outrider::apps

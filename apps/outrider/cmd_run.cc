// SPDX-License-Identifier: Apache-2.0
// outrider run: text from a prompt, or a conversation.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "command.h"
#include "conversation.h"
#include "engine_flags.h"
#include "generate.h"
#include "instruments.h"
#include "interrupt.h"
#include "outrider/base/error.h"
#include "outrider/base/memory_budget.h"
#include "outrider/base/units.h"
#include "plan_speed.h"
#include "sampler_flags.h"
#include "warm_start.h"

namespace outrider::apps {

namespace {

struct RunFlags {
  EngineFlags engine;
  SamplerFlags sampler;
  InstrumentFlags instruments;
  std::string prompt, prompt_file, prompt_ids, system;
  int64_t n_predict = 256;
  std::vector<std::string> stops;
  bool chat = false, ignore_eos = false, json = false, digest = false, ids = false;
  std::string draft = "off";
};

std::vector<int32_t> plain_prompt(const RunFlags& flags, const LoadedModel& loaded) {
  if (!flags.prompt_ids.empty()) return parse_ids(flags.prompt_ids, "--prompt-ids");
  const std::string text = flags.prompt_file.empty() ? flags.prompt : read_text_file(flags.prompt_file);
  return require_tokenizer(loaded).encode(text, {.add_special = true, .parse_special = true});
}

Json run_json(const RunFlags& flags, const LoadedModel& loaded, const GenerateResult& result,
              std::span<const int32_t> prompt, const std::string& digest) {
  const auto rate = [](uint64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  Json out;
  out["text"] = result.text;
  out["ids"] = result.ids;
  out["prompt_ids"] = std::vector<int32_t>(prompt.begin(), prompt.end());
  out["finish_reason"] = result.finish_reason;
  if (flags.digest) out["digest"] = digest;
  out["seed"] = result.seed;
  out["timing"] = {{"load_s", loaded.load_s},
                   {"prefill_tokens", result.prefill_tokens},
                   {"prefill_tokens_per_s", rate(result.prefill_tokens, result.prefill_s)},
                   {"decode_tokens", result.decode_tokens},
                   {"decode_tokens_per_s", rate(result.decode_tokens, result.decode_s)}};
  out["experts"] = experts_json(loaded, loaded.engine->counters().experts);
  out["experts"]["prefill"] = {{"demanded", result.prefill_demanded}, {"misses", result.prefill_misses}};
  out["experts"]["read_latency_us"] = latency_json(loaded.engine->read_latency());
  out["draft"] = {{"proposed", 0}, {"accepted", 0}};
  out["memory"] = {{"plan_bytes", loaded.plan.total_bytes}, {"peak_rss_bytes", peak_rss_bytes()}};
  out["kernel_class"] = loaded.engine->kernel_class();
  return out;
}

void closing_line(const GenerateResult& result, const residency::StoreCounters& experts) {
  const auto rate = [](uint64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  const double hit_rate =
      experts.demanded > 0 ? 100.0 * static_cast<double>(experts.hits) / static_cast<double>(experts.demanded) : 100.0;
  std::fprintf(
      stderr,
      "prefill %llu tokens, %.1f/s; decode %llu tokens, %.1f/s; experts %.1f%% hits, %s read, stalled %.0f ms; %s\n",
      static_cast<unsigned long long>(result.prefill_tokens), rate(result.prefill_tokens, result.prefill_s),
      static_cast<unsigned long long>(result.decode_tokens), rate(result.decode_tokens, result.decode_s), hit_rate,
      format_bytes(experts.bytes_read).c_str(), static_cast<double>(experts.stall_ns) / 1e6,
      result.finish_reason.c_str());
}

// One generation: streams, prints what was asked for, returns the new text.
std::string run_once(const RunFlags& flags, LoadedModel& loaded, const Instruments& instruments,
                     std::span<const int32_t> prompt, std::vector<int32_t>& history) {
  GenerateOptions options;
  options.max_tokens = flags.n_predict;
  options.sampler = sampler_options(flags.sampler);
  options.stops = flags.stops;
  options.ignore_eos = flags.ignore_eos;
  options.ledger = instruments.ledger();
  observe::Digest digest;
  const bool stream = !flags.json && !flags.ids;
  const auto on_text = [&](std::string_view text) {
    if (!stream) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0) fail(ErrorKind::kIo, "standard output: cannot be written: {}", std::strerror(errno));
  };
  const auto on_token = [&](int32_t id) {
    if (!flags.json && flags.ids) std::printf("%d\n", id);
  };
  const residency::StoreCounters before = loaded.engine->counters().experts;
  const engine::PhaseTimes phases_before = loaded.engine->phase_times();
  const GenerateResult result = generate(*loaded.engine, loaded.tokenizer.get(), prompt, options, history,
                                         flags.digest ? &digest : nullptr, on_text, on_token);
  if (flags.json) {
    std::printf("%s\n", run_json(flags, loaded, result, prompt, flags.digest ? digest.hex() : "")
                            .dump(-1, ' ', false, Json::error_handler_t::replace)
                            .c_str());
  } else {
    if (stream) std::printf("\n");
    if (flags.digest) std::printf("digest %s\n", digest.hex().c_str());
    std::fflush(stdout);
    if (!flags.engine.quiet) {
      const residency::StoreCounters experts = loaded.engine->counters().experts - before;
      closing_line(result, experts);
      const std::string table = closing_table(*loaded.engine, phases_before, result, experts);
      std::fputs(table.c_str(), stderr);
    }
  }
  tell_warnings(loaded);
  if (flags.engine.verbose && !flags.engine.quiet) {
    std::fputs(plan_against_run(loaded, flags.engine, result, loaded.engine->counters().experts - before).c_str(),
               stderr);
  }
  if (flags.engine.verbose && !loaded.engine->lookahead_report().empty()) {
    std::fprintf(stderr, "%s\n", loaded.engine->lookahead_report().c_str());
  }
  return result.text;
}

// Reads turns from standard input until its end; keeps the history in the model's cache. Ctrl-C ends an answer, and the
// next turn is asked for; at the prompt it ends the conversation, and SIGTERM does so anywhere.
void converse(const RunFlags& flags, LoadedModel& loaded, const Instruments& instruments) {
  Conversation conversation(loaded.model.file.metadata, require_tokenizer(loaded), flags.system);
  if (conversation.fallback_template() && !flags.engine.quiet) {
    std::fprintf(stderr, "note: the model has no chat template, using ChatML\n");
  }
  std::vector<int32_t> history;
  const bool given = !flags.prompt.empty() || !flags.prompt_file.empty();
  std::string line = flags.prompt_file.empty() ? flags.prompt : read_text_file(flags.prompt_file);
  for (;;) {
    if (!given) {
      if (!flags.engine.quiet) std::fprintf(stderr, "> ");
      if (!std::getline(std::cin, line)) break;
      if (line.empty()) continue;
    }
    conversation.add_user(line);
    const std::vector<int32_t> prompt = conversation.prompt();
    conversation.add_assistant(run_once(flags, loaded, instruments, prompt, history));
    if (given || pending_signal() == SIGTERM) break;
    interrupted() = false;
  }
}

void run(const RunFlags& flags) {
  const int n_sources = !flags.prompt.empty() + !flags.prompt_file.empty() + !flags.prompt_ids.empty();
  if (n_sources > 1) fail(ErrorKind::kBadArgument, "-p, -f and --prompt-ids: wanted only one of them");
  if (n_sources == 0 && !flags.chat)
    fail(ErrorKind::kBadArgument, "no prompt: give -p TEXT, -f FILE, --prompt-ids LIST or --chat");
  if (flags.chat && !flags.prompt_ids.empty()) fail(ErrorKind::kBadArgument, "--chat: wants text, not --prompt-ids");
  if (!flags.chat && !flags.system.empty())
    fail(ErrorKind::kBadArgument, "--system: wants --chat, a plain prompt has no roles");
  engine::validate(sampler_options(flags.sampler));
  auto loaded = load_model(flags.engine, &interrupted());
  const auto note = [&](const std::string& text) {
    if (!text.empty() && !flags.engine.quiet) std::fprintf(stderr, "note: %s\n", text.c_str());
  };
  WarmStart warm(loaded->model, flags.engine.no_warm ? "" : WarmStart::default_folder());
  for (const std::string& text : warm.begin(*loaded->engine)) note(text);
  Instruments instruments(flags.instruments, flags.engine, *loaded);
  catch_interrupts();
  if (flags.chat) {
    converse(flags, *loaded, instruments);
  } else {
    std::vector<int32_t> history;
    run_once(flags, *loaded, instruments, plain_prompt(flags, *loaded), history);
  }
  instruments.finish();
  note(warm.save(*loaded->engine));
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt, or converse with --chat");
  auto flags = std::make_shared<RunFlags>();
  flags->engine.generates = true;
  add_engine_flags(*command, flags->engine);
  command->add_option("-p,--prompt", flags->prompt, "Prompt text");
  command->add_option("-f,--file", flags->prompt_file, "File with the prompt, - for standard input");
  command->add_option("--prompt-ids", flags->prompt_ids, "Prompt as token ids: 1,2,3 or @FILE");
  command->add_option("-n,--n-predict", flags->n_predict, "Most tokens to generate, -1 for no limit")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--chat", flags->chat,
                    "Use the model's chat template; without a prompt, read turns from standard input");
  command->add_option("--system", flags->system, "System message of --chat");
  command->add_option("--stop", flags->stops, "Stop at this text (may be repeated)")->allow_extra_args(false);
  command->add_flag("--ignore-eos", flags->ignore_eos, "Go on after an end token");
  command->add_option("--draft", flags->draft, "Drafting; this version has none yet")
      ->check(CLI::IsMember({"off", "0"}))
      ->capture_default_str();
  command->add_flag("--digest", flags->digest, "Print a hash over the logits from which the tokens were chosen");
  command->add_flag("--json", flags->json, "Print one JSON object instead of text");
  command->add_flag("--ids", flags->ids, "Print token ids instead of text");
  add_instrument_flags(*command, flags->instruments);
  add_sampler_flags(*command, flags->sampler);
  command->callback([flags] { run(*flags); });
}

}  // namespace outrider::apps

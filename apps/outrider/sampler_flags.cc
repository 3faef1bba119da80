// SPDX-License-Identifier: Apache-2.0
#include "sampler_flags.h"

#include "outrider/base/error.h"
#include "outrider/base/units.h"

namespace outrider::apps {

void add_sampler_flags(CLI::App& command, SamplerFlags& flags) {
  engine::SamplerOptions& options = flags.options;
  const auto group = "Sampling (in this order: bias, penalties, top-k, typical, top-p, min-p, temperature)";
  const auto add = [&](const char* name, auto& field, const char* help) {
    command.add_option(name, field, help)->group(group)->capture_default_str();
  };
  add("--temp", options.temperature, "Temperature; 0 takes the likeliest token");
  add("--top-k", options.top_k, "Keep the k likeliest; 0 is off");
  add("--typical", options.typical_p, "Locally typical sampling; 1 is off");
  add("--top-p", options.top_p, "Keep the likeliest that sum to p; 1 is off");
  add("--min-p", options.min_p, "Keep those at least p times as likely as the likeliest; 0 is off");
  add("--repeat-penalty", options.repeat_penalty, "Divide the logits of recent tokens; 1 is off");
  add("--repeat-last-n", options.repeat_last_n, "How many recent tokens the penalties look at; -1 is the context");
  add("--presence-penalty", options.presence_penalty, "Subtracted once from recent tokens");
  add("--frequency-penalty", options.frequency_penalty, "Subtracted for each recent occurrence");
  add("--seed", flags.seed, "Seed of the draws; -1 picks one and tells it");
  command.add_option("--logit-bias", flags.logit_bias, "ID=BIAS, added to that token's logit (may be repeated)")
      ->allow_extra_args(false)
      ->group(group);
}

engine::SamplerOptions sampler_options(const SamplerFlags& flags) {
  engine::SamplerOptions options = flags.options;
  if (flags.seed < -1) fail(ErrorKind::kBadArgument, "--seed {}: wanted 0 or more, or -1 for a random one", flags.seed);
  if (flags.seed >= 0) options.seed = static_cast<uint64_t>(flags.seed);
  for (const std::string& entry : flags.logit_bias) {
    const size_t split = entry.find('=');
    const auto id = parse_int(entry.substr(0, split));
    const auto bias = split == std::string::npos ? std::nullopt : parse_double(entry.substr(split + 1));
    if (!id || !bias || *id < 0 || *id > INT32_MAX)
      fail(ErrorKind::kBadArgument, "--logit-bias {}: wanted ID=BIAS", printable(entry));
    options.logit_bias.emplace_back(static_cast<int32_t>(*id), static_cast<float>(*bias));
  }
  return options;
}

}  // namespace outrider::apps

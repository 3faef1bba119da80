// SPDX-License-Identifier: Apache-2.0
// The token loop of one sequence: prefill what the cache does not hold, then sample, stop or go on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/engine/engine.h"
#include "outrider/engine/sampler.h"
#include "outrider/observe/digest.h"
#include "outrider/observe/ledger.h"
#include "outrider/text/tokenizer.h"

namespace outrider::apps {

struct GenerateOptions {
  int64_t max_tokens = 256;  // -1: until an end token or the end of the context
  engine::SamplerOptions sampler;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  observe::StepLedger* ledger = nullptr;  // told of sampling and of the end
};

struct GenerateResult {
  std::vector<int32_t> ids;   // generated, the end token excluded
  std::string text;           // empty without a tokenizer
  std::string finish_reason;  // "stop" (end token or stop string), "length" (max_tokens or context), "cancelled"
  uint64_t prefill_tokens = 0, decode_tokens = 0;
  double prefill_s = 0, decode_s = 0;
  uint64_t prefill_demanded = 0, prefill_misses = 0;  // experts
  double sampling_s = 0;                              // choosing tokens, within decode_s
  uint64_t seed = 0;
};

// Text as it becomes printable (whole characters, no part of a stop string), or, without a tokenizer, nothing.
using OnText = std::function<void(std::string_view)>;
// Each token as it is chosen.
using OnToken = std::function<void(int32_t)>;

// `history` holds the tokens that are in the engine's sequence 0; it is cut to what it shares with `prompt` and then
// follows the engine's state. `tokenizer` and `digest` may be null. Throws Error(kBadArgument) for an empty prompt or
// one that does not fit the context, before anything runs.
GenerateResult generate(engine::Engine& engine, const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
                        const GenerateOptions& options, std::vector<int32_t>& history, observe::Digest* digest,
                        const OnText& on_text, const OnToken& on_token);

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "generate.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "outrider/base/error.h"
#include "outrider/text/stream_text.h"

namespace outrider::apps {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Cuts sequence 0 and `history` to the longest common start with `prompt`, leaving at least one token to run.
uint32_t reuse_prefix(engine::Engine& engine, std::span<const int32_t> prompt, std::vector<int32_t>& history) {
  const size_t limit = std::min(history.size(), prompt.size() - 1);
  size_t n_common = 0;
  while (n_common < limit && history[n_common] == prompt[n_common]) ++n_common;
  engine.keep(0, static_cast<uint32_t>(n_common));
  history.resize(n_common);
  return static_cast<uint32_t>(n_common);
}

engine::SamplerOptions with_suppressed(engine::SamplerOptions options, const text::Tokenizer* tokenizer) {
  if (tokenizer != nullptr) {
    const auto ids = tokenizer->suppressed();
    options.suppressed.assign(ids.begin(), ids.end());
  }
  return options;
}

// The sampler's choice, where the text goes on after it.
class GoingOn final : public engine::NextTokenChooser {
 public:
  GoingOn(engine::Sampler& sampler, const text::Tokenizer* ends) : sampler_(sampler), ends_(ends) {}
  void shape(std::span<float> scores) const noexcept override { sampler_.shape(scores); }
  int32_t choose(std::span<const engine::Candidate> likeliest) noexcept override {
    const int32_t token = sampler_.choose(likeliest);
    return token >= 0 && ends_ != nullptr && ends_->is_end_of_generation(token) ? -1 : token;
  }

 private:
  engine::Sampler& sampler_;
  const text::Tokenizer* ends_;
};

}  // namespace

GenerateResult generate(engine::Engine& engine, const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
                        const GenerateOptions& options, std::vector<int32_t>& history, observe::Digest* digest,
                        const OnText& on_text, const OnToken& on_token) {
  const uint32_t context = engine.options().context;
  if (prompt.empty()) fail(ErrorKind::kBadArgument, "the prompt is empty: wanted at least one token");
  if (prompt.size() > context) {
    fail(ErrorKind::kBadArgument, "the prompt has {} tokens but the context holds {} (--ctx)", prompt.size(), context);
  }
  engine::Sampler sampler(with_suppressed(options.sampler, tokenizer), engine.model().spec.n_vocab);
  GoingOn chooser(sampler, options.ignore_eos ? nullptr : tokenizer);
  text::StreamText stream(options.stops);
  GenerateResult result;
  result.seed = sampler.seed();
  const auto show = [&](const std::string& text) {
    result.text += text;
    if (!text.empty() && on_text) on_text(text);
  };

  auto start = std::chrono::steady_clock::now();
  const uint32_t n_reused = reuse_prefix(engine, prompt, history);
  const std::span<const int32_t> fresh = prompt.subspan(n_reused);
  try {
    const residency::StoreCounters before = engine.counters().experts;
    std::span<const float> logits = engine.prefill(0, fresh);  // refuses ids outside the vocabulary
    result.prefill_demanded = engine.counters().experts.demanded - before.demanded;
    result.prefill_misses = engine.counters().experts.misses - before.misses;
    for (const int32_t id : prompt) sampler.accept(id);
    history.assign(prompt.begin(), prompt.end());
    result.prefill_tokens = fresh.size();
    result.prefill_s = seconds_since(start);
    start = std::chrono::steady_clock::now();
    for (;;) {
      if (options.max_tokens >= 0 && result.ids.size() >= static_cast<uint64_t>(options.max_tokens)) {
        result.finish_reason = "length";
        break;
      }
      const auto sampling = std::chrono::steady_clock::now();
      if (options.ledger != nullptr) options.ledger->begin_sampling();
      const int32_t token = sampler.sample(logits);
      if (options.ledger != nullptr) options.ledger->end_sampling();
      result.sampling_s += seconds_since(sampling);
      if (digest != nullptr) digest->add(logits);
      if (!options.ignore_eos && tokenizer != nullptr && tokenizer->is_end_of_generation(token)) {
        result.finish_reason = "stop";
        break;
      }
      sampler.accept(token);
      result.ids.push_back(token);
      if (on_token) on_token(token);
      if (tokenizer != nullptr) show(stream.push(tokenizer->piece(token, false)));
      if (stream.stopped()) {
        result.finish_reason = "stop";
        break;
      }
      const bool last = options.max_tokens >= 0 && result.ids.size() >= static_cast<uint64_t>(options.max_tokens);
      if (last || history.size() >= context) {
        result.finish_reason = "length";
        break;
      }
      const std::array<engine::PassRow, 1> row = {{{0, static_cast<uint32_t>(history.size()), token, true}}};
      const bool has_next = options.max_tokens < 0 || result.ids.size() + 1 < static_cast<uint64_t>(options.max_tokens);
      logits = engine.pass(row, has_next ? &chooser : nullptr);
      history.push_back(token);
      ++result.decode_tokens;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCancelled) throw;
    result.finish_reason = "cancelled";
    history.resize(std::min<size_t>(history.size(), engine.n_tokens(0)));
    if (history.size() < engine.n_tokens(0)) engine.keep(0, static_cast<uint32_t>(history.size()));
  }
  if (options.ledger != nullptr) options.ledger->close_step();
  result.decode_s = result.prefill_s == 0 ? 0 : seconds_since(start);
  if (!stream.stopped()) show(stream.finish());
  return result;
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// Runs an engine on token ids and tells what came out in one text, for tests that compare runs.
#pragma once

#include <string>
#include <vector>

#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "outrider/engine/engine.h"
#include "outrider/kernels/elementwise/elementwise.h"
#include "outrider/observe/digest.h"

namespace outrider::test {

inline int32_t best_token(std::span<const float> logits) {
  return static_cast<int32_t>(kernels::argmax(logits.data(), logits.size()));
}

inline std::vector<int32_t> some_ids(uint32_t n, uint32_t n_vocab, uint64_t salt = 1) {
  TestRng random(salt);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(n_vocab));
  return ids;
}

// For tiny models: the best instruction set, exact KV.
inline engine::EngineOptions tiny_options() {
  engine::EngineOptions options;
  options.context = 64;
  options.isa = best_isa();
  options.kv_type = kernels::KvType::kF32;
  return options;
}

// Digest over the logits of every prompt position and of n_greedy tokens after it.
inline std::string run_digest(engine::Engine& engine, std::span<const int32_t> prompt, uint32_t n_greedy,
                              uint32_t sequence = 0) {
  observe::Digest digest;
  int32_t token = 0;
  engine.prefill(sequence, prompt, [&](uint32_t, std::span<const float> logits) {
    digest.add(logits);
    token = best_token(logits);
  });
  for (uint32_t i = 0; i < n_greedy; ++i) {
    const std::span<const float> logits = engine.prefill(sequence, {&token, 1});
    digest.add(logits);
    token = best_token(logits);
  }
  return digest.hex();
}

inline std::string run_digest(const model::Model& model, const engine::EngineOptions& options,
                              std::span<const int32_t> prompt, uint32_t n_greedy) {
  engine::Engine engine(model, options);
  return run_digest(engine, prompt, n_greedy);
}

// The text of the Error that `body` throws, or "" when it throws none.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace outrider::test

// SPDX-License-Identifier: Apache-2.0
// Peer timing: llama.cpp's prefill and decode speed on a model, one JSON object. Built by tools/peer/fetch, run by
// tools/peer/compare_speed.   llama_speed MODEL THREADS N_PREFILL N_DECODE REPEAT [norepack]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

double run(llama_context* context, const std::vector<llama_token>& tokens, bool one_by_one) {
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<llama_token> ids = tokens;
  const auto start = std::chrono::steady_clock::now();
  if (one_by_one) {
    for (llama_token& id : ids) {
      if (llama_decode(context, llama_batch_get_one(&id, 1)) != 0) std::exit(1);
      llama_get_logits(context);
    }
  } else {
    if (llama_decode(context, llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size()))) != 0) std::exit(1);
    llama_get_logits(context);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(tokens.size()) / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: llama_speed MODEL THREADS N_PREFILL N_DECODE REPEAT [norepack]\n");
    return 2;
  }
  const int n_threads = std::atoi(argv[2]), n_prefill = std::atoi(argv[3]), n_decode = std::atoi(argv[4]),
            n_repeat = std::atoi(argv[5]);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  const char* backends = std::getenv("LLAMA_BACKENDS");
  if (backends != nullptr) ggml_backend_load_all_from_path(backends);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  if (argc > 6 && std::string(argv[6]) == "norepack") model_params.use_extra_bufts = false;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(std::max(n_prefill, n_decode) + 8);
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = n_threads;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  std::mt19937 random(1);
  const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  const auto draw = [&](int n) {
    std::vector<llama_token> ids(static_cast<size_t>(n));
    for (llama_token& id : ids) id = static_cast<llama_token>(random() % static_cast<uint32_t>(n_vocab));
    return ids;
  };
  const std::vector<llama_token> prefill = draw(n_prefill), decode = draw(n_decode);
  run(context, prefill, false);  // warm
  run(context, decode, true);
  std::printf("{\"prefill\":[");
  for (int i = 0; i < n_repeat; ++i) std::printf("%s%.3f", i > 0 ? "," : "", run(context, prefill, false));
  std::printf("],\"decode\":[");
  for (int i = 0; i < n_repeat; ++i) std::printf("%s%.3f", i > 0 ? "," : "", run(context, decode, true));
  std::printf("]}\n");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Oracle driver: prints what llama.cpp computes, for golden files. Built and run by hand against llama.cpp's headers
// and prebuilt libraries by tools/peer/fetch; not part of the build.
//   llama_logits MODEL OUT.f32 ID,ID,...    logits of every position, raw f32, F32 KV cache, no flash attention
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: llama_logits MODEL OUT.f32 ID,ID,...\n");
    return 2;
  }
  std::vector<llama_token> ids;
  for (char* text = argv[3]; *text != '\0';) {
    ids.push_back(static_cast<llama_token>(std::strtol(text, &text, 10)));
    if (*text == ',') ++text;
  }
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  const char* backends = std::getenv("LLAMA_BACKENDS");
  if (backends != nullptr) {
    ggml_backend_load_all_from_path(backends);
  } else {
    ggml_backend_load_all();
  }
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(ids.size()) < 64 ? 64 : static_cast<uint32_t>(ids.size());
  params.n_batch = params.n_ubatch = params.n_ctx;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.n_threads = params.n_threads_batch = 1;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  llama_batch batch = llama_batch_init(static_cast<int32_t>(ids.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(ids.size());
  for (int32_t i = 0; i < batch.n_tokens; ++i) {
    batch.token[i] = ids[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) return 1;
  const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::FILE* out = std::fopen(argv[2], "wb");
  if (out == nullptr) return 1;
  for (int32_t i = 0; i < batch.n_tokens; ++i) {
    std::fwrite(llama_get_logits_ith(context, i), sizeof(float), static_cast<size_t>(n_vocab), out);
  }
  std::fclose(out);
  std::printf("%d positions, vocabulary %d\n", batch.n_tokens, n_vocab);
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  return 0;
}

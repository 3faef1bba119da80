// SPDX-License-Identifier: Apache-2.0
#include "outrider/engine/embedding_rows.h"

#include <fcntl.h>

#include <numeric>

#include "outrider/base/check.h"

namespace outrider::engine {

EmbeddingRows::EmbeddingRows(const model::Model& model, uint32_t chunk, io::FaultPlan* faults)
    : tensor_(*model.embedding),
      faults_(faults),
      file_(io::File::open(model.file.files[tensor_.file_idx].path, faults)),
      rows_(uint64_t{chunk} * tensor_.row_bytes(), "embedding rows"),
      numbers_(chunk) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

kernels::Weights EmbeddingRows::read(std::span<const int32_t> tokens) {
  OUTRIDER_CHECK(tokens.size() <= numbers_.size(), "{} tokens", tokens.size());
  const uint64_t row_bytes = tensor_.row_bytes();
  const auto place = [&](int32_t token) { return tensor_.offset + static_cast<uint64_t>(token) * row_bytes; };
  // All at once to the drive, then one after the other from the page cache.
  if (tokens.size() > 1) {
    for (const int32_t token : tokens) {
      static_cast<void>(posix_fadvise(file_.fd(), static_cast<off_t>(place(token)), static_cast<off_t>(row_bytes),
                                      POSIX_FADV_WILLNEED));
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i)
    file_.read_exact(place(tokens[i]), {rows_.data() + i * row_bytes, row_bytes}, faults_);
  return {.type = tensor_.type,
          .data = rows_.data(),
          .row_bytes = row_bytes,
          .n_rows = static_cast<uint32_t>(tokens.size()),
          .k = static_cast<uint32_t>(tensor_.dims[0])};
}

uint64_t EmbeddingRows::n_bytes(const model::Model& model, uint32_t chunk) noexcept {
  return chunk * (model.embedding->row_bytes() + sizeof(int32_t));
}

bool embedding_can_stay_on_drive(const model::Model& model) noexcept { return model.head.weight != model.embedding; }

}  // namespace outrider::engine

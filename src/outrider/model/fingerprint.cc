// SPDX-License-Identifier: Apache-2.0
#include "outrider/model/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/io/file.h"

namespace outrider::model {

namespace {

constexpr uint64_t kBlockBytes = 4096;
constexpr uint64_t kBlocksPerFile = 16;

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    OUTRIDER_CHECK(state_ != nullptr);
    XXH3_64bits_reset(state_);
  }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(const void* bytes, size_t n_bytes) { XXH3_64bits_update(state_, bytes, n_bytes); }
  void add(uint64_t value) { add(&value, sizeof value); }
  void add(const std::string& text) {
    add(text.size());
    add(text.data(), text.size());
  }
  uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

}  // namespace

uint64_t fingerprint(const Model& model) {
  Hash hash;
  hash.add(model.spec.arch);
  hash.add(model.spec.router.n_used);
  for (const format::Tensor& tensor : model.file.tensors) {
    hash.add(tensor.name);
    hash.add(static_cast<uint64_t>(tensor.type));
    for (const uint64_t dim : tensor.dims) hash.add(dim);
    hash.add(tensor.file_idx);
    hash.add(tensor.offset);
  }
  std::array<std::byte, kBlockBytes> block;
  for (const format::ModelPart& part : model.file.files) {
    hash.add(part.n_bytes);
    const io::File file = io::File::open(part.path);
    const uint64_t n_bytes = std::min(part.n_bytes, kBlockBytes);
    const uint64_t stride = (part.n_bytes - n_bytes) / (kBlocksPerFile - 1);
    for (uint64_t i = 0; i < kBlocksPerFile; ++i) {
      file.read_exact(i * stride, std::span(block).first(n_bytes));
      hash.add(block.data(), n_bytes);
    }
  }
  return hash.value();
}

}  // namespace outrider::model

// SPDX-License-Identifier: Apache-2.0
// A small file in the user's cache folder in which a run leaves something about one model for the next: a line with
// kind, version, the model's fingerprint, MoE layers, experts, bytes and a hash over them, then the bytes. Only a hint:
// whatever is not exactly that is told and ignored. It is replaced whole, so that of several runs at once one wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "outrider/model/model.h"

namespace outrider::apps {

class KeptFile {
 public:
  // FOLDER/FINGERPRINT.KIND; "outrider-KIND VERSION" is what it begins with.
  KeptFile(const std::string& folder, const std::string& kind, uint32_t version, const model::Model& model,
           uint64_t fingerprint);

  // Returns why the file is of no use, or "" (also when there is none: then `bytes` stays empty).
  std::string read(std::vector<std::byte>& bytes, uint64_t max_bytes) const;
  // False when it cannot be written; the old one is there still.
  bool write(std::span<const std::byte> bytes) const;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string header(std::span<const std::byte> bytes) const;
  std::string path_, head_;
};

}  // namespace outrider::apps

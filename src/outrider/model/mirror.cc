// SPDX-License-Identifier: Apache-2.0
#include "outrider/model/mirror.h"

#include "outrider/base/error.h"
#include "outrider/model/fingerprint.h"

namespace outrider::model {

std::vector<std::string> files_of_copy(const Model& model, const std::string& path) {
  // The same experts per token as the model's, which an option may have changed, or the fingerprints would differ.
  const Model copy = open(
      path, {.experts_used = model.spec.is_moe() ? std::optional<int64_t>(model.spec.router.n_used) : std::nullopt});
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::kBadFile, "--mirror {}: is not a copy of {}: {}", printable(path), model.file.metadata.source(),
         why);
  };
  if (copy.file.files.size() != model.file.files.size()) {
    refuse(fmt::format("has {} files, wanted {}", copy.file.files.size(), model.file.files.size()));
  }
  std::vector<std::string> files;
  for (size_t i = 0; i < copy.file.files.size(); ++i) {
    const format::ModelPart& part = copy.file.files[i];
    if (part.n_bytes != model.file.files[i].n_bytes) {
      refuse(fmt::format("{} has {} bytes, wanted {}", part.path, part.n_bytes, model.file.files[i].n_bytes));
    }
    files.push_back(part.path);
  }
  if (fingerprint(copy) != fingerprint(model)) refuse("the same size, but other bytes (fingerprint)");
  return files;
}

}  // namespace outrider::model

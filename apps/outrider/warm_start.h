// SPDX-License-Identifier: Apache-2.0
// Which experts of a model were in demand in earlier runs: kept in the user's cache folder, one small file for each model
// fingerprint, and used to fill free slots in the background while the first prompt runs. Only a hint: a file that is
// damaged, of another version or of another model is ignored with a note, and one that cannot be written is not missed.
#pragma once

#include <string>
#include <vector>

#include "outrider/engine/engine.h"

namespace outrider::apps {

class WarmStart {
 public:
  // `folder`: where the files are; empty: no warm start, every call does nothing.
  WarmStart(const model::Model& model, std::string folder);

  // Reads the file, if there is one, and starts the refill. Returns a note for the user, or "".
  std::string begin(engine::Engine& engine);
  // Half of the old counts and the new ones replace the file. Returns a note, or "".
  std::string save(const engine::Engine& engine);

  // ${XDG_CACHE_HOME:-~/.cache}/outrider/warm, or "" when neither variable is set.
  static std::string default_folder();

 private:
  using Heat = std::vector<float>;  // (MoE layers, experts)
  std::string read(Heat& heat) const;
  std::string header(const Heat& heat) const;

  uint32_t n_layers_, n_experts_;
  uint64_t fingerprint_ = 0;
  std::string folder_, path_;
  Heat old_;
};

}  // namespace outrider::apps

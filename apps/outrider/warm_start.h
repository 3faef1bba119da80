// SPDX-License-Identifier: Apache-2.0
// What a run leaves for the next one of the same model, in the user's cache folder: which experts were in demand, with
// which free slots are filled in the background while the first prompt runs, and what the token predictor has learned.
// Only hints: a file that is damaged, of another version or of another model is ignored with a note, and one that
// cannot be written is not missed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kept_file.h"
#include "outrider/engine/engine.h"

namespace outrider::apps {

class WarmStart {
 public:
  // `folder`: where the files are; empty: no warm start, every call does nothing.
  WarmStart(const model::Model& model, const std::string& folder);

  // Takes over what the files hold, if there are any, and starts the refill. Returns notes for the user.
  std::vector<std::string> begin(engine::Engine& engine);
  // Half of the old counts and the new ones replace the file, and so does the token table unless look-ahead is off.
  // Returns a note, or "".
  std::string save(const engine::Engine& engine);

  // ${XDG_CACHE_HOME:-~/.cache}/outrider/warm, or "" when neither variable is set.
  static std::string default_folder();

 private:
  std::string read_heat();
  void refill(engine::Engine& engine) const;

  uint32_t n_layers_, n_experts_;
  std::optional<KeptFile> heat_file_, table_file_;
  std::vector<float> old_;  // (MoE layers, experts)
};

}  // namespace outrider::apps

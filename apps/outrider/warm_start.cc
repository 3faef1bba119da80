// SPDX-License-Identifier: Apache-2.0
#include "warm_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "outrider/model/fingerprint.h"

namespace outrider::apps {

namespace {

constexpr uint32_t kHeatVersion = 2;
constexpr uint32_t kTableVersion = 1;  // changes when the meaning of the predictor's counts does
constexpr float kWarm = 0.5F;          // an expert with less than half a demand left is not worth a read
constexpr float kOldShare = 0.5F;      // of the counts of earlier runs, when a run ends

}  // namespace

WarmStart::WarmStart(const model::Model& model, const std::string& folder)
    : n_layers_(model.n_moe_layers()), n_experts_(model.spec.router.n_experts) {
  if (n_layers_ == 0 || folder.empty()) return;
  const uint64_t fingerprint = model::fingerprint(model);
  heat_file_.emplace(folder, "warm", kHeatVersion, model, fingerprint);
  table_file_.emplace(folder, "tokens", kTableVersion, model, fingerprint);
}

std::string WarmStart::default_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/outrider/warm";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/outrider/warm";
  return "";
}

std::string WarmStart::read_heat() {
  std::vector<float> heat(static_cast<size_t>(n_layers_) * n_experts_);
  std::vector<std::byte> bytes;
  const std::string problem = heat_file_->read(bytes, heat.size() * sizeof(float));
  if (!problem.empty() || bytes.empty()) return problem;
  if (bytes.size() != heat.size() * sizeof(float)) return "not its counts";
  std::memcpy(heat.data(), bytes.data(), bytes.size());
  if (!std::all_of(heat.begin(), heat.end(), [](float value) { return std::isfinite(value) && value >= 0; }))
    return "not its counts";
  old_ = std::move(heat);
  return "";
}

std::vector<std::string> WarmStart::begin(engine::Engine& engine) {
  std::vector<std::string> notes;
  if (!heat_file_) return notes;
  const auto ignored = [&](const KeptFile& file, const std::string& why) {
    if (!why.empty()) notes.push_back(fmt::format("warm start: {} is ignored: {}", file.path(), why));
  };
  ignored(*heat_file_, read_heat());
  if (!old_.empty()) refill(engine);
  if (engine.options().lookahead == 0) return notes;
  std::vector<std::byte> table;
  std::string problem = table_file_->read(table, engine::kTokenTableBytes);
  if (problem.empty() && !table.empty() && !engine.restore_token_table(table)) problem = "not its counts";
  ignored(*table_file_, problem);
  return notes;
}

// The hottest first, as many as a layer has slots.
void WarmStart::refill(engine::Engine& engine) const {
  const uint32_t n_slots = engine.options().slots_per_layer;
  std::vector<residency::ExpertKey> keys;
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    std::vector<residency::ExpertKey> of_layer;
    for (uint32_t expert = 0; expert < n_experts_; ++expert) {
      if (old_[static_cast<size_t>(layer) * n_experts_ + expert] >= kWarm)
        of_layer.push_back({.layer = layer, .expert = expert});
    }
    const auto hotter = [&](const residency::ExpertKey& a, const residency::ExpertKey& b) {
      const float* heat = old_.data() + static_cast<size_t>(layer) * n_experts_;
      return heat[a.expert] != heat[b.expert] ? heat[a.expert] > heat[b.expert] : a.expert < b.expert;
    };
    std::sort(of_layer.begin(), of_layer.end(), hotter);
    of_layer.resize(std::min<size_t>(of_layer.size(), n_slots));
    keys.insert(keys.end(), of_layer.begin(), of_layer.end());
  }
  engine.refill(std::move(keys));
}

std::string WarmStart::save(const engine::Engine& engine) {
  if (!heat_file_) return "";
  std::vector<float> heat;
  for (const std::vector<float>& layer : engine.expert_heat()) heat.insert(heat.end(), layer.begin(), layer.end());
  for (size_t i = 0; i < old_.size(); ++i) heat[i] += kOldShare * old_[i];
  const std::vector<std::byte> table = engine.token_table();
  for (const auto& [file, bytes] :
       {std::pair(&*heat_file_, std::as_bytes(std::span(heat))), {&*table_file_, std::span(table)}}) {
    if (!bytes.empty() && !file->write(bytes)) return fmt::format("warm start: {} cannot be written", file->path());
  }
  return "";
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "warm_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include "outrider/base/error.h"
#include "outrider/model/fingerprint.h"
#include "outrider/observe/digest.h"

namespace outrider::apps {

namespace {

constexpr float kWarm = 0.5F;      // an expert with less than half a demand left is not worth a read
constexpr float kOldShare = 0.5F;  // of the counts of earlier runs, when a run ends

}  // namespace

WarmStart::WarmStart(const model::Model& model, std::string folder)
    : n_layers_(model.n_moe_layers()), n_experts_(model.spec.router.n_experts), folder_(std::move(folder)) {
  if (n_layers_ == 0) folder_.clear();
  if (folder_.empty()) return;
  fingerprint_ = model::fingerprint(model);
  path_ = fmt::format("{}/{:016x}.warm", folder_, fingerprint_);
}

std::string WarmStart::default_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/outrider/warm";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/outrider/warm";
  return "";
}

// The first line of the file; raw little-endian floats follow.
std::string WarmStart::header(const Heat& heat) const {
  observe::Digest digest;
  digest.add(heat);
  return fmt::format("outrider-warm 1 {:016x} {} {} {}", fingerprint_, n_layers_, n_experts_, digest.hex());
}

// Returns why the file is of no use, or "" (also when there is none: then `heat` stays empty).
std::string WarmStart::read(Heat& heat) const {
  std::ifstream in(path_, std::ios::binary);
  if (!in) return "";
  std::string line;
  if (!std::getline(in, line) || line.size() > 200) return "not a warm start file";
  Heat read(static_cast<size_t>(n_layers_) * n_experts_);
  in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size() * sizeof(float)));
  if (!in) return "shorter than it should be";
  if (in.peek() != std::ifstream::traits_type::eof()) return "longer than it should be";
  if (line != header(read)) return "damaged, or of another model or version";
  if (!std::all_of(read.begin(), read.end(), [](float value) { return std::isfinite(value) && value >= 0; })) return "not numbers";
  heat = std::move(read);
  return "";
}

std::string WarmStart::begin(engine::Engine& engine) {
  if (folder_.empty()) return "";
  const std::string problem = read(old_);
  if (!problem.empty()) return fmt::format("warm start: {} is ignored: {}", path_, problem);
  if (old_.empty()) return "";
  const uint32_t n_slots = engine.options().slots_per_layer;
  std::vector<residency::ExpertKey> keys;
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    std::vector<residency::ExpertKey> of_layer;
    for (uint32_t expert = 0; expert < n_experts_; ++expert) {
      if (old_[static_cast<size_t>(layer) * n_experts_ + expert] >= kWarm) of_layer.push_back({.layer = layer, .expert = expert});
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
  return "";
}

std::string WarmStart::save(const engine::Engine& engine) {
  if (folder_.empty()) return "";
  Heat heat;
  for (const std::vector<float>& layer : engine.expert_heat()) heat.insert(heat.end(), layer.begin(), layer.end());
  for (size_t i = 0; i < old_.size(); ++i) heat[i] += kOldShare * old_[i];
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  // A reader sees the old file or the new one, never half of one.
  const std::string part = fmt::format("{}.{}", path_, getpid());
  std::ofstream out(part, std::ios::binary);
  out << header(heat) << '\n';
  out.write(reinterpret_cast<const char*>(heat.data()), static_cast<std::streamsize>(heat.size() * sizeof(float)));
  out.close();
  if (out) std::filesystem::rename(part, path_, error);
  if (out && !error) return "";
  std::filesystem::remove(part, error);
  return fmt::format("warm start: {} cannot be written", path_);
}

}  // namespace outrider::apps

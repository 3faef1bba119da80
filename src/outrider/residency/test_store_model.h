// SPDX-License-Identifier: Apache-2.0
// For tests of the store: a model of random bytes, demands on it, and a check of every byte that is handed out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "outrider/base/test_rng.h"
#include "outrider/io/test_faults.h"
#include "outrider/residency/expert_store.h"

namespace outrider::residency {

using io::Faults;
using io::TestFaults;
using io::TestFile;

struct Geometry {
  uint64_t offset = 0;  // of the first expert stack: odd on purpose
  std::vector<uint32_t> n_experts;
  std::vector<std::vector<uint64_t>> part_bytes;  // by layer
  uint64_t packed_stride = 0;                     // not 0: an expert's parts lie side by side, all in one file
};

// Two files, three layers that differ in experts, parts and sizes; nothing lies on a 4 KiB line, and the last expert
// of each file ends where the file ends.
inline const Geometry kOdd = {
    .offset = 1234 + 1, .n_experts = {16, 9, 16}, .part_bytes = {{2304, 2304, 4608}, {5000, 10007}, {13, 4096, 8193}}};

class Model {
 public:
  explicit Model(const Geometry& geometry) {
    std::array<uint64_t, 2> end = {geometry.offset, geometry.offset + 77};
    for (size_t layer = 0; layer < geometry.n_experts.size(); ++layer) {
      LayerSource source = {.n_experts = geometry.n_experts[layer],
                            .n_parts = static_cast<uint32_t>(geometry.part_bytes[layer].size()),
                            .parts = {}};
      for (uint32_t part = 0; geometry.packed_stride != 0 && part < source.n_parts; ++part) {
        const uint64_t before = part == 0 ? end[0] : source.parts[part - 1].offset + source.parts[part - 1].n_bytes;
        source.parts[part] = {.file_idx = 0,
                              .offset = before,
                              .n_bytes = geometry.part_bytes[layer][part],
                              .stride = geometry.packed_stride};
      }
      if (geometry.packed_stride != 0) end[0] += geometry.packed_stride * source.n_experts;
      for (uint32_t part = 0; geometry.packed_stride == 0 && part < source.n_parts; ++part) {
        const uint32_t file_idx = (layer + part) % 2;
        const uint64_t n_bytes = geometry.part_bytes[layer][part];
        source.parts[part] = {.file_idx = file_idx, .offset = end[file_idx], .n_bytes = n_bytes};
        end[file_idx] += n_bytes * source.n_experts;
      }
      layers.push_back(source);
    }
    files.push_back(std::make_unique<TestFile>(end[0], 11));
    files.push_back(std::make_unique<TestFile>(end[1], 12));
  }

  StoreOptions options(uint32_t slots) const {
    StoreOptions out;
    for (const auto& file : files) out.files.push_back(file->path());
    out.layers = layers;
    out.slots_per_layer = slots;
    return out;
  }

  uint64_t slab_bytes(uint32_t layer) const {
    uint64_t n_bytes = 0;
    for (uint32_t part = 0; part < layers[layer].n_parts; ++part) n_bytes += layers[layer].parts[part].n_bytes;
    return n_bytes;
  }

  // n_last: of the parts, that many from the end are not looked at.
  void expect_bytes(uint32_t layer, const ReadySlab& slab, uint32_t n_last = 0) const {
    for (uint32_t part = 0; part + n_last < layers[layer].n_parts; ++part) {
      const PartSource& source = layers[layer].parts[part];
      const auto wanted = files[source.file_idx]->bytes(source.offset + slab.expert * source.step(), source.n_bytes);
      ASSERT_EQ(std::memcmp(slab.parts[part], wanted.data(), wanted.size()), 0)
          << "layer " << layer << " expert " << slab.expert << " part " << part;
    }
  }

  std::vector<LayerSource> layers;
  std::vector<std::unique_ptr<TestFile>> files;
};

struct Demand {
  uint32_t layer = 0;
  std::vector<uint32_t> experts;
  std::vector<uint32_t> uses;
};

// `n_tokens` steps over all layers; every eighth step is a prompt chunk that demands many experts.
inline std::vector<Demand> random_demands(const Model& model, uint32_t n_steps, uint32_t top_k, TestRng& rng) {
  std::vector<Demand> demands;
  for (uint32_t step = 0; step < n_steps; ++step) {
    for (uint32_t layer = 0; layer < model.layers.size(); ++layer) {
      const uint32_t n_experts = model.layers[layer].n_experts;
      std::vector<uint32_t> ids(n_experts);
      std::iota(ids.begin(), ids.end(), 0U);
      for (uint32_t i = 0; i < n_experts; ++i) std::swap(ids[i], ids[i + rng.below(n_experts - i)]);
      ids.resize(step % 8 == 0 ? 1 + rng.below(n_experts) : std::min(top_k, n_experts));
      Demand demand = {.layer = layer, .experts = ids, .uses = {}};
      for (size_t i = 0; i < ids.size(); ++i) demand.uses.push_back(static_cast<uint32_t>(1 + rng.below(5)));
      demands.push_back(demand);
    }
  }
  return demands;
}

// Collects what is begun, and checks that no expert is told twice or late.
inline void take_begun(LayerPass& pass, const Model& model, uint32_t layer, const std::set<uint32_t>& seen,
                       std::set<uint32_t>& begun) {
  for (auto slabs = pass.next_begun(); !slabs.empty(); slabs = pass.next_begun()) {
    for (const ReadySlab& slab : slabs) {
      ASSERT_FALSE(seen.contains(slab.expert)) << "expert " << slab.expert << " had come whole";
      ASSERT_TRUE(begun.insert(slab.expert).second) << "expert " << slab.expert << " was begun twice";
      ASSERT_NO_FATAL_FAILURE(model.expect_bytes(layer, slab, 1));
    }
  }
}

// Runs one demand, checks every byte handed out, and that each expert comes exactly once.
inline void run_demand(ExpertStore& store, const Model& model, const Demand& demand) {
  LayerPass pass = store.begin(demand.layer, demand.experts, demand.uses);
  std::set<uint32_t> seen, begun;
  for (;;) {
    ASSERT_NO_FATAL_FAILURE(take_begun(pass, model, demand.layer, seen, begun));
    const auto slabs = pass.next();
    if (slabs.empty()) break;
    for (const ReadySlab& slab : slabs) {
      ASSERT_TRUE(seen.insert(slab.expert).second) << "expert " << slab.expert << " came twice";
      ASSERT_NO_FATAL_FAILURE(model.expect_bytes(demand.layer, slab));
    }
    pass.done(slabs);
  }
  ASSERT_EQ(seen, std::set<uint32_t>(demand.experts.begin(), demand.experts.end()));
}

}  // namespace outrider::residency

// SPDX-License-Identifier: Apache-2.0
// One computation, several ways to store it: fused stacks, split sets, factors beside the weights, data beyond 2^32.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>

#include "engine_run.h"
#include "outrider/base/cpu.h"
#include "outrider/base/test_rng.h"
#include "temp_model.h"

namespace outrider {
namespace {

using test::TempModel;
using test::TinyModel;

std::vector<int32_t> some_ids(uint32_t n) {
  TestRng random(7);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(96));
  return ids;
}

std::string digest_of(const model::Model& model, uint32_t slots = 0) {
  engine::EngineOptions options;
  options.context = 64;
  options.isa = best_isa();
  options.slots_per_layer = slots;
  return test::run_digest(model, options, some_ids(20), 6);
}
std::string digest_of(const std::string& path, uint32_t slots = 0) { return digest_of(model::open(path), slots); }

TinyModel glm() {
  TinyModel t;
  t.arch = "glm4moe";
  t.n_layers = 3;
  t.n_leading_dense = 1;
  t.n_shared = 2;
  t.sigmoid = true;
  t.n_rot = 8;
  return t;
}

TEST(EngineLayout, FusedGateUpEqualsSeparateStacks) {
  for (const auto type : {format::TensorType::kF32, format::TensorType::kQ8_0}) {
    TinyModel separate = glm();
    separate.expert_type = type;
    std::map<std::string, std::vector<float>> kept;
    separate.edit = [&](const std::string& name, std::vector<float>& values) { kept[name] = values; };
    const TempModel separate_file(separate);

    TinyModel fused = separate;
    fused.fused_gate_up = true;
    fused.edit = [&](const std::string& name, std::vector<float>& values) {
      const size_t at = name.find("ffn_gate_up_exps");
      if (at == std::string::npos) return;
      const auto& gate = kept.at(name.substr(0, at) + "ffn_gate_exps.weight");
      const auto& up = kept.at(name.substr(0, at) + "ffn_up_exps.weight");
      const size_t n = gate.size() / separate.n_experts;
      ASSERT_EQ(values.size(), 2 * gate.size());
      for (size_t e = 0; e < separate.n_experts; ++e) {
        std::copy_n(gate.begin() + static_cast<ptrdiff_t>(e * n), n,
                    values.begin() + static_cast<ptrdiff_t>(2 * e * n));
        std::copy_n(up.begin() + static_cast<ptrdiff_t>(e * n), n,
                    values.begin() + static_cast<ptrdiff_t>((2 * e + 1) * n));
      }
    };
    const TempModel fused_file(fused);
    EXPECT_NE(model::open(fused_file.path()).layers[1].experts.gate_up, nullptr);
    EXPECT_EQ(digest_of(fused_file.path(), 3), digest_of(separate_file.path()));
  }
}

// Factors beside the weights (as NVFP4 files have) act like weights multiplied by them; powers of two keep every bit.
TEST(EngineLayout, ScaleTensorsMultiplyTheProducts) {
  TinyModel plain = glm();
  const TempModel small_file(plain);
  const std::string unscaled = digest_of(small_file.path());
  TinyModel scaled = plain;
  scaled.edit = [](const std::string& name, std::vector<float>& values) {
    const float factor = name == "blk.0.ffn_up.weight" || name == "blk.1.attn_q.weight"     ? 2.0F
                         : name == "blk.2.ffn_down_shexp.weight" || name == "output.weight" ? 0.25F
                                                                                            : 1.0F;
    for (float& x : values) x *= factor;
    for (const char* stack : {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "blk.2.ffn_down_exps.weight"}) {
      if (name != stack) continue;
      const size_t n = values.size() / 8;
      for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0F, static_cast<int>(i / n % 3) - 1);
    }
  };
  const TempModel scaled_file(scaled);
  const std::string want = digest_of(scaled_file.path());
  EXPECT_NE(want, unscaled);

  format::GgufWriter writer = test::build(plain);
  const auto factor = [&](const char* name, std::vector<float> values) {
    const std::vector<uint64_t> dims = {values.size()};
    writer.add(name, format::TensorType::kF32, dims, format::from_values(values));
  };
  factor("blk.0.ffn_up.scale", {2.0F});
  factor("blk.1.attn_q.scale", {2.0F});
  factor("blk.2.ffn_down_shexp.scale", {0.25F});
  factor("output.scale", {0.25F});
  for (const char* name : {"blk.1.ffn_gate_exps.scale", "blk.1.ffn_up_exps.scale", "blk.2.ffn_down_exps.scale"}) {
    factor(name, {0.5F, 1.0F, 2.0F, 0.5F, 1.0F, 2.0F, 0.5F, 1.0F});
  }
  const TempModel side_file(writer);
  const model::Model model = model::open(side_file.path());
  EXPECT_TRUE(model.notes.empty());
  EXPECT_EQ(digest_of(model), want);
  EXPECT_EQ(digest_of(model, 2), want);
}

TEST(EngineLayout, SplitSetEqualsOneFile) {
  const TinyModel tiny = glm();
  const TempModel one(tiny);
  const std::vector<std::string> parts =
      test::build(tiny).write_split(::testing::TempDir() + "outrider_split_" + std::to_string(::getpid()), 3);
  EXPECT_EQ(digest_of(parts[1], 2), digest_of(one.path()));
  for (const std::string& part : parts) std::remove(part.c_str());
}

// Widths of no whole block of 32: only float types can hold them.
TEST(EngineLayout, OddWidthsRun) {
  TinyModel tiny = glm();
  tiny.d_model = 36;
  tiny.head_dim = 10;
  tiny.expert_ff = 5;
  tiny.dense_ff = 7;
  const TempModel file(tiny);
  EXPECT_EQ(digest_of(file.path(), 2), digest_of(file.path()));
}

// MOE-4: a file of over 8 GiB (sparse) whose last experts lie across and beyond 2^32 and 2^33.
class SparseFile {
 public:
  explicit SparseFile(const std::string& from) : path_(from + ".sparse") {
    std::ifstream in(from, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    file_ = format::ModelFile::open(from);
    data_start_ = file_.tensors[0].offset - stored_offset(file_.tensors[0].name);
  }
  ~SparseFile() { std::remove(path_.c_str()); }
  SparseFile(const SparseFile&) = delete;
  SparseFile& operator=(const SparseFile&) = delete;

  // Puts the tensor's data at `offset` (absolute, about: the next allowed place) instead.
  void move(const std::string& name, uint64_t offset) {
    offset -= (offset - data_start_) % 32;
    const uint64_t relative = offset - data_start_;
    std::memcpy(bytes_.data() + record_of(name), &relative, sizeof relative);
    moved_.push_back({&file_.require(name), offset});
  }

  const std::string& write() {
    std::FILE* out = std::fopen(path_.c_str(), "wb");
    EXPECT_EQ(std::fwrite(bytes_.data(), 1, bytes_.size(), out), bytes_.size());
    for (const auto& [tensor, offset] : moved_) {
      std::fseek(out, static_cast<long>(offset), SEEK_SET);
      EXPECT_EQ(std::fwrite(bytes_.data() + tensor->offset, 1, tensor->n_bytes, out), tensor->n_bytes);
    }
    std::fclose(out);
    return path_;
  }

 private:
  // Where the file holds the tensor's offset: after name, n_dims, dims and type.
  size_t record_of(const std::string& name) const {
    const format::Tensor& tensor = file_.require(name);
    const auto at = std::search(bytes_.begin(), bytes_.end(), name.begin(), name.end());
    return static_cast<size_t>(at - bytes_.begin()) + name.size() + 4 + 8 * tensor.n_dims + 4;
  }
  uint64_t stored_offset(const std::string& name) const {
    uint64_t offset = 0;
    std::memcpy(&offset, bytes_.data() + record_of(name), sizeof offset);
    return offset;
  }

  std::string path_;
  std::vector<char> bytes_;
  format::ModelFile file_;
  uint64_t data_start_ = 0;
  std::vector<std::pair<const format::Tensor*, uint64_t>> moved_;
};

TEST(EngineLayout, ExpertsBeyondFourAndEightGiBAreTheSame) {
  const TinyModel tiny = glm();
  const TempModel file(tiny);
  const model::Model plain = model::open(file.path());
  const uint64_t n_bytes = plain.layers[1].experts.down->n_bytes;
  SparseFile sparse(file.path());
  sparse.move("blk.1.ffn_gate_exps.weight", (1ULL << 31) - n_bytes / 2);
  sparse.move("blk.1.ffn_down_exps.weight", (1ULL << 32) - n_bytes / 2);  // expert 4 begins about there
  sparse.move("blk.2.ffn_up_exps.weight", (1ULL << 33) - n_bytes);
  sparse.move("blk.2.ffn_down_exps.weight", (1ULL << 33) + 4096);
  sparse.move("output.weight", (1ULL << 32) + (1ULL << 20));
  const std::string& path = sparse.write();
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  ASSERT_GT(status.st_size, INT64_C(8) << 30);
  if (status.st_blocks * 512 > INT64_C(1) << 30)
    GTEST_SKIP() << "the file system of " << path << " has no sparse files";
  for (const auto direct : {residency::DirectMode::kAuto, residency::DirectMode::kOff}) {
    const model::Model model = model::open(path);
    engine::EngineOptions options;
    options.context = 64;
    options.isa = best_isa();
    options.slots_per_layer = 2;
    options.direct = direct;
    EXPECT_EQ(test::run_digest(model, options, some_ids(20), 6), digest_of(plain));
  }
}

}  // namespace
}  // namespace outrider

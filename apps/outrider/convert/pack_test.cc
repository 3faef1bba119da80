// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "convert/pack_file.h"
#include "outrider/base/error.h"
#include "outrider/format/gguf_writer.h"
#include "outrider/format/pack.h"
#include "outrider/format/test_files.h"
#include "tiny_model.h"

namespace outrider::apps {
namespace {

using format::ModelFile;
using format::read_file;
using format::Tensor;
using format::write_file;

const auto kQuiet = [](uint64_t, uint64_t) {};

std::string data_of(const ModelFile& model, const Tensor& tensor) {
  std::string out;
  format::from_tensor(model, tensor)(
      [&](std::span<const std::byte> bytes) { out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); });
  return out;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

test::TinyModel tiny_model() {
  test::TinyModel tiny;
  tiny.qk_norm = true;
  tiny.expert_type = format::TensorType::kQ4_0;
  return tiny;
}

class PackTest : public ::testing::Test {
 protected:
  ModelFile plain(const test::TinyModel& tiny) {
    test::write_tiny_model(tiny, plain_path_);
    return ModelFile::open(plain_path_);
  }
  PackSummary pack(const ModelFile& model) { return pack_file(model, out_path_, {.replace = true}, kQuiet); }

  format::TempFolder folder_;
  const std::string plain_path_ = folder_ / "plain.gguf", out_path_ = folder_ / "packed.gguf";
};

TEST_F(PackTest, EveryTensorOfEveryArchitectureComesBack) {
  for (const test::TinyCase& one : test::golden_cases()) {
    SCOPED_TRACE(one.name);
    const ModelFile model = plain(one.model);
    if (one.model.n_experts == 0) {
      EXPECT_EQ(message_of([&] { pack(model); }), plain_path_ + ": has no routed experts, nothing to pack");
      continue;
    }
    const PackSummary summary = pack(model);
    EXPECT_EQ(summary.bytes_out, std::filesystem::file_size(out_path_));
    const ModelFile packed = ModelFile::open(out_path_);
    ASSERT_TRUE(packed.is_packed);
    ASSERT_EQ(packed.tensors.size(), model.tensors.size());
    uint64_t n_packed = 0;
    for (const Tensor& wanted : model.tensors) {
      const Tensor& got = packed.require(wanted.name);
      EXPECT_EQ(got.type, wanted.type);
      EXPECT_EQ(got.dims, wanted.dims);
      EXPECT_EQ(got.n_bytes, wanted.n_bytes);
      ASSERT_EQ(data_of(packed, got), data_of(model, wanted)) << wanted.name;
      if (got.stride == 0) continue;
      ++n_packed;
      EXPECT_EQ(got.stride % 4096, 0U);
    }
    EXPECT_GE(n_packed, 2 * summary.n_layers);
    EXPECT_EQ(summary.n_slabs, summary.n_layers * one.model.n_experts);
    EXPECT_GT(verify_pack(out_path_, kQuiet), 0U);
  }
}

TEST_F(PackTest, AnExpertsPartsLieSideBySideOnALine) {
  const ModelFile model = plain(tiny_model());
  pack(model);
  const ModelFile packed = ModelFile::open(out_path_);
  const Tensor& gate = packed.require("blk.1.ffn_gate_exps.weight");
  const Tensor& up = packed.require("blk.1.ffn_up_exps.weight");
  const Tensor& down = packed.require("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(gate.offset % 4096, 0U);
  EXPECT_EQ(up.offset, gate.offset + gate.n_bytes / 8);
  EXPECT_EQ(down.offset, up.offset + up.n_bytes / 8);
  EXPECT_EQ(gate.stride, 4096U);
  EXPECT_EQ(message_of([&] { pack_file(packed, folder_ / "twice.gguf", {}, kQuiet); }),
            out_path_ + ": is packed already");
}

TEST_F(PackTest, WorkStoppedAnywhereGoesOnToTheSameBytes) {
  const ModelFile model = plain(tiny_model());
  pack(model);
  const std::string wanted = read_file(out_path_);
  uint64_t n_calls = 0;
  const std::string other = folder_ / "other.gguf";
  pack_file(model, other, {.record_bytes = 1}, [&](uint64_t, uint64_t) { ++n_calls; });
  ASSERT_GT(n_calls, 40U);
  uint64_t n_resumed = 0;
  for (uint64_t stop_at = 1; stop_at < n_calls; stop_at += 23) {
    std::filesystem::remove(other);
    uint64_t call = 0;
    EXPECT_THROW(pack_file(model, other, {.record_bytes = 5000},
                           [&](uint64_t, uint64_t) {
                             if (++call == stop_at) throw std::runtime_error("stop");
                           }),
                 std::runtime_error);
    EXPECT_FALSE(std::filesystem::exists(other));
    std::ofstream(other + ".part", std::ios::app) << "torn write behind the last record";
    const PackSummary summary = pack_file(model, other, {}, kQuiet);
    n_resumed += summary.resumed_bytes > 0;
    ASSERT_EQ(read_file(other), wanted) << "stopped at call " << stop_at;
    EXPECT_FALSE(std::filesystem::exists(other + ".part.progress"));
  }
  EXPECT_GT(n_resumed, 1U);
}

TEST_F(PackTest, EarlierWorkOnAnotherModelOrWithADamagedRecordDoesNotCount) {
  const auto stop_late = [&](const ModelFile& model) {
    EXPECT_THROW(pack_file(model, out_path_, {.record_bytes = 1},
                           [](uint64_t done, uint64_t total) {
                             if (done > total / 3) throw std::runtime_error("stop");
                           }),
                 std::runtime_error);
  };
  test::TinyModel tiny = tiny_model();
  stop_late(plain(tiny));
  tiny.seed = 2;
  const ModelFile other = plain(tiny);  // the same name and shapes
  EXPECT_EQ(pack_file(other, out_path_, {}, kQuiet).resumed_bytes, 0U);
  const std::string wanted = read_file(out_path_);
  std::filesystem::remove(out_path_);
  stop_late(other);
  std::string record = read_file(out_path_ + ".part.progress");
  ASSERT_GT(record.size(), 40U);
  record[24] ^= 1;
  write_file(out_path_ + ".part.progress", record);
  EXPECT_EQ(pack_file(other, out_path_, {}, kQuiet).resumed_bytes, 0U);
  EXPECT_EQ(read_file(out_path_), wanted);
}

TEST_F(PackTest, DamageIsToldWithItsPlace) {
  const ModelFile model = plain(tiny_model());
  pack(model);
  const std::string sound = read_file(out_path_);
  const Tensor down = ModelFile::open(out_path_).require("blk.1.ffn_down_exps.weight");
  const uint64_t place = down.offset + 3 * down.stride + 5;
  std::string bytes = sound;
  bytes[place] ^= 64;
  write_file(out_path_, bytes);
  const std::string told = message_of([&] { verify_pack(out_path_, kQuiet); });
  EXPECT_NE(told.find(out_path_ + ": outrider.pack.blk.1 expert 3: bytes "), std::string::npos) << told;
  EXPECT_NE(told.find("(damaged?)"), std::string::npos) << told;
  EXPECT_EQ(told.find('\n'), std::string::npos);
  // Cut anywhere: refused when opened.
  for (size_t n_bytes = 0; n_bytes < sound.size() - 4096; n_bytes += 1 + sound.size() / 61) {
    write_file(out_path_, sound.substr(0, n_bytes));
    EXPECT_NE(message_of([&] { ModelFile::open(out_path_); }), "") << n_bytes;
  }
  EXPECT_EQ(message_of([&] { verify_pack(plain_path_, kQuiet); }),
            plain_path_ + ": key outrider.pack.version is missing: not a packed model");
}

// The keys of the format, each made wrong.
TEST_F(PackTest, ADescriptionThatDoesNotHoldTogetherIsRefused) {
  const ModelFile model = plain(tiny_model());
  pack(model);
  const auto told = [&](const std::function<void(format::Metadata&)>& edit) {
    // The same metadata and blobs, written by the plain writer.
    ModelFile packed = ModelFile::open(out_path_);
    edit(packed.metadata);
    format::GgufWriter writer(packed.metadata);
    for (const Tensor& tensor : packed.tensors) {
      if (tensor.stride != 0) continue;
      writer.add(tensor.name, tensor.type, {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims},
                 format::from_tensor(packed, tensor));
    }
    for (const char* blob : {"outrider.pack.blk.0", "outrider.pack.blk.1"}) {
      writer.add(blob, format::TensorType::kI8, {4096, 8}, format::from_memory(std::vector<std::byte>(8 * 4096)));
    }
    const std::string path = folder_ / "edited.gguf";
    writer.write(path);
    const std::string message = message_of([&] { ModelFile::open(path); });
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  };
  using format::ValueType;
  EXPECT_EQ(told([](format::Metadata&) {}), "");
  EXPECT_EQ(told([](format::Metadata& m) { m.set_uint("outrider.pack.version", 2); }),
            "key outrider.pack.version: 2, wanted 1: pack the model again");
  EXPECT_EQ(told([](format::Metadata& m) {
              m.set_ints("outrider.pack.types", {2, 2});
            }),
            "key outrider.pack.types has 2 elements, wanted 6: outrider.pack.names has 6");
  EXPECT_EQ(told([](format::Metadata& m) {
              m.set_ints("outrider.pack.types", {2, 2, 99, 2, 2, 2});
            }),
            "packed tensor blk.0.ffn_down_exps.weight: type number 99 is not a known tensor type");
  EXPECT_EQ(told([](format::Metadata& m) {
              m.set_ints("outrider.pack.offsets", {0, 1152, 2304, 0, 1152, 2945}, ValueType::kI64);
            }),
            "packed tensor blk.1.ffn_down_exps.weight: 2048 elements of type q4_0 an expert from byte 2945 on do not "
            "fit slabs of 4096 bytes");
  EXPECT_EQ(
      told([](format::Metadata& m) {
        m.set_ints("outrider.pack.offsets", {0, 1151, 2304, 0, 1152, 2304}, ValueType::kI64);
      }),
      "packed tensor blk.0.ffn_up_exps.weight: begins inside blk.0.ffn_gate_exps.weight, wanted parts side by side");
  EXPECT_EQ(told([](format::Metadata& m) {
              auto blobs = *m.find_strings("outrider.pack.blobs");
              blobs[0] = "nowhere";
              m.set_strings("outrider.pack.blobs", blobs);
            }),
            "packed tensor blk.0.ffn_gate_exps.weight: its blob nowhere is missing");
  EXPECT_EQ(told([](format::Metadata& m) {
              auto names = *m.find_strings("outrider.pack.names");
              names[1] = "output_norm.weight";
              m.set_strings("outrider.pack.names", names);
            }),
            "packed tensor output_norm.weight: is there twice, wanted once");
}

}  // namespace
}  // namespace outrider::apps

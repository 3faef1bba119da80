// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/gguf_writer.h"

#include <filesystem>

#include "outrider/base/test_rng.h"
#include "outrider/format/test_files.h"

namespace outrider::format {
namespace {

std::vector<std::byte> random_bytes(uint64_t n_bytes, TestRng& rng) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next_u64());
  return bytes;
}

std::vector<std::byte> data_of(const ModelFile& model, const Tensor& tensor) {
  const std::string bytes = read_file(model.path_of(tensor)).substr(tensor.offset, tensor.n_bytes);
  const auto view = std::as_bytes(std::span(bytes));
  return std::vector<std::byte>(view.begin(), view.end());
}

TEST(GgufWriter, WritesBackWhatTheReaderRead) {
  for (const uint32_t alignment : {8U, 32U, 64U, 4096U}) {
    const TempFolder folder;
    const Image image = small_image(alignment);
    write_file(folder / "in.gguf", image.bytes);
    const ModelFile in = ModelFile::open(folder / "in.gguf");
    GgufWriter writer(in.metadata);
    for (const Tensor& tensor : in.tensors) {
      const uint32_t n_dims = std::max(tensor.n_dims, 1U);
      writer.add(tensor.name, tensor.type, {tensor.dims.begin(), tensor.dims.begin() + n_dims},
                 from_tensor(in, tensor));
    }
    const uint64_t n_bytes = writer.write(folder / "out.gguf");
    EXPECT_EQ(n_bytes, read_file(folder / "out.gguf").size());
    const ModelFile out = ModelFile::open(folder / "out.gguf");
    EXPECT_EQ(out.alignment, alignment);
    EXPECT_EQ(out.metadata.entries(), in.metadata.entries());
    ASSERT_EQ(out.tensors.size(), in.tensors.size());
    for (size_t i = 0; i < in.tensors.size(); ++i) {
      EXPECT_EQ(out.tensors[i].name, in.tensors[i].name);
      EXPECT_EQ(out.tensors[i].type, in.tensors[i].type);
      EXPECT_EQ(out.tensors[i].dims, in.tensors[i].dims);
      EXPECT_EQ(data_of(out, out.tensors[i]), data_of(in, in.tensors[i]));
    }
  }
}

TEST(GgufWriter, EveryTensorTypeInAnySizeOfPieces) {
  const TempFolder folder;
  TestRng rng(11);
  GgufWriter writer{Metadata()};
  std::vector<std::vector<std::byte>> data;
  for (const TypeInfo& info : kTensorTypes) {
    const uint64_t n_rows = 1 + rng.below(5);
    data.push_back(random_bytes(row_bytes(info.type, uint64_t{info.block_elems} * 3) * n_rows, rng));
    const size_t n_piece = 1 + rng.below(200);
    writer.add(std::string(info.name), info.type, {uint64_t{info.block_elems} * 3, n_rows},
               [bytes = data.back(), n_piece](ByteSink sink) {
                 for (size_t done = 0; done < bytes.size(); done += n_piece) {
                   sink(std::span(bytes).subspan(done, std::min(n_piece, bytes.size() - done)));
                 }
               });
  }
  data.push_back(random_bytes(2'500'001, rng));  // larger than the writer's buffer
  writer.add("large", TensorType::kI8, {data.back().size()}, from_memory(data.back()));
  writer.write(folder / "m.gguf");
  const ModelFile model = ModelFile::open(folder / "m.gguf");
  ASSERT_EQ(model.tensors.size(), data.size());
  for (size_t i = 0; i < data.size(); ++i)
    EXPECT_TRUE(data_of(model, model.tensors[i]) == data[i]) << model.tensors[i].name;
  EXPECT_EQ(model.total_tensor_bytes(), [&] {
    uint64_t total = 0;
    for (const auto& bytes : data) total += bytes.size();
    return total;
  }());
}

TEST(GgufWriter, SameInputSameBytes) {
  const TempFolder folder;
  for (const char* name : {"one.gguf", "two.gguf"}) {
    GgufWriter writer{Metadata()};
    writer.metadata().set_string("general.architecture", "tiny");
    writer.add("x", TensorType::kF32, {2}, from_values(std::vector<float>{1, 2}));
    writer.write(folder / name);
  }
  EXPECT_EQ(read_file(folder / "one.gguf"), read_file(folder / "two.gguf"));
}

TEST(GgufWriter, NothingIsLeftWhenTheSourceFails) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  writer.add("x", TensorType::kF32, {2}, from_file(folder / "absent", 0, 8));
  EXPECT_THROW(writer.write(folder / "m.gguf"), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, UnwritablePathIsAnIoErrorThatNamesIt) {
  GgufWriter writer{Metadata()};
  try {
    writer.write("/nonexistent/m.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_STREQ(error.what(), "/nonexistent/m.gguf.partial: cannot be created: No such file or directory");
  }
}

TEST(GgufWriter, JoiningASplitSetDropsItsSplitKeys) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  writer.metadata().set_string("general.architecture", "tiny");
  for (const char* name : {"a", "b", "c"})
    writer.add(name, TensorType::kF32, {2}, from_values(std::vector<float>{1, 2}));
  writer.write(folder / "whole.gguf");
  const auto paths = writer.write_split(folder / "m", 2);
  const ModelFile split = ModelFile::open(paths[1]);
  GgufWriter joiner(split.metadata);
  for (const Tensor& tensor : split.tensors) joiner.add(tensor.name, tensor.type, {2}, from_tensor(split, tensor));
  joiner.write(folder / "joined.gguf");
  EXPECT_EQ(read_file(folder / "joined.gguf"), read_file(folder / "whole.gguf"));
}

TEST(GgufWriter, RefusesDevicesAndFoldersAndFollowsLinks) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  const auto error_of = [&](const std::string& path) -> std::string {
    try {
      writer.write(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::filesystem::create_symlink("/dev/full", folder / "full");  // were it replaced, only the link would be
  EXPECT_EQ(error_of(folder / "full"), folder / "full" + ": is not a regular file, wanted a file to write");
  EXPECT_EQ(error_of(folder / ""), folder / "" + ": is a folder, wanted a file to write");
  write_file(folder / "file", "old");
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_EQ(error_of(folder / "link"), "");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "file").substr(0, 4), "GGUF");
}

}  // namespace
}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
// GGUF-2: any part, or the folder, finds the whole set; a missing, swapped or foreign part is refused by name.
#include <gtest/gtest.h>

#include "outrider/format/gguf_writer.h"
#include "outrider/format/split_name.h"
#include "outrider/format/test_files.h"

namespace outrider::format {
namespace {

namespace fs = std::filesystem;

// Six tensors t0..t5 of four floats, each filled with `salt` + its number.
GgufWriter six_tensors(float salt, const std::string& tensor_prefix = "t") {
  GgufWriter writer{Metadata()};
  writer.metadata().set_string("general.architecture", "tiny");
  for (int i = 0; i < 6; ++i) {
    writer.add(tensor_prefix + std::to_string(i), TensorType::kF32, {4},
               from_values(std::vector<float>(4, salt + static_cast<float>(i))));
  }
  return writer;
}

float first_value(const ModelFile& model, std::string_view name) {
  const Tensor& tensor = model.require(name);
  const std::string bytes = read_file(model.path_of(tensor)).substr(tensor.offset, 4);
  float value = 0;
  std::memcpy(&value, bytes.data(), 4);
  return value;
}

void expect_whole(const std::string& path) {
  SCOPED_TRACE(path);
  ASSERT_EQ(open_error(path), "");
  const ModelFile model = ModelFile::open(path);
  EXPECT_EQ(model.files.size(), 3u);
  EXPECT_EQ(model.metadata.require_string("general.architecture"), "tiny");
  ASSERT_EQ(model.tensors.size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(model.tensors[static_cast<size_t>(i)].name, "t" + std::to_string(i));
    EXPECT_EQ(first_value(model, "t" + std::to_string(i)), 10.0F + static_cast<float>(i));
  }
}

class SplitSet : public ::testing::Test {
 protected:
  void SetUp() override { paths_ = six_tensors(10).write_split(folder_ / "m", 3); }

  const TempFolder folder_;
  std::vector<std::string> paths_;
};

TEST_F(SplitSet, AnyPartOrTheFolderFindsTheSet) {
  ASSERT_EQ(paths_.size(), 3u);
  EXPECT_EQ(paths_[1], folder_ / "m-00002-of-00003.gguf");
  for (const std::string& path : paths_) expect_whole(path);
  expect_whole(folder_.path());
  expect_whole(folder_.path() + "/");
}

TEST_F(SplitSet, RelativePathsWork) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  expect_whole("m-00002-of-00003.gguf");
  expect_whole(".");
  fs::current_path(before);
}

TEST_F(SplitSet, LinksToFilesOfOtherNamesWork) {
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "snapshot");
  for (size_t i = 0; i < 3; ++i) {
    fs::rename(paths_[i], folder_ / ("blobs/a1b2c3" + std::to_string(i)));
    fs::create_symlink("../blobs/a1b2c3" + std::to_string(i),
                       folder_ / ("snapshot/" + fs::path(paths_[i]).filename().string()));
  }
  for (const std::string& path : paths_) expect_whole(folder_ / ("snapshot/" + fs::path(path).filename().string()));
  expect_whole(folder_ / "snapshot");
  EXPECT_EQ(open_error(folder_ / "blobs/a1b2c31"),
            (folder_ / "blobs/a1b2c31") +
                ": part 2 of 3 of a split model, but its name does not say so: wanted "
                "NAME-00002-of-00003.gguf");
}

TEST_F(SplitSet, ALinkOfAnyNameStandsForThePart) {
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(paths_[1], folder_ / "elsewhere/model.gguf");
  expect_whole(folder_ / "elsewhere/model.gguf");
}

TEST_F(SplitSet, MissingPartIsNamed) {
  fs::remove(paths_[1]);
  EXPECT_EQ(open_error(paths_[0]), paths_[1] + ": part 2 of 3 is missing, wanted beside " + paths_[0]);
  EXPECT_EQ(open_error(paths_[2]), paths_[1] + ": part 2 of 3 is missing, wanted beside " + paths_[2]);
  EXPECT_EQ(open_error(folder_.path()), paths_[1] + ": part 2 of 3 is missing, wanted beside " + paths_[0]);
}

TEST_F(SplitSet, SwappedPartsAreNamed) {
  fs::rename(paths_[1], folder_ / "swap");
  fs::rename(paths_[2], paths_[1]);
  fs::rename(folder_ / "swap", paths_[2]);
  EXPECT_EQ(open_error(paths_[0]),
            paths_[1] + ": the name says part 2 of 3 but keys split.no and split.count say part 3 of 3");
}

TEST_F(SplitSet, PartOfAnotherModelOfTheSameShapeIsNamed) {
  const TempFolder other;
  fs::copy_file(six_tensors(20).write_split(other / "m", 3)[2], paths_[2], fs::copy_options::overwrite_existing);
  const std::string message = open_error(paths_[0]);
  EXPECT_TRUE(message.starts_with(paths_[2] + ": key outrider.split.set_id: ")) << message;
  EXPECT_TRUE(message.ends_with(" as in " + paths_[0] + ": a part of another model?")) << message;
}

// Copies part `number` (from 1) with one 16-bit key of split.* changed.
void patch_u16(const std::string& path, std::string_view key, uint16_t value) {
  std::string bytes = read_file(path);
  const size_t at = bytes.find(key) + key.size() + 4;
  bytes.replace(at, 2, reinterpret_cast<const char*>(&value), 2);
  write_file(path, bytes);
}

TEST_F(SplitSet, NumbersInNameAndMetadataMustAgree) {
  patch_u16(paths_[2], "split.count", 4);
  EXPECT_EQ(open_error(paths_[2]),
            paths_[2] + ": the name says part 3 of 3 but keys split.no and split.count say part 3 of 4");
  patch_u16(paths_[2], "split.count", 1);
  EXPECT_EQ(open_error(paths_[2]),
            paths_[2] + ": the name says part 3 of 3 but key split.count says the file is whole");
  patch_u16(paths_[2], "split.count", 1001);
  EXPECT_EQ(open_error(paths_[2]), paths_[2] + ": key split.count: 1001, wanted at most 1000");
  patch_u16(paths_[2], "split.count", 3);
  patch_u16(paths_[2], "split.no", 3);
  EXPECT_EQ(open_error(paths_[2]), paths_[2] + ": key split.no: 3, wanted below split.count 3");
  patch_u16(paths_[2], "split.no", 2);
  expect_whole(paths_[0]);
  // A 32-bit value: the low half stands first.
  for (const std::string& path : paths_) patch_u16(path, "split.tensors.count", 7);
  EXPECT_EQ(open_error(paths_[2]), paths_[0] + ": key split.tensors.count: 7, but the 3 parts hold 6 tensors");
}

TEST_F(SplitSet, WholeFileUnderAPartsNameIsRefused) {
  six_tensors(10).write(paths_[1]);
  EXPECT_EQ(open_error(paths_[0]),
            paths_[1] + ": the name says part 2 of 3 but key split.count says the file is whole");
}

TEST_F(SplitSet, CutPartIsNamed) {
  fs::resize_file(paths_[2], fs::file_size(paths_[2]) - 17);
  EXPECT_TRUE(open_error(paths_[0]).starts_with(paths_[2] + ": tensor t5: data ends at byte "))
      << open_error(paths_[0]);
}

TEST(SplitSets, TensorNameInTwoPartsIsRefused) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  for (const char* name : {"same", "x", "y", "same"})
    writer.add(name, TensorType::kF32, {4}, from_values(std::vector<float>(4)));
  const auto paths = writer.write_split(folder / "m", 2);
  EXPECT_EQ(open_error(paths[0]), paths[1] + ": tensor same is also in " + paths[0] + ", wanted once in the set");
}

TEST(SplitSets, FirstPartMayHaveNoTensors) {
  const TempFolder folder;
  GgufWriter writer{Metadata()};
  writer.add("x", TensorType::kF32, {4}, from_values(std::vector<float>{1, 2, 3, 4}));
  const auto paths = writer.write_split(folder / "m", 2);
  const ModelFile model = ModelFile::open(paths[0]);
  ASSERT_EQ(model.tensors.size(), 1u);
  EXPECT_EQ(model.tensors[0].file_idx, 1u);
  EXPECT_EQ(first_value(model, "x"), 1.0F);
}

TEST(SplitSets, EveryPartHasItsOwnAlignment) {
  const TempFolder folder;
  GgufWriter writer = six_tensors(10);
  writer.metadata().set_uint("general.alignment", 64);
  const auto paths = writer.write_split(folder / "m", 3);
  expect_whole(paths[2]);
  for (const Tensor& tensor : ModelFile::open(paths[0]).tensors) EXPECT_EQ(tensor.offset % 64, 0u);
  // A part from a set of alignment 32: its own header says where its data is.
  fs::copy_file(six_tensors(10).write_split(folder / "n", 3)[1], paths[1], fs::copy_options::overwrite_existing);
  expect_whole(paths[0]);
}

TEST(Folders, ManyModelsAreListedAndProjectorsIgnored) {
  const TempFolder folder;
  six_tensors(10).write(folder / "a.gguf");
  six_tensors(10).write(folder / "mmproj-a.gguf");
  write_file(folder / "README.md", "no model");
  EXPECT_EQ(ModelFile::open(folder.path()).files[0].path, folder / "a.gguf");
  six_tensors(10).write_split(folder / "b", 2);
  EXPECT_EQ(open_error(folder.path()),
            folder.path() + ": the folder holds 2 models (a.gguf, b-00001-of-00002.gguf), wanted one: name the file");
}

TEST(SplitName, TakesNamesApart) {
  const auto name = parse_split_name("Model-Q4_K-00002-of-00010.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "Model-Q4_K");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 10u);
  EXPECT_EQ(name->of(10), "Model-Q4_K-00010-of-00010.gguf");
  for (const char* other : {"", "m.gguf", "-00001-of-00002.gguf", "m-0001-of-0002.gguf", "m-00001-of-0000x.gguf",
                            "m-00001-of-00002.ggu", "m_00001-of-00002.gguf", "m-000001-of-000002.gguf"}) {
    EXPECT_FALSE(parse_split_name(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace outrider::format

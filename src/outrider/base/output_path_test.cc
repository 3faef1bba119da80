// SPDX-License-Identifier: Apache-2.0
#include "outrider/base/output_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "outrider/base/error.h"

namespace outrider {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/outrider_output_path_XXXXXX";
    path_ = std::filesystem::canonical(::mkdtemp(name.data()));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string error_of(const std::string& path) {
  try {
    output_path(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OutputPath, FilesAreWrittenBesideTheirName) {
  const Folder folder;
  const OutputPath fresh = output_path(folder / "new");
  EXPECT_EQ(fresh.target, folder / "new");
  EXPECT_EQ(fresh.partial, folder / "new.partial");
  std::ofstream(folder / "old") << "x";
  EXPECT_EQ(output_path(folder / "old").partial, folder / "old.partial");
}

TEST(OutputPath, LinksAreFollowed) {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  std::filesystem::create_symlink("file", folder / "link");
  EXPECT_EQ(output_path(folder / "link").target, folder / "file");
}

TEST(OutputPath, DevicesAreWrittenInPlace) {
  const Folder folder;
  std::filesystem::create_symlink("/dev/null", folder / "link");
  for (const std::string& path : {std::string("/dev/null"), folder / "link"}) {
    EXPECT_TRUE(output_path(path).in_place()) << path;
    EXPECT_EQ(output_path(path).target, "/dev/null");
  }
}

TEST(OutputPath, FoldersAndEmptyNamesAreRefused) {
  const Folder folder;
  EXPECT_EQ(error_of(folder / ""), folder / "" + std::string(": is a folder, wanted a file to write"));
  EXPECT_EQ(error_of(""), "the name of the file to write is empty");
}

}  // namespace
}  // namespace outrider

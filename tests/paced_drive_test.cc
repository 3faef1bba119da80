// SPDX-License-Identifier: Apache-2.0
// The drive that speeds are measured against: right bytes, no read too early, and idle time is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 3U << 20;
constexpr double kBytesPerSecond = 20e6;

class PacedDrive : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0)
      GTEST_SKIP() << "mounting FUSE needs root and /dev/fuse";
    std::string name = (fs::temp_directory_path() / "outrider-paced-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directory(folder_ / "drive");
    for (size_t i = 0; i < kBytes; ++i) bytes_.push_back(static_cast<char>(i * 2654435761U >> 13));
    std::ofstream(folder_ / "file", std::ios::binary).write(bytes_.data(), static_cast<std::streamsize>(kBytes));
    child_ = fork();
    if (child_ == 0) {
      execl(OUTRIDER_PACED_DRIVE, "paced", (folder_ / "drive").c_str(), std::to_string(kBytesPerSecond).c_str(),
            (folder_ / "file").c_str(), nullptr);
      _exit(127);
    }
    for (int i = 0; i < 500 && !fs::exists(folder_ / "drive/file"); ++i) {
      int status = 0;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = 0;
        GTEST_SKIP() << "the drive could not be mounted here";
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGTERM);
      waitpid(child_, nullptr, 0);
    }
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  fs::path folder_;
  std::vector<char> bytes_;
  pid_t child_ = 0;
};

TEST_F(PacedDrive, GivesTheBytesAndLosesIdleTime) {
  std::ifstream file(folder_ / "drive/file", std::ios::binary);
  std::vector<char> got(kBytes);
  const auto first = static_cast<std::streamsize>(kBytes / 3);
  ASSERT_TRUE(file.read(got.data(), first));
  // With credit for this pause the rest would come at once.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto start = Clock::now();
  ASSERT_TRUE(file.read(got.data() + first, static_cast<std::streamsize>(kBytes) - first));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_EQ(got, bytes_);
  // What the kernel read ahead before the pause is there already: at most 256 KiB.
  EXPECT_GT(seconds, 0.95 * static_cast<double>(kBytes - kBytes / 3 - (256U << 10)) / kBytesPerSecond);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#include "kept_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "outrider/observe/digest.h"

namespace outrider::apps {

KeptFile::KeptFile(const std::string& folder, const std::string& kind, uint32_t version, const model::Model& model,
                   uint64_t fingerprint)
    : path_(fmt::format("{}/{:016x}.{}", folder, fingerprint, kind)),
      head_(fmt::format("outrider-{} {} {:016x} {} {}", kind, version, fingerprint, model.n_moe_layers(),
                        model.spec.router.n_experts)) {}

std::string KeptFile::header(std::span<const std::byte> bytes) const {
  observe::Digest digest;
  digest.add_bytes(bytes);
  return fmt::format("{} {} {}", head_, bytes.size(), digest.hex());
}

std::string KeptFile::read(std::vector<std::byte>& bytes, uint64_t max_bytes) const {
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return "";
  const uint64_t file_bytes = std::filesystem::file_size(path_, error);
  constexpr uint64_t kMaxLine = 200;
  if (error || file_bytes > max_bytes + kMaxLine) return "not such a file";
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || line.size() > kMaxLine) return "not such a file";
  std::vector<std::byte> read(file_bytes - std::min<uint64_t>(file_bytes, line.size() + 1));
  in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(read.size()));
  if (!in || line != header(read)) return "damaged, or of another model or version";
  bytes = std::move(read);
  return "";
}

bool KeptFile::write(std::span<const std::byte> bytes) const {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  // A reader sees the old file or the new one, never half of one.
  const std::string part = fmt::format("{}.{}", path_, getpid());
  std::ofstream out(part, std::ios::binary);
  out << header(bytes) << '\n';
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (out) std::filesystem::rename(part, path_, error);
  if (out && !error) return true;
  std::filesystem::remove(part, error);
  return false;
}

}  // namespace outrider::apps

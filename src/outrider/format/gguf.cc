// SPDX-License-Identifier: Apache-2.0
// One file is read by gguf_header.cc; here the parts of a set are found, checked against each other and joined.
#include "outrider/format/gguf.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "outrider/base/error.h"
#include "outrider/format/fd.h"
#include "outrider/format/gguf_header.h"
#include "outrider/format/pack.h"
#include "outrider/format/split_name.h"

namespace outrider::format {

namespace {

constexpr uint64_t kMaxParts = 1000;

struct OpenedPart {
  ModelPart part;
  GgufHeader header;
};

OpenedPart read_part(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0)
    fail(ErrorKind::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::kBadFile, "{}: is not a regular file, wanted a GGUF model", path);
  const auto n_bytes = static_cast<uint64_t>(status.st_size);
  ByteReader in(fd.get(), n_bytes, path);
  return {.part = {.path = path, .n_bytes = n_bytes}, .header = read_gguf_header(in)};
}

std::string beside(const std::string& path, const std::string& name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Parts are looked for beside the name given, which may be a link with a part's name to a file of any name. The other
// way round, a link of any name to a part, stands for that part.
std::string link_target_if_split(const std::string& path) {
  std::error_code error;
  if (parse_split_name(file_name(path)) || !std::filesystem::is_symlink(path, error)) return path;
  const std::string target = std::filesystem::canonical(path, error).string();
  return !error && parse_split_name(file_name(target)) ? target : path;
}

// The path to start from in a folder that holds one model, whole or split.
std::string find_in_folder(const std::string& folder) {
  std::map<std::string, std::string> models;  // whole name, or name without part number -> first file name of it
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const std::string name = files->path().filename().string();
    std::error_code ignored;
    if (!name.ends_with(".gguf") || name.starts_with("mmproj") || !files->is_regular_file(ignored)) continue;
    const auto split = parse_split_name(name);
    const std::string key = split ? fmt::format("{}-of-{}", split->prefix, split->count) : name;
    const auto [place, added] = models.emplace(key, name);
    if (!added) place->second = std::min(place->second, name);
  }
  if (error) fail(ErrorKind::kIo, "{}: the folder cannot be listed: {}", folder, error.message());
  if (models.empty()) fail(ErrorKind::kBadFile, "{}: the folder holds no .gguf file, wanted one model", folder);
  if (models.size() > 1) {
    std::string names;
    for (const auto& [key, name] : models) names += (names.empty() ? "" : ", ") + printable(name);
    fail(ErrorKind::kBadFile, "{}: the folder holds {} models ({}), wanted one: name the file", folder, models.size(),
         printable(names, 300));
  }
  return (std::filesystem::path(folder) / models.begin()->second).string();
}

uint64_t split_count(const OpenedPart& opened) {
  const uint64_t count = opened.header.metadata.find_uint("split.count").value_or(1);
  if (count > kMaxParts)
    fail(ErrorKind::kBadFile, "{}: key split.count: {}, wanted at most {}", opened.part.path, count, kMaxParts);
  return std::max<uint64_t>(count, 1);
}

// Part number and count stand twice, in the name and in the metadata. Returns the name taken apart; nullopt for one
// file.
std::optional<SplitName> check_name(const OpenedPart& opened) {
  const std::string& path = opened.part.path;
  const uint64_t count = split_count(opened);
  auto name = parse_split_name(file_name(path));
  if (count == 1) {
    if (name && name->count > 1) {
      fail(ErrorKind::kBadFile, "{}: the name says part {} of {} but key split.count says the file is whole", path,
           name->number, name->count);
    }
    return std::nullopt;
  }
  const uint64_t number = opened.header.metadata.require_uint("split.no") + 1;
  if (number == 0 || number > count) {
    fail(ErrorKind::kBadFile, "{}: key split.no: {}, wanted below split.count {}", path, number - 1, count);
  }
  if (!name) {
    fail(ErrorKind::kBadFile, "{}: part {} of {} of a split model, but its name does not say so: wanted NAME{}", path,
         number, count, split_suffix(number, count));
  }
  if (name->number != number || name->count != count) {
    fail(ErrorKind::kBadFile, "{}: the name says part {} of {} but keys split.no and split.count say part {} of {}",
         path, name->number, name->count, number, count);
  }
  return name;
}

// A part of another model of the same shape has the right number, count and names. What both parts state must agree.
void check_same_model(const ModelFile& model, const OpenedPart& other) {
  for (const auto& [key, value] : other.header.metadata.entries()) {
    if (key == "split.no" || key == "general.alignment") continue;
    const Value* wanted = model.metadata.find(key);
    if (wanted == nullptr || *wanted == value) continue;
    fail(ErrorKind::kBadFile, "{}: key {}: {}, wanted {} as in {}: a part of another model?", other.part.path,
         printable(key), to_text(value), to_text(*wanted), model.files[0].path);
  }
}

void append(ModelFile& model, OpenedPart&& opened) {
  const auto file_idx = static_cast<uint32_t>(model.files.size());
  for (Tensor& tensor : opened.header.tensors) {
    tensor.file_idx = file_idx;
    const auto [place, added] = model.index.emplace(tensor.name, static_cast<uint32_t>(model.tensors.size()));
    if (!added) {
      fail(ErrorKind::kBadFile, "{}: tensor {} is also in {}, wanted once in the set", opened.part.path,
           printable(tensor.name), model.files[model.tensors[place->second].file_idx].path);
    }
    model.tensors.push_back(std::move(tensor));
  }
  model.files.push_back(std::move(opened.part));
}

void check_tensor_count(const ModelFile& model) {
  const auto wanted = model.metadata.find_uint("split.tensors.count");
  if (wanted && *wanted != model.tensors.size()) {
    fail(ErrorKind::kBadFile, "{}: key split.tensors.count: {}, but the {} parts hold {} tensors", model.files[0].path,
         *wanted, model.files.size(), model.tensors.size());
  }
}

OpenedPart read_other_part(const std::string& path, uint64_t number, uint64_t count, const std::string& named) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    fail(ErrorKind::kBadFile, "{}: part {} of {} is missing, wanted beside {}", path, number, count, named);
  }
  OpenedPart opened = read_part(path);
  if (!check_name(opened)) {
    fail(ErrorKind::kBadFile, "{}: key split.count says the file is whole, wanted part {} of {}", path, number, count);
  }
  return opened;
}

}  // namespace

const Tensor* ModelFile::find(std::string_view name) const {
  const auto found = index.find(std::string(name));
  return found == index.end() ? nullptr : &tensors[found->second];
}

const Tensor& ModelFile::require(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) fail(ErrorKind::kBadFile, "{}: tensor {} is missing", metadata.source(), printable(name));
  return *tensor;
}

uint64_t ModelFile::total_tensor_bytes() const {
  uint64_t total = 0;  // cannot wrap: the ranges are disjoint in files of less than 2^63 bytes
  for (const Tensor& tensor : tensors) total += tensor.n_bytes;
  return total;
}

ModelFile ModelFile::open(const std::string& path) {
  std::error_code ignored;
  const std::string named_path =
      std::filesystem::is_directory(path, ignored) ? find_in_folder(path) : link_target_if_split(path);
  OpenedPart named = read_part(named_path);
  const auto name = check_name(named);
  const uint64_t count = name ? name->count : 1;
  ModelFile model;
  for (uint64_t number = 1; number <= count; ++number) {
    const bool is_named = !name || name->number == number;
    OpenedPart opened =
        is_named ? std::move(named) : read_other_part(beside(named_path, name->of(number)), number, count, named_path);
    if (number == 1) {
      model.version = opened.header.version;
      model.alignment = opened.header.alignment;
      model.metadata = std::move(opened.header.metadata);
    } else {
      check_same_model(model, opened);
    }
    append(model, std::move(opened));
  }
  check_tensor_count(model);
  expand_pack(model);
  return model;
}

}  // namespace outrider::format

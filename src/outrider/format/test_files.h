// SPDX-License-Identifier: Apache-2.0
// For the tests of this module: GGUF files made byte by byte, independently of the writer, with the place of every
// field known so that it can be damaged.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/format/gguf.h"

namespace outrider::format {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "outrider-format-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct Field {
  std::string name;
  size_t offset = 0;
  size_t n_bytes = 0;
  bool is_length = false;
};

// Appends to `bytes` and notes each field under the name given.
struct Image {
  std::string bytes;
  std::vector<Field> fields;

  template <typename T>
  void put(std::string name, T value, bool is_length = false) {
    fields.push_back({std::move(name), bytes.size(), sizeof value, is_length});
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& name, std::string_view text) {
    put<uint64_t>(name + " length", text.size(), true);
    bytes += text;
  }
  void key(std::string_view name, uint32_t type) {
    put_text("key " + std::string(name), name);
    put(std::string(name) + " type", type);
  }
  void tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    put_text("tensor " + name, name);
    put(name + " n_dims", static_cast<uint32_t>(dims.size()), true);
    for (size_t d = 0; d < dims.size(); ++d) put(name + " dim" + std::to_string(d), dims[d], true);
    put(name + " type", type);
    put(name + " offset", offset);
  }

  const Field& field(std::string_view name) const {
    for (const Field& f : fields) {
      if (f.name == name) return f;
    }
    ADD_FAILURE() << "no field " << name;
    std::abort();
  }
  // The bytes with one field changed.
  std::string with(std::string_view name, uint64_t value) const {
    const Field& f = field(name);
    std::string changed = bytes;
    changed.replace(f.offset, f.n_bytes, reinterpret_cast<const char*>(&value), f.n_bytes);
    return changed;
  }
};

// Every value type, an array of each kind, four tensors: f32 [8], q4_0 [32, 3], f16 scalar, f32 expert stack [4, 2, 3].
inline Image small_image(uint32_t alignment = 32, uint32_t version = 3) {
  Image image;
  image.bytes = "GGUF";
  image.put<uint32_t>("version", version);
  image.put<uint64_t>("tensor_count", 4, true);
  image.put<uint64_t>("metadata_kv_count", 17, true);
  image.key("general.architecture", 8);
  image.put_text("general.architecture", "tiny");
  image.key("general.alignment", 4);
  image.put("general.alignment", alignment);
  image.key("t.u8", 0);
  image.put<uint8_t>("t.u8", 200);
  image.key("t.i8", 1);
  image.put<int8_t>("t.i8", -100);
  image.key("t.u16", 2);
  image.put<uint16_t>("t.u16", 60'000);
  image.key("t.i16", 3);
  image.put<int16_t>("t.i16", -30'000);
  image.key("t.u32", 4);
  image.put<uint32_t>("t.u32", 4'000'000'000U);
  image.key("t.i32", 5);
  image.put<int32_t>("t.i32", -2'000'000'000);
  image.key("t.f32", 6);
  image.put<float>("t.f32", 0.1F);
  image.key("t.bool", 7);
  image.put<uint8_t>("t.bool", 1);
  image.key("t.u64", 10);
  image.put<uint64_t>("t.u64", 1ULL << 63);
  image.key("t.i64", 11);
  image.put<int64_t>("t.i64", INT64_MIN);
  image.key("t.f64", 12);
  image.put<double>("t.f64", 0.1);
  image.key("t.strings", 9);
  image.put<uint32_t>("t.strings element type", 8);
  image.put<uint64_t>("t.strings count", 2, true);
  image.put_text("t.strings 0", "one");
  image.put_text("t.strings 1", "two \xC3\xA9");
  image.key("t.ints", 9);
  image.put<uint32_t>("t.ints element type", 5);
  image.put<uint64_t>("t.ints count", 3, true);
  for (const int32_t i : {-1, 0, 7}) image.put<int32_t>("t.ints element", i);
  image.key("t.bools", 9);
  image.put<uint32_t>("t.bools element type", 7);
  image.put<uint64_t>("t.bools count", 2, true);
  image.put<uint8_t>("t.bools 0", 0);
  image.put<uint8_t>("t.bools 1", 1);
  image.key("t.reals", 9);
  image.put<uint32_t>("t.reals element type", 6);
  image.put<uint64_t>("t.reals count", 2, true);
  image.put<float>("t.reals 0", 0.5F);
  image.put<float>("t.reals 1", -2.0F);
  const auto up = [&](uint64_t n_bytes) { return (n_bytes + alignment - 1) / alignment * alignment; };
  image.tensor("a", {8}, 0, 0);
  image.tensor("b", {32, 3}, 2, up(32));
  image.tensor("c", {}, 1, up(32) + up(54));
  image.tensor("d", {4, 2, 3}, 0, up(32) + up(54) + up(2));
  image.bytes.resize(up(image.bytes.size()), '\0');
  for (const uint64_t n_bytes : {32, 54, 2, 96})
    image.bytes.resize(image.bytes.size() + up(n_bytes), static_cast<char>(n_bytes));
  return image;
}

// What opening `path` says; "" when it opens.
inline std::string open_error(const std::string& path) {
  try {
    ModelFile::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
// Reading one file: what a good one gives, and what each kind of damage is told as.
#include "outrider/format/gguf.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <set>

#include "outrider/base/test_rng.h"
#include "outrider/format/gguf_header.h"
#include "outrider/format/test_files.h"

namespace outrider::format {
namespace {

GgufHeader parse(std::string_view bytes) {
  ByteReader in(std::as_bytes(std::span(bytes)), "m.gguf");
  return read_gguf_header(in);
}

// What the parser says about `bytes` as a file called m.gguf; "" when it is content.
std::string parse_error(std::string_view bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModelFile, DemoModelLoads) {
  const auto model = ModelFile::open(std::string(OUTRIDER_SOURCE_DIR) + "/models/outrider-demo-q4_0.gguf");
  EXPECT_EQ(model.metadata.require_string("general.architecture"), "glm4moe");
  EXPECT_EQ(model.metadata.require_uint("glm4moe.expert_count"), 64u);
  EXPECT_EQ(model.metadata.find_strings("tokenizer.ggml.tokens")->size(), 16'384u);
  EXPECT_EQ(model.require("token_embd.weight").dims[0], 512u);
  EXPECT_EQ(model.require("token_embd.weight").type, TensorType::kQ6_K);
  EXPECT_EQ(model.require("blk.1.ffn_up_exps.weight").dims, (std::array<uint64_t, 4>{512, 64, 64, 1}));
  EXPECT_EQ(model.find("no.such.tensor"), nullptr);
}

TEST(ModelFile, VersionsTwoAndThreeAndAlignmentsGiveTheSameTensors) {
  for (const uint32_t version : {2U, 3U}) {
    for (const uint32_t alignment : {8U, 16U, 32U, 64U, 128U, 65'536U}) {
      const TempFolder folder;
      write_file(folder / "m.gguf", small_image(alignment, version).bytes);
      const ModelFile model = ModelFile::open(folder / "m.gguf");
      EXPECT_EQ(model.version, version);
      EXPECT_EQ(model.alignment, alignment);
      ASSERT_EQ(model.tensors.size(), 4u);
      for (const Tensor& tensor : model.tensors) {
        EXPECT_EQ(tensor.offset % alignment, 0u);
        // small_image fills each tensor with its size.
        EXPECT_EQ(read_file(folder / "m.gguf").substr(tensor.offset, tensor.n_bytes),
                  std::string(tensor.n_bytes, static_cast<char>(tensor.n_bytes)));
      }
      EXPECT_EQ(model.require("b").n_bytes, 54u);
      EXPECT_EQ(model.require("b").row_bytes(), 18u);
      EXPECT_EQ(model.require("c").n_elems(), 1u);
      EXPECT_EQ(model.require("d").dims, (std::array<uint64_t, 4>{4, 2, 3, 1}));
      EXPECT_EQ(model.total_tensor_bytes(), 32u + 54 + 2 + 96);
    }
  }
}

TEST(ModelFile, FileWithoutTensorsOrPaddingLoads) {
  const TempFolder folder;
  const Image image = small_image();
  const std::string bytes = image.with("tensor_count", 0).substr(0, image.field("tensor a length").offset);
  write_file(folder / "m.gguf", bytes);
  EXPECT_EQ(ModelFile::open(folder / "m.gguf").tensors.size(), 0u);
}

TEST(ModelFile, MissingPaddingAfterTheLastTensorIsFine) {
  const Image image = small_image(64);
  EXPECT_EQ(parse_error(std::string_view(image.bytes).substr(0, image.bytes.size() - 32)), "");
}

TEST(ModelFile, MissingTensorIsNamed) {
  const TempFolder folder;
  write_file(folder / "m.gguf", small_image().bytes);
  const ModelFile model = ModelFile::open(folder / "m.gguf");
  try {
    model.require("blk.0.ffn_up_exps.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), (folder / "m.gguf") + ": tensor blk.0.ffn_up_exps.weight is missing");
  }
}

TEST(ModelFile, ThingsThatAreNoModelFile) {
  const TempFolder folder;
  EXPECT_EQ(open_error(folder / "none.gguf"), (folder / "none.gguf") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(open_error("/dev/null"), "/dev/null: is not a regular file, wanted a GGUF model");
  EXPECT_EQ(open_error(folder.path()), folder.path() + ": the folder holds no .gguf file, wanted one model");
  EXPECT_EQ(parse_error(""), "m.gguf: header: magic needs 4 bytes at byte 0 but the file has 0 (truncated?)");
  EXPECT_EQ(parse_error("PK\x03\x04"), "m.gguf: header: magic is 50 4b 03 04, wanted 47 47 55 46 (\"GGUF\")");
}

struct Damage {
  const char* field;
  uint64_t value;
  const char* message;
};

constexpr const char* kTypeIds = ", wanted one of 0..3, 6..8, 10..14, 16..30, 34..35, 39..42";

TEST(GgufDamage, EachIsToldInFull) {
  const Image image = small_image();
  ASSERT_EQ(image.bytes.size(), 896u);  // the numbers below rest on it
  const std::vector<Damage> table = {
      {"version", 0, "header: version is 0, wanted 2 or 3"},
      {"version", 1, "header: version is 1, wanted 2 or 3"},
      {"version", 4, "header: version is 4, wanted 2 or 3"},
      {"version", 0x03000000,
       "header: version reads as 50331648: the file is in big-endian byte order, which is not supported, wanted "
       "little-endian"},
      {"tensor_count", 1ULL << 61, "header: tensor_count is 2305843009213693952, wanted at most 1048576"},
      {"tensor_count", 60, "header: tensor_count is 60, wanted at most 36: the file has only 896 bytes (truncated?)"},
      {"metadata_kv_count", UINT64_MAX, "header: metadata_kv_count is 18446744073709551615, wanted at most 1048576"},
      {"metadata_kv_count", 100,
       "header: metadata_kv_count is 100, wanted at most 67: the file has only 896 bytes (truncated?)"},
      {"general.alignment", 0, "key general.alignment: 0, wanted a power of two in 8..65536"},
      {"general.alignment", 1, "key general.alignment: 1, wanted a power of two in 8..65536"},
      {"general.alignment", 24, "key general.alignment: 24, wanted a power of two in 8..65536"},
      {"general.alignment", 1ULL << 31, "key general.alignment: 2147483648, wanted a power of two in 8..65536"},
      {"general.alignment", 1ULL << 17, "key general.alignment: 131072, wanted a power of two in 8..65536"},
      {"general.alignment type", 5, "key general.alignment: type is i32, wanted u32"},
      {"key t.u8 length", 0, "key 3 of 17: key is empty, wanted a name"},
      {"key t.u8 length", 131'072, "key 3 of 17: key has length 131072, wanted at most 65535"},
      {"key t.u8 length", 65'535, "key 3 of 17: key needs 65535 bytes at byte 109 but the file has 896 (truncated?)"},
      {"t.u8 type", 13, "key t.u8: value type is 13, wanted 0..12"},
      {"t.ints element type", 9,
       "key t.ints: array element type is 9 (array), wanted a scalar type: arrays of arrays are not supported"},
      {"t.ints element type", 77, "key t.ints: array element type is 77, wanted 0..12"},
      {"t.ints count", 1ULL << 62,
       "key t.ints: array count is 4611686018427387904, wanted at most 119: the file has only 896 bytes (truncated?)"},
      {"t.strings count", UINT64_MAX,
       "key t.strings: array count is 18446744073709551615, wanted at most 66: the file has only 896 bytes "
       "(truncated?)"},
      {"t.strings 1 length", 1ULL << 40,
       "key t.strings: string of the array needs 1099511627776 bytes at byte 382 but the file has 896 (truncated?)"},
      {"general.architecture length", 1ULL << 63,
       "key general.architecture: string needs 9223372036854775808 bytes at byte 64 but the file has 896 (truncated?)"},
      {"t.bool", 2, "key t.bool: bool is 2, wanted 0 or 1"},
      {"t.bools 0", 9, "key t.bools: bool is 9, wanted 0 or 1"},
      {"tensor b length", 0, "tensor 2 of 4: name is empty, wanted 1..63 bytes"},
      {"tensor b length", 64, "tensor 2 of 4: name has length 64, wanted at most 63"},
      {"b n_dims", 5, "tensor b: n_dims is 5, wanted at most 4"},
      {"b dim0", 0, "tensor b: dimension 0 is 0, wanted at least 1"},
      {"b dim0", 33, "tensor b: dimension 0 is 33, wanted a multiple of 32 for type 2 (q4_0)"},
      {"b dim0", (1ULL << 42) + 1, "tensor b: dimension 0 is 4398046511105, wanted a multiple of 32 for type 2 (q4_0)"},
      {"b dim0", 1ULL << 63, "tensor b: dimension 0 is 9223372036854775808, wanted fewer than 2^63 elements in all"},
      {"b dim1", 1ULL << 58, "tensor b: dimension 1 is 288230376151711744, wanted fewer than 2^63 elements in all"},
      {"b dim1", 1ULL << 59, "tensor b: dimension 1 is 576460752303423488, wanted fewer than 2^63 elements in all"},
      {"d dim2", (1ULL << 42) + 1,
       "tensor d: data ends at byte 140737488356160, past the end of the file: the tensors need a file of "
       "140737488356160 bytes, it has 896 (truncated?)"},
      {"d dim0", 1ULL << 60,
       "tensor d: 6917529027641081856 elements of type f32 need more than 2^64 bytes, wanted fewer"},
      {"a type", 4, "tensor a: type number 4 is not a known tensor type"},
      {"a type", 9, "tensor a: type number 9 is not a known tensor type"},
      {"a type", 15, "tensor a: type number 15 is not a known tensor type"},
      {"a type", 36, "tensor a: type number 36 is not a known tensor type"},
      {"a type", 200, "tensor a: type number 200 is not a known tensor type"},
      {"a type", 1ULL << 31, "tensor a: type number 2147483648 is not a known tensor type"},
      {"a type", 42, "tensor a: dimension 0 is 8, wanted a multiple of 64 for type 42 (q2_0)"},
      {"d offset", 33, "tensor d: offset is 33, wanted a multiple of 32"},
      {"d offset", UINT64_MAX - 31, "tensor d: offset is 18446744073709551584 and size 96, wanted a sum below 2^64"},
      {"d offset", 1 << 20,
       "tensor d: data ends at byte 1049344, past the end of the file: the tensors need a file of 1049344 bytes, it "
       "has 896 (truncated?)"},
      {"c offset", 0, "tensor c: data begins at byte 672, inside tensor a (bytes 672 to 704), wanted disjoint data"},
      {"b dim1", 4, "tensor c: data begins at byte 768, inside tensor b (bytes 704 to 776), wanted disjoint data"},
  };
  for (const Damage& damage : table) {
    SCOPED_TRACE(std::string(damage.field) + " = " + std::to_string(damage.value));
    std::string wanted = std::string("m.gguf: ") + damage.message;
    if (wanted.ends_with("known tensor type")) wanted += kTypeIds;
    EXPECT_EQ(parse_error(image.with(damage.field, damage.value)), wanted);
  }
}

TEST(GgufDamage, DuplicateKeyAndTensor) {
  const Image image = small_image();
  std::string bytes = image.bytes;
  bytes[image.field("key t.i8 length").offset + 10] = 'u';  // t.i8 becomes t.u8
  EXPECT_EQ(parse_error(bytes), "m.gguf: key t.u8: appears twice, wanted once");
  bytes = image.bytes;
  bytes[image.field("tensor b length").offset + 8] = 'a';
  EXPECT_EQ(parse_error(bytes), "m.gguf: tensor a: appears twice, wanted once");
}

TEST(GgufDamage, HostileNamesStayOnOneLine) {
  const Image image = small_image();
  std::string bytes = image.bytes;
  bytes[image.field("tensor b length").offset + 8] = '\n';
  bytes[image.field("b type").offset] = 5;
  EXPECT_EQ(parse_error(bytes),
            std::string("m.gguf: tensor \\x0a: type number 5 is not a known tensor type") + kTypeIds);
  bytes = image.bytes;
  bytes[image.field("tensor b length").offset + 8] = '\0';
  EXPECT_EQ(parse_error(bytes), "m.gguf: tensor 2 of 4: name \\x00 has a zero byte, wanted text");
}

TEST(GgufDamage, TypeNumberThatForksShareMustFillItsPlace) {
  // d becomes f32 -> q2_0 with rows that fit q2_0, but 96 bytes of f32 are not what q2_0 needs.
  const Image image = small_image();
  std::string bytes = image.with("d type", 42);
  const uint64_t dims[] = {64, 1, 3};
  for (int d = 0; d < 3; ++d) {
    bytes.replace(image.field("d dim" + std::to_string(d)).offset, 8, reinterpret_cast<const char*>(&dims[d]), 8);
  }
  EXPECT_EQ(parse_error(bytes),
            "m.gguf: tensor d: type number 42 (q2_0) needs 54 bytes but the place has 96, wanted an exact fit: another "
            "program's type "
            "of the same number?");
  bytes.resize(bytes.size() - 32);  // now it fits
  EXPECT_EQ(parse_error(bytes), "");
}

// GGUF-1: the message names the tensor that runs past the end, with expected and actual size of the file.
TEST(GgufDamage, CutDataNamesTheFirstTensorThatIsNotWhole) {
  const std::string bytes = small_image().bytes;  // data: a 672..704, b 704..758, c 768..770, d 800..896
  const auto cut = [&](size_t n_bytes) { return parse_error(std::string_view(bytes).substr(0, n_bytes)); };
  EXPECT_EQ(cut(895),
            "m.gguf: tensor d: data ends at byte 896, past the end of the file: the tensors need a file of 896 bytes, "
            "it has 895 (truncated?)");
  EXPECT_EQ(cut(757),
            "m.gguf: tensor b: data ends at byte 758, past the end of the file: the tensors need a file of 896 bytes, "
            "it has 757 (truncated?)");
  EXPECT_EQ(cut(672),
            "m.gguf: tensor a: data ends at byte 704, past the end of the file: the tensors need a file of 896 bytes, "
            "it has 672 (truncated?)");
}

bool names_file_and_place(const std::string& message) {
  const auto has = [&](std::string_view text, size_t from) { return message.find(text, from) != std::string::npos; };
  return message.starts_with("m.gguf: ") && has(": ", 8) && !has("\n", 0) && (has("wanted", 8) || has("truncated", 8));
}

TEST(GgufDamage, CutAtEveryByteIsAnErrorThatNamesThePlace) {
  const std::string bytes = small_image().bytes;
  for (size_t n_bytes = 0; n_bytes < bytes.size(); ++n_bytes) {
    const std::string message = parse_error(std::string_view(bytes).substr(0, n_bytes));
    EXPECT_TRUE(names_file_and_place(message)) << n_bytes << ": " << message;
  }
}

TEST(GgufDamage, CutFilesOnDiskAreRefusedToo) {
  const TempFolder folder;
  const std::string path = folder / "m.gguf";
  write_file(path, small_image().bytes);
  for (uint64_t n_bytes = small_image().bytes.size(); n_bytes-- > 0;) {
    std::filesystem::resize_file(path, n_bytes);
    EXPECT_TRUE(open_error(path).starts_with(path + ": ")) << n_bytes;
  }
}

TEST(GgufDamage, EveryLengthFieldAtZeroAndMaxIsAnErrorThatNamesThePlace) {
  const Image image = small_image();
  // A file without tensors is whole, and so is a tensor of no dimensions: it is a scalar, which c is anyhow.
  const std::set<std::string> zero_is_fine = {"tensor_count", "c n_dims"};
  int n_tried = 0;
  for (const Field& field : image.fields) {
    if (!field.is_length) continue;
    for (const uint64_t value : {uint64_t{0}, UINT64_MAX}) {
      const std::string message = parse_error(image.with(field.name, value));
      if (value == 0 && zero_is_fine.contains(field.name)) {
        EXPECT_EQ(message, "") << field.name;
      } else {
        EXPECT_TRUE(names_file_and_place(message)) << field.name << " = " << value << ": " << message;
      }
      ++n_tried;
    }
  }
  EXPECT_EQ(n_tried, 80);
}

TEST(GgufDamage, RandomBytesChangedNeverBreakTheReader) {
  const std::string bytes = small_image().bytes;
  TestRng rng(21);
  int n_refused = 0;
  for (int round = 0; round < 6'000; ++round) {
    std::string changed = bytes;
    for (uint64_t n = 1 + rng.below(4); n > 0; --n) changed[rng.below(672)] = static_cast<char>(rng.next_u64());
    const std::string message = parse_error(changed);
    if (message.empty()) continue;
    ++n_refused;
    ASSERT_TRUE(names_file_and_place(message)) << message;
  }
  EXPECT_GT(n_refused, 3'000);
}

// Largest resident memory of a child that opens `path`, in bytes.
uint64_t peak_bytes_of_opening(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(open_error(path).empty() ? 0 : 1);
  int status = 0;
  rusage usage = {};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << path << ": status " << status;
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// A sanitizer's own memory counts as the process's; then only the refusals are checked.
#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kPeakLimitBytes = UINT64_MAX;
#else
constexpr uint64_t kPeakLimitBytes = 200'000'000;
#endif

// The file itself is large here (4 GiB, without taking disk), so that its size excuses every count.
TEST(GgufDamage, HugeCountsInHugeFilesTakeLittleMemory) {
  const TempFolder folder;
  const Image image = small_image();
  const struct {
    const char* field;
    uint64_t value;
    const char* message;
  } cases[] = {
      {"tensor_count", 1 << 20, "tensor 5 of 1048576: name is empty, wanted 1..63 bytes"},
      {"metadata_kv_count", 1 << 20, "key 18 of 1048576: key needs"},
      {"t.strings count", 1 << 28, "key t.strings: "},
      {"t.reals count", 1 << 29,
       "key t.reals: metadata needs more than 134217728 bytes of memory here, wanted at most that in all"},
      {"t.bools count", 1ULL << 31,
       "key t.bools: metadata needs more than 134217728 bytes of memory here, wanted at most that in all"},
      {"general.architecture length", 1ULL << 31,
       "key general.architecture: metadata needs more than 134217728 bytes of memory here"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.field);
    const std::string path = folder / "m.gguf";
    write_file(path, image.with(c.field, c.value));
    std::filesystem::resize_file(path, 4ULL << 30);
    EXPECT_LT(peak_bytes_of_opening(path), kPeakLimitBytes);
    EXPECT_TRUE(open_error(path).starts_with(path + ": ")) << open_error(path);
  }
  // As many empty strings as there are zero bytes for.
  const std::string path = folder / "zeros.gguf";
  Image zeros;
  zeros.bytes = "GGUF";
  zeros.put<uint32_t>("version", 3);
  zeros.put<uint64_t>("tensor_count", 0);
  zeros.put<uint64_t>("metadata_kv_count", 1);
  zeros.key("t", 9);
  zeros.put<uint32_t>("element type", 8);
  zeros.put<uint64_t>("count", 1 << 28);
  write_file(path, zeros.bytes);
  std::filesystem::resize_file(path, 4ULL << 30);
  EXPECT_LT(peak_bytes_of_opening(path), kPeakLimitBytes);
  EXPECT_EQ(open_error(path),
            path + ": key t: metadata needs more than 134217728 bytes of memory here, wanted at most that in all");
}

}  // namespace
}  // namespace outrider::format

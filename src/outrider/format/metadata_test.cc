// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/metadata.h"

#include <gtest/gtest.h>

#include <functional>

#include "outrider/format/gguf_header.h"
#include "outrider/format/tensor_type.h"
#include "outrider/format/test_files.h"

namespace outrider::format {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
    return error.what();
  }
  return "";
}

Metadata small_metadata() {
  const std::string bytes = small_image().bytes;
  ByteReader in(std::as_bytes(std::span(bytes)), "m.gguf");
  return read_gguf_header(in).metadata;
}

TEST(Metadata, EveryIntegerTypeServesForAnInteger) {
  const Metadata m = small_metadata();
  EXPECT_EQ(m.find_uint("t.u8"), 200u);
  EXPECT_EQ(m.find_uint("t.u16"), 60'000u);
  EXPECT_EQ(m.find_uint("t.u32"), 4'000'000'000u);
  EXPECT_EQ(m.find_uint("t.u64"), 1ULL << 63);
  EXPECT_EQ(m.find_int("t.i8"), -100);
  EXPECT_EQ(m.find_int("t.i16"), -30'000);
  EXPECT_EQ(m.find_int("t.i32"), -2'000'000'000);
  EXPECT_EQ(m.find_int("t.i64"), INT64_MIN);
  EXPECT_EQ(m.find_int("t.u32"), 4'000'000'000);
  EXPECT_EQ(m.find_uint("absent"), std::nullopt);
  EXPECT_EQ(error_of([&] { m.find_uint("t.i8"); }), "m.gguf: key t.i8: -100 (i8), wanted an integer >= 0");
  EXPECT_EQ(error_of([&] { m.find_int("t.u64"); }),
            "m.gguf: key t.u64: 9223372036854775808 (u64), wanted an integer of 64 bits");
  EXPECT_EQ(error_of([&] { m.find_uint("t.f32"); }), "m.gguf: key t.f32: 0.1 (f32), wanted an integer >= 0");
  EXPECT_EQ(error_of([&] { m.find_uint("t.bool"); }), "m.gguf: key t.bool: true (bool), wanted an integer >= 0");
  EXPECT_EQ(error_of([&] { m.find_uint("general.architecture"); }),
            "m.gguf: key general.architecture: \"tiny\" (string), wanted an integer >= 0");
}

TEST(Metadata, RealsFlagsAndStrings) {
  Metadata m = small_metadata();
  EXPECT_EQ(m.find_real("t.f32"), static_cast<double>(0.1F));
  EXPECT_EQ(m.find_real("t.f64"), 0.1);
  EXPECT_EQ(error_of([&] { m.find_real("t.u8"); }), "m.gguf: key t.u8: 200 (u8), wanted a real number (f32 or f64)");
  EXPECT_EQ(m.find_bool("t.bool"), true);
  m.set_uint("flag", 0, ValueType::kI32);
  EXPECT_EQ(m.find_bool("flag"), false);
  m.set_uint("flag", 1);
  EXPECT_EQ(m.find_bool("flag"), true);
  EXPECT_EQ(error_of([&] { m.find_bool("t.u8"); }), "m.gguf: key t.u8: 200 (u8), wanted a bool, 0 or 1");
  EXPECT_EQ(m.find_string("general.architecture"), "tiny");
  EXPECT_EQ(error_of([&] { m.find_string("t.u8"); }), "m.gguf: key t.u8: 200 (u8), wanted a string");
  EXPECT_EQ(m.find_string("absent"), std::nullopt);
}

TEST(Metadata, Arrays) {
  const Metadata m = small_metadata();
  EXPECT_EQ(*m.find_strings("t.strings"), (std::vector<std::string>{"one", "two \xC3\xA9"}));
  EXPECT_EQ(m.find_strings("absent"), nullptr);
  EXPECT_EQ(error_of([&] { m.find_strings("t.ints"); }),
            "m.gguf: key t.ints: [-1, 0, 7] (array of i32), wanted an array of strings");
  EXPECT_EQ(m.find_ints("t.ints"), (std::vector<int64_t>{-1, 0, 7}));
  EXPECT_EQ(m.find_ints("t.bools"), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(m.find_ints("t.u8"), (std::vector<int64_t>{200}));
  EXPECT_EQ(m.find_ints("t.i8"), (std::vector<int64_t>{-100}));
  EXPECT_EQ(error_of([&] { m.find_ints("t.reals"); }),
            "m.gguf: key t.reals: [0.5, -2] (array of f32), wanted an integer or an array of integers of 64 bits");
  EXPECT_EQ(m.find_reals("t.reals"), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(m.find_reals("t.ints"), (std::vector<double>{-1, 0, 7}));
  EXPECT_EQ(m.find_reals("t.u8"), (std::vector<double>{200}));
  EXPECT_EQ(error_of([&] { m.find_reals("t.bools"); }),
            "m.gguf: key t.bools: [false, true] (array of bool), wanted a number or an array of numbers");
  EXPECT_EQ(
      error_of([&] { m.find_reals("t.strings"); }),
      "m.gguf: key t.strings: [\"one\", \"two \\xc3\\xa9\"] (array of string), wanted a number or an array of numbers");
}

TEST(Metadata, RequiredKeys) {
  const Metadata m = small_metadata();
  EXPECT_EQ(m.require_uint("t.u8"), 200u);
  EXPECT_EQ(m.require_string("general.architecture"), "tiny");
  EXPECT_EQ(error_of([&] { m.require_uint("tiny.block_count"); }), "m.gguf: key tiny.block_count is missing");
  EXPECT_EQ(error_of([&] { m.require_real("x\ny"); }), "m.gguf: key x\\x0ay is missing");
  EXPECT_EQ(error_of([&] { m.require_string("x"); }), "m.gguf: key x is missing");
}

TEST(Metadata, SetKeepsTheFirstPlaceOfAKey) {
  Metadata m;
  m.set_uint("a", 1);
  m.set_string("b", "x");
  m.set_real("a", 0.25);
  ASSERT_EQ(m.entries().size(), 2u);
  EXPECT_EQ(m.entries()[0].first, "a");
  EXPECT_EQ(m.find_real("a"), 0.25);
}

TEST(MetadataDeathTest, ValuesThatDoNotFitTheirTypeAreBugs) {
  Metadata m;
  m.set_uint("a", 255, ValueType::kU8);
  m.set_ints("b", {-128, 127}, ValueType::kI8);
  EXPECT_DEATH(m.set_uint("a", 256, ValueType::kU8), "key a: 256 as u8");
  EXPECT_DEATH(m.set_ints("b", {128}, ValueType::kI8), "key b: 128 as i8");
  EXPECT_DEATH(m.set_ints("b", {-1}, ValueType::kU64), "key b: -1 as u64");
}

TEST(Metadata, TextIsCutToTheLimitsGiven) {
  Metadata m;
  m.set_ints("ints", {1, 2, 3, 4, 5, 6});
  m.set_string("s", std::string(100, 'x'));
  EXPECT_EQ(to_text(*m.find("ints")), "[1, 2, 3, 4, ... 6 in all]");
  EXPECT_EQ(to_text(*m.find("ints"), 60, 6), "[1, 2, 3, 4, 5, 6]");
  EXPECT_EQ(to_text(*m.find("s"), 5), "\"xxxxx...\"");
}

TEST(TensorTypes, NamesAreFoundInAnyCase) {
  for (const TypeInfo& info : kTensorTypes) {
    std::string upper(info.name);
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(parse_tensor_type(info.name), info.type);
    EXPECT_EQ(parse_tensor_type(upper), info.type);
  }
  for (const char* name : {"", "q4", "q4_00", "q8_1", "q8_k"}) EXPECT_EQ(parse_tensor_type(name), std::nullopt);
}

}  // namespace
}  // namespace outrider::format

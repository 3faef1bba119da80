// SPDX-License-Identifier: Apache-2.0
// Typed, lenient access to the key/value metadata of a model file. Writers are inconsistent about integer widths, so
// every integer type is accepted for an integer key after a range check, f32 and f64 for a real key, and bool or a 0/1
// integer for a flag (../shared/spec/gguf-and-quants.md section 3.1).
// Errors: a key of the wrong type or out of range throws Error(kBadFile) naming file, key, value and what was wanted.
// Threads: immutable after loading.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace outrider::format {

// GGUF value type ids.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u8", "string", ...; "unknown" for an id that is none of the above.
std::string_view value_type_name(ValueType type) noexcept;
// Bytes of one scalar in a file; 0 for strings, arrays and unknown ids.
uint32_t value_type_bytes(ValueType type) noexcept;
constexpr bool is_signed_int(ValueType type) noexcept {
  return type == ValueType::kI8 || type == ValueType::kI16 || type == ValueType::kI32 || type == ValueType::kI64;
}
constexpr bool is_real(ValueType type) noexcept { return type == ValueType::kF32 || type == ValueType::kF64; }

// A scalar keeps its file type beside its widened value, so that it can be shown and written back as it was.
struct Value {
  ValueType type = ValueType::kU32;          // of the scalar, or kArray
  ValueType element_type = ValueType::kU32;  // of an array's elements
  // uint64: u8 u16 u32 u64 bool; int64: i8 i16 i32 i64; double: f32 f64. Arrays likewise, all elements one alternative.
  std::variant<uint64_t, int64_t, double, std::string, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
               std::vector<std::string>>
      data;

  bool operator==(const Value&) const = default;
  uint64_t n_elements() const noexcept;  // of an array; 1 for a scalar
};

// For people: strings quoted and cut to `max_bytes`, arrays cut to their first `max_elements` with the full count
// after.
std::string to_text(const Value& value, size_t max_bytes = 60, size_t max_elements = 4);

class Metadata {
 public:
  // `source` is the file's name, for error texts.
  explicit Metadata(std::string source = "") : source_(std::move(source)) {}

  const std::string& source() const noexcept { return source_; }
  const Value* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  // nullopt when the key is absent; Error(kBadFile) when it is there with a type or value that does not fit.
  std::optional<uint64_t> find_uint(std::string_view key) const;
  std::optional<int64_t> find_int(std::string_view key) const;
  std::optional<double> find_real(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  // Arrays; the pointer lives as long as this object. nullptr when absent.
  const std::vector<std::string>* find_strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_ints(std::string_view key) const;  // int or bool array, or one scalar
  std::optional<std::vector<double>> find_reals(std::string_view key) const;  // real or int array, or one scalar

  // As above, but an absent key throws Error(kBadFile) "FILE: key KEY is missing".
  uint64_t require_uint(std::string_view key) const;
  double require_real(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;

  // In file order.
  const std::vector<std::pair<std::string, Value>>& entries() const noexcept { return entries_; }
  // Adds or replaces; keeps the first position of a key.
  void set(std::string key, Value value);
  void set_uint(std::string key, uint64_t value, ValueType type = ValueType::kU32);
  void set_real(std::string key, double value, ValueType type = ValueType::kF32);
  void set_bool(std::string key, bool value);
  void set_string(std::string key, std::string value);
  void set_strings(std::string key, std::vector<std::string> values);
  void set_ints(std::string key, std::vector<int64_t> values, ValueType element_type = ValueType::kI32);
  void set_reals(std::string key, std::vector<double> values, ValueType element_type = ValueType::kF32);

 private:
  struct KeyHash {  // transparent, so that looking up a view builds no string
    using is_transparent = void;
    size_t operator()(std::string_view key) const noexcept { return std::hash<std::string_view>()(key); }
  };

  std::string source_;
  std::vector<std::pair<std::string, Value>> entries_;
  std::unordered_map<std::string, size_t, KeyHash, std::equal_to<>> index_;
};

}  // namespace outrider::format

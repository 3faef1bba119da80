// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/metadata.h"

#include <array>
#include <type_traits>

#include "outrider/base/check.h"
#include "outrider/base/error.h"

namespace outrider::format {

namespace {

struct Scalar {
  std::string_view name;
  uint32_t n_bytes;
};
// By value type id.
constexpr std::array<Scalar, 13> kScalars = {{{"u8", 1},
                                              {"i8", 1},
                                              {"u16", 2},
                                              {"i16", 2},
                                              {"u32", 4},
                                              {"i32", 4},
                                              {"f32", 4},
                                              {"bool", 1},
                                              {"string", 0},
                                              {"array", 0},
                                              {"u64", 8},
                                              {"i64", 8},
                                              {"f64", 8}}};

template <typename T>
constexpr bool kIsVector = false;
template <typename T>
constexpr bool kIsVector<std::vector<T>> = true;

constexpr bool is_int(ValueType type) noexcept {
  return !is_real(type) && type != ValueType::kBool && type != ValueType::kString && type != ValueType::kArray;
}

std::string describe(const Value& value) {
  if (value.type != ValueType::kArray) return fmt::format("{} ({})", to_text(value), value_type_name(value.type));
  return fmt::format("{} (array of {})", to_text(value), value_type_name(value.element_type));
}

[[noreturn]] void wrong(const Metadata& metadata, std::string_view key, const Value& value, std::string_view wanted) {
  fail(ErrorKind::kBadFile, "{}: key {}: {}, wanted {}", metadata.source(), printable(key), describe(value), wanted);
}

[[noreturn]] void missing(const Metadata& metadata, std::string_view key) {
  fail(ErrorKind::kBadFile, "{}: key {} is missing", metadata.source(), printable(key));
}

bool fits(int64_t value, ValueType type) noexcept {
  if (type == ValueType::kBool) return value == 0 || value == 1;
  if (!is_int(type)) return false;
  const uint32_t n_bits = value_type_bytes(type) * 8;
  if (is_signed_int(type))
    return n_bits == 64 || (value >= -(INT64_C(1) << (n_bits - 1)) && value < INT64_C(1) << (n_bits - 1));
  return value >= 0 && (n_bits == 64 || value < INT64_C(1) << n_bits);
}

template <typename T>
std::string scalar_text(const T& scalar, ValueType type, size_t max_bytes) {
  if constexpr (std::is_same_v<T, std::string>) {
    return fmt::format("\"{}\"", printable(scalar, max_bytes));
  } else if constexpr (std::is_same_v<T, double>) {
    // An f32 is shown with the fewest digits that give it back, not with its f64 expansion.
    return type == ValueType::kF32 ? fmt::format("{}", static_cast<float>(scalar)) : fmt::format("{}", scalar);
  } else {
    if (type == ValueType::kBool) return scalar != 0 ? "true" : "false";
    return fmt::format("{}", scalar);
  }
}

}  // namespace

std::string_view value_type_name(ValueType type) noexcept {
  const auto id = static_cast<uint32_t>(type);
  return id < kScalars.size() ? kScalars[id].name : "unknown";
}

uint32_t value_type_bytes(ValueType type) noexcept {
  const auto id = static_cast<uint32_t>(type);
  return id < kScalars.size() ? kScalars[id].n_bytes : 0;
}

uint64_t Value::n_elements() const noexcept {
  return std::visit(
      [](const auto& held) -> uint64_t {
        if constexpr (kIsVector<std::decay_t<decltype(held)>>) return held.size();
        return 1;
      },
      data);
}

std::string to_text(const Value& value, size_t max_bytes, size_t max_elements) {
  return std::visit(
      [&](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (kIsVector<Held>) {
          std::string out = "[";
          for (size_t i = 0; i < held.size() && i < max_elements; ++i) {
            if (i > 0) out += ", ";
            out += scalar_text(held[i], value.element_type, max_bytes);
          }
          if (held.size() > max_elements)
            out += fmt::format("{}... {} in all", max_elements > 0 ? ", " : "", held.size());
          return out + "]";
        } else {
          return scalar_text(held, value.type, max_bytes);
        }
      },
      value.data);
}

const Value* Metadata::find(std::string_view key) const noexcept {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

std::optional<uint64_t> Metadata::find_uint(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (is_int(value->type)) {
    if (const auto* number = std::get_if<uint64_t>(&value->data)) return *number;
    if (const auto* number = std::get_if<int64_t>(&value->data); number != nullptr && *number >= 0) {
      return static_cast<uint64_t>(*number);
    }
  }
  wrong(*this, key, *value, "an integer >= 0");
}

std::optional<int64_t> Metadata::find_int(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (is_int(value->type)) {
    if (const auto* number = std::get_if<int64_t>(&value->data)) return *number;
    if (const auto* number = std::get_if<uint64_t>(&value->data); number != nullptr && *number <= INT64_MAX) {
      return static_cast<int64_t>(*number);
    }
  }
  wrong(*this, key, *value, "an integer of 64 bits");
}

std::optional<double> Metadata::find_real(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->data)) return *number;
  wrong(*this, key, *value, "a real number (f32 or f64)");
}

std::optional<bool> Metadata::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(&value->data); number != nullptr && *number <= 1) return *number == 1;
  if (const auto* number = std::get_if<int64_t>(&value->data); number != nullptr && (*number == 0 || *number == 1)) {
    return *number == 1;
  }
  wrong(*this, key, *value, "a bool, 0 or 1");
}

std::optional<std::string_view> Metadata::find_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
  wrong(*this, key, *value, "a string");
}

const std::vector<std::string>* Metadata::find_strings(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value->data)) return texts;
  wrong(*this, key, *value, "an array of strings");
}

std::optional<std::vector<int64_t>> Metadata::find_ints(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  constexpr std::string_view kWanted = "an integer or an array of integers of 64 bits";
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value->data)) return *numbers;
  if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&value->data)) {
    std::vector<int64_t> out;
    out.reserve(numbers->size());
    for (const uint64_t number : *numbers) {
      if (number > INT64_MAX) wrong(*this, key, *value, kWanted);
      out.push_back(static_cast<int64_t>(number));
    }
    return out;
  }
  if (const auto* number = std::get_if<int64_t>(&value->data)) return std::vector<int64_t>{*number};
  if (const auto* number = std::get_if<uint64_t>(&value->data); number != nullptr && *number <= INT64_MAX) {
    return std::vector<int64_t>{static_cast<int64_t>(*number)};
  }
  wrong(*this, key, *value, kWanted);
}

std::optional<std::vector<double>> Metadata::find_reals(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* numbers = std::get_if<std::vector<double>>(&value->data)) return *numbers;
  if (const auto* number = std::get_if<double>(&value->data)) return std::vector<double>{*number};
  if (value->element_type != ValueType::kBool && value->type != ValueType::kBool) {
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value->data))
      return std::vector<double>(numbers->begin(), numbers->end());
    if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&value->data))
      return std::vector<double>(numbers->begin(), numbers->end());
    if (const auto* number = std::get_if<int64_t>(&value->data))
      return std::vector<double>{static_cast<double>(*number)};
    if (const auto* number = std::get_if<uint64_t>(&value->data))
      return std::vector<double>{static_cast<double>(*number)};
  }
  wrong(*this, key, *value, "a number or an array of numbers");
}

uint64_t Metadata::require_uint(std::string_view key) const {
  const auto value = find_uint(key);
  if (!value) missing(*this, key);
  return *value;
}

double Metadata::require_real(std::string_view key) const {
  const auto value = find_real(key);
  if (!value) missing(*this, key);
  return *value;
}

std::string_view Metadata::require_string(std::string_view key) const {
  const auto value = find_string(key);
  if (!value) missing(*this, key);
  return *value;
}

void Metadata::set(std::string key, Value value) {
  const auto [place, added] = index_.emplace(key, entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

void Metadata::set_uint(std::string key, uint64_t value, ValueType type) {
  OUTRIDER_CHECK(
      is_int(type) && (type == ValueType::kU64 || (value <= INT64_MAX && fits(static_cast<int64_t>(value), type))),
      "key {}: {} as {}", key, value, value_type_name(type));
  if (is_signed_int(type)) {
    set(std::move(key), Value{.type = type, .element_type = type, .data = static_cast<int64_t>(value)});
  } else {
    set(std::move(key), Value{.type = type, .element_type = type, .data = value});
  }
}

void Metadata::set_real(std::string key, double value, ValueType type) {
  OUTRIDER_CHECK(is_real(type), "key {}: {}", key, value_type_name(type));
  if (type == ValueType::kF32) value = static_cast<double>(static_cast<float>(value));
  set(std::move(key), Value{.type = type, .element_type = type, .data = value});
}

void Metadata::set_bool(std::string key, bool value) {
  set(std::move(key), Value{.type = ValueType::kBool, .element_type = ValueType::kBool, .data = uint64_t{value}});
}

void Metadata::set_string(std::string key, std::string value) {
  set(std::move(key), Value{.type = ValueType::kString, .element_type = ValueType::kString, .data = std::move(value)});
}

void Metadata::set_strings(std::string key, std::vector<std::string> values) {
  set(std::move(key), Value{.type = ValueType::kArray, .element_type = ValueType::kString, .data = std::move(values)});
}

void Metadata::set_ints(std::string key, std::vector<int64_t> values, ValueType element_type) {
  for (const int64_t value : values) {
    OUTRIDER_CHECK(fits(value, element_type), "key {}: {} as {}", key, value, value_type_name(element_type));
  }
  if (is_signed_int(element_type)) {
    set(std::move(key), Value{.type = ValueType::kArray, .element_type = element_type, .data = std::move(values)});
  } else {
    set(std::move(key), Value{.type = ValueType::kArray,
                              .element_type = element_type,
                              .data = std::vector<uint64_t>(values.begin(), values.end())});
  }
}

void Metadata::set_reals(std::string key, std::vector<double> values, ValueType element_type) {
  OUTRIDER_CHECK(is_real(element_type), "key {}: {}", key, value_type_name(element_type));
  if (element_type == ValueType::kF32) {
    for (double& value : values) value = static_cast<double>(static_cast<float>(value));
  }
  set(std::move(key), Value{.type = ValueType::kArray, .element_type = element_type, .data = std::move(values)});
}

}  // namespace outrider::format

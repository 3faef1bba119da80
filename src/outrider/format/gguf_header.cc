// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/gguf_header.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

#include "outrider/base/checked.h"
#include "outrider/base/error.h"

namespace outrider::format {

namespace {

constexpr uint64_t kMinKeyRecordBytes = 8 + 4 + 1;         // key length, value type, the smallest value
constexpr uint64_t kMinTensorRecordBytes = 8 + 4 + 4 + 8;  // name length, n_dims, type, offset
constexpr uint64_t kStringOverheadBytes = sizeof(std::string);
// Ids from here on are young, and forks use the same numbers for other types: such a tensor must also fill its place.
constexpr uint32_t kFirstContestedTypeId = 41;

// "0..3, 6..8, ...": the ids of the table, in its order.
std::string known_type_ids() {
  std::string out;
  for (size_t i = 0; i < kTensorTypes.size();) {
    const auto first = static_cast<uint32_t>(kTensorTypes[i].type);
    uint32_t last = first;
    for (++i; i < kTensorTypes.size() && static_cast<uint32_t>(kTensorTypes[i].type) == last + 1; ++i) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", first);
    if (last != first) out += fmt::format("..{}", last);
  }
  return out;
}

class Parser {
 public:
  explicit Parser(ByteReader& in) : in_(in) {}

  GgufHeader run() {
    read_start();
    for (uint64_t i = 0; i < n_keys_; ++i) read_entry(i);
    read_alignment();
    header_.tensors.reserve(static_cast<size_t>(std::min<uint64_t>(n_tensors_, 4096)));
    for (uint64_t i = 0; i < n_tensors_; ++i) read_tensor(i);
    place_tensors();
    return std::move(header_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kBadFile, "{}: {}: {}", in_.name(), in_.where(), fmt::format(format, std::forward<Args>(args)...));
  }

  void read_start() {
    header_.metadata = Metadata(in_.name());
    std::array<unsigned char, 4> magic;
    in_.read(std::as_writable_bytes(std::span(magic)), "magic");
    if (magic != std::array<unsigned char, 4>{'G', 'G', 'U', 'F'}) {
      bad("magic is {:02x} {:02x} {:02x} {:02x}, wanted 47 47 55 46 (\"GGUF\")", magic[0], magic[1], magic[2],
          magic[3]);
    }
    header_.version = in_.number<uint32_t>("version");
    // No flag tells the byte order; a version below 65,536 read the wrong way round has 16 zero low bits.
    if (header_.version != 0 && (header_.version & 0xFFFF) == 0) {
      bad("version reads as {}: the file is in big-endian byte order, which is not supported, wanted little-endian",
          header_.version);
    }
    if (header_.version != 2 && header_.version != 3) bad("version is {}, wanted 2 or 3", header_.version);
    n_tensors_ = in_.number<uint64_t>("tensor_count");
    n_keys_ = in_.number<uint64_t>("metadata_kv_count");
    check_count("tensor_count", n_tensors_, kMinTensorRecordBytes, kMaxTensors);
    check_count("metadata_kv_count", n_keys_, kMinKeyRecordBytes, kMaxKeys);
  }

  void check_count(std::string_view field, uint64_t count, uint64_t min_bytes_each, uint64_t limit) const {
    if (count > limit) bad("{} is {}, wanted at most {}", field, count, limit);
    if (count > in_.remaining() / min_bytes_each) {
      bad("{} is {}, wanted at most {}: the file has only {} bytes (truncated?)", field, count,
          in_.remaining() / min_bytes_each, in_.n_bytes());
    }
  }

  // Counts decoded metadata, so that no file makes us take more than kMaxMetadataBytes, whatever its own size.
  void charge(uint64_t n_bytes) {
    if (n_bytes > kMaxMetadataBytes - charged_bytes_) {
      bad("metadata needs more than {} bytes of memory here, wanted at most that in all", kMaxMetadataBytes);
    }
    charged_bytes_ += n_bytes;
  }

  std::string read_string(std::string_view field, uint64_t max_bytes) {
    const auto n_bytes = in_.number<uint64_t>(field);
    if (n_bytes > max_bytes) bad("{} has length {}, wanted at most {}", field, n_bytes, max_bytes);
    in_.need(n_bytes, field);
    charge(kStringOverheadBytes + n_bytes);
    std::string text(static_cast<size_t>(n_bytes), '\0');
    in_.read(std::as_writable_bytes(std::span(text)), field);
    return text;
  }

  void read_entry(uint64_t i) {
    in_.set_where(fmt::format("key {} of {}", i + 1, n_keys_));
    std::string key = read_string("key", kMaxKeyBytes);
    if (key.empty()) bad("key is empty, wanted a name");
    in_.set_where(fmt::format("key {}", printable(key)));
    if (header_.metadata.contains(key)) bad("appears twice, wanted once");
    charge(sizeof(Value) + kStringOverheadBytes + key.size());
    Value value = read_value();
    header_.metadata.set(std::move(key), std::move(value));
  }

  template <typename Raw, typename Wide>
  std::vector<Wide> read_numbers(uint64_t count) {
    charge(count * sizeof(Wide));  // count * sizeof(Raw) <= file size, so this cannot wrap
    std::vector<Wide> numbers;
    numbers.reserve(static_cast<size_t>(count));
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(static_cast<Wide>(in_.number<Raw>("array")));
    return numbers;
  }

  template <typename Raw, typename Wide>
  void fill(Value& value, std::optional<uint64_t> count) {
    if (count) {
      value.data = read_numbers<Raw, Wide>(*count);
    } else {
      value.data = static_cast<Wide>(in_.number<Raw>("value"));
    }
  }

  Value read_value() {
    Value value;
    value.type = static_cast<ValueType>(in_.number<uint32_t>("value type"));
    value.element_type = value.type;
    std::optional<uint64_t> count;
    if (value.type == ValueType::kArray) {
      value.element_type = static_cast<ValueType>(in_.number<uint32_t>("array element type"));
      count = in_.number<uint64_t>("array count");
      if (value.element_type == ValueType::kArray)
        bad("array element type is 9 (array), wanted a scalar type: arrays of arrays are not supported");
    }
    const ValueType type = value.element_type;
    const uint64_t n_bytes_each = type == ValueType::kString ? 8 : value_type_bytes(type);
    if (n_bytes_each == 0)
      bad("{} is {}, wanted 0..12", count ? "array element type" : "value type", static_cast<uint32_t>(type));
    if (count && *count > in_.remaining() / n_bytes_each) {
      bad("array count is {}, wanted at most {}: the file has only {} bytes (truncated?)", *count,
          in_.remaining() / n_bytes_each, in_.n_bytes());
    }
    switch (type) {
      case ValueType::kU8:
        fill<uint8_t, uint64_t>(value, count);
        break;
      case ValueType::kI8:
        fill<int8_t, int64_t>(value, count);
        break;
      case ValueType::kU16:
        fill<uint16_t, uint64_t>(value, count);
        break;
      case ValueType::kI16:
        fill<int16_t, int64_t>(value, count);
        break;
      case ValueType::kU32:
        fill<uint32_t, uint64_t>(value, count);
        break;
      case ValueType::kI32:
        fill<int32_t, int64_t>(value, count);
        break;
      case ValueType::kF32:
        fill<float, double>(value, count);
        break;
      case ValueType::kU64:
        fill<uint64_t, uint64_t>(value, count);
        break;
      case ValueType::kI64:
        fill<int64_t, int64_t>(value, count);
        break;
      case ValueType::kF64:
        fill<double, double>(value, count);
        break;
      case ValueType::kBool:
        fill<uint8_t, uint64_t>(value, count);
        check_bools(value);
        break;
      case ValueType::kString:
        read_strings(value, count);
        break;
      case ValueType::kArray:
        break;  // refused above
    }
    return value;
  }

  void check_bools(const Value& value) const {
    const auto check = [this](uint64_t flag) {
      if (flag > 1) bad("bool is {}, wanted 0 or 1", flag);
    };
    if (const auto* flag = std::get_if<uint64_t>(&value.data)) check(*flag);
    if (const auto* flags = std::get_if<std::vector<uint64_t>>(&value.data))
      std::for_each(flags->begin(), flags->end(), check);
  }

  void read_strings(Value& value, std::optional<uint64_t> count) {
    if (!count) {
      value.data = read_string("string", UINT64_MAX);
      return;
    }
    // Grows with what is really there: a wrong count then costs no memory.
    std::vector<std::string> texts;
    texts.reserve(static_cast<size_t>(std::min<uint64_t>(*count, 1 << 16)));
    for (uint64_t i = 0; i < *count; ++i) texts.push_back(read_string("string of the array", UINT64_MAX));
    value.data = std::move(texts);
  }

  void read_alignment() {
    const Value* value = header_.metadata.find("general.alignment");
    if (value == nullptr) return;
    in_.set_where("key general.alignment");
    if (value->type != ValueType::kU32) bad("type is {}, wanted u32", value_type_name(value->type));
    const uint64_t alignment = std::get<uint64_t>(value->data);
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
      bad("{}, wanted a power of two in {}..{}", alignment, kMinAlignment, kMaxAlignment);
    }
    header_.alignment = static_cast<uint32_t>(alignment);
  }

  void read_tensor(uint64_t i) {
    in_.set_where(fmt::format("tensor {} of {}", i + 1, n_tensors_));
    Tensor tensor;
    tensor.name = read_string("name", kMaxTensorNameBytes);
    if (tensor.name.empty()) bad("name is empty, wanted 1..{} bytes", kMaxTensorNameBytes);
    if (tensor.name.find('\0') != std::string::npos)
      bad("name {} has a zero byte, wanted text", printable(tensor.name));
    in_.set_where(fmt::format("tensor {}", printable(tensor.name)));
    if (!names_.insert(tensor.name).second) bad("appears twice, wanted once");
    tensor.n_dims = in_.number<uint32_t>("n_dims");
    if (tensor.n_dims > tensor.dims.size()) bad("n_dims is {}, wanted at most {}", tensor.n_dims, tensor.dims.size());
    for (uint32_t d = 0; d < tensor.n_dims; ++d) tensor.dims[d] = in_.number<uint64_t>("dimension");
    const auto type_id = in_.number<uint32_t>("type");
    const TypeInfo* info = find_type(type_id);
    if (info == nullptr) bad("type number {} is not a known tensor type, wanted one of {}", type_id, known_type_ids());
    tensor.type = info->type;
    tensor.n_bytes = checked_bytes(tensor, *info);
    tensor.offset = in_.number<uint64_t>("offset");
    header_.tensors.push_back(std::move(tensor));
  }

  uint64_t checked_bytes(const Tensor& tensor, const TypeInfo& info) const {
    uint64_t n_elems = 1;
    for (uint32_t d = 0; d < tensor.n_dims; ++d) {
      if (tensor.dims[d] == 0) bad("dimension {} is 0, wanted at least 1", d);
      const auto product = checked_mul(n_elems, tensor.dims[d]);
      if (!product || *product > INT64_MAX)
        bad("dimension {} is {}, wanted fewer than 2^63 elements in all", d, tensor.dims[d]);
      n_elems = *product;
    }
    if (tensor.dims[0] % info.block_elems != 0) {
      bad("dimension 0 is {}, wanted a multiple of {} for type {} ({})", tensor.dims[0], info.block_elems,
          static_cast<uint32_t>(info.type), info.name);
    }
    const auto n_bytes = checked_mul(n_elems / info.block_elems, info.block_bytes);
    if (!n_bytes) bad("{} elements of type {} need more than 2^64 bytes, wanted fewer", n_elems, info.name);
    return *n_bytes;
  }

  // Turns offsets into absolute ones and proves that the byte ranges are aligned, inside the file and disjoint.
  void place_tensors() {
    if (header_.tensors.empty()) return;
    const auto data_start = checked_align_up(in_.position(), header_.alignment);
    header_.data_start = *data_start;  // a position inside the file plus 65,536 at most
    uint64_t wanted_bytes = 0;
    for (Tensor& tensor : header_.tensors) {
      in_.set_where(fmt::format("tensor {}", printable(tensor.name)));
      if (tensor.offset % header_.alignment != 0)
        bad("offset is {}, wanted a multiple of {}", tensor.offset, header_.alignment);
      const auto offset = checked_add(header_.data_start, tensor.offset);
      const auto end = offset ? checked_add(*offset, tensor.n_bytes) : std::nullopt;
      if (!end) bad("offset is {} and size {}, wanted a sum below 2^64", tensor.offset, tensor.n_bytes);
      tensor.offset = *offset;
      wanted_bytes = std::max(wanted_bytes, *end);
    }
    std::vector<uint32_t> order(header_.tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [this](uint32_t a, uint32_t b) { return header_.tensors[a].offset < header_.tensors[b].offset; });
    for (size_t i = 0; i < order.size(); ++i) {
      check_place(header_.tensors[order[i]], i > 0 ? &header_.tensors[order[i - 1]] : nullptr,
                  i + 1 < order.size() ? &header_.tensors[order[i + 1]] : nullptr, wanted_bytes);
    }
  }

  void check_place(const Tensor& tensor, const Tensor* before, const Tensor* after, uint64_t wanted_bytes) {
    in_.set_where(fmt::format("tensor {}", printable(tensor.name)));
    const uint64_t end = tensor.offset + tensor.n_bytes;
    if (end > in_.n_bytes()) {
      bad("data ends at byte {}, past the end of the file: the tensors need a file of {} bytes, it has {} (truncated?)",
          end, wanted_bytes, in_.n_bytes());
    }
    if (before != nullptr && tensor.offset < before->offset + before->n_bytes) {
      bad("data begins at byte {}, inside tensor {} (bytes {} to {}), wanted disjoint data", tensor.offset,
          printable(before->name), before->offset, before->offset + before->n_bytes);
    }
    const auto type_id = static_cast<uint32_t>(tensor.type);
    if (type_id < kFirstContestedTypeId) return;
    const uint64_t n_place_bytes = (after != nullptr ? after->offset : in_.n_bytes()) - tensor.offset;
    if (n_place_bytes > align_up(tensor.n_bytes, header_.alignment)) {
      bad("type number {} ({}) needs {} bytes but the place has {}, wanted an exact fit: another program's type of the "
          "same number?",
          type_id, type_info(tensor.type).name, tensor.n_bytes, n_place_bytes);
    }
  }

  ByteReader& in_;
  GgufHeader header_;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t charged_bytes_ = 0;
  std::unordered_set<std::string> names_;
};

}  // namespace

GgufHeader read_gguf_header(ByteReader& in) { return Parser(in).run(); }

}  // namespace outrider::format

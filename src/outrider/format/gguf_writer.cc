// SPDX-License-Identifier: Apache-2.0
#include "outrider/format/gguf_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "outrider/base/check.h"
#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/base/output_path.h"
#include "outrider/format/fd.h"
#include "outrider/format/gguf_header.h"
#include "outrider/format/split_name.h"

namespace outrider::format {

namespace {

constexpr size_t kCopyBytes = 1 << 20;
constexpr std::string_view kSetIdKey = "outrider.split.set_id";

struct HashFree {
  void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
};

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

template <typename Wide>
void put_scalar(std::string& out, ValueType type, const Wide& value) {
  if constexpr (std::is_same_v<Wide, std::string>) {
    OUTRIDER_CHECK(type == ValueType::kString, "{}", value_type_name(type));
    put_string(out, value);
  } else if constexpr (std::is_same_v<Wide, double>) {
    OUTRIDER_CHECK(is_real(type), "{}", value_type_name(type));
    if (type == ValueType::kF32) put(out, static_cast<float>(value));
    if (type == ValueType::kF64) put(out, value);
  } else {
    const uint32_t n_bytes = value_type_bytes(type);
    OUTRIDER_CHECK(n_bytes > 0 && !is_real(type) && is_signed_int(type) == std::is_signed_v<Wide>, "{}",
                   value_type_name(type));
    out.append(reinterpret_cast<const char*>(&value), n_bytes);  // little-endian: the low bytes come first
  }
}

template <typename T>
void put_payload(std::string& out, const Value& value, const T& held) {
  OUTRIDER_CHECK(value.type != ValueType::kArray, "an array without elements");
  put_scalar(out, value.type, held);
}

template <typename T>
void put_payload(std::string& out, const Value& value, const std::vector<T>& held) {
  OUTRIDER_CHECK(value.type == ValueType::kArray, "{}", value_type_name(value.type));
  put(out, static_cast<uint32_t>(value.element_type));
  put<uint64_t>(out, held.size());
  for (const T& element : held) put_scalar(out, value.element_type, element);
}

// Keys that describe the set a file is part of. Those of the metadata given describe where it came from.
bool is_split_key(std::string_view key) noexcept { return key.starts_with("split.") || key == kSetIdKey; }

void put_metadata(std::string& out, const Metadata& metadata) {
  for (const auto& entry : metadata.entries()) {
    const Value& value = entry.second;
    put_string(out, entry.first);
    put(out, static_cast<uint32_t>(value.type));
    std::visit([&](const auto& held) { put_payload(out, value, held); }, value.data);
  }
}

}  // namespace

// A file in the making, under a temporary name beside its own; gone again unless finish() is reached.
class GgufWriter::Out {
 public:
  explicit Out(std::string path)
      : path_(std::move(path)), where_(output_path(path_)), fd_(open_file()), hash_(XXH3_createState()) {
    OUTRIDER_CHECK(hash_ != nullptr && XXH3_64bits_reset(hash_.get()) == XXH_OK);
    buffer_.reserve(kCopyBytes);
  }
  ~Out() {
    if (!finished_) ::unlink(where_.partial.c_str());
  }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;

  void write(std::span<const std::byte> bytes) {
    n_bytes_ += bytes.size();
    if (buffer_.size() + bytes.size() > kCopyBytes) flush();
    if (bytes.size() >= kCopyBytes) {
      write_through(bytes, n_bytes_ - bytes.size());
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }

  void pad_to(uint64_t alignment) {
    const std::vector<std::byte> zeros(static_cast<size_t>(align_up(n_bytes_, alignment) - n_bytes_));
    write(zeros);
  }

  void hash(std::span<const std::byte> bytes) { XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size()); }
  uint64_t digest() const { return XXH3_64bits_digest(hash_.get()); }

  void overwrite(uint64_t offset, std::span<const std::byte> bytes) {
    flush();
    write_through(bytes, offset);
  }

  uint64_t finish() {
    flush();
    if (std::rename(where_.partial.c_str(), where_.target.c_str()) != 0) {
      fail(ErrorKind::kIo, "{}: cannot be renamed to {}: {}", where_.partial, where_.target, std::strerror(errno));
    }
    finished_ = true;
    return n_bytes_;
  }

  const std::string& path() const noexcept { return path_; }

 private:
  // Parts of the header are written last, so a device or a pipe will not do.
  int open_file() const {
    if (where_.in_place()) fail(ErrorKind::kIo, "{}: is not a regular file, wanted a file to write", path_);
    const int fd = ::open(where_.partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail(ErrorKind::kIo, "{}: cannot be created: {}", where_.partial, std::strerror(errno));
    return fd;
  }

  void flush() {
    write_through(buffer_, n_flushed_bytes_);
    buffer_.clear();
  }

  // At its place in the file; the end of what is written moves on if this lies beyond it.
  void write_through(std::span<const std::byte> bytes, uint64_t offset) {
    while (!bytes.empty()) {
      const ssize_t n_written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n_written < 0 && errno == EINTR) continue;
      if (n_written <= 0) {
        fail(ErrorKind::kIo, "{}: writing {} bytes at byte {} failed: {}", path_, bytes.size(), offset,
             n_written < 0 ? std::strerror(errno) : "nothing was written");
      }
      offset += static_cast<uint64_t>(n_written);
      bytes = bytes.subspan(static_cast<size_t>(n_written));
    }
    n_flushed_bytes_ = std::max(n_flushed_bytes_, offset);
  }

  std::string path_;
  OutputPath where_;
  Fd fd_;
  std::unique_ptr<XXH3_state_t, HashFree> hash_;
  std::vector<std::byte> buffer_;
  uint64_t n_bytes_ = 0;          // given to write()
  uint64_t n_flushed_bytes_ = 0;  // of those, in the file
  bool finished_ = false;
};

TensorSource from_memory(std::vector<std::byte> bytes) {
  return [bytes = std::move(bytes)](ByteSink sink) { sink(bytes); };
}

TensorSource from_file(std::string path, uint64_t offset, uint64_t n_bytes) {
  return [path = std::move(path), offset, n_bytes](ByteSink sink) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail(ErrorKind::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
    std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(n_bytes, kCopyBytes)));
    for (uint64_t done = 0; done < n_bytes;) {
      const auto n_wanted = static_cast<size_t>(std::min<uint64_t>(buffer.size(), n_bytes - done));
      const ssize_t n_read = ::pread(fd.get(), buffer.data(), n_wanted, static_cast<off_t>(offset + done));
      if (n_read < 0 && errno == EINTR) continue;
      if (n_read <= 0) {
        fail(ErrorKind::kIo, "{}: reading {} bytes at byte {} failed: {}", path, n_wanted, offset + done,
             n_read < 0 ? std::strerror(errno) : "the file ends there");
      }
      sink(std::span<const std::byte>(buffer).first(static_cast<size_t>(n_read)));
      done += static_cast<uint64_t>(n_read);
    }
  };
}

TensorSource from_tensor(const ModelFile& model, const Tensor& tensor) {
  const std::string& path = model.path_of(tensor);
  if (tensor.stride == 0) return from_file(path, tensor.offset, tensor.n_bytes);
  return [path, offset = tensor.offset, stride = tensor.stride, n_experts = tensor.dims[2],
          n_bytes = tensor.n_bytes / tensor.dims[2]](ByteSink sink) {
    for (uint64_t expert = 0; expert < n_experts; ++expert) from_file(path, offset + expert * stride, n_bytes)(sink);
  };
}

void GgufWriter::add(std::string name, TensorType type, std::vector<uint64_t> dims, TensorSource source) {
  OUTRIDER_CHECK(!name.empty() && name.size() <= kMaxTensorNameBytes, "tensor {}", name);
  OUTRIDER_CHECK(!dims.empty() && dims.size() <= 4, "tensor {}: {} dimensions", name, dims.size());
  const TypeInfo& info = type_info(type);
  OUTRIDER_CHECK(dims[0] % info.block_elems == 0, "tensor {}: {} elements a row, type {}", name, dims[0], info.name);
  uint64_t n_bytes = row_bytes(type, dims[0]);
  for (size_t d = 1; d < dims.size(); ++d) {
    const auto product = checked_mul(n_bytes, dims[d]);
    OUTRIDER_CHECK(product.has_value(), "tensor {}", name);
    n_bytes = *product;
  }
  OUTRIDER_CHECK(n_bytes > 0, "tensor {} is empty", name);
  items_.push_back({std::move(name), type, std::move(dims), n_bytes, std::move(source)});
}

uint64_t GgufWriter::alignment() const {
  const uint64_t alignment = metadata_.find_uint("general.alignment").value_or(32);
  OUTRIDER_CHECK(std::has_single_bit(alignment) && alignment >= kMinAlignment && alignment <= kMaxAlignment, "{}",
                 alignment);
  return alignment;
}

std::string GgufWriter::head_of(const Metadata& metadata, std::span<const Item> items) const {
  std::string head = "GGUF";
  put<uint32_t>(head, 3);
  put<uint64_t>(head, items.size());
  put<uint64_t>(head, metadata.entries().size());
  put_metadata(head, metadata);
  uint64_t offset = 0;
  for (const Item& item : items) {
    put_string(head, item.name);
    put(head, static_cast<uint32_t>(item.dims.size()));
    for (const uint64_t dim : item.dims) put(head, dim);
    put(head, static_cast<uint32_t>(item.type));
    put(head, offset);
    offset += align_up(item.n_bytes, alignment());
  }
  head.resize(align_up(head.size(), alignment()));
  return head;
}

void GgufWriter::write_part(Out& out, const Metadata& metadata, std::span<const Item> items) const {
  const std::string head = head_of(metadata, items);
  out.write(std::as_bytes(std::span(head)));
  for (const Item& item : items) {
    out.pad_to(alignment());
    uint64_t n_given = 0;
    item.source([&](std::span<const std::byte> bytes) {
      n_given += bytes.size();
      out.hash(bytes);
      out.write(bytes);
    });
    OUTRIDER_CHECK(n_given == item.n_bytes, "tensor {}: source gave {} bytes, the tensor has {}", item.name, n_given,
                   item.n_bytes);
  }
  out.pad_to(alignment());
}

Metadata GgufWriter::whole_metadata() const {
  Metadata whole;
  for (const auto& [key, value] : metadata_.entries()) {
    if (!is_split_key(key)) whole.set(key, value);
  }
  return whole;
}

std::string GgufWriter::head() const { return head_of(whole_metadata(), items_); }

uint64_t GgufWriter::write(const std::string& path) const {
  Out out(path);
  write_part(out, whole_metadata(), items_);
  return out.finish();
}

std::vector<std::string> GgufWriter::write_split(const std::string& prefix, uint32_t n_parts) const {
  OUTRIDER_CHECK(n_parts >= 2 && n_parts <= 1000, "{} parts", n_parts);
  std::vector<std::unique_ptr<Out>> outs;
  uint64_t set_id = 0;
  for (uint32_t i = 0; i < n_parts; ++i) {
    // The set id goes first, where its place is known: it is filled in when all data has been seen.
    Metadata metadata;
    metadata.set_uint(std::string(kSetIdKey), 0, ValueType::kU64);
    metadata.set_uint("split.no", i, ValueType::kU16);
    metadata.set_uint("split.count", n_parts, ValueType::kU16);
    metadata.set_uint("split.tensors.count", items_.size(), ValueType::kI32);
    if (const Value* wanted = metadata_.find("general.alignment")) metadata.set("general.alignment", *wanted);
    if (i == 0) {
      for (const auto& [key, value] : metadata_.entries()) {
        if (!is_split_key(key) && key != "general.alignment") metadata.set(key, value);
      }
    }
    outs.push_back(std::make_unique<Out>(prefix + split_suffix(i + 1, n_parts)));
    const size_t begin = items_.size() * i / n_parts;
    const size_t end = items_.size() * (i + 1) / n_parts;
    write_part(*outs.back(), metadata, std::span(items_).subspan(begin, end - begin));
    set_id = set_id * 0x9E3779B97F4A7C15ULL + outs.back()->digest();
  }
  constexpr uint64_t kSetIdOffset = 24 + 8 + kSetIdKey.size() + 4;  // header, key length, key, value type
  std::vector<std::string> paths;
  for (const auto& out : outs) {
    out->overwrite(kSetIdOffset, std::as_bytes(std::span(&set_id, 1)));
    out->finish();
    paths.push_back(out->path());
  }
  return paths;
}

}  // namespace outrider::format

// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "outrider/base/error.h"
#include "outrider/base/thread_pool.h"
#include "outrider/format/fd.h"
#include "outrider/format/gguf_writer.h"
#include "outrider/numerics/dequant.h"
#include "outrider/numerics/quantize.h"

namespace outrider::apps {
namespace {

using format::Tensor;
using format::TensorType;

constexpr uint64_t kPieceElems = 128 * 1024;  // what one task converts: whole rows, at least one
constexpr uint64_t kNone = UINT64_MAX;

bool is_float(TensorType type) noexcept {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
}

// The type the tensor would have if every row length fitted.
TensorType asked_type(const format::ModelFile& model, const Tensor& tensor, const TypeChoice& types) {
  if (!format::type_info(tensor.type).is_weight) return tensor.type;
  if (stays_f32(tensor.name, tensor.n_dims)) return is_float(tensor.type) ? TensorType::kF32 : tensor.type;
  if (is_routed_expert(tensor.name)) return types.experts;
  const bool is_head = tensor.name == "output.weight" || tensor.name.ends_with(".shared_head_head.weight") ||
                       (tensor.name == "token_embd.weight" && model.find("output.weight") == nullptr);
  return is_head ? types.output : types.dense;
}

void read_fully(const format::Fd& fd, const std::string& path, uint64_t offset, std::byte* out, uint64_t n_bytes) {
  while (n_bytes > 0) {
    const ssize_t n_read = ::pread(fd.get(), out, n_bytes, static_cast<off_t>(offset));
    if (n_read < 0 && errno == EINTR) continue;
    if (n_read <= 0) {
      fail(ErrorKind::kIo, "{}: reading {} bytes at byte {} failed: {}", path, n_bytes, offset,
           n_read < 0 ? std::strerror(errno) : "the file ends there");
    }
    out += n_read;
    offset += static_cast<uint64_t>(n_read);
    n_bytes -= static_cast<uint64_t>(n_read);
  }
}

// Converts one tensor: batches of pieces, one piece a task; the owner reads and writes, in order.
class Converter {
 public:
  Converter(const format::ModelFile& model, const Tensor& tensor, TensorType to, ThreadPool& pool)
      : model_(model), tensor_(tensor), to_(to), pool_(pool) {}

  void run(format::ByteSink sink, FunctionRef<void(uint64_t)> progress) {
    const std::string& path = model_.path_of(tensor_);
    const format::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) fail(ErrorKind::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
    const uint64_t k = tensor_.dims[0];
    const uint64_t n_rows = tensor_.n_elems() / k;
    const uint64_t piece_rows = std::max<uint64_t>(1, kPieceElems / k);
    const uint64_t batch_rows = std::min(n_rows, piece_rows * pool_.n_threads() * 2);
    const uint64_t in_row = tensor_.row_bytes();
    const uint64_t out_row = format::row_bytes(to_, k);
    source_.resize(batch_rows * in_row);
    target_.resize(batch_rows * out_row);
    scratch_.resize(pool_.n_threads());
    for (auto& values : scratch_) values.resize(std::min(piece_rows, n_rows) * k);
    for (uint64_t row = 0; row < n_rows; row += batch_rows) {
      const uint64_t rows = std::min(batch_rows, n_rows - row);
      read_fully(fd, path, tensor_.offset + row * in_row, source_.data(), rows * in_row);
      const auto n_tasks = static_cast<uint32_t>((rows + piece_rows - 1) / piece_rows);
      pool_.run(n_tasks, [&](uint32_t task, uint32_t worker) {
        const uint64_t first = task * piece_rows;
        convert(worker, first, std::min(piece_rows, rows - first), row);
      });
      if (const uint64_t bad = bad_elem_.load(std::memory_order_relaxed); bad != kNone) {
        fail(ErrorKind::kBadFile, "{}: {}: element {} is NaN or infinite, wanted a number", path, tensor_.name, bad);
      }
      sink(std::span<const std::byte>(target_).first(rows * out_row));
      progress(rows * in_row);
    }
  }

 private:
  void convert(uint32_t worker, uint64_t first, uint64_t rows, uint64_t row_base) noexcept {
    const uint64_t k = tensor_.dims[0];
    float* values = scratch_[worker].data();
    numerics::dequantize(tensor_.type, source_.data() + first * tensor_.row_bytes(), values, rows * k);
    for (uint64_t i = 0; i < rows * k; ++i) {
      if (!std::isfinite(values[i])) {  // the first in file order is reported, whichever thread finds one first
        const uint64_t at = (row_base + first) * k + i;
        uint64_t seen = bad_elem_.load(std::memory_order_relaxed);
        while (at < seen && !bad_elem_.compare_exchange_weak(seen, at, std::memory_order_relaxed)) {
        }
        return;
      }
    }
    numerics::quantize(to_, values, target_.data() + first * format::row_bytes(to_, k), rows * k);
  }

  const format::ModelFile& model_;
  const Tensor& tensor_;
  const TensorType to_;
  ThreadPool& pool_;
  std::vector<std::byte> source_, target_;
  std::vector<std::vector<float>> scratch_;  // one a worker
  std::atomic<uint64_t> bad_elem_{kNone};    // relaxed: read after run() has returned
};

// The type that holds most of the weights, for general.file_type.
TensorType dominant_type(const std::map<TensorType, uint64_t>& elems) {
  return std::max_element(elems.begin(), elems.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

QuantizeSummary quantize_file(const format::ModelFile& in, const std::string& out_path, const QuantizeOptions& options,
                              FunctionRef<void(uint64_t, uint64_t)> progress) {
  if (in.is_packed) fail(ErrorKind::kBadFile, "{}: is packed, wanted the plain model", in.metadata.source());
  ThreadPool pool(options.n_threads);
  QuantizeSummary summary;
  summary.bytes_in = in.total_tensor_bytes();
  uint64_t n_done = 0;
  const auto count = [&](uint64_t n_bytes) {
    n_done += n_bytes;
    progress(n_done, summary.bytes_in);
  };
  format::GgufWriter writer(in.metadata);
  std::map<TensorType, uint64_t> elems;
  bool any_quantized = false;
  for (const Tensor& tensor : in.tensors) {
    const TensorType asked = asked_type(in, tensor, options.types);
    const TensorType to = asked == tensor.type ? asked : fitting_type(asked, tensor.dims[0]);
    ++summary.n_tensors;
    summary.n_fallback += to != asked;
    elems[to] += tensor.n_elems();
    any_quantized = any_quantized || format::type_info(to).block_elems > 1;
    const std::vector<uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + std::max(1U, tensor.n_dims));
    if (to == tensor.type) {
      writer.add(tensor.name, to, dims, [&, source = format::from_tensor(in, tensor)](format::ByteSink sink) {
        source([&](std::span<const std::byte> bytes) {
          sink(bytes);
          count(bytes.size());
        });
      });
      continue;
    }
    if (!is_float(tensor.type) && !options.allow_requantize) {
      fail(ErrorKind::kBadFile,
           "{}: {}: type {} would be quantised again to {}, which loses twice (--allow-requantize to do it)",
           in.path_of(tensor), tensor.name, format::type_info(tensor.type).name, format::type_info(to).name);
    }
    ++summary.n_quantized;
    writer.add(tensor.name, to, dims,
               [&, to](format::ByteSink sink) { Converter(in, tensor, to, pool).run(sink, count); });
  }
  if (!elems.empty()) writer.metadata().set_uint("general.file_type", file_type_of(dominant_type(elems)));
  if (any_quantized) writer.metadata().set_uint("general.quantization_version", 2);
  summary.bytes_out = writer.write(out_path);
  return summary;
}

}  // namespace outrider::apps

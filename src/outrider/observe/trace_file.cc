// SPDX-License-Identifier: Apache-2.0
#include "outrider/observe/trace_file.h"

#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/engine/engine.h"
#include "outrider/observe/trace_record.h"

namespace outrider::observe {

namespace {

constexpr int kCompressionLevel = 3;

std::string system_text(int error) { return std::strerror(error); }

}  // namespace

// Bytes gather in `raw`; a full one is packed and written as a block.
struct TraceWriter::Impl {
  Impl(const std::string& the_path, const TraceHeader& header)
      : path(the_path), file(std::fopen(the_path.c_str(), "wb")), packed(ZSTD_compressBound(kTraceBlockBytes)) {
    if (file == nullptr)
      fail(ErrorKind::kIo, "{}: cannot be opened for writing: {}", printable(path), system_text(errno));
    context = ZSTD_createCCtx();  // not before what throws: a constructor that throws frees no raw pointer
    OUTRIDER_CHECK(context != nullptr);
    // A first use allocates the context's memory here rather than in the run.
    ZSTD_compressCCtx(context, packed.data(), packed.size(), raw.data(), raw.size(), kCompressionLevel);
    write(kTraceMagic.data(), kTraceMagic.size());
    put_header(header);
  }
  ~Impl() {
    ZSTD_freeCCtx(context);
    if (file != nullptr) std::fclose(file);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void write(const void* bytes, size_t n_bytes) noexcept {
    if (error == 0 && std::fwrite(bytes, 1, n_bytes, file) != n_bytes) error = errno != 0 ? errno : EIO;
  }

  void flush() noexcept {
    if (n_raw == 0) return;
    const size_t n_packed =
        ZSTD_compressCCtx(context, packed.data(), packed.size(), raw.data(), n_raw, kCompressionLevel);
    OUTRIDER_CHECK(ZSTD_isError(n_packed) == 0, "zstd: {}", ZSTD_getErrorName(n_packed));
    const TraceBlockHeader block = {.raw_bytes = static_cast<uint32_t>(n_raw),
                                    .packed_bytes = static_cast<uint32_t>(n_packed),
                                    .hash = XXH3_64bits(packed.data(), n_packed)};
    write(&block, sizeof block);
    write(packed.data(), n_packed);
    n_raw = 0;
  }

  void put(uint64_t value) noexcept {
    if (raw.size() - n_raw < kMaxVarintBytes) flush();
    for (; value >= 0x80; value >>= 7) raw[n_raw++] = static_cast<std::byte>(value | 0x80);
    raw[n_raw++] = static_cast<std::byte>(value);
  }

  void put(std::string_view text) noexcept {
    put(text.size());
    for (const char c : text) put(static_cast<uint8_t>(c));
  }

  void put_header(const TraceHeader& header) noexcept {
    put(kTraceVersion);
    put(header.fingerprint);
    put(std::string_view(header.model).substr(0, kMaxTraceText));
    put(header.source);
    put(header.policy);
    put(std::bit_cast<uint64_t>(header.lfu_half_life_tokens));
    put(header.slots_per_layer);
    put(header.lookahead ? 1 : 0);
    put(header.n_used);
    put(header.layers.size());
    for (const TraceLayer& layer : header.layers) {
      put(layer.n_experts);
      put(layer.slab_bytes);
    }
  }

  std::string path;
  std::FILE* file;
  ZSTD_CCtx* context = nullptr;
  std::array<std::byte, kTraceBlockBytes> raw = {};
  size_t n_raw = 0;
  std::vector<std::byte> packed;
  int error = 0;  // errno of the first failed write
  uint64_t n_steps = 0, n_demands = 0;
};

TraceWriter::TraceWriter(const std::string& path, const TraceHeader& header)
    : impl_(std::make_unique<Impl>(path, header)) {}
TraceWriter::~TraceWriter() = default;

void TraceWriter::begin_step(std::span<const TraceRow> rows) noexcept {
  ++impl_->n_steps;
  impl_->put(static_cast<uint64_t>(TraceRecord::kBeginStep));
  impl_->put(rows.size());
  for (const TraceRow& row : rows) {
    impl_->put(row.sequence);
    impl_->put(row.position);
    impl_->put(static_cast<uint32_t>(row.token));
  }
}

void TraceWriter::add_demand(uint32_t layer, std::span<const uint32_t> row_ids) noexcept {
  ++impl_->n_demands;
  impl_->put(static_cast<uint64_t>(TraceRecord::kDemand));
  impl_->put(layer);
  for (const uint32_t id : row_ids) impl_->put(id);
}

void TraceWriter::end_step(uint32_t n_tokens) noexcept {
  impl_->put(static_cast<uint64_t>(TraceRecord::kEndStep));
  impl_->put(n_tokens);
}

void TraceWriter::finish() {
  OUTRIDER_CHECK(impl_->file != nullptr, "finish() twice");
  impl_->put(static_cast<uint64_t>(TraceRecord::kEnd));
  impl_->put(impl_->n_steps);
  impl_->put(impl_->n_demands);
  impl_->flush();
  if (std::fclose(impl_->file) != 0 && impl_->error == 0) impl_->error = errno;
  impl_->file = nullptr;
  if (impl_->error != 0)
    fail(ErrorKind::kIo, "{}: cannot be written: {}", printable(impl_->path), system_text(impl_->error));
}

TraceRecorder::TraceRecorder(const std::string& path, const TraceHeader& header, uint32_t max_rows)
    : writer_(path, header) {
  rows_.reserve(max_rows);
}

void TraceRecorder::begin_pass(std::span<const engine::PassRow> rows) noexcept {
  end_open_step(0);
  rows_.clear();
  for (const engine::PassRow& row : rows) rows_.push_back({row.sequence, row.position, row.token});
  writer_.begin_step(rows_);
  is_open_ = true;
}

void TraceRecorder::demand(const engine::LayerDemand& demand) noexcept {
  writer_.add_demand(demand.moe_layer, demand.row_ids);
}

void TraceRecorder::end_pass() noexcept { end_open_step(static_cast<uint32_t>(rows_.size())); }

void TraceRecorder::end_open_step(uint32_t n_tokens) noexcept {
  if (is_open_) writer_.end_step(n_tokens);
  is_open_ = false;
}

void TraceRecorder::finish() {
  end_open_step(0);
  writer_.finish();
}

void write_trace(const std::string& path, const Trace& trace) {
  TraceWriter writer(path, trace.header());
  for (size_t step = 0; step < trace.n_steps(); ++step) {
    writer.begin_step(trace.step_rows(step));
    for (size_t i = trace.first_demand(step); i < trace.first_demand(step + 1); ++i) {
      writer.add_demand(trace.demand(i).layer, trace.demand(i).row_ids);
    }
    writer.end_step(trace.step_tokens(step));
  }
  writer.finish();
}

}  // namespace outrider::observe

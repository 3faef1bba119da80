// SPDX-License-Identifier: Apache-2.0
// Reads what trace_file.cc writes.
#include <xxhash.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "outrider/base/checked.h"
#include "outrider/base/error.h"
#include "outrider/observe/trace_file.h"
#include "outrider/observe/trace_record.h"

namespace outrider::observe {

namespace {

constexpr uint64_t kMaxLayers = 65536;
constexpr uint64_t kMaxExperts = 65536;
constexpr uint64_t kMaxRows = 1 << 20;

std::vector<std::byte> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) fail(ErrorKind::kIo, "{}: cannot be opened for reading: {}", printable(path), std::strerror(errno));
  std::vector<std::byte> bytes;
  size_t n = 0;
  do {
    const size_t at = bytes.size();
    bytes.resize(at + (size_t{1} << 20));
    n = std::fread(bytes.data() + at, 1, bytes.size() - at, file.get());
    bytes.resize(at + n);
  } while (n > 0);
  if (std::ferror(file.get()) != 0)
    fail(ErrorKind::kIo, "{}: cannot be read: {}", printable(path), std::strerror(errno));
  return bytes;
}

// Checks every block and returns their contents, joined.
std::vector<std::byte> unpack(const std::string& path, std::span<const std::byte> file) {
  const auto bad = [&](size_t at, const std::string& text) {
    fail(ErrorKind::kBadFile, "{}: at byte {}: {}", printable(path), at, text);
  };
  if (file.size() < kTraceMagic.size() || std::memcmp(file.data(), kTraceMagic.data(), kTraceMagic.size()) != 0) {
    fail(ErrorKind::kBadFile, "{}: is not a trace (wanted {} at its start)", printable(path), kTraceMagic);
  }
  std::vector<std::byte> raw;
  size_t at = kTraceMagic.size();
  while (at < file.size()) {
    TraceBlockHeader block;
    if (!sub_range(at, sizeof block, file.size())) {
      bad(at, fmt::format("a block header has {} bytes, wanted {} (truncated?)", file.size() - at, sizeof block));
    }
    std::memcpy(&block, file.data() + at, sizeof block);
    const size_t payload = at + sizeof block;
    if (block.raw_bytes == 0 || block.raw_bytes > kTraceBlockBytes) {
      bad(at, fmt::format("a block's length is {}, wanted 1..{}", block.raw_bytes, kTraceBlockBytes));
    }
    if (!sub_range(payload, block.packed_bytes, file.size())) {
      bad(at, fmt::format("a block ends at byte {} but the file has {} (truncated?)",
                          payload + uint64_t{block.packed_bytes}, file.size()));
    }
    const std::byte* packed = file.data() + payload;
    if (XXH3_64bits(packed, block.packed_bytes) != block.hash) bad(at, "a block's checksum does not match (damaged)");
    const size_t begin = raw.size();
    raw.resize(begin + block.raw_bytes);
    const size_t n = ZSTD_decompress(raw.data() + begin, block.raw_bytes, packed, block.packed_bytes);
    if (ZSTD_isError(n) != 0 || n != block.raw_bytes) bad(at, "a block cannot be unpacked (damaged)");
    at = payload + block.packed_bytes;
  }
  return raw;
}

// Reads numbers and texts out of the unpacked bytes, in order.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  [[noreturn]] void bad(std::string_view field, const std::string& text) const {
    fail(ErrorKind::kBadFile, "{}: unpacked byte {}: {} {}", printable(path_), at_, field, text);
  }
  bool at_end() const noexcept { return at_ == bytes_.size(); }

  uint64_t number(std::string_view field) {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) bad(field, "is missing (truncated?)");
      const auto byte = static_cast<uint64_t>(bytes_[at_++]);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    bad(field, "is not a number of 64 bits");
  }

  uint32_t number(std::string_view field, uint64_t low, uint64_t high) {
    const uint64_t value = number(field);
    if (value < low || value > high) bad(field, fmt::format("is {}, wanted {}..{}", value, low, high));
    return static_cast<uint32_t>(value);
  }

  std::string text(std::string_view field) {
    std::string text(number(field, 0, kMaxTraceText), '\0');
    for (char& c : text) c = static_cast<char>(number(field, 0, 255));
    return text;
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

TraceHeader read_header(Cursor& in) {
  TraceHeader header;
  in.number("version", kTraceVersion, kTraceVersion);
  header.fingerprint = in.number("fingerprint");
  header.model = in.text("model");
  header.source = in.text("source");
  header.policy = in.text("policy");
  header.lfu_half_life_tokens = std::bit_cast<double>(in.number("lfu half-life"));
  if (!(header.lfu_half_life_tokens >= 1))
    in.bad("lfu half-life", fmt::format("is {}, wanted at least 1", header.lfu_half_life_tokens));
  header.slots_per_layer = in.number("slots per layer", 0, UINT32_MAX);
  header.lookahead = in.number("look-ahead", 0, 1) != 0;
  header.n_used = in.number("experts per row", 1, kMaxExperts);
  header.layers.resize(in.number("layers", 1, kMaxLayers));
  for (TraceLayer& layer : header.layers) {
    layer.n_experts = in.number("experts of a layer", 1, kMaxExperts);
    layer.slab_bytes = in.number("slab bytes");
  }
  return header;
}

// After the header. Every id is checked against its layer before it is used.
void read_records(Cursor& in, Trace& trace) {
  const TraceHeader& header = trace.header();
  std::vector<TraceRow> rows;
  std::vector<uint32_t> ids;
  bool is_open = false;
  for (;;) {
    const auto record = static_cast<TraceRecord>(in.number("record", 1, 4));
    const bool wants_open = record == TraceRecord::kDemand || record == TraceRecord::kEndStep;
    if (wants_open != is_open) in.bad("record", fmt::format("{} is out of order", static_cast<int>(record)));
    if (record == TraceRecord::kBeginStep) {
      rows.resize(in.number("rows", 1, kMaxRows));
      for (TraceRow& row : rows) {
        row.sequence = in.number("sequence", 0, UINT32_MAX);
        row.position = in.number("position", 0, UINT32_MAX);
        row.token = static_cast<int32_t>(in.number("token", 0, INT32_MAX));
      }
      trace.begin_step(rows);
      is_open = true;
    } else if (record == TraceRecord::kDemand) {
      const uint32_t layer = in.number("layer", 0, header.layers.size() - 1);
      ids.clear();
      for (uint64_t i = 0; i < uint64_t{rows.size()} * header.n_used; ++i) {
        ids.push_back(in.number("expert", 0, header.layers[layer].n_experts - 1));
      }
      trace.add_demand(layer, ids);
    } else if (record == TraceRecord::kEndStep) {
      trace.end_step(in.number("tokens of a step", 0, rows.size()));
      is_open = false;
    } else {
      in.number("number of steps", trace.n_steps(), trace.n_steps());
      in.number("number of demands", trace.n_demands(), trace.n_demands());
      if (!in.at_end()) in.bad("end record", "is followed by more data");
      return;
    }
  }
}

}  // namespace

Trace read_trace(const std::string& path) {
  const std::vector<std::byte> raw = unpack(path, read_file(path));
  Cursor in(path, raw);
  Trace trace(read_header(in));
  read_records(in, trace);
  return trace;
}

}  // namespace outrider::observe

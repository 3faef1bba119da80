// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "outrider/base/error.h"
#include "outrider/base/test_rng.h"
#include "outrider/observe/trace_file.h"
#include "outrider/observe/trace_record.h"

namespace outrider::observe {
namespace {

class TraceFile : public ::testing::Test {
 protected:
  ~TraceFile() override { ::unlink(path_.c_str()); }

  static Trace make(uint32_t n_steps, uint64_t salt = 1) {
    TraceHeader header;
    header.fingerprint = UINT64_MAX - 3;
    header.model = "a model";
    header.source = "run";
    header.policy = "lfu";
    header.lfu_half_life_tokens = 37.5;
    header.slots_per_layer = 9;
    header.n_used = 3;
    header.layers = {{200, 1 << 20}, {40, 77}};
    Trace trace(header);
    TestRng rng(salt);
    for (uint32_t step = 0; step < n_steps; ++step) {
      std::vector<TraceRow> rows(1 + rng.below(5));
      for (TraceRow& row : rows)
        row = {static_cast<uint32_t>(rng.below(3)), step, static_cast<int32_t>(rng.below(1U << 31))};
      trace.begin_step(rows);
      for (uint32_t layer = 0; layer < 2; ++layer) {
        std::vector<uint32_t> ids(rows.size() * header.n_used);
        for (uint32_t& id : ids) id = static_cast<uint32_t>(rng.below(header.layers[layer].n_experts));
        trace.add_demand(layer, ids);
      }
      trace.end_step(step % 7 == 3 ? 0 : static_cast<uint32_t>(rows.size()));
    }
    return trace;
  }

  std::vector<char> bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void set_bytes(std::span<const char> bytes) const {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // The text of the error, or "" when the file is read.
  std::string read_error() const {
    try {
      read_trace(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadFile);
      return error.what();
    }
    return "";
  }

  std::string path_ = ::testing::TempDir() + "outrider_trace_" + std::to_string(::getpid());
};

void expect_equal(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.header().fingerprint, b.header().fingerprint);
  EXPECT_EQ(a.header().model, b.header().model);
  EXPECT_EQ(a.header().policy, b.header().policy);
  EXPECT_EQ(a.header().lfu_half_life_tokens, b.header().lfu_half_life_tokens);
  EXPECT_EQ(a.header().slots_per_layer, b.header().slots_per_layer);
  EXPECT_EQ(a.header().expert_counts(), b.header().expert_counts());
  ASSERT_EQ(a.n_steps(), b.n_steps());
  ASSERT_EQ(a.n_demands(), b.n_demands());
  EXPECT_EQ(a.n_tokens(), b.n_tokens());
  for (size_t step = 0; step < a.n_steps(); ++step) {
    EXPECT_TRUE(std::ranges::equal(a.step_rows(step), b.step_rows(step)));
    EXPECT_EQ(a.step_tokens(step), b.step_tokens(step));
    EXPECT_EQ(a.first_demand(step), b.first_demand(step));
  }
  for (size_t i = 0; i < a.n_demands(); ++i) {
    EXPECT_EQ(a.demand(i).layer, b.demand(i).layer);
    EXPECT_TRUE(std::ranges::equal(a.demand(i).row_ids, b.demand(i).row_ids));
    EXPECT_TRUE(std::ranges::equal(a.demand(i).experts, b.demand(i).experts));
    EXPECT_TRUE(std::ranges::equal(a.demand(i).uses, b.demand(i).uses));
  }
}

TEST_F(TraceFile, ReadsWhatWasWritten) {
  for (const uint32_t n_steps : {0U, 1U, 50U, 20000U}) {  // the last needs several blocks
    const Trace trace = make(n_steps);
    write_trace(path_, trace);
    expect_equal(trace, read_trace(path_));
  }
}

TEST_F(TraceFile, DemandsAreDistinctRisingAndCounted) {
  Trace trace(make(0).header());
  trace.begin_step(std::vector<TraceRow>(2));
  trace.add_demand(1, std::vector<uint32_t>{7, 3, 30, 3, 9, 7});
  trace.end_step(2);
  const TraceDemand demand = trace.demand(0);
  EXPECT_TRUE(std::ranges::equal(demand.experts, std::vector<uint32_t>{3, 7, 9, 30}));
  EXPECT_TRUE(std::ranges::equal(demand.uses, std::vector<uint32_t>{2, 2, 1, 1}));
}

TEST_F(TraceFile, CutAtAnyByteIsAnError) {
  write_trace(path_, make(5));
  const std::vector<char> whole = bytes();
  for (size_t n = 0; n < whole.size(); ++n) {
    set_bytes(std::span(whole).first(n));
    const std::string text = read_error();
    ASSERT_NE(text, "") << n;
    ASSERT_EQ(text.find('\n'), std::string::npos) << text;
    ASSERT_NE(text.find(path_), std::string::npos) << text;
  }
}

TEST_F(TraceFile, AnyChangedByteIsAnError) {
  write_trace(path_, make(5));
  const std::vector<char> whole = bytes();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {0x01, 0x80}) {
      std::vector<char> damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      set_bytes(damaged);
      ASSERT_NE(read_error(), "") << "byte " << i << " flipped by " << flip;
    }
  }
}

// Checksums stop chance; a file made with intent has right ones. Whatever the stream says, it is read or refused.
TEST_F(TraceFile, HostileStreamsAreReadOrRefused) {
  write_trace(path_, make(6));
  const std::vector<char> whole = bytes();
  const size_t header_at = kTraceMagic.size(), packed_at = header_at + sizeof(TraceBlockHeader);
  TraceBlockHeader block;
  std::memcpy(&block, whole.data() + header_at, sizeof block);
  std::vector<char> raw(block.raw_bytes);
  ASSERT_EQ(ZSTD_decompress(raw.data(), raw.size(), whole.data() + packed_at, block.packed_bytes), raw.size());
  TestRng rng(3);
  uint32_t n_read = 0, n_refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<char> stream = raw;
    for (uint64_t n = 1 + rng.below(3); n > 0; --n)
      stream[rng.below(stream.size())] = static_cast<char>(rng.below(256));
    std::vector<char> packed(ZSTD_compressBound(stream.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), stream.data(), stream.size(), 1));
    const TraceBlockHeader header = {.raw_bytes = block.raw_bytes,
                                     .packed_bytes = static_cast<uint32_t>(packed.size()),
                                     .hash = XXH3_64bits(packed.data(), packed.size())};
    std::vector<char> file(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(packed_at));
    std::memcpy(file.data() + header_at, &header, sizeof header);
    file.insert(file.end(), packed.begin(), packed.end());
    set_bytes(file);
    const std::string text = read_error();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    ++(text.empty() ? n_read : n_refused);
  }
  EXPECT_GT(n_read, 0U);
  EXPECT_GT(n_refused, 0U);
}

TEST_F(TraceFile, ErrorsSayWhatWasWanted) {
  set_bytes(std::string("GGUF, surely"));
  EXPECT_EQ(read_error(), path_ + ": is not a trace (wanted OUTTRACE at its start)");
  {
    TraceWriter writer(path_, make(0).header());
    writer.begin_step(std::vector<TraceRow>(1));
    writer.add_demand(1, std::vector<uint32_t>{3, 40, 5});
    writer.end_step(1);
    writer.finish();
  }
  EXPECT_NE(read_error().find("expert is 40, wanted 0..39"), std::string::npos) << read_error();
  {
    TraceWriter writer(path_, make(0).header());
    writer.add_demand(1, std::vector<uint32_t>{3, 4, 5});
    writer.finish();
  }
  EXPECT_NE(read_error().find("record 2 is out of order"), std::string::npos) << read_error();
  EXPECT_THROW(TraceWriter("/nowhere/at/all", make(0).header()), Error);
  EXPECT_THROW(read_trace("/nowhere/at/all"), Error);
}

}  // namespace
}  // namespace outrider::observe

// SPDX-License-Identifier: Apache-2.0
// GB/s of the reader by slab size, queue depth, path and cache: build with -DOUTRIDER_BENCHES=ON, run
// outrider_io_bench. OUTRIDER_BENCH_FILE names a large file to read (a model); without it a 256 MiB file is made in the
// temporary folder. Direct rows read the drive (or what the host caches of it); buffered rows are cold: the file's
// pages are dropped before each repetition. The first and last byte of the slab that each place holds in the end are
// compared with a plain read.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "outrider/base/aligned_buffer.h"
#include "outrider/base/check.h"
#include "outrider/base/random.h"
#include "outrider/io/file.h"
#include "outrider/io/reader.h"

namespace outrider::io {
namespace {

constexpr uint64_t kMadeBytes = 256U << 20;
constexpr uint64_t kBytesARepetition = 128U << 20;

const std::string& bench_file() {
  static const std::string path = [] {
    if (const char* named = std::getenv("OUTRIDER_BENCH_FILE"); named != nullptr && *named != '\0')
      return std::string(named);
    std::string made = "/tmp/outrider_reader_bench_" + std::to_string(getpid()) + ".bin";
    std::ofstream out(made, std::ios::binary);
    Random random(1);
    std::vector<uint64_t> words((1U << 20) / 8);
    for (uint64_t done = 0; done < kMadeBytes; done += words.size() * 8) {
      for (uint64_t& word : words) word = random.next_u64();
      out.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(words.size() * 8));
    }
    out.close();
    static std::string to_remove;
    to_remove = made;
    std::atexit([] { std::remove(to_remove.c_str()); });
    return made;
  }();
  return path;
}

void drop_pages(const File& file) {
  static_cast<void>(fdatasync(file.fd()));
  static_cast<void>(posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED));
}

void read_slabs(benchmark::State& state, IoMode io, DirectMode direct) {
  const auto slab_bytes = static_cast<uint64_t>(state.range(0)) << 10;
  const auto depth = static_cast<uint32_t>(state.range(1));
  const uint32_t n_under_way = std::max<uint32_t>(2 * depth, 16);
  Reader reader(
      {.files = {bench_file()}, .io = io, .direct = direct, .queue_depth = depth, .max_requests = n_under_way});
  if (direct == DirectMode::kOn && reader.block_bytes(0) == 0)
    return state.SkipWithError("direct reads are refused here");
  if (io == IoMode::kUring && !reader.uses_ring()) return state.SkipWithError("io_uring is refused here");
  const File plain = File::open(bench_file());
  const uint64_t room = slab_bytes + 8192;
  AlignedBuffer memory(n_under_way * room, "bench");
  std::fill_n(memory.as<uint8_t>(), memory.size(), uint8_t{1});  // pages present, as in a cache that has been used
  const uint64_t n_slabs = kBytesARepetition / slab_bytes;
  Random random(7);
  std::vector<ReadDone> done(n_under_way);
  std::vector<ReadDone> last(n_under_way);  // by place: what lies there
  for (auto _ : state) {
    state.PauseTiming();
    if (direct == DirectMode::kOff) drop_pages(plain);
    state.ResumeTiming();
    std::vector<uint32_t> free_places(n_under_way);
    for (uint32_t i = 0; i < n_under_way; ++i) free_places[i] = i;
    std::vector<ReadRequest> batch;
    for (uint64_t n_sent = 0, n_back = 0; n_back < n_slabs;) {
      batch.clear();
      while (!free_places.empty() && n_sent < n_slabs) {
        // Experts lie at multiples of 32 bytes.
        const uint64_t offset = random.below((plain.n_bytes() - slab_bytes) / 32) * 32;
        batch.push_back({.file_idx = 0,
                         .offset = offset,
                         .n_bytes = slab_bytes,
                         .dst = memory.data() + free_places.back() * room,
                         .dst_bytes = room,
                         .cls = ReadClass::kDemand,
                         .tag = free_places.back()});
        free_places.pop_back();
        ++n_sent;
      }
      const bool accepted = reader.submit(batch);
      OUTRIDER_CHECK(accepted);
      const uint32_t n_done = reader.wait(done);
      for (uint32_t i = 0; i < n_done; ++i) {
        OUTRIDER_CHECK(done[i].status == ReadStatus::kOk, "{}", reader.error_text(done[i]));
        last[done[i].tag] = done[i];
        free_places.push_back(static_cast<uint32_t>(done[i].tag));
      }
      n_back += n_done;
    }
    state.PauseTiming();
    for (const ReadDone& one : last) {
      std::byte ends[2];
      plain.read_exact(one.offset, {ends, 1});
      plain.read_exact(one.offset + slab_bytes - 1, {ends + 1, 1});
      OUTRIDER_CHECK(one.data[0] == ends[0] && one.data[slab_bytes - 1] == ends[1], "offset {}", one.offset);
    }
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(n_slabs * slab_bytes));
}

void arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"slab_KiB", "depth"});
  for (const int64_t slab_kib : {64, 256, 1024, 4096}) {
    for (const int64_t depth : {1, 4, 16}) bench->Args({slab_kib, depth});
  }
  bench->UseRealTime()->Unit(benchmark::kMillisecond)->Iterations(1)->Repetitions(5)->ReportAggregatesOnly();
}

BENCHMARK_CAPTURE(read_slabs, uring_direct, IoMode::kUring, DirectMode::kOn)->Apply(arguments);
BENCHMARK_CAPTURE(read_slabs, threads_direct, IoMode::kThreads, DirectMode::kOn)->Apply(arguments);
BENCHMARK_CAPTURE(read_slabs, uring_buffered, IoMode::kUring, DirectMode::kOff)->Apply(arguments);
BENCHMARK_CAPTURE(read_slabs, threads_buffered, IoMode::kThreads, DirectMode::kOff)->Apply(arguments);

}  // namespace
}  // namespace outrider::io

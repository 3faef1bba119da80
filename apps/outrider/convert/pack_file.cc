// SPDX-License-Identifier: Apache-2.0
#include "convert/pack_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "convert/pack_layout.h"
#include "outrider/base/check.h"
#include "outrider/base/error.h"
#include "outrider/base/output_path.h"
#include "outrider/base/units.h"
#include "outrider/format/fd.h"

namespace outrider::apps {
namespace {

using format::Fd;

constexpr uint64_t kCopyBytes = 4ULL << 20;
constexpr uint64_t kRecordMagic = 0x3130435250524F;  // "ORPRC01" as it lies in the file

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { OUTRIDER_CHECK(state_ != nullptr && XXH3_64bits_reset(state_) == XXH_OK); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(const void* bytes, size_t n_bytes) { XXH3_64bits_update(state_, bytes, n_bytes); }
  uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

void read_at(const Fd& fd, const std::string& path, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n_read = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n_read < 0 && errno == EINTR) continue;
    if (n_read <= 0) {
      fail(ErrorKind::kIo, "{}: reading {} bytes at byte {} failed: {}", path, out.size(), offset,
           n_read < 0 ? std::strerror(errno) : "the file ends there");
    }
    out = out.subspan(static_cast<size_t>(n_read));
    offset += static_cast<uint64_t>(n_read);
  }
}

void write_at(const Fd& fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n_written = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written <= 0) {
      fail(ErrorKind::kIo, "{}: writing {} bytes at byte {} failed: {}", path, bytes.size(), offset,
           n_written < 0 ? std::strerror(errno) : "nothing was written");
    }
    bytes = bytes.subspan(static_cast<size_t>(n_written));
    offset += static_cast<uint64_t>(n_written);
  }
}

// For an Fd to own.
int open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail(ErrorKind::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  return fd;
}

uint64_t hash_of(std::span<const uint64_t> words) { return XXH3_64bits(words.data(), words.size_bytes()); }

// What must be the same for earlier work to count: the head that would be written (so the whole layout) and the files
// read, by size and time of change.
uint64_t job_key(const format::ModelFile& in, const PackLayout& layout) {
  Hash hash;
  hash.add(layout.head.data(), layout.head.size());
  for (const format::ModelPart& part : in.files) {
    struct stat status = {};
    if (::stat(part.path.c_str(), &status) != 0) fail(ErrorKind::kIo, "{}: {}", part.path, std::strerror(errno));
    const std::array<int64_t, 3> stamp = {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
    hash.add(stamp.data(), sizeof stamp);
  }
  return hash.value();
}

// The record of progress: magic, job key, a hash a finished unit, and the hash of all that. Replaced as a whole.
class Record {
 public:
  Record(std::string path, uint64_t key) : path_(std::move(path)), key_(key) {}

  // Hashes of the units that an earlier run of this job has finished; none when there is no sound record of it.
  std::vector<uint64_t> load(size_t n_units) const {
    const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status = {};
    if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) return {};
    const auto n_words = static_cast<uint64_t>(status.st_size) / 8;
    if (n_words < 3 || n_words > n_units + 3) return {};
    std::vector<uint64_t> words(n_words);
    read_at(fd, path_, 0, std::as_writable_bytes(std::span(words)));
    const uint64_t hash = words.back();
    words.pop_back();
    if (words[0] != kRecordMagic || words[1] != key_ || hash != hash_of(words)) return {};
    return {words.begin() + 2, words.end()};
  }

  void store(std::span<const uint64_t> hashes) const {
    std::vector<uint64_t> words = {kRecordMagic, key_};
    words.insert(words.end(), hashes.begin(), hashes.end());
    words.push_back(hash_of(words));
    const std::string fresh = path_ + ".new";
    {
      const Fd fd(open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC));
      write_at(fd, fresh, 0, std::as_bytes(std::span(words)));
      ::fdatasync(fd.get());
    }
    if (::rename(fresh.c_str(), path_.c_str()) != 0) {
      fail(ErrorKind::kIo, "{}: cannot be renamed to {}: {}", fresh, path_, std::strerror(errno));
    }
  }

  void remove() const { ::unlink(path_.c_str()); }

 private:
  std::string path_;
  uint64_t key_;
};

// Compares what is on the drive with the hashes: `hashes[0]` is the head's, then one a unit.
void check_bytes(const Fd& fd, const std::string& path, const PackLayout& layout, std::span<const uint64_t> hashes,
                 FunctionRef<void(uint64_t)> count) {
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);  // what is checked is the drive's copy, not the page cache's
  std::vector<std::byte> buffer(kCopyBytes);
  const auto check = [&](const std::string& name, uint64_t offset, uint64_t n_bytes, uint64_t wanted) {
    Hash hash;
    for (uint64_t done = 0; done < n_bytes;) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kCopyBytes, n_bytes - done)));
      read_at(fd, path, offset + done, piece);
      hash.add(piece.data(), piece.size());
      done += piece.size();
      count(piece.size());
    }
    if (hash.value() != wanted) {
      fail(ErrorKind::kBadFile, "{}: {}: bytes {} to {} have hash {:016x}, wanted {:016x} (damaged?)", path, name,
           offset, offset + n_bytes, hash.value(), wanted);
    }
  };
  check("header", 0, layout.head.size(), hashes[0]);
  for (size_t i = 0; i < layout.units.size(); ++i) {
    check(layout.units[i].name, layout.units[i].offset, layout.units[i].n_bytes, hashes[i + 1]);
  }
}

uint64_t checked_bytes(const PackLayout& layout) {
  uint64_t n_bytes = layout.head.size();
  for (const PackUnit& unit : layout.units) n_bytes += unit.n_bytes;
  return n_bytes;
}

class Packer {
 public:
  Packer(const format::ModelFile& in, const std::string& out_path, const PackOptions& options,
         FunctionRef<void(uint64_t, uint64_t)> progress)
      : layout_(lay_out_pack(in)),
        options_(options),
        progress_(progress),
        out_path_(output_path(out_path).target),
        part_path_(out_path_ + ".part"),
        record_(part_path_ + ".progress", job_key(in, layout_)),
        part_((refuse(in), open_file(part_path_, O_RDWR | O_CREAT))),
        buffer_(kCopyBytes) {
    for (const format::ModelPart& part : in.files) {
      sources_.push_back(std::make_unique<Fd>(open_file(part.path, O_RDONLY)));
      source_paths_.push_back(part.path);
    }
    if (::flock(part_.get(), LOCK_EX | LOCK_NB) != 0)
      fail(ErrorKind::kIo, "{}: is being written by another process", part_path_);
    total_bytes_ = layout_.n_bytes + checked_bytes(layout_);
  }

  PackSummary run() {
    take_up();
    check_room();
    write_at(part_, part_path_, 0, std::as_bytes(std::span(layout_.head)));
    uint64_t recorded_at = resumed_bytes_;
    while (hashes_.size() < layout_.units.size()) {
      const PackUnit& unit = layout_.units[hashes_.size()];
      hashes_.push_back(copy(unit));
      if (unit.offset + unit.n_bytes - recorded_at >= options_.record_bytes) {
        recorded_at = unit.offset + unit.n_bytes;
        record();
      }
    }
    std::vector<uint64_t> all = {XXH3_64bits(layout_.head.data(), layout_.head.size())};
    all.insert(all.end(), hashes_.begin(), hashes_.end());
    write_at(part_, part_path_, layout_.hashes_offset, std::as_bytes(std::span(all)));
    resize(layout_.n_bytes);
    record();
    check_bytes(part_, part_path_, layout_, all, [this](uint64_t n_bytes) { count(n_bytes); });
    if (::rename(part_path_.c_str(), out_path_.c_str()) != 0) {
      fail(ErrorKind::kIo, "{}: cannot be renamed to {}: {}", part_path_, out_path_, std::strerror(errno));
    }
    record_.remove();
    return {.n_layers = layout_.n_layers,
            .n_slabs = layout_.n_slabs,
            .bytes_in = 0,
            .bytes_out = layout_.n_bytes,
            .resumed_bytes = resumed_bytes_};
  }

 private:
  void refuse(const format::ModelFile& in) const {
    std::error_code ignored;
    for (const format::ModelPart& part : in.files) {
      if (std::filesystem::equivalent(part.path, out_path_, ignored)) {
        fail(ErrorKind::kBadArgument, "{}: is part of the model to read, wanted another name", out_path_);
      }
    }
    if (output_path(out_path_).in_place())
      fail(ErrorKind::kIo, "{}: is not a regular file, wanted a file to write", out_path_);
    if (!options_.replace && std::filesystem::exists(out_path_, ignored)) {
      fail(ErrorKind::kBadArgument, "{}: is there already (--replace to make it anew)", out_path_);
    }
  }

  // Goes on where an earlier run stopped. What lies behind its last record goes, so that gaps read as zeros.
  void take_up() {
    hashes_ = record_.load(layout_.units.size());
    if (!hashes_.empty())
      resumed_bytes_ = layout_.units[hashes_.size() - 1].offset + layout_.units[hashes_.size() - 1].n_bytes;
    struct stat status = {};
    if (::fstat(part_.get(), &status) != 0 || static_cast<uint64_t>(status.st_size) < resumed_bytes_) {
      hashes_.clear();
      resumed_bytes_ = 0;
    }
    resize(resumed_bytes_);
    count(resumed_bytes_);
  }

  void check_room() const {
    struct statvfs room = {};
    if (::fstatvfs(part_.get(), &room) != 0) return;
    const uint64_t free_bytes = static_cast<uint64_t>(room.f_bavail) * room.f_frsize;
    if (free_bytes < layout_.n_bytes - resumed_bytes_) {
      fail(ErrorKind::kIo, "{}: needs {} more, the file system has {} free", part_path_,
           format_bytes(layout_.n_bytes - resumed_bytes_), format_bytes(free_bytes));
    }
  }

  uint64_t copy(const PackUnit& unit) {
    Hash hash;
    uint64_t at = unit.offset;
    const auto put = [&](std::span<const std::byte> bytes) {
      hash.add(bytes.data(), bytes.size());
      write_at(part_, part_path_, at, bytes);
      at += bytes.size();
      count(bytes.size());
    };
    for (const PackRange& range : unit.from) {
      for (uint64_t done = 0; done < range.n_bytes;) {
        const auto piece = std::span(buffer_).first(static_cast<size_t>(std::min(kCopyBytes, range.n_bytes - done)));
        read_at(*sources_[range.file_idx], source_paths_[range.file_idx], range.offset + done, piece);
        put(piece);
        done += piece.size();
      }
    }
    const std::vector<std::byte> zeros(static_cast<size_t>(unit.offset + unit.n_bytes - at));  // under 4 KiB
    put(zeros);
    return hash.value();
  }

  // The record must never say more than the drive holds.
  void record() {
    if (::fdatasync(part_.get()) != 0) fail(ErrorKind::kIo, "{}: {}", part_path_, std::strerror(errno));
    record_.store(hashes_);
    ::posix_fadvise(part_.get(), 0, 0, POSIX_FADV_DONTNEED);
  }

  void resize(uint64_t n_bytes) const {
    if (::ftruncate(part_.get(), static_cast<off_t>(n_bytes)) != 0) {
      fail(ErrorKind::kIo, "{}: cannot be made {} bytes long: {}", part_path_, n_bytes, std::strerror(errno));
    }
  }

  void count(uint64_t n_bytes) {
    done_bytes_ += n_bytes;
    progress_(std::min(done_bytes_, total_bytes_), total_bytes_);
  }

  const PackLayout layout_;
  const PackOptions options_;
  FunctionRef<void(uint64_t, uint64_t)> progress_;
  const std::string out_path_, part_path_;
  const Record record_;
  const Fd part_;
  std::vector<std::byte> buffer_;
  std::vector<std::unique_ptr<Fd>> sources_;
  std::vector<std::string> source_paths_;
  std::vector<uint64_t> hashes_;  // of the units that are done
  uint64_t resumed_bytes_ = 0, done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

PackSummary pack_file(const format::ModelFile& in, const std::string& out_path, const PackOptions& options,
                      FunctionRef<void(uint64_t, uint64_t)> progress) {
  PackSummary summary = Packer(in, out_path, options, progress).run();
  for (const format::ModelPart& part : in.files) summary.bytes_in += part.n_bytes;
  return summary;
}

uint64_t verify_pack(const std::string& path, FunctionRef<void(uint64_t, uint64_t)> progress) {
  PackLayout layout = read_pack_layout(path);
  const Fd fd(open_file(path, O_RDONLY));
  std::vector<uint64_t> hashes(layout.units.size() + 1);
  read_at(fd, path, layout.hashes_offset, std::as_writable_bytes(std::span(hashes)));
  const uint64_t total = checked_bytes(layout);
  uint64_t done = 0;
  check_bytes(fd, path, layout, hashes, [&](uint64_t n_bytes) { progress(done += n_bytes, total); });
  return total;
}

}  // namespace outrider::apps

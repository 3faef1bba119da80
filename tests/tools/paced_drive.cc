// SPDX-License-Identifier: Apache-2.0
// Files on a drive of a known rate, for programs that are not to know: a file system (FUSE) that shows FILEs in DIR and
// answers reads as a drive with one queue would. Any number may wait, they are served in the order in which they came,
// and one of n bytes is answered no earlier than max(when it came, when the one before it was done) + n / rate. Time in
// which nothing was asked is lost; a limit of the kernel's (blkio, dm) or a token bucket would give it back.
// The bytes come from memory (all FILEs are locked there first): where a drive would use DMA the processor copies. The
// copy is timed to end when the read is due, at the fastest rate seen so far. Ends on SIGINT and SIGTERM. Needs root.
//
//   outrider_paced_drive DIR BYTES_PER_SECOND FILE...
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kFirstNode = FUSE_ROOT_ID + 1;  // of the files
constexpr uint64_t kForever = 1U << 30;            // seconds for which the kernel may believe a name or an attribute
constexpr uint32_t kMaxPages = 256;                // of one request: 1 MiB
constexpr uint32_t kMaxWaiting = 256;
constexpr uint64_t kLargeBytes = 64U << 10;  // reads whose copying takes a time worth counting

struct ShownFile {
  std::string name;
  const std::byte* data = nullptr;
  uint64_t n_bytes = 0;
};

struct Read {
  uint64_t request = 0;
  const std::byte* data = nullptr;
  uint64_t n_bytes = 0;
  uint64_t due_ns = 0;
};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "outrider_paced_drive: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

uint64_t now_ns() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(time.tv_nsec);
}

void sleep_until(uint64_t ns) {
  const timespec until = {static_cast<time_t>(ns / 1'000'000'000U), static_cast<long>(ns % 1'000'000'000U)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

// A drive does not wait for a core.
void go_first() {
  const sched_param priority = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) die("SCHED_FIFO");
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

class PacedDrive {
 public:
  PacedDrive(int fd, double bytes_per_second, std::vector<ShownFile> files)
      : fd_(fd), ns_per_byte_(1e9 / bytes_per_second), files_(std::move(files)) {}

  // Until the file system is unmounted.
  void serve() {
    std::thread answering([this] { answer_reads(); });
    go_first();
    std::vector<char> buffer(1U << 16);
    for (;;) {
      const ssize_t n = read(fd_, buffer.data(), buffer.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
      if (n < 0 && errno != ENODEV) die("/dev/fuse");
      if (n <= 0) break;
      fuse_in_header header;
      std::memcpy(&header, buffer.data(), sizeof header);
      handle(header, buffer.data() + sizeof header);
    }
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    answering.join();
  }

 private:
  void answer(uint64_t request, const void* data, size_t n_bytes, int error = 0) const {
    fuse_out_header header = {};
    header.len = static_cast<uint32_t>(sizeof header + n_bytes);
    header.error = -error;
    header.unique = request;
    const iovec parts[] = {{&header, sizeof header}, {const_cast<void*>(data), n_bytes}};
    // ENOENT: the asker was interrupted and has gone.
    if (writev(fd_, parts, n_bytes > 0 ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV) die("answer");
  }

  template <typename Answer>
  void answer_with(uint64_t request, const Answer& out) const {
    answer(request, &out, sizeof out);
  }

  const ShownFile* file_of(uint64_t node) const {
    return node >= kFirstNode && node - kFirstNode < files_.size() ? &files_[node - kFirstNode] : nullptr;
  }

  fuse_attr attributes(uint64_t node) const {
    const ShownFile* file = file_of(node);
    fuse_attr attr = {};
    attr.ino = node;
    attr.mode = file != nullptr ? S_IFREG | 0444 : S_IFDIR | 0555;
    attr.nlink = 1;
    attr.size = file != nullptr ? file->n_bytes : 0;
    attr.blocks = (attr.size + 511) / 512;
    attr.blksize = 4096;
    return attr;
  }

  void handle(const fuse_in_header& header, const char* body) {
    switch (header.opcode) {
      case FUSE_INIT:
        return answer_init(header, body);
      case FUSE_LOOKUP:
        for (size_t i = 0; i < files_.size(); ++i) {
          if (files_[i].name != body) continue;
          fuse_entry_out out = {};
          out.nodeid = kFirstNode + i;
          out.entry_valid = out.attr_valid = kForever;
          out.attr = attributes(out.nodeid);
          return answer_with(header.unique, out);
        }
        return answer(header.unique, nullptr, 0, ENOENT);
      case FUSE_GETATTR: {
        fuse_attr_out out = {};
        out.attr_valid = kForever;
        out.attr = attributes(header.nodeid);
        return answer_with(header.unique, out);
      }
      case FUSE_OPEN: {
        fuse_open_out out = {};
        out.open_flags = FOPEN_KEEP_CACHE;
        return answer_with(header.unique, out);
      }
      case FUSE_READ:
        return take_read(header, body);
      case FUSE_STATFS: {
        fuse_statfs_out out = {};
        out.st.bsize = 4096;
        out.st.namelen = 255;
        return answer_with(header.unique, out);
      }
      case FUSE_FLUSH:
      case FUSE_RELEASE:
      case FUSE_DESTROY:
        return answer(header.unique, nullptr, 0);
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;  // want no answer
      default:
        return answer(header.unique, nullptr, 0, ENOSYS);
    }
  }

  void answer_init(const fuse_in_header& header, const char* body) const {
    fuse_init_in in;
    std::memcpy(&in, body, sizeof in);
    fuse_init_out out = {};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = FUSE_KERNEL_MINOR_VERSION;
    out.max_readahead = in.max_readahead;
    out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_MAX_PAGES);
    out.max_background = kMaxWaiting;
    out.congestion_threshold = kMaxWaiting;
    out.max_write = 4096;
    out.time_gran = 1;
    out.max_pages = kMaxPages;
    answer_with(header.unique, out);
  }

  void take_read(const fuse_in_header& header, const char* body) {
    const uint64_t now = now_ns();
    fuse_read_in in;
    std::memcpy(&in, body, sizeof in);
    const ShownFile* file = file_of(header.nodeid);
    if (file == nullptr) return answer(header.unique, nullptr, 0, EIO);
    const uint64_t begin = std::min<uint64_t>(in.offset, file->n_bytes);
    const uint64_t n_bytes = std::min<uint64_t>(in.size, file->n_bytes - begin);
    free_ns_ = std::max(now, free_ns_) + static_cast<uint64_t>(static_cast<double>(n_bytes) * ns_per_byte_);
    {
      const std::lock_guard lock(mutex_);
      reads_.push_back({.request = header.unique, .data = file->data + begin, .n_bytes = n_bytes, .due_ns = free_ns_});
    }
    changed_.notify_one();
  }

  void answer_reads() {
    go_first();
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !reads_.empty(); });
      if (reads_.empty()) return;
      const Read read = reads_.front();
      reads_.pop_front();
      lock.unlock();
      // The copy begins so early that at the fastest rate seen it ends when the read is due.
      const auto bytes = static_cast<double>(read.n_bytes);
      const bool is_large = read.n_bytes >= kLargeBytes;
      sleep_until(read.due_ns - (is_large ? static_cast<uint64_t>(bytes * least_copy_ns_) : 0));
      const uint64_t start = now_ns();
      answer(read.request, read.data, read.n_bytes);
      const double copy_ns = static_cast<double>(now_ns() - start) / bytes;
      if (is_large) least_copy_ns_ = least_copy_ns_ == 0 ? copy_ns : std::min(least_copy_ns_, copy_ns);
    }
  }

  const int fd_;
  const double ns_per_byte_;
  const std::vector<ShownFile> files_;
  double least_copy_ns_ = 0;  // a byte, of large reads
  uint64_t free_ns_ = 0;      // when the drive is done with all that it has been asked
  std::mutex mutex_;          // guards what follows
  std::condition_variable changed_;
  std::deque<Read> reads_;
  bool stopping_ = false;
};

ShownFile load(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0) die(path.c_str());
  const auto n_bytes = static_cast<uint64_t>(info.st_size);
  void* data = mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED || mlock(data, n_bytes) != 0) die(path.c_str());
  close(fd);
  return {path.substr(path.rfind('/') + 1), static_cast<const std::byte*>(data), n_bytes};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || std::strtod(argv[2], nullptr) <= 0) {
    std::fprintf(stderr, "usage: outrider_paced_drive DIR BYTES_PER_SECOND FILE...\n");
    return 2;
  }
  const std::string directory = argv[1];
  std::vector<ShownFile> files;
  for (int i = 3; i < argc; ++i) files.push_back(load(argv[i]));
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) die("/dev/fuse");
  const std::string options =
      "fd=" + std::to_string(fd) + ",rootmode=40555,user_id=0,group_id=0,allow_other,max_read=1048576";
  if (mount("paced", directory.c_str(), "fuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options.c_str()) != 0) die("mount");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::thread([&ends, &directory] {
    int signal = 0;
    sigwait(&ends, &signal);
    umount2(directory.c_str(), MNT_DETACH);
  }).detach();
  PacedDrive(fd, std::strtod(argv[2], nullptr), std::move(files)).serve();
  return 0;
}

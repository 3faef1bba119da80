// SPDX-License-Identifier: Apache-2.0
#include "text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "outrider/base/error.h"
#include "outrider/base/units.h"
#include "outrider/format/fd.h"

namespace outrider::apps {

std::string read_text_file(const std::string& path) {
  const bool is_input = path == "-";
  const std::string name = is_input ? "standard input" : printable(path);
  const format::Fd owned(is_input ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int fd = is_input ? STDIN_FILENO : owned.get();
  if (fd < 0) fail(ErrorKind::kIo, "{}: cannot be opened for reading: {}", name, std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t n_read = ::read(fd, buffer.data(), buffer.size());
    if (n_read == 0) return text;
    if (n_read > 0) {
      text.append(buffer.data(), static_cast<size_t>(n_read));
    } else if (errno != EINTR) {
      fail(ErrorKind::kIo, "{}: cannot be read: {}", name, std::strerror(errno));
    }
  }
}

std::vector<int32_t> parse_ids(const std::string& text, const char* option) {
  constexpr std::string_view kSeparators = ", \t\r\n[]";
  const std::string list = text.starts_with('@') ? read_text_file(text.substr(1)) : text;
  std::vector<int32_t> ids;
  size_t begin = 0;
  while ((begin = list.find_first_not_of(kSeparators, begin)) != std::string::npos) {
    const size_t end = std::min(list.find_first_of(kSeparators, begin), list.size());
    const auto id = parse_int(std::string_view(list).substr(begin, end - begin));
    if (!id || *id < 0 || *id > INT32_MAX) {
      fail(ErrorKind::kBadArgument, "{}: '{}' is not a token id", option, printable(list.substr(begin, end - begin)));
    }
    ids.push_back(static_cast<int32_t>(*id));
    begin = end;
  }
  if (ids.empty()) fail(ErrorKind::kBadArgument, "{}: wanted at least one token id", option);
  return ids;
}

}  // namespace outrider::apps

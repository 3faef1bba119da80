// SPDX-License-Identifier: Apache-2.0
// Text and token ids that a user gives: in a file, on standard input or on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrider::apps {

// The whole of a file, or of standard input for "-", every byte of it. Throws Error(kIo).
std::string read_text_file(const std::string& path);

// "1,2,3", "[1, 2, 3]" or "@FILE" (numbers separated by commas, white space or brackets). Throws Error(kBadArgument)
// naming the bad entry, or that there is none.
std::vector<int32_t> parse_ids(const std::string& text, const char* option);

}  // namespace outrider::apps

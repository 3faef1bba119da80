// SPDX-License-Identifier: Apache-2.0
// Token pieces to printable text as they come: whole UTF-8 characters only, stop strings cut before any part of them is
// shown (../shared/spec/tokenizers.md section 9).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outrider::text {

class StreamText {
 public:
  explicit StreamText(std::vector<std::string> stops = {});

  // Adds one piece; returns what may be shown now: valid UTF-8 (an impossible byte becomes U+FFFD), holding back an
  // unfinished character and any suffix that may be the start of a stop string. After a stop has matched: "".
  std::string push(std::string_view piece);
  // End of generation: what was held back (an unfinished character becomes one U+FFFD).
  std::string finish();
  bool stopped() const noexcept { return stopped_; }
  const std::string& matched_stop() const noexcept { return matched_; }

 private:
  std::string take(bool last);
  std::vector<std::string> stops_;
  std::string bytes_;  // not yet decoded
  std::string held_;   // decoded, not yet shown
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace outrider::text

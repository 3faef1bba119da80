// SPDX-License-Identifier: Apache-2.0
// A small byte-level tokenizer for models without a vocabulary of their own: any text encodes, the rest of the
// vocabulary is padding.
#pragma once

#include <cstdint>

#include "outrider/format/metadata.h"

namespace outrider::apps {

// The fewest tokens that the tokenizer needs.
inline constexpr uint32_t kMinSynthVocab = 320;

// Sets the tokenizer.* keys for n_vocab >= kMinSynthVocab tokens: 256 bytes, a few merges, three special tokens, and
// unused [PADn].
void set_synth_tokenizer(format::Metadata& metadata, uint32_t n_vocab);

}  // namespace outrider::apps

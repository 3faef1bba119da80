// SPDX-License-Identifier: Apache-2.0
// Tells one model from another, for files that are kept beside it (traces, warm starts): a hash over the directory
// (names, types, shapes, places, sizes of the files) and over 16 blocks of 4 KiB spread over each file, so that two
// fine-tunes of one shape differ. Not a proof against somebody who wants two files to look alike.
#pragma once

#include <cstdint>

#include "outrider/model/model.h"

namespace outrider::model {

// The experts per token are part of it: they change which experts are demanded. Throws Error(kIo).
uint64_t fingerprint(const Model& model);

}  // namespace outrider::model

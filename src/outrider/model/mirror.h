// SPDX-License-Identifier: Apache-2.0
// Copies of a model on other drives, from which experts are read too.
#pragma once

#include <string>
#include <vector>

#include "outrider/model/model.h"

namespace outrider::model {

// The files of the copy of `model` at `path` (a file, any part of a split set, or a folder), in the order of the
// model's own. Throws Error in one line when there is none, or when it is not a copy: other parts, another size,
// another fingerprint (fingerprint.h: it samples the bytes, so damage in between is not found).
std::vector<std::string> files_of_copy(const Model& model, const std::string& path);

}  // namespace outrider::model

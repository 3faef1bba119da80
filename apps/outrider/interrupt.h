// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a wish to stop in order: what was begun is tidied away first. A second one leaves at once.
#pragma once

#include <atomic>

namespace outrider::apps {

// True after the first signal; the engine looks at it between layers.
std::atomic<bool>& interrupted();

// Catches both signals from now on; before, they end the program as usual, which suits loading.
void catch_interrupts();

// Throws Error(kCancelled) once a signal has come. For the progress functions of long conversions.
void stop_if_interrupted();

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a wish to stop in order: what was begun is tidied away first. Another one, more than half a
// second later, leaves at once.
#pragma once

#include <atomic>

namespace outrider::apps {

// True after the first signal; the engine looks at it between layers. Whoever answers a signal otherwise than by ending
// the program sets it to false again.
std::atomic<bool>& interrupted();

// The signal that has come and has not been answered; 0: none. main ends with 128 + its number, as shells have it.
int pending_signal();

// Catches both signals from now on; before, they end the program as usual, which suits loading.
void catch_interrupts();

// Throws Error(kCancelled) once a signal has come. For the progress functions of long conversions.
void stop_if_interrupted();

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <signal.h>

#include <cstdlib>

#include "outrider/base/error.h"

namespace outrider::apps {

namespace {

std::atomic<bool> g_interrupted{false};

void on_interrupt(int) {
  if (g_interrupted.exchange(true)) std::_Exit(130);
}

}  // namespace

std::atomic<bool>& interrupted() { return g_interrupted; }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void stop_if_interrupted() {
  if (g_interrupted.load(std::memory_order_relaxed)) fail(ErrorKind::kCancelled, "stopped by a signal, nothing was written");
}

}  // namespace outrider::apps

// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>

#include "outrider/base/error.h"

namespace outrider::apps {

namespace {

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};
std::atomic<int64_t> g_signal_ms{0};

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void on_interrupt(int signal) {
  if (!g_interrupted.load()) {
    g_signal = signal;
    g_signal_ms = now_ms();
    g_interrupted = true;
  } else if (now_ms() - g_signal_ms >
             500) {  // timeout(1) and some shells send one wish twice: to the process and its group
    std::_Exit(128 + signal);
  }
}

}  // namespace

std::atomic<bool>& interrupted() { return g_interrupted; }

int pending_signal() { return g_interrupted ? g_signal.load() : 0; }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void stop_if_interrupted() {
  if (g_interrupted.load(std::memory_order_relaxed))
    fail(ErrorKind::kCancelled, "stopped by a signal, nothing was written");
}

}  // namespace outrider::apps

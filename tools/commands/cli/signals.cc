#include "tools/commands/cli/signals.h"

#include <csignal>

namespace stepnet::tools {
namespace {

std::atomic<bool> stop{false};
std::atomic<int64_t> saves{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "they are set in a signal handler");

void on_signal(int) { stop = true; }
void on_save_signal(int) { ++saves; }

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  return stop;
}

const std::atomic<int64_t>& saves_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_save_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  return saves;
}

void let_large_writes_fail() { std::signal(SIGXFSZ, SIG_IGN); }

bool was_interrupted() { return stop; }

void interrupt_was_handled() { stop = false; }

}  // namespace stepnet::tools

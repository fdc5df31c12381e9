// SIGINT and SIGTERM: the running iteration is finished, then the command ends in order. A second signal ends it at
// once.
//
// Threads: install from the main thread; the flag may be read from any.
#pragma once

#include <atomic>

namespace stepnet::tools {

constexpr int kInterrupted = 130;  // exit code

// The flag that the signals set. The first call installs the handlers.
const std::atomic<bool>& stop_on_signals();
bool was_interrupted();
// For a command that a signal ends in order, with its work saved: it is done, not interrupted.
void interrupt_was_handled();

}  // namespace stepnet::tools

// SIGINT, SIGTERM and SIGHUP: the running iteration is finished, then the command ends in order. A second signal ends
// it at once. SIGUSR1, where a command says so, asks for a checkpoint, and changes nothing else. A SIGHUP that is
// ignored, as under nohup, stays so. A file beyond the limit of its size is an error of the write, and no signal.
//
// Threads: install from the main thread; the flag may be read from any.
#pragma once

#include <atomic>
#include <cstdint>

namespace stepnet::tools {

constexpr int kInterrupted = 130;  // exit code

// The flag that the signals set. The first call installs the handlers.
const std::atomic<bool>& stop_on_signals();
// How often SIGUSR1 came. The first call installs the handler.
const std::atomic<int64_t>& saves_on_signals();
// SIGXFSZ is ignored, so that the write fails.
void let_large_writes_fail();
bool was_interrupted();
// For a command that a signal ends in order, with its work saved: it is done, not interrupted.
void interrupt_was_handled();

}  // namespace stepnet::tools

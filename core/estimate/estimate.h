// Estimate: memory and arithmetic of a net, operator by operator, known without running it.
//
// The session (core/estimate/session.h) is made and run in a DryScope, so the figures are the counters of a real run:
// on the CPU they are its bytes exactly. Two runs are made, because the first also makes what stays for all others;
// figures are those of the second, as of every later one. A value is its storage, whatever names it has. It is kept if
// the backward pass reads it and the forward pass made it; what it is for is otherwise decided by what stands in it
// between runs, see MemoryKind. Threads: pure functions of what they are given.
#pragma once

#include <string>
#include <vector>

#include "core/estimate/session.h"

namespace stepnet {

struct OpEstimate {
  int index = 0;
  std::string type, name;  // the operator's name, or its first output's
  bool backward = false;   // of the gradient pass, or behind it
  bool update = false;     // of parameters, and what prepares it
  std::string kernel;      // that is assumed to run
  OpMemory memory;
  int64_t inputs_kept = 0;   // bytes of its inputs that its gradient reads
  int64_t outputs = 0;       // bytes that it makes for its outputs
  int64_t outputs_kept = 0;  // of them, what the backward pass reads
  int64_t own_kept = 0;      // bytes that it makes beside its outputs, and keeps: for its gradient, or for the next run
  int64_t temporaries = 0;   // bytes more than its outputs and what it keeps, live at its peak
  int64_t workspace = 0;     // bytes that its kernels work on, and keep for the next run
  double flops = 0;
  double bytes_moved = 0;  // of the values that it reads and writes
  MemoryByKind at_peak;    // what is alive at its peak
};

struct Estimate {
  DeviceKind device = DeviceKind::cpu;
  std::vector<OpEstimate> ops;
  MemoryByKind totals;   // bytes of each kind: the largest sum of them that is ever alive
  int64_t outputs = 0;   // of the net, in bytes
  int64_t between = 0;   // live between two runs
  int64_t peak = 0;      // of all runs
  int peak_op = -1;      // at which it is reached; -1: while the first run, which is not shown, makes what stays
  MemoryByKind at_peak;  // what is alive then
  double flops = 0, product_flops = 0, bytes_moved = 0;
  std::vector<std::string> notes;  // what is bounded or assumed
};

// Runs the session dry; it must have been made in the same scope.
Estimate estimate_session(NetSession& session, DryScope& scope);

// Throws Error with the figures if the estimate's peak is more than so many bytes; `what` needs it, and `fix` is how it
// would need less.
void require_fits(const Estimate& estimate, int64_t bytes, const std::string& what, const std::string& fix);

// A value that the backward pass keeps alive, and why.
struct KeptValue {
  std::string name, type;
  int64_t bytes = 0;
  std::vector<std::string> reasons;  // "the gradient of x by Mul (operator 3) reads it"
};
// Of the session's net, by the derivative table that its gradients were made from; after a dry run.
std::vector<KeptValue> kept_values(const NetSession& session);

}  // namespace stepnet

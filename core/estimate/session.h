// NetSession: a net with all that it runs on, ready to run again and again, and what each operator does to memory.
//
// The same session runs for real or, made and run in a DryScope (core/tensor/dry_device.h), without data: measuring and
// estimating differ in nothing else. Threads: one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor/dry_device.h"
#include "stepnet/file_place.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"

namespace stepnet {

// What bytes are there for. `kept`: made by the forward pass, and read by the backward pass. `own`: of an operator, not
// one of its outputs. `transient`: all other values. `reserve` and `workspace`: see stepnet/device.h.
enum class MemoryKind { input, parameter, optimizer, gradient, kept, transient, own, reserve, workspace };
inline constexpr int kMemoryKinds = 9;
const char* memory_kind_name(MemoryKind kind);  // "net inputs", "parameters", ...
using MemoryByKind = std::vector<int64_t>;      // kMemoryKinds of them

struct NetSession {
  Workspace parameters, blobs{&parameters};
  std::unique_ptr<Net> net;
  std::function<void()> advance;            // between two runs; may be empty
  std::function<void()> update;             // what changes parameters, where `net` does not; may be empty
  std::map<std::string, MemoryKind> kinds;  // of the blobs that are there between runs, and of gradients
  GradientResult differentiated;            // its first_gradient_op is the number of operators if there is no backward
  int first_update = 0;                     // operators from here on change parameters
};

// Bytes that are live before an operator, at most while it runs, and behind it, when what it was the last to read has
// gone.
struct OpMemory {
  int64_t before = 0, peak = 0, after = 0;
  int64_t products = 0;  // of what is live behind it, what products keep: packed weights and scratchpads
  bool operator==(const OpMemory&) const = default;
};

// Runs the net once; one figure for each operator. They are those of the scope that is alive on this thread, else of
// the CPU's allocator, beyond what was live before.
struct LiveBytes {
  int64_t all = 0, products = 0;
};
LiveBytes live_bytes();
std::vector<OpMemory> run_measured(NetSession& session, const LiveBytes& before = {});

struct ForwardOptions {
  std::map<std::string, TensorType> feeds;
  std::map<std::string, TensorType> parameters = {};
  NetDef init = {};                 // makes parameters; runs once
  bool keep_all = false;            // intermediates stay until the next run
  bool plan_memory = false;         // they share a block from the second run on, as `stepnet run` has it
  std::set<std::string> keep = {};  // intermediates that stay
  FileRootPtr files = {};           // below which the nets may open files; null: anywhere
  Device device = {};               // of feeds and parameters; a net that asks for a GPU gets the CPU if that is it
};

// A session of a net that only runs forward. Feeds are zeros. Throws Error that lists the blobs whose types are
// missing.
std::unique_ptr<NetSession> forward_session(const NetDef& net, const ForwardOptions& options);

// Runs a net that makes parameters, on the CPU, whose draws are the same everywhere, and moves them to the device.
void make_parameters(const NetDef& init, Workspace& parameters, RunContext& run, Device device);

// What the net reads that neither it nor anything in `known` makes.
std::vector<std::string> missing_inputs(const NetDef& net, const Workspace& known,
                                        const std::map<std::string, TensorType>& feeds);
void require_inputs(const NetDef& net, const Workspace& known, const std::map<std::string, TensorType>& feeds);

}  // namespace stepnet

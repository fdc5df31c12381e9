// Plans: nets by name, and nested execution steps that say in which order and how often they run.
//
// Semantics are the public format's (nets are built, eagerly and in order of reference, before a top-level step runs).
// Threads: run_plan starts and joins the threads that concurrent substeps and periodic reporters ask for.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "stepnet/net.h"

namespace stepnet {

struct PlanOptions {
  NetOptions net;                     // what other nets of the plan or its steps name is kept
  std::optional<int64_t> iterations;  // replaces the largest num_iter of the plan
  // Set by a signal: the running iteration is the last, of all loops. Steps after them that run once still do, each
  // even if one before it fails then, so that what they save is saved; unless no loop has begun.
  const std::atomic<bool>* stop = nullptr;
  // Called after each run of a net in the main thread; in_loop: a step that runs more than once runs it.
  std::function<void(const Net&, int64_t iteration, bool in_loop)> after_net;
};

// Throws Error on the first failure; what operators can say before anything runs (a file to be written is there
// already) is said then. Nets stay in the workspace's blobs only; net objects are dropped at the end.
void run_plan(const PlanDef& plan, Workspace& workspace, RunContext& run, const PlanOptions& options = {});

// Structure and schema of all nets and steps, without running anything. Throws Error.
void check_plan(const PlanDef& plan, std::vector<std::string>* warnings = nullptr);

}  // namespace stepnet

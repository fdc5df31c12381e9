// The scope that CreateScope makes and Do runs its net in. Threads: one run at a time.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "stepnet/workspace.h"

namespace stepnet {

// What a scope holds, also for a Do that runs in it while its blob is given another value.
struct ScopeState {
  Workspace blobs;
  std::set<std::string> bound;   // names that a Do has bound to blobs outside, which are here while it runs
  bool emptied = true;           // nobody may read what is left of earlier runs
  std::atomic_flag in_use = {};  // a Do runs in it
};

struct Scope {
  std::shared_ptr<ScopeState> state = std::make_shared<ScopeState>();
};

}  // namespace stepnet

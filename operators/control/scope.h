// The scope that CreateScope makes and Do runs its net in. Threads: one run at a time.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "stepnet/workspace.h"

namespace stepnet {

struct Scope {
  std::shared_ptr<Workspace> blobs = std::make_shared<Workspace>();
  std::set<std::string> shown;  // names in it that stand for blobs outside
  bool emptied = true;          // nobody may read what is left of earlier runs
};

}  // namespace stepnet

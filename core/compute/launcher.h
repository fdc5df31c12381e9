// What a launcher of several processes tells each of them by its environment.
//
// Threads: as std::getenv.
#pragma once

#include <string>

namespace stepnet {

// How many processes a launcher says that it has started together, and the variable that says so; {1, ""} where nothing
// is said. The words of MPI's own launchers go before those of a Slurm step that these may have been started in, and
// of a starter such as torchrun.
struct Launched {
  int processes = 1;
  std::string variable = {};
};
Launched launched_together();

}  // namespace stepnet

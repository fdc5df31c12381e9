#include "core/compute/launcher.h"

#include <cstdlib>

namespace stepnet {
namespace {

int count_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

}  // namespace

// WORLD_SIZE may mean anything where no RANK stands beside it.
Launched launched_together() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}) {
    const int processes = count_in(variable);
    if (processes < 1 || (variable == std::string("WORLD_SIZE") && !std::getenv("RANK"))) continue;
    return processes > 1 ? Launched{processes, variable} : Launched{};
  }
  return {};
}

}  // namespace stepnet

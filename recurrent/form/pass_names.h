// Passes over the nets that a network is written as, before they are compiled, and the names of all passes over step
// nets.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

struct NetPass {
  std::string_view name;  // in `disabled_passes`
  std::string_view does;  // in one sentence
};
std::span<const NetPass> net_passes();

// Of these and of the compiler of step nets (recurrent/step/passes.h), sorted: what `disabled_passes` may name;
// docs/passes.md says what each does.
const std::vector<std::string>& pass_names();

}  // namespace stepnet

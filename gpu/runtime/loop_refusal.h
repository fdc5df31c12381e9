// Why there is no kernel of all timesteps of a loop. Threads: pure functions.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace stepnet::gpu {

// Whatever makes a loop unfit, on the way to the plan's refusal.
struct LoopRefusal {
  std::string why;
};

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) throw LoopRefusal{fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace stepnet::gpu

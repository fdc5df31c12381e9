#include "recurrent/form/passes.h"

#include <algorithm>

#include "recurrent/step/passes.h"

namespace stepnet {
namespace {

constexpr NetPass kPasses[] = {
    {"split_concat", "a product with a Concat becomes a sum of products with its parts"},
    {"merge", "products with one input become one"},
    {"activate", "units keep the activated gates for their gradient, in the place of the gates"},
};

}  // namespace

std::span<const NetPass> net_passes() { return kPasses; }

const std::vector<std::string>& pass_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NetPass& pass : net_passes()) all.emplace_back(pass.name);
    for (const StepPass& pass : step_passes())
      if (pass.may_be_disabled) all.emplace_back(pass.name);
    std::ranges::sort(all);
    return all;
  }();
  return names;
}

}  // namespace stepnet

#include "tests/core/planned_runs.h"

#include <cstring>

#include "stepnet/gradients.h"

namespace stepnet::testing {

NetRuns::NetRuns(const NetDef& net, const Feeds& feeds, const NetOptions& options) {
  feed(feeds);
  net_ = std::make_unique<Net>(net, workspace_, options);
}

void NetRuns::feed(const Feeds& feeds) {
  for (const auto& [name, value] : feeds) workspace_.tensor(name) = value.clone();
}

void NetRuns::run() {
  Allocator& memory = allocator({});
  memory.reset_peak();
  const MemoryCounters before = memory.counters();
  RunContext context;
  net_->run(context);
  const MemoryCounters after = memory.counters();
  allocations_ = after.allocations - before.allocations;
  peak_ = after.peak;
}

std::string difference(NetRuns& a, NetRuns& b, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Tensor& x = a.workspace().fetch(name);
    const Tensor& y = b.workspace().fetch(name);
    if (x.dtype() != y.dtype() || !(x.shape() == y.shape()))
      return fmt::format("{} is {} and {}", name, x.str(), y.str());
    if (x.bytes() == 0) continue;
    if (!x.raw() || !y.raw()) return fmt::format("{} has no bytes", name);
    if (std::memcmp(x.raw(), y.raw(), x.bytes()) != 0) return fmt::format("{} has other bits", name);
  }
  return "";
}

NetDef descent_net(NetDef forward, const std::string& loss, const std::vector<std::string>& parameters) {
  GradientRequest request;
  request.targets = {{loss, ""}};
  request.wanted = {parameters.begin(), parameters.end()};
  const GradientResult result = add_gradient_operators(forward, request);
  forward.clear_external_output();
  forward.add_external_output(loss);
  for (const std::string& name : parameters) {
    const auto found = result.gradients.find(name);
    if (found == result.gradients.end() || found->second.dense.empty()) continue;
    *forward.add_op() = make_op("Scale", {found->second.dense}, {name + "_step"}, {make_arg("scale", 0.1F)});
    *forward.add_op() = make_op("Sub", {name, name + "_step"}, {name});
    forward.add_external_output(name);
  }
  return forward;
}

std::vector<std::string> outputs_of(const NetDef& net) {
  return {net.external_output().begin(), net.external_output().end()};
}

}  // namespace stepnet::testing

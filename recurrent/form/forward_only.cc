// Recurrent networks in a net behind which nothing will be differentiated run as those without a backward step net.
#include <algorithm>

#include "core/net/expansions.h"

namespace stepnet {
namespace {

bool is_read(const NetDef& net, const std::string& name) {
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) { return std::ranges::count(op.input(), name) > 0; });
}

// The last output is what a gradient or a fetcher of step blobs reads.
void drop_backward_step_nets(NetDef& net) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.type() != "RecurrentNetwork" || op.output_size() == 0 || is_read(net, op.output(op.output_size() - 1)))
      continue;
    auto& args = *op.mutable_arg();
    args.erase(
        std::remove_if(args.begin(), args.end(), [](const Argument& arg) { return arg.name() == "backward_step_net"; }),
        args.end());
  }
}

[[maybe_unused]] const bool kRegistered = register_forward_only(drop_backward_step_nets);

}  // namespace
}  // namespace stepnet

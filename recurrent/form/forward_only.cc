// Recurrent networks in a net behind which nothing will be differentiated run as those without a backward step net.
#include <algorithm>
#include <set>
#include <string>

#include "core/net/expansions.h"

namespace stepnet {
namespace {

// The last output is what a gradient or a fetcher of step blobs reads.
void drop_backward_step_nets(NetDef& net) {
  std::set<std::string> read;
  for (const OperatorDef& op : net.op()) read.insert(op.input().begin(), op.input().end());
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.type() != "RecurrentNetwork" || op.output_size() == 0 || read.count(op.output(op.output_size() - 1)) > 0)
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

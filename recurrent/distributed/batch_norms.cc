#include "recurrent/distributed/batch_norms.h"

#include "core/operator/nets_inside.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

// One that measures its batch.
bool is_batch_norm(const OperatorDef& op) {
  if (op.type() != "BatchNorm" && op.type() != "SpatialBN") return false;
  const Argument* is_test = find_arg(op, "is_test");
  return !is_test || is_test->i() == 0;
}

}  // namespace

void synchronize_batch_norms(NetDef& net, const std::string& world, const std::string& share) {
  for_each_net(net, [&](const NetDef& inner) {
    for (const OperatorDef& op : inner.op())
      if (&inner != &net && is_batch_norm(op))
        throw Error(
            fmt::format("{} \"{}\" stands in the net \"{}\" inside another one, where ranks cannot measure their "
                        "batches together",
                        op.type(), op.output_size() > 0 ? op.output(0) : "", inner.name()),
            "leave out --batch-norm, or put it into the net itself");
  });
  for (OperatorDef& op : *net.mutable_op()) {
    if (!is_batch_norm(op)) continue;
    op.set_type("Sync" + op.type());
    op.add_input(share);
    op.add_input(world);
    for (int i = op.input_size() - 1; i > 0; --i) op.mutable_input()->SwapElements(i, i - 1);
  }
}

}  // namespace stepnet

#include "recurrent/network/nested.h"

#include <algorithm>
#include <map>

#include "recurrent/network/states.h"
#include "stepnet/net.h"

namespace stepnet {

bool is_recurrent(const OpSpec& spec) {
  return spec.type == kRecurrentNetwork || spec.type == kRecurrentNetworkGradient;
}

NestedOp::NestedOp(BoundOp op, Workspace& workspace) : op_(std::move(op)), workspace_(workspace) {
  for (const std::string& name : op_.def.input()) in_.push_back(name.empty() ? nullptr : &workspace.create_local(name));
  for (const std::string& name : op_.def.output())
    out_.push_back(name.empty() ? nullptr : &workspace.create_local(name));
}

void NestedOp::run(const std::vector<const Tensor*>& in, const RunContext& run) {
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i] && in[i]->defined()) in_[i]->tensor() = *in[i];
  RunContext inner = run;
  inner.packs = nullptr;
  constexpr uint64_t kManyTimesteps = uint64_t{1} << 32;
  inner.iteration = static_cast<int64_t>(static_cast<uint64_t>(run.iteration) * kManyTimesteps +
                                         static_cast<uint64_t>(run.timestep) + 1);
  static const NetDef nothing_else;  // nobody else in the step net names the network's states
  BlobCall call{op_.def, in_, out_, workspace_, inner, nothing_else};
  op_.spec->blob_kernel(op_.args.get(), call);
}

Tensor NestedOp::result(size_t output) const {
  const Blob* blob = out_[output];
  return blob && blob->is_tensor() ? blob->tensor() : Tensor();
}

// The gradient has the same arguments, but no types of its own.
void NestedOp::infer(std::span<const TensorType> in, std::span<TensorType> out) const {
  const auto& args = *static_cast<const RecurrentArgs*>(op_.args.get());
  if (!op_.spec->shape || args.output_internal.empty() || in.empty() || !in[0].known || in[0].shape.rank() < 2) return;
  const RecurrentSpec spec = parse_recurrent(args, op_.def, op_.def.input_size());
  const auto types = infer_net(spec.step_net, known_in_step(spec, args, op_.def, in));
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const size_t output = spec.views.size() + i;
    const auto it = types.find(spec.outputs[i].internal);
    if (output >= out.size() || out[output].absent || it == types.end() || !it->second.known) continue;
    const Shape& row = it->second.shape;
    if (row.rank() > 1) out[output] = TensorType::of(it->second.dtype, row.from(1).prepend(in[0].shape[0]));
  }
}

std::unique_ptr<InnerOperator> make_nested(const BoundOp& op, Workspace& workspace) {
  if (!is_recurrent(*op.spec)) return nullptr;
  return std::make_unique<NestedOp>(op, workspace);
}

}  // namespace stepnet

#include "core/operator/dry_run.h"

#include <algorithm>

#include "core/operator/cast_kernels.h"
#include "core/operator/half_pieces.h"
#include "core/operator/in_place.h"
#include "core/operator/running_op.h"
#include "core/tensor/dry_device.h"

namespace stepnet {
namespace {

bool is_whole(DType type) { return !is_floating(type) && type != DType::string && type != DType::undefined; }

bool may_be_known(const Tensor& t) {
  return is_whole(t.dtype()) && t.bytes() <= DryScope::kMostKnown && t.storage() && t.storage()->is_dry() &&
         DryScope::has_bytes(t.storage()->data());
}

bool is_known(const Tensor& t) { return !t.storage() || t.storage()->readable(); }

// Whole numbers that are computed from few known ones, and from shapes, are computed.
bool follows_from_shapes(const BoundOp& op, const Call& call) {
  if (op.spec->random || op.spec->side_effect) return false;
  for (int o = 0; o < call.outputs(); ++o)
    if (call.wants(o) && !may_be_known(call.out(o))) return false;
  for (int i = 0; i < call.inputs(); ++i) {
    if (!call.has(i) || op.spec->input_spec(i)->shape_only) continue;
    if (!is_whole(call.in(i).dtype()) || !is_known(call.in(i))) return false;
  }
  return true;
}

void set_known(const Call& call, bool known) {
  for (int o = 0; o < call.outputs(); ++o)
    if (call.wants(o) && call.out(o).storage() && call.out(o).storage()->is_dry())
      call.out(o).storage()->set_known(known && may_be_known(call.out(o)));
}

const Kernel* kernel_for(const std::vector<Kernel>& kernels, const Kernel& like) {
  const auto found = std::ranges::find_if(
      kernels, [&](const Kernel& k) { return k.dtype == like.dtype || k.dtype == DType::undefined; });
  return found == kernels.end() ? nullptr : &*found;
}

// What is known without data is known to the host, whatever device the run claims.
const Kernel& host_kernel(const BoundOp& op, const Kernel& like) {
  if (is_on_casts(like)) return *kernel_on_casts(*op.spec, DeviceKind::cpu);
  const auto found = std::ranges::find_if(op.spec->kernels, [&](const Kernel& k) {
    return k.device == DeviceKind::cpu && (k.dtype == like.dtype || k.dtype == DType::undefined);
  });
  return found == op.spec->kernels.end() ? like : *found;
}

}  // namespace

TensorType bound_of(const BoundOp& op, int output) {
  const DryScope* dry = DryScope::now();
  const std::string& name = op.def.output(output);
  const auto bound = dry->bounds.find(name);
  if (bound == dry->bounds.end())
    throw Error(fmt::format("the shape of \"{}\" depends on data", name),
                fmt::format("give its largest with --bound {}=float[...]", name));
  return TensorType::of(bound->second.first, bound->second.second);
}

void bound_outputs(const BoundOp& op, std::span<Tensor* const> out, std::span<TensorType> types) {
  if (!DryScope::now()) return;
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o] && !types[o].known) types[o] = bound_of(op, static_cast<int>(o));
}

double op_flops(const BoundOp& op, std::span<const TensorType> in, std::span<const TensorType> out) {
  std::vector<TensorType> outputs(out.begin(), out.end());
  const ShapeCall call(in, outputs);
  return op.spec->flops ? op.spec->flops(op.args.get(), call) : 0;
}

namespace {

void count_flops(DryScope& dry, const BoundOp& op, const Call& call) {
  if (!dry.counts_flops) return;
  std::vector<TensorType> in(call.inputs()), out(call.outputs());
  for (int i = 0; i < call.inputs(); ++i) {
    in[i].absent = !call.has(i);
    if (call.has(i)) in[i] = TensorType::of(call.in(i).dtype(), call.in(i).shape());
  }
  for (int o = 0; o < call.outputs(); ++o) {
    out[o].absent = !call.wants(o);
    if (call.wants(o)) out[o] = TensorType::of(call.out(o).dtype(), call.out(o).shape());
  }
  dry.flops += dry.times * op_flops(op, in, out);
}

// The other name is the kernel's work. Returns whether there is one.
bool share_aliases(const BoundOp& op, const Call& call) {
  bool any = false;
  for (const AliasRule& rule : op.spec->aliases) {
    const int i = op.spec->input_index(rule.in), o = op.spec->output_index(rule.out);
    if (!call.has(i) || !call.wants(o) || may_be_alias(*op.spec, o)) continue;
    call.out(o) = call.in(i);
    any = true;
  }
  return any;
}

// For the time of the kernel.
void take_scratch(DryScope& dry, const BoundOp& op, const Call& call) {
  if (!op.spec->gpu_workspace) return;
  const DryScope::Workspace asking(dry);
  std::vector<Tensor> held;
  for (const int64_t bytes : op.spec->gpu_workspace(op.args.get(), call))
    held.push_back(Tensor::empty(DType::uint8, {bytes}));
}

thread_local const BoundOp* running = nullptr;

}  // namespace

const BoundOp* running_op() { return running; }

RunningScope::RunningScope(const BoundOp& op) : before_(running) {
  if (op.device.kind != DeviceKind::cpu) running = &op;
}
RunningScope::~RunningScope() { running = before_; }

bool know_output(const Call& call, int output) {
  if (!call.wants(output)) return false;
  const Tensor& t = call.out(output);
  if (!t.is_dry()) return true;
  if (!may_be_known(t)) return false;
  t.storage()->set_known(true);
  return true;
}

void call_or_dry(const BoundOp& op, const Kernel& kernel, Call& call) {
  DryScope* dry = DryScope::now();
  if (!dry) {
    const RunningScope scope(op);
    return kernel.run(op.args.get(), call);
  }
  if (share_aliases(op, call)) return;
  count_flops(*dry, op, call);
  const bool computed = follows_from_shapes(op, call);
  set_known(call, computed);
  if (computed) return host_kernel(op, kernel).run(op.args.get(), call);
  std::optional<FloatCall> floats;
  const bool in_pieces = dry->claims() == DeviceKind::cpu && runs_in_pieces(*op.spec, op.args.get(), call);
  if (is_on_casts(kernel) && !in_pieces) floats.emplace(*op.spec, call);
  Call& real = floats ? floats->call() : call;
  if (dry->claims() != DeviceKind::cpu) take_scratch(*dry, op, real);
  if (op.spec->known_outputs) op.spec->known_outputs(op.args.get(), real);
  if (const Kernel* workspace = kernel_for(op.spec->workspace, kernel)) {
    const DryScope::Workspace asking(*dry);
    workspace->run(op.args.get(), real);
  }
}

bool run_blobs_dry(const BoundOp& op, std::span<Blob* const> out) {
  if (!DryScope::now() || op.spec->runs_dry) return false;
  if (op.spec->side_effect && out.empty()) return true;
  std::vector<std::string> missing;
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o] && DryScope::now()->bounds.count(op.def.output(static_cast<int>(o))) == 0)
      missing.push_back(op.def.output(static_cast<int>(o)));
  if (!missing.empty() || out.empty())
    throw Error("what it makes depends on data",
                missing.empty() ? "" : fmt::format("give the largest by name: --bound {}=float[...]", missing[0]));
  for (size_t o = 0; o < out.size(); ++o) {
    if (!out[o]) continue;
    const TensorType type = bound_of(op, static_cast<int>(o));
    out[o]->tensor().resize(type.dtype, type.shape);
  }
  return true;
}

std::vector<TensorType> blob_types(std::span<Blob* const> blobs) {
  std::vector<TensorType> types;
  for (const Blob* blob : blobs) {
    TensorType& type = types.emplace_back();
    type.absent = blob == nullptr;
    if (blob && blob->is_tensor() && !blob->empty())
      type = TensorType::of(blob->tensor().dtype(), blob->tensor().shape());
  }
  return types;
}

void count_blob_flops(const BoundOp& op, std::span<Blob* const> in, std::span<Blob* const> out) {
  DryScope* dry = DryScope::now();
  if (!dry || !dry->counts_flops || !op.spec->flops) return;
  dry->flops += dry->times * op_flops(op, blob_types(in), blob_types(out));
}

}  // namespace stepnet

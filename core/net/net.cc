#include "stepnet/net.h"

#include <algorithm>

#include "core/compute/product_epilogue.h"
#include "core/nearest.h"
#include "core/net/net_arena.h"
#include "core/net/net_merges.h"
#include "core/net/net_sharing.h"
#include "core/net/streams.h"
#include "core/operator/anomaly.h"
#include "core/operator/arg_names.h"
#include "core/operator/dry_run.h"
#include "core/operator/extensions.h"
#include "core/operator/in_place.h"
#include "core/operator/observer.h"
#include "core/operator/op_devices.h"
#include "core/operator/running_op.h"
#include "core/tensor/dry_device.h"
#include "stepnet/profiler.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

// Executors of the public format. All of them run in order here; that is one of the orders that each permits.
const std::set<std::string>& known_net_types() {
  static const std::set<std::string> types = {"",          "simple",           "async_simple",     "dag",
                                              "async_dag", "async_scheduling", "async_polling",    "singlethread_async",
                                              "prof_dag",  "htrace_dag",       "htrace_async_dag", "rnn"};
  return types;
}

void check_header(const NetDef& def) {
  if (known_net_types().count(def.type()) == 0)
    fail("net \"{}\" has the type \"{}\", which is none of {}", def.name(), def.type(),
         fmt::join(known_net_types(), ", "));
  std::set<std::string> names;
  for (const Argument& arg : def.arg()) {
    require(names.insert(arg.name()).second, "net \"{}\" has the argument \"{}\" twice", def.name(), arg.name());
    if (holds_definitions(arg))
      throw Error(
          fmt::format("net \"{}\" defines operators, which stand for others and do not run themselves", def.name()),
          "expand the net first, with expand_recurrent or `stepnet expand`");
  }
}

constexpr int kStreams = 4, kMostStreams = 16;

int most_streams(const NetDef& def) {
  for (const Argument& arg : def.arg()) {
    if (arg.name() != "streams") continue;
    require(arg.has_i() && arg.i() >= 1 && arg.i() <= kMostStreams,
            "the argument \"streams\" of net \"{}\" must be an integer from 1 to {}", def.name(), kMostStreams);
    return static_cast<int>(arg.i());
  }
  return kStreams;
}

// One output name may be read later under the same name; the set holds what exists so far.
void check_inputs(const NetDef& net, int index, const BoundOp& op, const std::set<std::string>& defined) {
  for (int i = 0; i < op.def.input_size(); ++i) {
    const std::string& name = op.def.input(i);
    if (name.empty() || defined.count(name) > 0) continue;
    const auto later = std::find_if(net.op().begin() + index, net.op().end(), [&](const OperatorDef& other) {
      return std::find(other.output().begin(), other.output().end(), name) != other.output().end();
    });
    Error e = later == net.op().end()
                  ? Error(fmt::format("the input \"{}\" is written by no earlier operator and is no external input.{}",
                                      name, suggest(name, {defined.begin(), defined.end()})))
                  : Error(fmt::format("the input \"{}\" is written by operator {} ({}), which runs later", name,
                                      later - net.op().begin(), later->type()),
                          "put that operator before this one, or name the input an external one");
    add_op_context(e, op);
    throw e;
  }
}

void check_external_outputs(const NetDef& def, const std::set<std::string>& defined) {
  for (const std::string& name : def.external_output())
    require(defined.count(name) > 0, "the external output \"{}\" of net \"{}\" is written by no operator.{}", name,
            def.name(), Nearest{name, defined});
}

void preflight(const BoundOp& op, const Workspace& workspace) {
  if (!op.spec->preflight) return;
  try {
    op.spec->preflight(op.args.get(), op.def, workspace);
  } catch (Error& e) {
    add_op_context(e, op);
    throw;
  }
}

template <class Steps>
std::vector<NetStep> views_of(const Steps& steps) {
  std::vector<NetStep> views;
  for (const auto& step : steps) views.push_back({&step->op, step->in, step->out});
  return views;
}

}  // namespace

struct Net::Step {
  BoundOp op;
  std::vector<Blob*> in, out;
  std::vector<Blob*> release;
  StepSharing sharing;
  int source = -1, like = -1;          // inputs: the output is another name of the one if it has the other's shape
  std::weak_ptr<const Storage> shown;  // what the output was another name of in the run before
  std::vector<const Tensor*> in_tensors;
  std::vector<Tensor*> out_tensors;
  Step* relu = nullptr;  // the next operator, which this one's product may do, too (core/net/net_merges.h)
  // Of that one, in the present run: what the product has left for it to do.
  enum class Left : uint8_t { all, in_place, nothing } left = Left::all;

  bool share_input() const;
  void run_into(std::span<Blob* const> from, std::span<Blob* const> to, RunContext& run);
  bool may_run_with_relu() const;
  void run_with_relu(RunContext& run);
  void part_from_last_run();
  void note_what_is_shown();
};

// What the output still shows may be a tensor that a caller has fed, and is not written to.
void Net::Step::part_from_last_run() {
  if (source < 0 || !out[0] || !out[0]->is_tensor() || !out[0]->tensor().storage()) return;
  if (shown.lock() == out[0]->tensor().storage()) out[0]->tensor() = Tensor();
}

void Net::Step::note_what_is_shown() {
  if (source < 0 || !out[0] || !in[source]) return;
  const Tensor &made = std::as_const(*out[0]).tensor(), &from = std::as_const(*in[source]).tensor();
  shown = made.shares_storage(from) && out[0] != in[source] ? made.storage() : nullptr;
}

// What an operator that may make another name of an input would do, without asking it: gradients have many. Returns
// whether it is one.
bool Net::Step::share_input() const {
  const Blob* const from = source < 0 ? nullptr : in[source];
  const Blob* const shape = from ? in[like] : nullptr;
  if (!shape || !from->is_tensor() || !shape->is_tensor() || !out[0]) return false;
  const Tensor &value = from->tensor(), &other = shape->tensor();
  if (!value.defined() || !other.defined() || value.dtype() != other.dtype()) return false;
  if (!(value.shape() == other.shape())) return false;
  out[0]->tensor() = value;
  return true;
}

// `from` and `to`: the blobs in place of its inputs and outputs.
void Net::Step::run_into(std::span<Blob* const> from, std::span<Blob* const> to, RunContext& run) {
  in_tensors.clear();
  out_tensors.clear();
  try {
    for (size_t i = 0; i < from.size(); ++i) {
      in_tensors.push_back(from[i] ? &std::as_const(*from[i]).tensor() : nullptr);
      require(!from[i] || in_tensors.back()->defined(), "the input \"{}\" holds nothing yet",
              op.def.input(static_cast<int>(i)));
    }
  } catch (Error& e) {
    add_op_context(e, op);
    throw;
  }
  for (Blob* blob : to) out_tensors.push_back(blob ? &blob->tensor() : nullptr);
  if (sharing.any) {
    const NetStep here{&op, from, to};
    const SharedOutputs outputs(here, sharing, in_tensors);
    run_op(op, in_tensors, out_tensors, run);
    outputs.check();
  } else {
    run_op(op, in_tensors, out_tensors, run);
  }
}

// Somebody outside may have made what Relu writes share bytes with what the product reads.
bool Net::Step::may_run_with_relu() const {
  const Blob& to = std::as_const(*relu->out[0]);
  if (!to.is_tensor() || !to.tensor().storage()) return true;
  return std::ranges::none_of(
      in, [&](const Blob* from) { return from && from->is_tensor() && from->tensor().shares_storage(to.tensor()); });
}

void Net::Step::run_with_relu(RunContext& run) {
  const EpilogueScope epilogue(ProductEpilogue::relu);
  run_into(in, relu->out, run);
  relu->left = epilogue.is_done() ? Left::nothing : Left::in_place;
}

Net::Net(const NetDef& def, Workspace& workspace, const NetOptions& options) : def_(def), workspace_(workspace) {
  check_header(def);
  std::set<std::string> existing;
  for (const Workspace* w = &workspace; w; w = w->parent())
    for (const std::string& name : w->names()) existing.insert(name);
  std::set<std::string> defined(def.external_input().begin(), def.external_input().end());
  if (defined.empty()) defined = existing;
  for (int i = 0; i < def.op_size(); ++i) {
    auto step = std::make_unique<Step>();
    const Device device = options.force_cpu ? Device{} : device_of(def.op(i), def);
    step->op = bind_op(def.op(i), def.name(), i, device, options.warnings);
    check_inputs(def, i, step->op, defined);
    for (const std::string& name : def.op(i).input())
      step->in.push_back(name.empty() ? nullptr : &workspace.create(name));
    for (const std::string& name : def.op(i).output()) {
      step->out.push_back(name.empty() ? nullptr : &workspace.create(name));
      defined.insert(name);
    }
    if (may_be_alias(*step->op.spec, 0)) {
      step->source = aliased_input(*step->op.spec, 0);
      step->like = shaped_like(*step->op.spec, 0);
    }
    steps_.push_back(std::move(step));
  }
  check_external_outputs(def, defined);
  check_twins();
  for (const auto& step : steps_) preflight(step->op, workspace);
  existing.insert(def_.external_output().begin(), def_.external_output().end());
  existing.insert(def_.external_input().begin(), def_.external_input().end());
  existing.insert(options.keep.begin(), options.keep.end());
  std::vector<const BoundOp*> ops;
  for (const auto& step : steps_) ops.push_back(&step->op);
  const Dataflow flow(std::span<const BoundOp* const>(ops), {.visible = std::move(existing)});
  const std::vector<StepSharing> sharing = find_sharing(views_of(steps_), flow);
  for (size_t s = 0; s < steps_.size(); ++s) steps_[s]->sharing = sharing[s];
  plan_streams(flow);
  const std::vector<bool> merges =
      find_merges(views_of(steps_), flow, sharing, options.release_intermediates || options.plan_memory);
  for (size_t s = 0; s < merges.size(); ++s)
    if (merges[s] && (!streams_ || streams_->goes_on(s + 1))) steps_[s]->relu = steps_[s + 1].get();
  if (!options.release_intermediates && !options.plan_memory) return;
  // A device's allocator reuses blocks in the order in which work is queued; planned places are for the CPU.
  const bool on_cpu = std::ranges::all_of(steps_, [](const auto& s) { return s->op.device.kind == DeviceKind::cpu; });
  if (options.plan_memory && on_cpu)
    arena_ = std::make_unique<NetArena>(views_of(steps_), flow);
  else
    plan_release(flow);
}

// All operators at once that cannot run where they are to.
void Net::check_twins() const {
  if (DryScope::now()) return;
  std::map<std::string, std::set<std::string>> missing;
  for (const auto& step : steps_) {
    const BoundOp& op = step->op;
    if (!runs_on(*op.spec, op.device.kind)) missing[op.device.str()].insert(op.def.type());
  }
  if (missing.empty()) return;
  const auto& [device, types] = *missing.begin();
  throw Error(
      fmt::format("these operators of net \"{}\" have no kernel for {}: {}", name(), device, fmt::join(types, ", ")),
      "give them device_option { device_type: 0 }, with copies between the devices, or run all on the CPU");
}

Net::~Net() = default;

void Net::plan_release(const Dataflow& flow) {
  const std::vector<Blob*> blobs = blobs_of(views_of(steps_), flow);
  for (size_t s = 0; s < steps_.size(); ++s)
    for (const int b : flow.ending(static_cast<int>(s))) steps_[s]->release.push_back(blobs[b]);
}

void Net::plan_streams(const Dataflow& flow) {
  std::vector<NetStep> steps = views_of(steps_);
  Device device;
  for (const auto& step : steps_) {
    if (step->op.device.kind == DeviceKind::cpu) continue;
    if (device.kind != DeviceKind::cpu && !(device == step->op.device)) return;  // several devices
    device = step->op.device;
  }
  const int most = most_streams(def_);
  if (device.kind == DeviceKind::cpu) return;
  StreamSchedule schedule = schedule_streams(steps, flow, device, most);
  if (schedule.streams > 1) streams_ = std::make_unique<NetStreams>(std::move(steps), device, std::move(schedule));
}

namespace {

// Nobody looks at operators one by one.
bool is_unseen(const RunContext& run) { return !run.observer && !run.profiler && !run.anomalies; }

}  // namespace

bool Net::runs_on_streams(const RunContext& run) const {
  return streams_ && is_unseen(run) && !DryScope::now() && streams_->holds();
}

void Net::run(RunContext& run) {
  run.iteration = runs_;
  if (arena_) {
    arena_->start();
    try {
      run_steps(run);
    } catch (...) {
      arena_->stop();
      throw;
    }
    arena_->finish();
  } else if (runs_on_streams(run)) {
    run_on_streams(run);
  } else {
    run_steps(run);
  }
  ++runs_;
}

void Net::run_on_streams(RunContext& run) {
  streams_->start();
  try {
    for (size_t s = 0; s < steps_.size(); ++s) {
      streams_->before(s);
      run_step(*steps_[s], run);
      streams_->after(s);
      drop_released(*steps_[s]);
    }
  } catch (...) {
    streams_->stop();
    throw;
  }
  streams_->finish();
}

void Net::drop_released(const Step& step) {
  for (Blob* blob : step.release)
    if (blob->is_tensor()) blob->tensor().drop_bytes();
}

void Net::run_steps(RunContext& run) {
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = *steps_[s];
    if (run.observer) run.observer->before(step.op);
    if (arena_) arena_->before(s);
    run_step(*steps_[s], run);
    if (arena_) arena_->after(s);
    drop_released(step);
    if (run.observer) run.observer->after(step.op);
  }
}

NetMemory Net::memory() const { return arena_ ? arena_->memory() : NetMemory{}; }

void Net::let_go_of_memory() {
  if (arena_) arena_->let_go();
}

namespace {

void run_on_blobs(const BoundOp& op, std::span<Blob* const> in, std::span<Blob* const> out, Workspace& workspace,
                  RunContext& run, const NetDef& net) {
  BlobCall call{op.def, in, out, workspace, run, net};
  const RunningScope scope(op);
  try {
    const AnomalyCheck anomaly(op, in, run);
    if (!run_blobs_dry(op, out)) op.spec->blob_kernel(op.args.get(), call);
    anomaly.after(out);
    count_blob_flops(op, in, out);
  } catch (Error& e) {
    std::vector<std::string> shapes;
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i]) shapes.push_back(fmt::format("{} is {}", op.def.input(static_cast<int>(i)), in[i]->type_str()));
    add_op_context(e, op, shapes);
    throw;
  }
}

// What an operator on blobs has made on the host goes to the operator's device, unless nets inside of it made it.
void bring_outputs(const BoundOp& op, std::span<Blob* const> out) {
  if (std::ranges::any_of(op.spec->args, [](const ArgSpec& a) { return a.holds_net; })) return;
  for (Blob* blob : out) {
    if (!blob || !blob->is_tensor() || !std::as_const(*blob).tensor().defined()) continue;
    Tensor& value = blob->tensor();
    if (value.dtype() != DType::string && !value.is_dry()) value = on_device(value, op.device);
  }
}

double tensor_bytes(std::span<const Tensor* const> tensors) {
  double bytes = 0;
  for (const Tensor* t : tensors)
    if (t) bytes += static_cast<double>(t->bytes());
  return bytes;
}

}  // namespace

void Net::run_step(Step& step, RunContext& run) {
  const BoundOp& op = step.op;
  const double start = run.profiler ? now_seconds() : 0;
  double bytes = 0;
  const Step::Left left = std::exchange(step.left, Step::Left::all);
  step.part_from_last_run();
  if (step.share_input() || left == Step::Left::nothing) {
    // Nothing is left to do.
  } else if (left == Step::Left::in_place) {
    step.run_into(step.out, step.out, run);
  } else if (step.relu && is_unseen(run) && step.may_run_with_relu()) {
    step.run_with_relu(run);
  } else if (op.spec->blob_kernel) {
    run_on_blobs(op, step.in, step.out, workspace_, run, def_);
    if (op.device.kind != DeviceKind::cpu) bring_outputs(op, step.out);
  } else {
    step.run_into(step.in, step.out, run);
    if (run.profiler)
      bytes = tensor_bytes(step.in_tensors) + tensor_bytes({step.out_tensors.begin(), step.out_tensors.end()});
  }
  step.note_what_is_shown();
  if (run.profiler && op.device.kind != DeviceKind::cpu) allocator(op.device).synchronize();
  if (run.profiler) run.profiler->record(op.def.type(), now_seconds() - start, bytes, 0);
}

void run_net_once(const NetDef& def, Workspace& workspace, RunContext& run, const NetOptions& options) {
  Net net(def, workspace, options);
  net.run(run);
}

void check_net(const NetDef& def, const std::set<std::string>* available, std::vector<std::string>* warnings) {
  check_header(def);
  std::set<std::string> defined(def.external_input().begin(), def.external_input().end());
  const bool strict = !defined.empty() || available;
  if (available) defined.insert(available->begin(), available->end());
  for (int i = 0; i < def.op_size(); ++i) {
    const BoundOp op = bind_op(def.op(i), def.name(), i, Device{}, warnings);
    check_arg_names_inside(def.op(i), warnings);
    if (strict) check_inputs(def, i, op, defined);
    defined.insert(def.op(i).output().begin(), def.op(i).output().end());
    if (!strict) defined.insert(def.op(i).input().begin(), def.op(i).input().end());
  }
  check_external_outputs(def, defined);
}

void preflight_net(const NetDef& def, const Workspace& workspace) {
  for (int i = 0; i < def.op_size(); ++i) preflight(bind_op(def.op(i), def.name(), i), workspace);
}

namespace {

TypedOp infer_op(BoundOp op, const std::map<std::string, TensorType>& known) {
  TypedOp typed{std::move(op), {}, {}};
  std::vector<std::string> shapes;
  for (const std::string& name : typed.op.def.input()) {
    TensorType& type = typed.in.emplace_back();
    if (name.empty()) type.absent = true;
    if (const auto it = known.find(name); it != known.end()) type = it->second;
    if (type.known) shapes.push_back(fmt::format("{} is {}", name, type.str()));
  }
  for (const std::string& name : typed.op.def.output()) typed.out.emplace_back().absent = name.empty();
  try {
    infer_types(typed.op, typed.in, typed.out);
  } catch (Error& e) {
    add_op_context(e, typed.op, shapes);
    throw;
  }
  return typed;
}

}  // namespace

std::vector<TypedOp> infer_ops(const NetDef& def, std::map<std::string, TensorType>& known,
                               const std::map<std::string, TensorType>& bounds) {
  std::vector<TypedOp> ops;
  for (int i = 0; i < def.op_size(); ++i) {
    ops.push_back(infer_op(bind_op(def.op(i), def.name(), i), known));
    for (size_t o = 0; o < ops[i].out.size(); ++o) {
      const TensorType& type = ops[i].out[o];
      if (type.absent) continue;
      const std::string& name = def.op(i).output(static_cast<int>(o));
      const auto bound = type.known ? bounds.end() : bounds.find(name);
      known[name] = bound == bounds.end() ? type : bound->second;
    }
  }
  return ops;
}

std::map<std::string, TensorType> infer_net(const NetDef& def, std::map<std::string, TensorType> known) {
  infer_ops(def, known);
  return known;
}

}  // namespace stepnet

#include "recurrent/network/segment_budget.h"
#include "recurrent/step/ir.h"

#include <algorithm>

#include "core/tensor/dry_device.h"
#include "recurrent/network/kept.h"
#include "recurrent/network/segment_plan.h"
#include "stepnet/arguments.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

// The largest room for which that size fits, as far as a few tries find it.
void use_room(const SegmentQuestion& question, int64_t steps, const SegmentFigures& without,
              const MeasureSegments& measure, SegmentAnswer& answer) {
  constexpr int kTries = 4;
  int64_t room = (question.budget - without.peak) / question.networks;
  for (int i = 0; i < kTries && room >= 0; ++i) {
    const SegmentChoice choice{steps, room};
    const SegmentFigures figures = measure(choice);
    if (figures.peak > question.budget) {
      room -= (figures.peak - question.budget + question.networks - 1) / question.networks;
      continue;
    }
    if (!answer.fits || figures.flops <= answer.figures.flops)
      answer = {choice, figures, true, answer.least, answer.in_one};
    return;
  }
}

void remove_arg(OperatorDef& op, const std::string& name) {
  for (int i = op.arg_size(); i-- > 0;)
    if (op.arg(i).name() == name) op.mutable_arg()->DeleteSubrange(i, 1);
}

void set_arg(OperatorDef& op, const Argument& arg) {
  remove_arg(op, arg.name());
  *op.add_arg() = arg;
}

}  // namespace

SegmentAnswer best_segments(const SegmentQuestion& question, const MeasureSegments& measure) {
  SegmentAnswer answer;
  answer.in_one = measure({});
  answer.figures = answer.in_one;
  answer.least = answer.in_one.peak;
  answer.fits = answer.in_one.peak <= question.budget;
  if (answer.fits) return answer;
  const int64_t least = least_segment(question.steps, deferred_block(question.batch));
  for (int64_t steps = least; steps < question.steps; steps *= 2) {
    const SegmentChoice choice{steps, 0};
    const SegmentFigures without = measure(choice);
    if (!answer.fits && without.peak < answer.figures.peak) {
      answer.choice = choice;
      answer.figures = without;
    }
    answer.least = std::min(answer.least, without.peak);
    if (without.peak <= question.budget) use_room(question, steps, without, measure, answer);
  }
  return answer;
}

void apply_segments(NetDef& net, const SegmentChoice& choice) {
  for (OperatorDef& op : *net.mutable_op()) {
    if (op.type() != kRecurrentNetwork) continue;
    remove_arg(op, "memory_budget_bytes");
    set_arg(op, make_arg("segment_steps", choice.steps));
    set_arg(op, make_arg("segment_room", choice.room));
  }
}

namespace {

std::string given(const std::string& output) { return output + "/given"; }

std::vector<std::string> outputs_with_gradients(const OperatorDef& def) {
  std::vector<std::string> names;
  for (const Argument& arg : def.arg())
    if (arg.name() == "outputs_with_grads")
      for (const int64_t i : arg.ints())
        if (i >= 0 && i < def.output_size()) names.push_back(def.output(static_cast<int>(i)));
  return names;
}

// Types of the inputs, and of the gradients of outputs, which a run says.
void make_inputs(const BlobCall& call, const NetDef& forward, const std::vector<std::string>& outputs,
                 Workspace& workspace) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!call.in[i] || !call.in[i]->is_tensor()) continue;
    const Tensor& input = std::as_const(*call.in[i]).tensor();
    workspace.tensor(call.def.input(static_cast<int>(i))) = Tensor::empty(input.dtype(), input.shape());
  }
  Workspace apart(&workspace);
  RunContext run;
  run_net_once(forward, apart, run);
  for (const std::string& name : outputs) {
    const Tensor& output = std::as_const(apart).fetch(name);
    workspace.tensor(given(name)) = Tensor::empty(output.dtype(), output.shape());
  }
}

// Two dry runs of the operator and its gradient: the first also makes what stays.
SegmentFigures measure_alone(const BlobCall& call, const SegmentChoice& choice) {
  DryScope scope;
  NetDef net;
  net.set_name(call.net.name());
  *net.add_op() = call.def;
  apply_segments(net, choice);
  const std::vector<std::string> outputs = outputs_with_gradients(call.def);
  Workspace workspace;
  workspace.confine(call.workspace.file_root());
  make_inputs(call, net, outputs, workspace);
  GradientRequest request;
  for (const std::string& name : outputs) request.targets.emplace_back(name, given(name));
  for (size_t i = 0; i < call.in.size(); ++i)
    if (call.in[i] && call.in[i]->is_tensor() && is_floating(std::as_const(*call.in[i]).tensor().dtype()))
      request.wanted.insert(call.def.input(static_cast<int>(i)));
  if (!outputs.empty()) add_gradient_operators(net, request);
  const int64_t before = scope.counters().live;
  scope.reset_peak();
  Net bound(net, workspace);
  RunContext run;
  bound.run(run);
  const double flops = scope.flops;
  bound.run(run);
  return {scope.counters().peak - before, scope.flops - flops};
}

}  // namespace

SegmentChoice segments_within(int64_t budget, const BlobCall& call) {
  const Shape& sequence = std::as_const(*call.in[0]).tensor().shape();
  const SegmentAnswer answer = best_segments({.budget = budget, .steps = sequence[0], .batch = sequence[1]},
                                             [&](const SegmentChoice& choice) { return measure_alone(call, choice); });
  if (!answer.fits)
    throw Error(fmt::format("\"memory_budget_bytes\" is {}, but a forward and backward pass over [{}, {}] takes at "
                            "least {} bytes; in one piece it takes {}",
                            budget, sequence[0], sequence[1], answer.least, answer.in_one.peak),
                "give it that many, or a smaller batch");
  return answer.choice;
}

}  // namespace stepnet

// Calls of every operator for the tape's tests: examples, and what backward passes of examples call.
#include <algorithm>
#include <map>
#include <set>

#include "core/gradcheck/examples.h"
#include "tests/core/autograd/example_tape.h"

namespace stepnet::autograd::testing {
namespace {

using Tapes = std::map<std::string, std::vector<ExampleTape>, std::less<>>;

constexpr size_t kMostOfOneType = 8;

bool is_tensor_operator(const OpSpec& spec) { return !spec.blob_kernel && !spec.kernels.empty(); }

bool has_calls(const OpSpec& spec) {
  return std::ranges::any_of(spec.examples, [](const OpExample& example) { return example.net.empty(); });
}

// One call of a net that has run, with names of its own for what it reads and writes.
GradientSubject call_alone(const OperatorDef& call, const Workspace& workspace) {
  GradientSubject subject;
  OperatorDef& op = *subject.net.add_op() = call;
  op.set_is_gradient_op(true);  // which may leave inputs out
  for (int i = 0; i < op.input_size(); ++i) {
    if (call.input(i).empty()) continue;
    op.set_input(i, fmt::format("in{}", i));
    subject.feeds[op.input(i)] = workspace.fetch(call.input(i)).clone();
  }
  for (int o = 0; o < op.output_size(); ++o)
    if (!call.output(o).empty()) op.set_output(o, fmt::format("out{}", o));
  find_differentiable(subject, ExampleTape::kSeed);
  return subject;
}

class Collector {
 public:
  Tapes collect() {
    for (const std::string& type : op_types()) add_examples(op_spec(type));
    for (const std::string& type : op_types())
      if (!op_spec(type).examples.empty())
        for (const ExampleTape& tape : std::vector<ExampleTape>(tapes_[type])) add_gradients(tape.subject());
    return std::move(tapes_);
  }

 private:
  void add_examples(const OpSpec& spec) {
    if (!is_tensor_operator(spec)) return;
    for (const OpExample& example : spec.examples) {
      GradientSubject subject = example_subject(spec, example, ExampleTape::kSeed);
      if (example.net.empty())
        tapes_[spec.type].emplace_back(std::move(subject));
      else
        add_calls(subject);
    }
  }

  // The calls in the gradients, and in the gradients' own.
  void add_gradients(GradientSubject subject) {
    for (int order = 1; order <= 2 && !subject.inputs.empty() && !subject.outputs.empty(); ++order) {
      try {
        subject = gradients_as_subject(subject, MovedRuns(subject, ExampleTape::kSeed).weights());
      } catch (const Error&) {  // no derivative, or a constant one
        return;
      }
      add_calls(subject);
    }
  }

  void add_calls(const GradientSubject& subject) {
    Workspace workspace;
    for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = value.clone();
    RunContext context;
    context.seed = ExampleTape::kSeed;
    run_net_once(subject.net, workspace, context);
    for (const OperatorDef& op : subject.net.op()) {
      if (has_calls(op_spec(op.type())) || !is_tensor_operator(op_spec(op.type()))) continue;
      std::vector<ExampleTape>& tapes = tapes_[op.type()];
      if (tapes.size() >= kMostOfOneType) continue;
      GradientSubject alone = call_alone(op, workspace);
      std::string text = alone.net.ShortDebugString();
      for (const auto& feed : alone.feeds) text += feed.second.str();
      if (seen_.insert(text).second) tapes.emplace_back(std::move(alone));
    }
  }

  Tapes tapes_;
  std::set<std::string> seen_;
};

}  // namespace

const std::vector<ExampleTape>& example_tapes(const std::string& type) {
  static Tapes all = Collector().collect();
  return all[type];
}

std::vector<std::string> tensor_types() {
  std::vector<std::string> types;
  for (const std::string& type : op_types())
    if (is_tensor_operator(op_spec(type)) && !type.starts_with("Planted")) types.push_back(type);
  return types;
}

}  // namespace stepnet::autograd::testing

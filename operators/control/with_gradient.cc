// WithGradient: (Y0, ..., X0, ...) -> (Z0, ...): Zi = Yi, with a derivative that is given: dXj is what the argument
// gradient_net computes from the inputs $xj, the outputs $yi and their gradients $yi_grad, as $xj_grad; no dYi. It is
// how a use of a definition with a gradient net ends (core/passes/defined_operators.h).
//
// Each gradient is summed to its input's shape where the net has broadcast that.

#include "operators/control/with_gradient.h"

#include <map>

#include "core/passes/defined_operators.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_with_gradient {
namespace {

void infer_shapes(const WithGradientArgs& args, ShapeCall& call) {
  require(args.results == call.outputs(), "it has {} outputs, but {} results", call.outputs(), args.results);
  require(args.results <= call.inputs(), "it has {} inputs, but {} results", call.inputs(), args.results);
  for (int i = 0; i < call.outputs(); ++i) call.set_like(i, i);
}

// The net's blobs while it is recorded.
class Blobs {
 public:
  explicit Blobs(Formula& f) : f_(f), results_(static_cast<int>(f.args<WithGradientArgs>().results)) {}

  Value at(const std::string& name) {
    if (name.empty()) return {};
    if (const auto found = made_.find(name); found != made_.end()) return found->second;
    const Value value = given(name);
    if (!value.defined()) fail("its gradient net reads \"{}\", which is nothing that it is given", name);
    return made_[name] = value;
  }
  void set(const std::string& name, Value value) {
    if (!name.empty()) made_[name] = value;
  }
  Value result(int i) const {  // the gradient of input i; undefined if the net gives none
    const auto found = made_.find(fmt::format("$x{}_grad", i - results_));
    return found == made_.end() ? Value() : found->second;
  }

 private:
  Value given(const std::string& name) {
    for (int i = results_; i < f_.inputs(); ++i)
      if (name == fmt::format("$x{}", i - results_)) return f_.x_at(i);
    for (int o = 0; o < f_.outputs(); ++o) {
      if (name == fmt::format("$y{}", o)) return f_.y_at(o);
      if (name != fmt::format("$y{}_grad", o)) continue;
      if (f_.has_dy_at(o)) return f_.dy_at(o);
      const Value zeros = f_.op(op_with_role(Role::fill_like).type, {f_.y_at(o)}, {make_arg("value", 0.0F)});
      f_.set_reads({false});
      return zeros;
    }
    return {};
  }

  Formula& f_;
  const int results_;
  std::map<std::string, Value> made_;
};

std::vector<Gradient> gradients(Formula& f) {
  Blobs blobs(f);
  for (const OperatorDef& op : f.args<WithGradientArgs>().gradient_net.net.op()) {
    std::vector<Value> inputs;
    for (const std::string& name : op.input()) inputs.push_back(blobs.at(name));
    std::vector<bool> wanted;
    for (const std::string& name : op.output()) wanted.push_back(!name.empty());
    const std::vector<Value> made = f.ops(op.type(), inputs, {op.arg().begin(), op.arg().end()}, wanted);
    for (int o = 0; o < op.output_size(); ++o) blobs.set(op.output(o), made[o]);
  }
  std::vector<Gradient> results(f.inputs());
  for (int i = static_cast<int>(f.args<WithGradientArgs>().results); i < f.inputs(); ++i) {
    const Value gradient = blobs.result(i);
    if (f.wants_at(i) && gradient.defined())
      results[i] = f.same_shape(
          f.op(op_with_role(Role::sum_to).type, {gradient, f.x_at(i)}, {make_arg("broadcast", 1)}), f.x_at(i));
  }
  return results;
}

constexpr const char* kExample = R"(
  arg { name: 'stepnet.operators' nets {
    name: 'CubeOf' external_input: 'x' external_output: 'y'
    op { type: 'Sqr' input: 'x' output: 's' }
    op { type: 'Mul' input: 's' input: 'x' output: 'y' }
    arg { name: 'gradient_net' n {
      external_output: 'x_grad'
      op { type: 'Sqr' input: 'x' output: 's' }
      op { type: 'Scale' input: 's' output: 't' arg { name: 'scale' f: 3 } }
      op { type: 'Mul' input: 't' input: 'y_grad' output: 'x_grad' } } } } }
  op { type: 'CubeOf' input: 'a' output: 'b' })";

REGISTER(with_gradient) {
  return op<WithGradientArgs>(kWithGradient)
      .own()
      .doc(
          "What it is given as results, with a derivative that its gradient net computes. A use of an operator that a "
          "net defines in text, with a gradient net, ends with it.")
      .input("values", "the results, and behind them what they were computed from; tensors of any types")
      .any_type()
      .variadic(1)
      .output("outputs", "copies of the results")
      .any_type()
      .variadic(1)
      .arg("results", &WithGradientArgs::results, int64_t{1}, "how many of the inputs are results", at_least(1))
      .arg("definition", &WithGradientArgs::definition, std::string(), "the operator that it ends, for messages")
      .required_arg(
          "gradient_net", &WithGradientArgs::gradient_net,
          "computes the gradients $x0_grad, ... of the inputs behind the results from these, $x0, ..., the "
          "outputs $y0, ... and their gradients $y0_grad, ...; an input whose gradient it does not write has none")
      .in_place("values", "outputs")
      .shape(infer_shapes)
      .cpu(copy_results)
      .example_net(kExample, {"a=2,3"}, {"b"})
      .whole_derivative(gradients);
}

}  // namespace
}  // namespace stepnet::cpu_with_gradient

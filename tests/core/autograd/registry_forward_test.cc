// Forward mode on the tape, of every operator that is registered, against its backward mode: with J v the tangents,
// <w, J v> = <J^T w, v>; and with tangents of gradients H v, <u, H v> is the derivative of <u, gradient> along v.
#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd/gradient_buffer.h"
#include "stepnet/random.h"
#include "tests/core/autograd/example_tape.h"

namespace stepnet::autograd::testing::registry_forward_test {
namespace {

constexpr double kSame = 1e-11;

Variable normal_like(const Tensor& like, uint64_t key) {
  Tensor values = Tensor::empty(DType::float64, like.shape());
  for (int64_t i = 0; i < values.size(); ++i) values.data<double>()[i] = random_normal(key, static_cast<uint64_t>(i));
  return Variable(values);
}

// A sum, and the sum of the sizes of its terms.
struct Sum {
  double value = 0, size = 0;
  void add(const Variable& a, const Variable& b) {
    if (!a.defined() || !b.defined()) return;
    for (int64_t i = 0; i < a.shape().size(); ++i) {
      const double term = a.value().data<double>()[i] * b.value().data<double>()[i];
      value += term;
      size += std::fabs(term);
    }
  }
};

void expect_same(const Sum& a, const Sum& b, const std::string& what) {
  EXPECT_LE(std::fabs(a.value - b.value), kSame * (1 + a.size + b.size)) << what << ": " << a.value << " " << b.value;
  EXPECT_FALSE(std::isnan(a.value + b.value)) << what;
}

// An example of which some inputs move. Its outputs, and their gradients, are those of copies of interior variables.
struct Moving {
  const ExampleTape& tape;
  const TangentLevel& level;
  TapeRun run;
  std::vector<Variable> directions;  // per input; undefined: it does not move

  Moving(const ExampleTape& tape, const TangentLevel& level, const Mask& moves, bool recorded)
      : tape(tape), level(level) {
    for (int i = 0; i < tape.def().input_size(); ++i) {
      run.inputs.emplace_back();
      run.edges.emplace_back();
      directions.emplace_back();
      if (tape.name(i).empty()) continue;
      const Tensor value = tape.subject().feeds.at(tape.name(i)).clone();
      const bool differentiable = std::ranges::count(tape.differentiable(), i) > 0;
      Variable x = recorded && differentiable ? interior(value) : Variable(value);
      run.edges.back() = x.gradient_edge();
      if (moves[i]) {
        directions.back() = normal_like(value, 50 + i);
        // A copy, which may be written in place.
        x = autograd::run("Copy", {level.dual(x, directions.back())})[0];
      }
      run.inputs.back() = x;
    }
    run.outputs = tape.run_on(run.inputs).outputs;
  }

  // The outputs' tangents times weights.
  Sum forward(const std::vector<Variable>& weights) const {
    Sum sum;
    for (size_t k = 0; k < weights.size(); ++k) {
      const auto& names = tape.def().output();
      const auto place = std::ranges::find(names, tape.subject().outputs[k]) - names.begin();
      const Variable tangent = level.tangent(run.outputs[place]);
      if (!tangent.defined()) continue;
      EXPECT_EQ(tangent.shape(), run.outputs[place].shape());
      sum.add(tangent, weights[k]);
    }
    return sum;
  }
};

Sum along(const std::vector<Variable>& gradients, const std::vector<int>& inputs, const Moving& moving) {
  Sum sum;
  for (size_t k = 0; k < inputs.size(); ++k) sum.add(gradients[k], moving.directions[inputs[k]]);
  return sum;
}

// Forward mode is the derivative of the derivative, and of these that is a Hessian without a derivative by what it is
// taken at.
bool ends_at_its_hessian(const std::string& type) {
  return type == "CTCLossGradient" || type == "TransducerLossGradient";
}

class RegistryForward : public ::testing::TestWithParam<std::string> {
 protected:
  template <class Fn>
  void for_each_subset(Fn fn) const {
    for (const ExampleTape& tape : example_tapes(GetParam())) {
      if (tape.differentiable().empty() || tape.subject().outputs.empty()) continue;
      for (const Mask& moves : tape.subsets()) {
        if (std::ranges::count(moves, true) == 0) continue;
        SCOPED_TRACE(tape.def().ShortDebugString());
        std::string text;
        for (const bool bit : moves) text += bit ? '1' : '0';
        SCOPED_TRACE("inputs that move: " + text);
        try {
          fn(tape, moves);
        } catch (const Error& e) {
          const bool ends = ends_at_its_hessian(GetParam());
          EXPECT_TRUE(ends && std::string(e.what()).find("Hessian has no gradient") != std::string::npos) << e.what();
        }
      }
    }
  }
};

// Forward mode is the derivative of the derivative.
bool is_differentiated_once(const std::string& type) { return type == "Recurrent"; }

void check_tangents(const ExampleTape& tape, const Mask& moves) {
  const std::vector<Variable> weights = random_weights(tape);
  const TangentLevel level;
  if (is_differentiated_once(tape.spec().type)) {
    EXPECT_THROW(Moving(tape, level, moves, true), Error);
    return;
  }
  const Moving recorded(tape, level, moves, true);
  const Sum forward = recorded.forward(weights);
  const std::vector<Variable> gradients = tape_gradients(tape, recorded.run, weights, tape.differentiable());
  expect_same(forward, along(gradients, tape.differentiable(), recorded), "beside backward mode");
  const NoGrad no_grad;
  const Moving alone(tape, level, moves, false);
  EXPECT_EQ(alone.forward(weights).value, forward.value) << "without recording";
}

TEST_P(RegistryForward, TangentsAreThoseOfBackwardMode) {
  for_each_subset([](const ExampleTape& tape, const Mask& moves) { check_tangents(tape, moves); });
}

TEST_P(RegistryForward, SoTheyAreInPlace) {
  for_each_subset([](const ExampleTape& tape, const Mask& moves) {
    for (const InPlaceRule& rule : tape.spec().in_place) {
      const int in = tape.spec().input_index(rule.in), out = tape.spec().output_index(rule.out);
      if (tape.spec().random) continue;  // draws follow the output's name
      if (rule.enforced || rule.anywhere || in >= tape.def().input_size() || out >= tape.def().output_size()) continue;
      if (tape.def().input(in).empty() || tape.def().output(out).empty()) continue;
      // Interior variables and constants may be written; a view that does not move is one of either.
      const Tensor& before = tape.subject().feeds.at(tape.def().input(in));
      const std::vector<Variable> weights = random_weights(tape);
      const TangentLevel level;
      const Moving apart(tape, level, moves, true);
      if (apart.run.outputs[out].shape() != before.shape() || apart.run.outputs[out].dtype() != before.dtype())
        continue;
      const ExampleTape in_place = tape.in_place(in, out);
      const Moving together(in_place, level, moves, true);
      EXPECT_EQ(together.forward(weights).value, apart.forward(weights).value) << rule.in << " and " << rule.out;
    }
  });
}

void check_tangents_of_gradients(const ExampleTape& tape, const Mask& moves) {
  if (is_differentiated_once(tape.spec().type)) return;
  const std::vector<Variable> weights = random_weights(tape);
  std::vector<Variable> factors;
  for (const int i : tape.differentiable())
    factors.push_back(normal_like(tape.subject().feeds.at(tape.name(i)), 70 + i));
  const TangentLevel level;
  const Moving moving(tape, level, moves, true);
  std::vector<Variable> gradients;
  try {
    gradients = tape_gradients(tape, moving.run, weights, tape.differentiable(), true);
  } catch (const Error&) {
    return;  // without second derivatives
  }
  Sum forward;
  for (size_t k = 0; k < gradients.size(); ++k) forward.add(level.tangent(gradients[k]), factors[k]);
  std::vector<Edge> roots, wanted;
  GradOptions options{.grad_outputs = {}, .materialize = true};
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].requires_grad()) continue;
    roots.push_back(gradients[k].gradient_edge());
    options.grad_outputs.emplace_back(factors[k]);
  }
  for (const int i : tape.differentiable()) wanted.push_back(moving.run.edges[i]);
  std::vector<Variable> second(wanted.size());
  if (!roots.empty()) {
    const Gradients found = grad_edges(roots, wanted, options);
    for (size_t k = 0; k < found.size(); ++k)
      second[k] = make_dense(found[k], wanted[k].node->outputs()[wanted[k].index]);
  }
  expect_same(forward, along(second, tape.differentiable(), moving), "beside reverse over reverse");
}

TEST_P(RegistryForward, TangentsOfGradientsAreSecondDerivatives) {
  for_each_subset([](const ExampleTape& tape, const Mask& moves) { check_tangents_of_gradients(tape, moves); });
}

INSTANTIATE_TEST_SUITE_P(Tape, RegistryForward, ::testing::ValuesIn(tensor_types()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::autograd::testing::registry_forward_test

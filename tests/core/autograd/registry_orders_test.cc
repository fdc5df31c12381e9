// Derivatives of derivatives on the tape, of every operator that is registered: the second against those of the nets,
// which stepnet/gradient_check.h compares with differences, and the third of elementwise operators against
// differences of the second.
#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd/gradient_buffer.h"
#include "stepnet/random.h"
#include "tests/core/autograd/example_tape.h"

namespace stepnet::autograd::testing::registry_orders_test {
namespace {

constexpr double kSame = 1e-12, kByDifferences = 1e-7;

Tensor normal_like(const Tensor& like, uint64_t key) {
  Tensor values = Tensor::empty(DType::float64, like.shape());
  for (int64_t i = 0; i < values.size(); ++i) values.data<double>()[i] = random_normal(key, static_cast<uint64_t>(i));
  return values;
}

double product(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

double largest(const Tensor& values) {
  double most = 1;
  for (const double v : values.span<double>()) most = std::max(most, std::fabs(v));
  return most;
}

// The gradients of the sum of factors .* roots, dense; zeros where there is none. Roots may be constant.
std::vector<Variable> gradients_of(const std::vector<Variable>& roots, const std::vector<Tensor>& factors,
                                   const std::vector<Edge>& variables, bool recording = false) {
  std::vector<Edge> edges;
  GradOptions options{.grad_outputs = {}, .create_graph = recording, .materialize = true};
  for (size_t k = 0; k < roots.size(); ++k) {
    if (!roots[k].requires_grad()) continue;
    edges.push_back(roots[k].gradient_edge());
    options.grad_outputs.emplace_back(Variable(factors[k]));
  }
  std::vector<Variable> dense;
  const Gradients found = edges.empty() ? Gradients(variables.size()) : grad_edges(edges, variables, options);
  for (size_t k = 0; k < found.size(); ++k) {
    const TensorType& type = variables[k].node->outputs()[variables[k].index];
    dense.push_back(found[k].is_sparse() ? make_dense(found[k], type)
                    : found[k].defined() ? found[k].dense
                                         : filled(type, {}, 0));
  }
  return dense;
}

// The gradients of an example's inputs, recorded.
struct FirstOrder {
  std::vector<Edge> inputs, weights;  // what they depend on: differentiable inputs, and weights of the outputs
  std::vector<Variable> gradients;

  FirstOrder(const ExampleTape& tape, const NamedTensors& values) {
    const std::vector<Variable> w = random_weights(tape, true);
    const TapeRun run = tape.run(tape.only(tape.differentiable()), values);
    for (const int i : tape.differentiable()) inputs.push_back(run.edges[i]);
    for (const Variable& weight : w) weights.push_back(weight.gradient_edge());
    gradients = tape_gradients(tape, run, w, tape.differentiable(), true);
  }
};

class RegistryOrders : public ::testing::TestWithParam<std::string> {
 protected:
  template <class Fn>
  void for_each_example(Fn fn) const {
    for (const ExampleTape& tape : example_tapes(GetParam())) {
      SCOPED_TRACE(tape.def().ShortDebugString());
      if (!tape.differentiable().empty() && !tape.subject().outputs.empty()) fn(tape);
    }
  }
};

// --- Second order ----------------------------------------------------------------------------------------------------

// First gradients may be constant; then those of a net are an Error, which is none.
NamedTensors gradients_of_net(const GradientSubject& subject, const NamedTensors& factors) {
  try {
    return run_gradients(subject, factors, ExampleTape::kSeed, subject.inputs).gradients;
  } catch (const Error& e) {
    if (e.fact().find("depends on none") == std::string::npos) throw;
    return {};
  }
}

// Some gradient operators' own gradients have none.
bool is_differentiated(const GradientSubject& subject) {
  return std::ranges::all_of(subject.inputs, [&](const auto& input) { return refusal(subject, input).empty(); });
}

void check_second_order(const ExampleTape& tape) {
  NamedTensors weights;
  const std::vector<Variable> w = random_weights(tape);
  for (size_t k = 0; k < w.size(); ++k) weights[tape.subject().outputs[k]] = w[k].value();
  std::vector<std::string> of;  // the input of each first gradient
  const GradientSubject second = gradients_as_subject(tape.subject(), weights, &of);
  if (second.outputs.empty()) return;
  if (!is_differentiated(second)) {
    EXPECT_THROW(FirstOrder(tape, tape.subject().feeds), Error) << "as in nets";
    return;
  }
  const FirstOrder first(tape, tape.subject().feeds);
  NamedTensors named_factors;
  std::vector<Variable> roots;
  std::vector<Tensor> factors;
  for (size_t k = 0; k < of.size(); ++k) {
    factors.push_back(normal_like(tape.subject().feeds.at(of[k]), 100 + k));
    named_factors[second.outputs[k]] = factors.back();
    for (size_t d = 0; d < first.gradients.size(); ++d)
      if (tape.name(tape.differentiable()[d]) == of[k]) roots.push_back(first.gradients[d]);
  }
  std::vector<Edge> variables = first.inputs;
  variables.insert(variables.end(), first.weights.begin(), first.weights.end());
  std::vector<std::string> names;
  for (const int i : tape.differentiable()) names.push_back(tape.name(i));
  for (const std::string& output : tape.subject().outputs) names.push_back(given_gradient(output));
  const NamedTensors net = gradients_of_net(second, named_factors);
  const std::vector<Variable> found = gradients_of(roots, factors, variables);
  for (size_t k = 0; k < names.size(); ++k) {
    const auto expected = net.find(names[k]);
    const Tensor none = Tensor::zeros(DType::float64, found[k].shape());
    EXPECT_EQ(difference(found[k].value(), expected == net.end() ? none : expected->second, kSame), "") << names[k];
  }
}

TEST_P(RegistryOrders, SecondDerivativesAreThoseOfNets) {
  for_each_example([](const ExampleTape& tape) { check_second_order(tape); });
}

// --- Third order -----------------------------------------------------------------------------------------------------

// S, a sum of random multiples of the second derivatives by the inputs.
class SumOfSeconds {
 public:
  explicit SumOfSeconds(const ExampleTape& tape) : tape_(tape) {
    for (const int i : tape.differentiable()) {
      first_factors_.push_back(normal_like(tape.subject().feeds.at(tape.name(i)), 200 + i));
      second_factors_.push_back(normal_like(first_factors_.back(), 300 + i));
    }
  }

  double at(const NamedTensors& values) const {
    const std::vector<Variable> seconds = second_order(FirstOrder(tape_, values), false);
    double sum = 0;
    for (size_t k = 0; k < seconds.size(); ++k) sum += product(seconds[k].value(), second_factors_[k]);
    return sum;
  }
  std::vector<Variable> gradients() const {
    const FirstOrder first(tape_, tape_.subject().feeds);
    return gradients_of(second_order(first, true), second_factors_, first.inputs);
  }

 private:
  std::vector<Variable> second_order(const FirstOrder& first, bool recording) const {
    return gradients_of(first.gradients, first_factors_, first.inputs, recording);
  }

  const ExampleTape& tape_;
  std::vector<Tensor> first_factors_, second_factors_;
};

// The smallest difference between a derivative along a direction and slopes of S over shrinking steps.
double error_of(const SumOfSeconds& sum, const NamedTensors& values, const std::string& input, const Tensor& gradient) {
  const Tensor direction = normal_like(gradient, 400);
  const double derivative = product(gradient, direction);
  const double scale = largest(gradient) * std::sqrt(static_cast<double>(std::max<int64_t>(1, gradient.size())));
  const auto moved = [&](double h) {
    NamedTensors at = values;
    at[input] = values.at(input).clone();
    for (int64_t i = 0; i < gradient.size(); ++i) at[input].data<double>()[i] += h * direction.data<double>()[i];
    return sum.at(at);
  };
  double least = HUGE_VAL;
  for (double h = 1e-4; h > 1e-7 && least > kByDifferences; h /= 8)
    least = std::min(least, std::fabs((moved(h) - moved(-h)) / (2 * h) - derivative) / scale);
  return least;
}

TEST_P(RegistryOrders, ThirdDerivativesOfElementwiseOperatorsAreTheDifferences) {
  if (!op_spec(GetParam()).elementwise) return;
  for_each_example([](const ExampleTape& tape) {
    const SumOfSeconds sum(tape);
    const std::vector<Variable> third = sum.gradients();
    for (size_t k = 0; k < third.size(); ++k) {
      const std::string& input = tape.name(tape.differentiable()[k]);
      EXPECT_LE(error_of(sum, tape.subject().feeds, input, third[k].value()), kByDifferences) << input;
    }
  });
}

// The tests above would pass if all derivatives were 0.
TEST(RegistryChecks, NoticeWrongThirdDerivatives) {
  const ExampleTape& tanh = example_tapes("Tanh").front();
  const SumOfSeconds sum(tanh);
  Tensor third = sum.gradients()[0].value().clone();
  EXPECT_LE(error_of(sum, tanh.subject().feeds, "X", third), kByDifferences);
  third.data<double>()[1] += 1e-5;
  EXPECT_GT(error_of(sum, tanh.subject().feeds, "X", third), kByDifferences);
  EXPECT_NE(difference(third, Tensor::zeros(DType::float64, third.shape()), 1e-3), "");
}

INSTANTIATE_TEST_SUITE_P(Tape, RegistryOrders, ::testing::ValuesIn(tensor_types()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stepnet::autograd::testing::registry_orders_test

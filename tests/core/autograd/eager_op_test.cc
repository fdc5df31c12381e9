// The operators that the tape keeps bound.
#include "stepnet/eager_op.h"

#include <gtest/gtest.h>

#include <set>

#include "core/gradcheck/examples.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::eager_op_test {
namespace {

// More than are kept: those in use stay, with their derivatives, and the others go (which LeakSanitizer checks).
TEST(EagerOps, WithManyDifferentArguments) {
  const Variable x = var({1, 2});
  std::vector<Variable> kept;
  double expected = 0;
  for (int i = 0; i < 10000; ++i) {
    const Variable y = run("Scale", {x}, {make_arg("scale", static_cast<float>(i))})[0];
    if (i % 1000 == 0) {
      kept.push_back(apply("Mul", {y, y}));  // 2 i^2 x
      expected += 2.0 * i * i;
    } else if (i % 10 == 0) {
      EXPECT_EQ(values_of(grad({sum_of(y)}, {x})[0].dense), (Numbers(2, i)));
    }
  }
  for (const Variable& y : kept) backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{expected, 2 * expected}));
}

// --- Optional outputs that a derivative reads in place of inputs: the tape asks for them where it records -----------

const char* const kDistances[] = {"L1Distance", "SquaredL2Distance"};

class KeptOutputs : public TapeTest {
 protected:
  const Variable x_ = var({2, 2}, {1, 5, 3, 4}), y_ = var({2, 2}, {2, 2, 3, 0}, false);
};

// The operator called with the outputs that it always has.
std::shared_ptr<const EagerOp> least_call(const OpSpec& spec, const OpExample& example) {
  const GradientSubject subject = example_subject(spec, example, 1);
  if (subject.inputs.empty()) return nullptr;
  const OperatorDef& def = subject.net.op(0);
  EagerOp::Signature s{.type = spec.type, .inputs = {}, .outputs = {}, .args = {}, .in_place = {}};
  for (const std::string& in : def.input()) s.inputs.push_back(!in.empty());
  for (int o = 0; o < def.output_size() && (o == 0 || !spec.output_spec(o)->optional); ++o) s.outputs.push_back(true);
  s.args.assign(def.arg().begin(), def.arg().end());
  try {
    return EagerOp::get(s);
  } catch (const Error&) {
    return nullptr;  // an output has to be written over an input, or may not be left out here
  }
}

TEST(KeptOutputsOfOperators, AreThoseOfDistancesGrusCopiesAndLosses) {
  std::set<std::string> found;
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    if (spec.blob_kernel) continue;
    for (const OpExample& example : spec.examples) {
      const auto op = example.net.empty() ? least_call(spec, example) : nullptr;
      for (int i = 0; op && i < op->inputs(); ++i) {
        Flags wanted(static_cast<size_t>(op->inputs()));
        wanted.set(static_cast<size_t>(i));
        try {
          if (op->gradient(wanted, op->wanted_outputs()).instead) found.insert(type);
        } catch (const Error&) {
          continue;  // that input has no derivative, or an output is missing for it
        }
      }
    }
  }
  EXPECT_EQ(found, std::set<std::string>(
                       {"CopyOnDeviceLike", "FCSoftmaxWithLoss", "GRUUnit", "L1Distance", "SquaredL2Distance"}));
}

TEST_F(KeptOutputs, AreKeptInPlaceOfInputs) {
  for (const char* type : kDistances) {
    const std::vector<Variable> z = run(type, {x_, y_});
    EXPECT_EQ(z.size(), 1) << type;
    EXPECT_FALSE(keeps_input(z[0], 0) || keeps_input(z[0], 1)) << type;
    EXPECT_TRUE(keeps_output(z[0], 1)) << type;
    const Variable alone = grad({sum_of(z[0])}, {x_})[0].dense;
    EXPECT_EQ(values_of(alone), type == std::string("L1Distance") ? Numbers({-1, 1, 0, 1}) : Numbers({-1, 3, 0, 4}));
  }
}

// The same bits as those of the gradient operators, which read X and Y.
TEST_F(KeptOutputs, GiveTheGradientsOfTheInputs) {
  const Variable x = var({2, 3}, {0.1, -1.7, 3.3, 1e-9, 5, 7}), y = var({2, 3}, {0.3, 2.2, 3.3, -1e-9, 5.5, -7});
  const Variable weights = constant({0.7, -1.3});
  for (const char* type : kDistances) {
    const auto made = grad({sum_of(apply("Mul", {apply(type, {x, y}), weights}))}, {x, y});
    const auto expected = run(std::string(type) + "Gradient", {x.detach(), y.detach(), weights}, {}, {.outputs = 2});
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(values_of(made[i].dense), values_of(expected[i])) << type;
  }
}

// Of sum(g^2) with g = x - y: 2 g, and of sum(g^3), the third derivative's, 6 times the identity.
TEST_F(KeptOutputs, HaveDerivativesOfAnyOrder) {
  GradOptions graph;
  graph.create_graph = true;
  const Variable g = grad({sum_of(apply("SquaredL2Distance", {x_, y_}))}, {x_}, graph)[0].dense;
  const Variable h = grad({sum_of(apply("Cube", {g}))}, {x_}, graph)[0].dense;  // 3 g^2
  EXPECT_EQ(values_of(h), Numbers({3, 27, 0, 48}));
  EXPECT_EQ(values_of(grad({sum_of(h)}, {x_})[0].dense), Numbers({-6, 18, 0, 24}));
}

TEST_F(KeptOutputs, LetInputsBeOverwritten) {
  const Variable x = apply("Scale", {x_}), y = y_.detach();
  const Variable z = apply("SquaredL2Distance", {x, y});
  apply_in_place("Negative", {x});
  EXPECT_EQ(values_of(grad({sum_of(z)}, {x_})[0].dense), Numbers({-1, 3, 0, 4}));
}

// Where nothing is recorded, or the caller asks for the output, it is a call like any other.
TEST_F(KeptOutputs, AreTheCallersIfAskedFor) {
  const std::vector<Variable> asked = run("SquaredL2Distance", {x_, y_}, {}, {.outputs = 2});
  EXPECT_EQ(values_of(asked[1]), Numbers({-1, 3, 0, 4}));
  EXPECT_EQ(values_of(grad({sum_of(asked[1])}, {x_})[0].dense), Numbers({1, 1, 1, 1}));
  const NoGrad none;
  EXPECT_FALSE(run("SquaredL2Distance", {x_, y_})[0].requires_grad());
}

// A GRU's step keeps its gates' values, which are fewer than their sums, and of H_prev alone those of one gate. Rows
// that are over have gradients of 0 there, whatever comes through the values.
TEST_F(KeptOutputs, OfAGruAreItsActivations) {
  const Variable h = apply("Sin", {var({3, 2}, {0.1, -0.5, 0.3, 0.9, -1.2, 0.4})});
  const Variable gates(
      Tensor::of<double>({3, 6}, {1, 2, -1, 0.5, 0.3, -0.2, 0, 1, -2, -1, 1, 0.4, 3, 2, 1, 1, -0.7, 0.6}), true);
  const Variable lengths(Tensor::of<int32_t>({3}, {2, 1, 3})), now(Tensor::of<int32_t>({1}, {1}));
  for (const bool drop : {false, true}) {
    const std::vector<Argument> args = {make_arg("drop_states", drop)};
    const Variable y = run("GRUUnit", {h, gates, lengths, now}, args)[0];
    EXPECT_TRUE(keeps_input(y, 0) && !keeps_input(y, 1) && keeps_output(y, 1) && keeps_output(y, 2));
    const Variable of_state = run("GRUUnit", {h, gates.detach(), lengths, now}, args)[0];
    EXPECT_FALSE(keeps_input(of_state, 0) || keeps_input(of_state, 1) || keeps_output(of_state, 2));
    const Variable dy = constant({1, -2, 0.5, 3, 0.1, 0.7});
    GradOptions options;
    options.create_graph = true;
    options.grad_outputs = {{Variable(dy.value().reshaped({3, 2}))}};
    const Gradients made = grad({y}, {h, gates}, options);
    const auto expected =
        run("GRUUnitGradient", {h.detach(), gates.detach(), lengths, now, y.detach(), options.grad_outputs[0].dense},
            args, {.outputs = 2});
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(values_of(made[i].dense), values_of(expected[i])) << drop;
    const Numbers second = values_of(grad({sum_of(made[1].dense)}, {gates})[0].dense);
    for (size_t j = 6; j < 12; ++j) EXPECT_EQ(second[j], 0) << drop;
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::eager_op_test

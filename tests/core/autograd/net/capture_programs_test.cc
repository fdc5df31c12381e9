// Captured nets of every operator with its derivatives, and of random programs: their bits are those of eager runs.
#include <gtest/gtest.h>

#include <array>

#include "core/operator/in_place.h"
#include "stepnet/random.h"
#include "tests/core/autograd/example_tape.h"
#include "tests/core/autograd/net/capture_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::capture_programs_test {
namespace {

using stepnet::testing::error_text;
using Variables = std::vector<Variable>;

// Runs an example forward, and its gradients up to some order.
class Program {
 public:
  Program(const ExampleTape& tape, int order)
      : tape_(tape), order_(order), inputs_(tape.make_inputs(tape.only(tape.differentiable()), tape.subject().feeds)) {
    if (order > 0) weights_ = random_weights(tape, true);
  }

  Variables given() const {
    Variables defined;
    for (const Variable& v : inputs_)
      if (v.defined()) defined.push_back(v);
    return defined;
  }

  Variables operator()(const Variables& given) const {
    Variables inputs = inputs_;
    size_t next = 0;
    for (Variable& v : inputs)
      if (v.defined()) v = given[next++];
    const TapeRun run = tape_.run_on(inputs);
    Variables made;
    for (const Variable& v : run.outputs)
      if (v.defined()) made.push_back(v);
    if (order_ == 0) return made;
    const Variables first = tape_gradients(tape_, run, weights_, tape_.differentiable(), order_ > 1);
    made.insert(made.end(), first.begin(), first.end());
    if (order_ == 1) return made;
    std::vector<Edge> roots, edges;
    GradOptions options{.grad_outputs = {}, .materialize = true};
    for (const Variable& g : first) {
      if (!g.requires_grad()) continue;
      roots.push_back(g.gradient_edge());
      options.grad_outputs.emplace_back(Variable(g.value()));
    }
    for (const int i : tape_.differentiable()) edges.push_back(run.edges[i]);
    for (const Variable& w : weights_) edges.push_back(w.gradient_edge());
    if (roots.empty()) return made;
    for (const VariableGradient& g : grad_edges(roots, edges, options))
      for (const Variable& part : {g.dense, g.indices, g.values})
        if (part.defined()) made.push_back(part);
    return made;
  }

 private:
  const ExampleTape& tape_;
  int order_;
  Variables inputs_, weights_;
};

// The largest order, up to 2, of which the tape makes gradients eagerly; -1: the operator itself fails.
int order_of(const ExampleTape& tape) {
  int order = tape.differentiable().empty() || tape.subject().outputs.empty() ? 0 : 2;
  for (; order >= 0; --order) {
    try {
      const Program program(tape, order);
      program(program.given());
      return order;
    } catch (const Error&) {
    }
  }
  return order;
}

// `runs`: the example cannot be one that the operator refuses.
void check(const ExampleTape& tape, bool runs) {
  SCOPED_TRACE(tape.def().ShortDebugString());
  const int order = order_of(tape);
  EXPECT_TRUE(order >= 0 || !runs);
  if (order < 0) return;
  const Program program(tape, order);
  expect_captured(program, program.given());
}

bool goes_on(const ExampleTape& tape) {
  for (int o = 0; o < tape.def().output_size(); ++o)
    if (keeps_value(tape.spec(), tape.def().input_size(), o)) return true;
  return false;
}

class CaptureRegistry : public ::testing::TestWithParam<std::string> {};

TEST_P(CaptureRegistry, BitsAreThoseOfTheEagerRun) {
  for (const ExampleTape& tape : example_tapes(GetParam())) {
    if (tape.spec().random || goes_on(tape)) {
      const Program program(tape, 0);
      error_text([&] { capture(program, program.given()); });
      continue;
    }
    check(tape, true);
    for (const InPlaceRule& rule : tape.spec().in_place) {
      const int i = tape.spec().input_index(rule.in), o = tape.spec().output_index(rule.out);
      const bool there = i < tape.def().input_size() && o < tape.def().output_size() && !tape.name(i).empty() &&
                         !tape.def().output(o).empty();
      if (there && tape.overwritten_by(i) < 0) check(tape.in_place(i, o), false);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CaptureRegistry, ::testing::ValuesIn(tensor_types()),
                         [](const auto& info) { return info.param; });

// --- Random programs -------------------------------------------------------------------------------------------------

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  size_t below(size_t count) { return static_cast<size_t>(random_uniform(seed_, n_++) * static_cast<double>(count)); }

 private:
  uint64_t seed_, n_ = 0;
};

Tensor numbers(const Shape& shape, uint64_t key) {
  Tensor t = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<double>()[i] = random_normal(key, static_cast<uint64_t>(i));
  return t;
}

struct RandomProgram {
  uint64_t seed;
  Variable square = Variable(numbers({3, 3}, 1), true), row = Variable(numbers({3}, 2), true);
  Variable mask = Variable(numbers({4, 3}, 3));

  void step(Random& random, Variables& pool) const {
    const auto any = [&] { return pool[random.below(pool.size())]; };
    switch (random.below(9)) {
      case 0:
        return pool.push_back(apply(std::array{"Tanh", "Sigmoid", "Sqr", "Relu"}.at(random.below(4)), {any()}));
      case 1:
        return pool.push_back(apply(std::array{"Mul", "Add", "Sub"}.at(random.below(3)), {any(), any()}));
      case 2:
        return pool.push_back(apply("FC", {any(), square, row}));
      case 3:
        return pool.push_back(broadcast("Mul", any(), row));
      case 4: {
        const NoGrad no_grad;
        apply_in_place(std::array{"Tanh", "Sqr"}.at(random.below(2)), {any()});
        return;
      }
      case 5:
        apply_in_place(std::array{"Mul", "Add"}.at(random.below(2)), {any(), any()});
        return;
      case 6:
        return pool.push_back(
            grad({sum_of(any())}, {any()}, {.create_graph = random.below(2) == 1, .materialize = true})[0].dense);
      case 7:
        any().copy_(any());
        return;
      default: {
        const NoGrad no_grad;
        return pool.push_back(any().detach());
      }
    }
  }

  Variables operator()(const Variables& in) const {
    Random random(seed);
    Variables pool = {apply("Tanh", {in[0]}), apply("Copy", {in[0]}), apply("Mul", {in[0], mask})};
    for (int i = 0; i < 14; ++i) {
      try {
        step(random, pool);
      } catch (const Error& e) {
        if (std::string_view(e.fact()).find("capture") != std::string_view::npos) throw;
        // What the tape refuses: the program goes on without it.
      }
    }
    Variable loss = sum_of(pool.back());
    for (const Variable& v : pool)
      if (v.requires_grad()) loss = apply("Add", {loss, sum_of(v)});
    try {
      if (loss.requires_grad()) backward(loss);
    } catch (const Error&) {  // a saved value was overwritten
    }
    pool.push_back(loss);
    return pool;
  }
};

TEST(Capture, RandomPrograms) {
  int gradients = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    const Captured c = expect_captured(RandomProgram{seed}, {Variable(numbers({4, 3}, 100 + seed), true)});
    gradients += static_cast<int>(c.gradients.size());
  }
  EXPECT_GT(gradients, 100);
}

}  // namespace
}  // namespace stepnet::autograd::testing::capture_programs_test

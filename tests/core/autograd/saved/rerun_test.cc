// Recomputation of regions: gradients, how often and how far regions run again, memory.
#include "stepnet/rerun.h"

#include <gtest/gtest.h>

#include "core/autograd/op_node.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::rerun_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

Variable exp_of(const Variable& v) { return apply("Exp", {v}); }
Variable tanh_of(const Variable& v) { return apply("Tanh", {v}); }
Variable mul(const Variable& a, const Variable& b) { return apply("Mul", {a, b}); }

Variable checkpoint1(const std::function<Variable(const Variable&)>& fn, const Variable& x,
                     const CheckpointOptions& options = {}) {
  return checkpoint([fn](const std::vector<Variable>& in) { return std::vector{fn(in[0])}; }, {x}, options)[0];
}

// Live bytes are at the end what they were.
class TapeCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    backward(sum_of(tanh_of(exp_of(mul(var({1}), var({1}))))));  // so that what operators keep is there
    clear();
    before_ = live_bytes();
  }
  void TearDown() override {
    clear();
    EXPECT_EQ(live_bytes(), before_);
    EXPECT_EQ(tape_state().hooks, nullptr);
    EXPECT_EQ(tape_state().draws, nullptr);
    EXPECT_TRUE(tape_state().recording);
  }
  virtual void clear() {}

 private:
  int64_t before_ = 0;
};

TEST_F(TapeCheckpoint, CheckpointingWithoutReentrantCorrectGrad) {
  const auto fn = [](const Variable& v) { return mul(tanh_of(exp_of(v)), v); };
  const Variable x = var({0.1, 0.5});
  const Numbers expected = values_of(grad({sum_of(fn(x))}, {x})[0].dense);
  const Variable y = checkpoint1(fn, x);
  EXPECT_EQ(values_of(y), values_of(fn(x)));
  EXPECT_EQ(values_of(grad({sum_of(y)}, {x}, {.keep_graph = true})[0].dense), expected);
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), expected);
}

TEST_F(TapeCheckpoint, OfDerivatives) {
  const auto fn = [](const Variable& v) { return mul(mul(v, v), tanh_of(v)); };
  const auto third = [](const Variable& y, const Variable& x) {
    const Variable first = grad({sum_of(y)}, {x}, {.create_graph = true})[0].dense;
    const Variable second = grad({sum_of(first)}, {x}, {.create_graph = true})[0].dense;
    return std::tuple(values_of(first), values_of(second), values_of(grad({sum_of(second)}, {x})[0].dense));
  };
  const Variable x = var({0.3, -0.7});
  EXPECT_EQ(third(checkpoint1(fn, x), x), third(fn(x), x));
}

TEST_F(TapeCheckpoint, SeveralInputsAndOutputs) {
  const Variable a = var({2, 3}), b = var({5, 7}), k = constant({1, 2});
  const auto region = [](const std::vector<Variable>& in) {
    EXPECT_FALSE(in[3].defined());
    EXPECT_FALSE(in[2].requires_grad());
    return std::vector{mul(in[0], in[1]), mul(in[0], in[2])};
  };
  const std::vector<Variable> out = checkpoint(region, {a, b, k, Variable()});
  backward(sum_of(apply("Add", {out[0], out[1]})));
  EXPECT_EQ(grad_of(a), (Numbers{6, 9}));
  EXPECT_EQ(grad_of(b), (Numbers{2, 3}));
  const NoGrad no_grad;
  EXPECT_FALSE(checkpoint(region, {a, b, k, Variable()})[0].requires_grad());
}

TEST_F(TapeCheckpoint, CheckpointingWithoutReentrantParameterUsedInAnOut) {
  const Variable w = var({2, 3}), x = var({1, 1});
  int calls = 0;
  w.register_hook([&](const VariableGradient&) {
    ++calls;
    return VariableGradient();
  });
  const Variable inside = checkpoint1([w](const Variable& v) { return mul(w, v); }, mul(x, w));
  backward(sum_of(mul(inside, w)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(grad_of(w), (Numbers{12, 27}));
}

TEST_F(TapeCheckpoint, NestedRegionsRunFromOutsideIn) {
  int inner_runs = 0, outer_runs = 0;
  const auto inner = [&](const Variable& v) {
    ++inner_runs;
    return exp_of(mul(v, v));
  };
  const auto outer = [&](const Variable& v) {
    ++outer_runs;
    return checkpoint1(inner, checkpoint1(inner, mul(v, v)));
  };
  const Variable x = var({0.2, 0.3});
  const Variable plain = inner(inner(mul(x, x)));
  const Numbers expected = values_of(grad({sum_of(plain)}, {x})[0].dense);
  inner_runs = 0;
  const Variable y = checkpoint1(outer, x);
  EXPECT_EQ(inner_runs, 2);
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), expected);
  EXPECT_EQ(outer_runs, 2);
  EXPECT_EQ(inner_runs, 5);  // the outer region's second run needs nothing of the second inner one but its input
}

TEST_F(TapeCheckpoint, CheckpointDetectsNonDeterminism) {
  int runs = 0;
  const auto fails = [&](const std::function<Variable(const Variable&)>& fn, const std::string& part,
                         const CheckpointOptions& options = {}) {
    runs = 0;
    const Variable x = var({2, 3});
    const Variable y = checkpoint1(fn, x, options);
    const std::string text = error_text([&] { backward(sum_of(y)); });
    expect_contains(text, part);
    expect_contains(text, "ran forward at");
  };
  const auto fewer = [&](const Variable& v) { return runs++ ? exp_of(v) : exp_of(exp_of(v)); };
  fails(fewer, "saved 2 values when it ran first, and 1 now");
  const auto more = [&](const Variable& v) { return runs++ ? exp_of(exp_of(v)) : exp_of(v); };
  fails(more, "saved 1 values when it ran first, and saves more now", {.early_stop = false});
  const auto other = [&](const Variable& v) {
    return exp_of(runs++ ? v : run("ExpandDims", {v}, {make_arg("dims", std::vector<int64_t>{0})})[0]);
  };
  fails(other, "was double[1, 2] when it ran first, and is double[2] now");
  // With early stop more values are not seen.
  runs = 0;
  const Variable x = var({0, 0});
  backward(sum_of(checkpoint1(more, x)));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
}

TEST_F(TapeCheckpoint, AccessSavedTensorTwiceWithoutRecomputationWorks) {
  int runs = 0;
  const Variable x = var({0.5, 1});
  const Variable y = checkpoint1(
      [&](const Variable& v) {
        ++runs;
        return exp_of(exp_of(v));
      },
      x);
  auto& node = dynamic_cast<OpNode&>(*y.grad_fn());
  const auto saved = [&] { return node.saved_output(0)->unpack({}, node, "output"); };
  const int64_t live = live_bytes();
  EXPECT_EQ(values_of(saved()), values_of(y));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(live_bytes(), live);  // all that was computed again has gone
  EXPECT_EQ(values_of(saved()), values_of(y));
  EXPECT_EQ(runs, 3);
  backward(sum_of(y));
  EXPECT_EQ(runs, 4);
  expect_contains(error_text(saved), "keep_graph");
}

TEST_F(TapeCheckpoint, EachPassRunsTheRegionAgainAndKeepsNothing) {
  int runs = 0;
  const Variable x = var({0.5, 1});
  const Variable y = checkpoint1(
      [&](const Variable& v) {
        ++runs;
        return exp_of(mul(exp_of(v), v));
      },
      x);
  const int64_t live = live_bytes();
  for (int pass = 1; pass <= 3; ++pass) {
    const Gradients g = grad({sum_of(y)}, {x}, {.keep_graph = true});
    EXPECT_EQ(runs, 1 + pass);
  }
  EXPECT_EQ(live_bytes(), live);
}

// Two passes over parts of one graph share what they recompute inside a group.
TEST_F(TapeCheckpoint, CheckpointGraphExecutionGroup) {
  int runs = 0;
  const auto in_two_passes = [&](const Variable& x) {
    const Variable middle = mul(x, x);
    const Variable y = checkpoint(
        [&](const std::vector<Variable>& in) {
          ++runs;
          return std::vector{exp_of(in[0]), tanh_of(in[0])};
        },
        {middle})[0];
    const Variable z = apply("Mul", {y, y});
    const Variable of_y = grad({sum_of(z)}, {y})[0].dense;
    const Variable of_middle = grad({y}, {middle}, {.grad_outputs = {of_y}, .keep_graph = true})[0].dense;
    runs = 0;
    const Variable again = grad({y}, {middle}, {.grad_outputs = {of_y}})[0].dense;
    EXPECT_EQ(values_of(again), values_of(of_middle));
    return runs;
  };
  EXPECT_EQ(in_two_passes(var({0.5, 1})), 1);
  runs = 0;
  const Variable x = var({0.5, 1});
  const std::vector<Variable> out = checkpoint(
      [&](const std::vector<Variable>& in) {
        ++runs;
        return std::vector{exp_of(in[0]), tanh_of(in[0])};
      },
      {x});
  {
    const RecomputeGroup group;
    backward(sum_of(out[0]));
    EXPECT_EQ(runs, 2);
    backward(sum_of(out[1]));
    EXPECT_EQ(runs, 2);
  }
  const Variable expected = grad({sum_of(apply("Add", {exp_of(x), tanh_of(x)}))}, {x})[0].dense;
  EXPECT_EQ(grad_of(x), values_of(expected));
  EXPECT_EQ(tape_state().group, nullptr);
}

// An error in the second run leaves no state behind, and the next pass works.
TEST_F(TapeCheckpoint, CheckpointValidResetOnError) {
  bool broken = false;
  const Variable x = var({0.5, 1});
  const Variable y = checkpoint1(
      [&](const Variable& v) {
        const Variable e = exp_of(v);
        if (broken) fail("out of order");
        return exp_of(e);
      },
      x);
  const int64_t live = live_bytes();
  const RandomState random = random_state();
  broken = true;
  const std::string text = error_text([&] { backward(sum_of(y), {.keep_graph = true}); });
  expect_contains(text, "out of order");
  expect_contains(text, "of ExpGradient, which ran forward at");
  EXPECT_EQ(live_bytes(), live);
  EXPECT_EQ(random_state().draws, random.draws);
  broken = false;
  backward(sum_of(y));
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(TapeCheckpoint, CustomAutogradAcEarlyStop) {
  int finished = 0;
  const Variable x = var({0.5, 1});
  Variable y = checkpoint1(
      [&](const Variable& v) {
        Variable e = exp_of(exp_of(v));
        e = apply("Add", {e, v});  // behind the last value that is saved
        ++finished;
        return e;
      },
      x);
  EXPECT_EQ(finished, 1);
  const int64_t live = live_bytes();
  { const Gradients g = grad({sum_of(y)}, {x}, {.keep_graph = true}); }
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(live_bytes(), live);  // what was computed before the stop has gone
  y = {};
}

TEST_F(TapeCheckpoint, OnlyWhatIsStillNeededIsMade) {
  int last = 0;
  const Variable x = var({0.5, 1});
  std::vector<Variable> out = checkpoint(
      [&](const std::vector<Variable>& in) {
        const Variable first = exp_of(in[0]), second = tanh_of(in[0]);
        ++last;
        return std::vector{first, second};
      },
      {x});
  out[1] = {};  // its node and its value are gone
  backward(sum_of(out[0]));
  EXPECT_EQ(last, 1);
}

TEST_F(TapeCheckpoint, DrawsTheSameNumbers) {
  const auto fn = [](const Variable& v) {
    return mul(run("Dropout", {v}, {make_arg("ratio", 0.5F)}, {.outputs = 2})[0], v);
  };
  const Tensor values = Tensor::of<float>({64}, std::vector<float>(64, 3.0F));
  const RandomState start{42, 7};
  set_random_state(start);
  const Variable plain(values.clone(), true), again(values.clone(), true), free(values.clone(), true);
  backward(run("SumElements", {fn(plain)})[0]);
  set_random_state(start);
  const Variable y = run("SumElements", {checkpoint1(fn, again)})[0];
  const int64_t draws = random_state().draws;
  backward(y);
  EXPECT_EQ(random_state().draws, draws);  // the second run has drawn from where the first began
  const auto bits = [](const Variable& v) {
    const auto span = v.grad().value().span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(bits(again), bits(plain));
  backward(run("SumElements", {checkpoint1(fn, free, {.restore_random = false})})[0]);
  EXPECT_NE(bits(free), bits(plain));
  EXPECT_GT(random_state().draws, draws);
}

TEST_F(TapeCheckpoint, AnInputThatWasWrittenInPlaceIsAnError) {
  const Variable x = var({0.5, 1});
  const Variable h = mul(x, constant({2, 2}));
  const Variable y = checkpoint1(exp_of, h);
  apply_in_place("Mul", {h, constant({2, 2})});
  const std::string text = error_text([&] { backward(sum_of(y)); });
  expect_contains(text, "checkpoint: input 0, double[2], was saved at version");
}

TEST_F(TapeCheckpoint, GradInsideARegion) {
  const auto fn = [](const Variable& v) {
    const Variable y = sum_of(mul(mul(v, v), v));
    return mul(grad({y}, {v}, {.create_graph = true})[0].dense, v);  // 3 v^3
  };
  const Variable x = var({2, 3});
  const Variable y = checkpoint1(fn, x);
  EXPECT_EQ(values_of(y), (Numbers{24, 81}));
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{36, 81}));
}

TEST_F(TapeCheckpoint, APassOnSeveralThreads) {
  const auto branch = [](const Variable& v) {
    return mul(run("Dropout", {tanh_of(v)}, {make_arg("ratio", 0.5F)}, {.outputs = 2})[0], exp_of(v));
  };
  const auto fn = [&](const Variable& x, bool again) {
    set_random_state({3, 0});
    Variable total = tanh_of(x);
    for (int i = 0; i < 8; ++i) total = mul(total, again ? checkpoint1(branch, x) : branch(x));
    return run("SumElements", {total})[0];
  };
  const auto bits = [](const Gradients& g) {
    const auto span = g[0].value().span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  const Variable x(Tensor::of<float>({64}, std::vector<float>(64, 1.5F)), true);
  const std::vector<float> expected = bits(grad({fn(x, false)}, {x}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bits(grad({fn(x, true)}, {x}, {.threads = 4})), expected);
}

// A chain of n operators in k regions; the peak of forward and backward above what was live, in values of S bytes.
double peak_of_chain(int n, int k, int64_t elements) {
  const Variable x(Tensor::zeros(DType::float64, {elements}), true);
  const auto layers = [](int count) {
    return [count](const Variable& v) {
      Variable h = v;
      for (int i = 0; i < count; ++i) h = tanh_of(h);
      return h;
    };
  };
  allocator(Device{}).reset_peak();
  const int64_t before = live_bytes();
  {
    Variable h = x;
    for (int i = 0; i < std::max(k, 1); ++i) h = k > 0 ? checkpoint1(layers(n / k), h) : layers(n)(h);
    const Variable root = sum_of(h);
    h = {};
    backward(root);
  }
  return static_cast<double>(allocator(Device{}).counters().peak - before) / static_cast<double>(elements * 8);
}

TEST_F(TapeCheckpoint, CheckpointingWithoutReentrantMemorySavings) {
  const int64_t elements = 1 << 14;
  const double slack = 0.02;  // scalars
  for (const int n : {12, 24, 48}) {
    EXPECT_NEAR(peak_of_chain(n, 0, elements), n + 2, slack);
    for (const int k : {1, 2, 3, 4, 6, 12}) {
      const double peak = peak_of_chain(n, k, elements);
      EXPECT_NEAR(peak, k + n / k + 1, slack) << n << " layers in " << k << " regions";
    }
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::rerun_test

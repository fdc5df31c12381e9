// Passes from and to edges, the order of nodes, and what trimming spares.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/function.h"
#include "stepnet/profiler.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::trimming_edges_test {

class TapeTrimmingEdges : public TapeTest {};

namespace {

Numbers numbers(const VariableGradient& g) { return g.defined() ? values_of(g.dense) : Numbers{}; }

// How often operators of that type ran.
int64_t calls(const Profiler& profiler, const std::string& type) {
  for (const Profiler::Row& row : profiler.rows())
    if (row.type == type) return row.calls;
  return 0;
}

TEST_F(TapeTrimmingEdges, GradToNodeInplace) {
  const Variable x = var({1}), k = constant({3});
  const Variable h = apply("Mul", {x, k});
  const Edge before = h.gradient_edge();
  apply_in_place("Mul", {h, constant({5})});
  const Variable z = apply("Mul", {h, constant({7})});
  EXPECT_EQ(numbers(grad_edges({z.gradient_edge()}, {before}, {.keep_graph = true})[0]), (Numbers{35}));
  EXPECT_EQ(numbers(grad_edges({z.gradient_edge()}, {h.gradient_edge()}, {.keep_graph = true})[0]), (Numbers{7}));
  EXPECT_EQ(numbers(grad({z}, {h})[0]), (Numbers{7}));
}

TEST_F(TapeTrimmingEdges, GradToNodeSet) {
  Variable x = var({2, 3});
  const Edge edge = x.gradient_edge();
  const Variable z = sum_of(apply("Scale", {x}));
  x.unchecked_value() = Tensor::of<double>({2}, {5, 6});
  EXPECT_EQ(x.gradient_edge(), edge);
  EXPECT_EQ(numbers(grad_edges({z.gradient_edge()}, {edge}, {})[0]), (Numbers{1, 1}));
}

TEST_F(TapeTrimmingEdges, GradientEdgeOutput) {
  const Variable x = var({2, 3});
  const std::vector<Variable> parts = run("Split", {x}, {make_arg("axis", 0)}, {.outputs = 2});
  const std::vector<Edge> roots = {parts[0].gradient_edge(), parts[1].gradient_edge()};
  backward_edges(roots, {constant({3}), constant({5})}, {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{3, 5}));
  EXPECT_EQ(numbers(grad_edges(roots, {x.gradient_edge()}, {.grad_outputs = {constant({1}), {}}})[0]), (Numbers{1, 1}));
}

TEST_F(TapeTrimmingEdges, GradientEdgeGraphOwnership) {
  const Variable x = var({2});
  std::weak_ptr<Node> node;
  {
    Edge edge;
    {
      const Variable y = apply("Mul", {x, x});
      const Variable z = apply("Mul", {y, y});
      edge = z.gradient_edge();
      node = edge.node;
    }
    EXPECT_EQ(numbers(grad_edges({edge}, {x.gradient_edge()}, {})[0]), (Numbers{32}));
    EXPECT_FALSE(node.expired());
  }
  EXPECT_TRUE(node.expired());
}

// Gradients by groups of interior variables, and then one pass from all of these, are those of one pass.
TEST_F(TapeTrimmingEdges, ShardedGrad) {
  std::vector<Variable> leaves, between;
  for (int i = 0; i < 10; ++i) {
    leaves.push_back(var({1.0 + i}));
    between.push_back(apply("Mul", {apply("Scale", {leaves[i]}), leaves[i]}));
  }
  Variable loss = apply("Mul", {between[0], between[9]});
  for (const Variable& v : between) loss = apply("Add", {loss, apply("Exp", {v})});
  backward({loss}, {}, {.keep_graph = true});
  std::vector<Numbers> whole;
  for (Variable& leaf : leaves) {
    whole.push_back(grad_of(leaf));
    leaf.clear_grad();
  }
  Gradients gradients;
  for (int begin = 0; begin < 10; begin += 4) {
    const auto first = between.begin() + begin, last = between.begin() + std::min(begin + 4, 10);
    for (const VariableGradient& g : grad({loss}, {first, last}, {.keep_graph = true})) gradients.push_back(g);
  }
  for (const Variable& leaf : leaves) EXPECT_FALSE(leaf.grad().defined());
  backward(between, gradients);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(grad_of(leaves[i]), whole[i]);
}

// A leaf's node runs before the nodes of operators, also if it has got no gradient.
TEST_F(TapeTrimmingEdges, NodeOrderingWhenNoneReturned) {
  const Variable x = var({2}), y = var({3});
  const Variable old = apply("Exp", {x});
  const Function first_alone({
      .name = "FirstAlone",
      .forward = [](FunctionCall& call) { return std::vector<Variable>{apply("Scale", {call.input(0)})}; },
      .backward =
          [](FunctionRun&, const Gradients& dy) {
            return Gradients{dy[0], {}};
          },
  });
  const Variable none = first_alone({old, y})[0];
  std::vector<std::string> order;
  const auto note = [&](const std::string& what) {
    return [&order, what](const Gradients&) -> Gradients {
      order.push_back(what);
      return {};
    };
  };
  y.gradient_edge().node->register_pre_hook(note("leaf"));
  old.grad_fn()->register_pre_hook(note("old"));
  backward(none);
  EXPECT_EQ(order, (std::vector<std::string>{"leaf", "old"}));
  EXPECT_FALSE(y.grad().defined());
}

TEST_F(TapeTrimmingEdges, CurrentGraphTaskExecutionOrder) {
  const Variable x = var({2}), y = var({3});
  const Variable a = apply("Exp", {x}), b = apply("Exp", {y}), c = apply("Mul", {a, b}), d = apply("Mul", {c, a});
  std::vector<const Node*> order, predicted;
  const std::vector<Variable> all = {x, y, a, b, c, d};
  const auto by_sequence = [](const Node* p, const Node* q) { return p->sequence() > q->sequence(); };
  d.grad_fn()->register_pre_hook([&](const Gradients&) -> Gradients {
    for (const Variable& v : all)
      if (!v.is_leaf() && will_run(*v.grad_fn())) predicted.push_back(v.grad_fn().get());
    std::sort(predicted.begin(), predicted.end(), by_sequence);
    return {};
  });
  for (const Variable& v : {a, b, c, d})
    v.grad_fn()->register_post_hook([&order, node = v.grad_fn().get()](const Gradients&, const Gradients&) {
      order.push_back(node);
      return Gradients{};
    });
  backward({d}, {}, {.keep_graph = true});
  EXPECT_EQ(order.size(), 4U);
  EXPECT_EQ(order, predicted);
  order.clear();
  predicted.clear();
  backward({d}, {}, {.inputs = {x}});
  EXPECT_EQ(order.size(), 3U);
  EXPECT_EQ(order, predicted);
}

TEST_F(TapeTrimmingEdges, CurrentGraphTaskId) {
  const Variable x = var({2});
  const Variable y = apply("Exp", {x});
  std::vector<uint64_t> numbers;
  y.register_hook([&](const VariableGradient&) -> VariableGradient {
    numbers.push_back(running_pass());
    return {};
  });
  EXPECT_EQ(running_pass(), 0U);
  for (int i = 0; i < 2; ++i) backward({y}, {}, {.keep_graph = true});
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_GT(numbers[0], 0U);
  EXPECT_GT(numbers[1], numbers[0]);
  EXPECT_EQ(running_pass(), 0U);
}

// y = (x W + b)^2, its derivative by x, and the derivative of that by x again. Matrix products: one forward, one in the
// first derivative, and two in the second: through the product of the first, and back through y. With the parameters'
// gradients each product of a derivative brings another one, and each way through the bias a sum over the batch.
TEST_F(TapeTrimmingEdges, MatrixProductsOfThePatchsSnippet) {
  const Variable x = var({2, 3}, {1, 2, 3, 4, 5, 6}), w = var({3, 2}, {1, -1, 2, 1, 0, 1}), b = var({0.5, 1});
  const auto snippet = [&](const std::vector<Variable>& inputs) {
    const Variable linear = broadcast("Add", apply("MatMul", {x, w}), b);
    const Variable y = run("Pow", {linear}, {make_arg("exponent", 2.0F)})[0];
    const Gradients ones = {var({2, 2}, {1, 1, 1, 1}, false)}, more = {var({2, 3}, {1, 1, 1, 1, 1, 1}, false)};
    const Gradients first = grad({y}, inputs, {.grad_outputs = ones, .create_graph = true});
    return grad({first[0].dense}, inputs, {.grad_outputs = more, .create_graph = true});
  };
  Profiler trimmed, untrimmed;
  Numbers alone, beside;
  {
    const ProfileScope profile(trimmed);
    alone = numbers(snippet({x})[0]);
  }
  EXPECT_EQ(calls(trimmed, "MatMul"), 4);
  EXPECT_EQ(calls(trimmed, "SumReduceLike"), 0);
  {
    const ProfileScope profile(untrimmed);
    beside = numbers(snippet({x, w, b})[0]);
  }
  EXPECT_EQ(calls(untrimmed, "MatMul"), 7);
  EXPECT_EQ(calls(untrimmed, "SumReduceLike"), 2);
  EXPECT_EQ(alone, beside);
  // 2 W (W^T 1), once per row: W's columns sum up to 3 and 1.
  EXPECT_EQ(alone, (Numbers{4, 14, 2, 4, 14, 2}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::trimming_edges_test

// SumReduceLike and its gradient: each undoes the shape that the other makes. MatchShape does both.
#include "stepnet/net.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::sum_reduce_like_test {
namespace {

OperatorDef reduce(const std::vector<Argument>& args = {}) { return make_op("SumReduceLike", {"A", "B"}, {"C"}, args); }

TEST(SumReduceLike, SumsToTheShapeOfB) {
  const Tensor a = normal<double>({2, 3, 4}, 1);
  Tensor last = Tensor::zeros(DType::float64, {4}), middle = Tensor::zeros(DType::float64, {3, 1});
  for (int64_t i = 0; i < a.size(); ++i) {
    last.data<double>()[i % 4] += a.data<double>()[i];
    middle.data<double>()[i / 4 % 3] += a.data<double>()[i];
  }
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", last}})[0], last, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", middle}})[0], middle, 1e-14), "");
  const Tensor aligned = middle.reshaped({3});
  EXPECT_EQ(compare(run_op_on(reduce({make_arg("axis", 1)}), {{"A", a}, {"B", aligned}})[0], aligned, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", a}})[0], a, 0), "");
}

TEST(SumReduceLike, OfNothingIsZero) {
  const Tensor c = run_op_on(reduce(), {{"A", normal<float>({0, 3})}, {"B", normal<float>({3})}})[0];
  EXPECT_EQ(compare(c, Tensor::zeros(DType::float32, {3}), 0), "");
}

TEST(SumReduceLike, Gradients) {
  for (const Shape& b : {Shape{}, Shape{1}, Shape{4}, Shape{3, 1}, Shape{2, 1, 4}, Shape{2, 3, 4}}) {
    const Feeds feeds = {{"A", normal<double>({2, 3, 4}, 1)}, {"B", normal<double>(b, 2)}};
    EXPECT_EQ(check_gradient(reduce(), feeds, {"A"}), "") << b.str();
    const OperatorDef back = make_op("SumReduceLikeGradient", {"A", "dC"}, {"dA"});
    EXPECT_EQ(check_gradient(back, {{"A", feeds[0].second}, {"dC", feeds[1].second}}, {"dC"}), "") << b.str();
  }
}

TEST(SumReduceLike, BMustGoWithA) {
  EXPECT_NE(error_of([] {
              run_op_on(reduce(), {{"A", normal<float>({1, 3})}, {"B", normal<float>({2, 3})}});
            }).find("A [1, 3] is not B [2, 3] broadcast, so it cannot be summed to it"),
            std::string::npos);
}

OperatorDef match() { return make_op("MatchShape", {"A", "B"}, {"C"}); }

TEST(MatchShape, SumsOrRepeats) {
  const Tensor large = normal<double>({2, 3, 4}, 1), any = normal<double>({2, 3, 4}, 2);
  for (const Shape& shape : {Shape{}, Shape{4}, Shape{3, 1}, Shape{1, 3, 4}, Shape{2, 1, 1}}) {
    const Tensor small = normal<double>(shape, 3);
    const Tensor sum = run_op_on(reduce(), {{"A", large}, {"B", small}})[0];
    EXPECT_EQ(compare(run_op_on(match(), {{"A", large}, {"B", small}})[0], sum, 0), "") << shape.str();
    const OperatorDef back = make_op("SumReduceLikeGradient", {"A", "dC"}, {"dA"});
    const Tensor repeated = run_op_on(back, {{"A", large}, {"dC", small}})[0];
    EXPECT_EQ(compare(run_op_on(match(), {{"A", small}, {"B", any}})[0], repeated, 0), "") << shape.str();
    EXPECT_EQ(check_gradient(match(), {{"A", large}, {"B", small}}, {"A"}), "") << shape.str();
    EXPECT_EQ(check_gradient(match(), {{"A", small}, {"B", large}}, {"A"}), "") << shape.str();
  }
}

TEST(MatchShape, OfNothing) {
  const Tensor none = normal<float>({0, 3}), one = normal<float>({3});
  EXPECT_EQ(compare(run_op_on(match(), {{"A", none}, {"B", one}})[0], Tensor::zeros(DType::float32, {3}), 0), "");
  EXPECT_EQ(run_op_on(match(), {{"A", one}, {"B", none}})[0].shape(), (Shape{0, 3}));
}

TEST(MatchShape, ShapesThatDoNotGoTogether) {
  const auto error = [](const Shape& a, const Shape& b) {
    return error_of([&] { run_op_on(match(), {{"A", normal<float>(a)}, {"B", normal<float>(b)}}); });
  };
  EXPECT_NE(error({2, 1}, {1, 3}).find("A [2, 1] can be neither summed nor repeated to the shape of B [1, 3]"),
            std::string::npos);
  EXPECT_NE(error({2}, {3}).find("A [2] and B [3] cannot be broadcast together: 2 against 3"), std::string::npos);
}

// In a net that runs with other shapes from run to run.
TEST(MatchShape, IsAnotherNameWhereTheShapesAreEqual) {
  NetDef net;
  *net.add_op() = make_op("Copy", {"a"}, {"x"});
  *net.add_op() = make_op("MatchShape", {"x", "b"}, {"c"});
  *net.add_op() = make_op("Negative", {"c"}, {"y"});
  for (const char* name : {"a", "b"}) net.add_external_input(name);
  Workspace workspace;
  Net bound(net, workspace);
  const auto run = [&](const Shape& shape, double each) {
    workspace.tensor("a") = Tensor::of<double>({2, 2}, {1, 2, 3, 4});
    workspace.tensor("b") = Tensor::zeros(DType::float64, shape);
    RunContext context;
    bound.run(context);
    EXPECT_EQ(workspace.fetch("c").shape(), shape);
    EXPECT_EQ(workspace.fetch("c").data<double>()[0], each);
    EXPECT_EQ(workspace.fetch("y").data<double>()[0], -each);
    EXPECT_EQ(compare(workspace.fetch("x"), workspace.fetch("a"), 0), "");
    return workspace.fetch("c").shares_storage(workspace.fetch("x"));
  };
  EXPECT_TRUE(run({2, 2}, 1));
  EXPECT_FALSE(run({2}, 4));
  EXPECT_FALSE(run({2, 1}, 3));
  EXPECT_FALSE(run({3, 2, 2}, 1));
  EXPECT_TRUE(run({2, 2}, 1));
}

}  // namespace
}  // namespace stepnet::testing::sum_reduce_like_test

#include "tests/operators/op_test.h"

namespace stepnet::testing::expand_test {
namespace {

OperatorDef expand(const std::vector<int>& shape) {
  return make_op("Expand", {"X"}, {"Y"}, {make_arg("shape", shape)});
}

struct Case {
  Shape x;
  std::vector<int> shape;
  Shape y;
};
const Case kCases[] = {
    {{3, 1}, {3, 4}, {3, 4}},    {{3, 1}, {2, 1, 4}, {2, 3, 4}}, {{3, 4}, {1, 1}, {3, 4}},
    {{3, 1}, {-1, 2}, {3, 2}},   {{2, 3, 1}, {5}, {2, 3, 5}},    {{}, {2, 3}, {2, 3}},
    {{1}, {1, 1, 1}, {1, 1, 1}}, {{3}, {1, 1}, {1, 3}},          {{1, 2, 1, 3}, {4, 1, 5, 1}, {4, 2, 5, 3}},
    {{1, 2}, {0, 2}, {0, 2}},    {{0}, {2, 1}, {2, 0}},          {{2, 3}, {}, {2, 3}},
    {{4}, {-1, 4}, {1, 4}}};

Tensor repeated(const Tensor& x, const Shape& to) {
  Tensor y = Tensor::empty(x.dtype(), to);
  for (int64_t k = 0; k < y.size(); ++k) {
    int64_t left = k, from = 0, step = 1;
    for (int d = to.rank() - 1, in_x = x.rank() - 1; d >= 0; left /= to[d--], --in_x) {
      if (in_x < 0) continue;
      from += x.dim(in_x) == 1 ? 0 : left % to[d] * step;
      step *= x.dim(in_x);
    }
    y.data<double>()[k] = x.data<double>()[from];
  }
  return y;
}

TEST(Expand, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(compare(run_op_on(expand(c.shape), {{"X", x}})[0], repeated(x, c.y), 0), "") << c.y.str();
    const std::vector<int64_t> shape(c.shape.begin(), c.shape.end());
    const Tensor given = Tensor::of<int64_t>({static_cast<int64_t>(shape.size())}, shape);
    const auto by_input = run_op_on(make_op("Expand", {"X", "S"}, {"Y"}), {{"X", x}, {"S", given}});
    EXPECT_EQ(compare(by_input[0], repeated(x, c.y), 0), "") << c.y.str();
  }
  EXPECT_EQ(
      compare(run_op_on(expand({2}), {{"X", Tensor::of<int64_t>({1}, {7})}})[0], Tensor::of<int64_t>({2}, {7, 7}), 0),
      "");
}

TEST(Expand, Gradients) {
  for (const Case& c : kCases)
    EXPECT_EQ(check_gradient(expand(c.shape), {{"X", normal<double>(c.x)}}, {"X"}), "") << c.y.str();
}

TEST(Expand, Errors) {
  auto fact = [](const OperatorDef& def, const Shape& x) {
    const Feeds feeds = {{"X", normal<float>(x)}, {"S", Tensor::of<int64_t>({1}, {2})}};
    const std::string text = error_of([&] { run_op_on(def, feeds); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(expand({3, 2}), {2, 1}), "Expand: shape [2, 1] cannot be expanded to [3, 2]: 2 against 3");
  EXPECT_EQ(fact(expand({-2}), {2}), "Expand: size 0 of the new shape is -2; only -1 may be negative");
  EXPECT_EQ(fact(expand({1, 1, 1, 1, 1, 1, 1, 1, 1}), {2}),
            "Expand: the new shape has 9 dimensions, but a tensor at most 8");
  EXPECT_EQ(fact(make_op("Expand", {"X"}, {"Y"}), {2}),
            "Expand: the new shape is given neither by the argument \"shape\" nor by an input");
  EXPECT_EQ(fact(make_op("Expand", {"X", "S"}, {"Y"}, {make_arg("shape", std::vector<int>{2})}), {2}),
            "Expand: the new shape is given by the argument \"shape\" and by an input");
  const std::vector<int64_t> huge = {int64_t{1} << 32, int64_t{1} << 32};
  EXPECT_NE(fact(make_op("Expand", {"X"}, {"Y"}, {make_arg("shape", huge)}), {1}).find("64 bits can count"),
            std::string::npos);
}

// dY summed over what X was repeated along.
TEST(ExpandGradient, SumsWhatWasRepeated) {
  const OperatorDef def = make_op("ExpandGradient", {"dY", "X"}, {"dX"});
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x), dy = normal<double>(c.y, 2);
    Tensor sum = Tensor::zeros(DType::float64, c.x), numbers = Tensor::zeros(DType::float64, c.x);
    for (int64_t i = 0; i < numbers.size(); ++i) numbers.data<double>()[i] = static_cast<double>(i);
    const Tensor from = repeated(numbers, c.y);
    for (int64_t k = 0; k < dy.size(); ++k)
      sum.data<double>()[static_cast<int64_t>(from.data<double>()[k])] += dy.data<double>()[k];
    EXPECT_EQ(compare(run_op_on(def, {{"dY", dy}, {"X", x}})[0], sum, 1e-13), "") << c.y.str();
    EXPECT_EQ(check_gradient(def, {{"dY", dy}, {"X", x}}, {"dY"}), "") << c.y.str();
  }
}

}  // namespace
}  // namespace stepnet::testing::expand_test

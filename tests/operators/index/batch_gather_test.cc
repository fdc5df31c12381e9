// BatchGather: against a loop, its gradient where rows are taken several times, and what it refuses.
#include "tests/operators/op_test.h"

namespace stepnet::testing::batch_gather_test {
namespace {

const OperatorDef kGather = make_op("BatchGather", {"D", "I"}, {"Y"});
const OperatorDef kGradient = make_op("BatchGatherGradient", {"D", "I", "d"}, {"dD"});

struct Case {
  Shape data;
  Shape indices;
  std::vector<int32_t> values;
  Shape y;
};
const Case kCases[] = {{{2, 4, 3}, {3}, {3, 0, 3}, {2, 3, 3}},
                       {{3, 2}, {2, 2}, {1, 1, 0, 1}, {3, 2, 2}},
                       {{2, 3, 1, 2}, {}, {2}, {2, 1, 2}},
                       {{1, 1}, {1}, {0}, {1, 1}},
                       {{2, 3}, {0}, {}, {2, 0}},
                       {{0, 3, 2}, {2}, {2, 1}, {0, 2, 2}},
                       {{2, 3, 0}, {2}, {2, 1}, {2, 2, 0}},
                       {{2, 0}, {0, 2}, {}, {2, 0, 2}}};

Feeds feeds_of(const Case& c, const Tensor& data) {
  return {{"D", data}, {"I", Tensor::of<int32_t>(c.indices, c.values)}};
}

TEST(BatchGather, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor data = normal<double>(c.data);
    const int64_t row = data.shape().size_between(2, data.rank());
    Tensor y = Tensor::empty(DType::float64, c.y);
    int64_t at = 0;
    for (int64_t b = 0; b < c.data[0]; ++b)
      for (const int32_t index : c.values)
        for (int64_t j = 0; j < row; ++j)
          y.data<double>()[at++] = data.data<double>()[(b * c.data[1] + index) * row + j];
    EXPECT_EQ(compare(run_op_on(kGather, feeds_of(c, data))[0], y, 0), "") << c.data.str();
  }
}

TEST(BatchGather, TakesAnyType) {
  const Feeds feeds = {{"D", Tensor::of<std::string>({2, 2}, {"a", "b", "c", "d"})}, {"I", Tensor::scalar<int64_t>(1)}};
  const Tensor y = run_op_on(kGather, feeds)[0];
  EXPECT_EQ(y.data<std::string>()[0] + y.data<std::string>()[1], "bd");
}

TEST(BatchGather, Gradients) {
  for (const Case& c : kCases) {
    Feeds feeds = feeds_of(c, normal<double>(c.data));
    EXPECT_EQ(check_gradient(kGather, feeds, {"D"}), "") << c.data.str();
    feeds.emplace_back("d", normal<double>(c.y, 3));
    EXPECT_EQ(check_gradient(kGradient, feeds, {"d"}), "") << c.data.str();
  }
}

TEST(BatchGather, Errors) {
  auto fact = [](const Tensor& data, const Tensor& indices) {
    const std::string text = error_of([&] { run_op_on(kGather, {{"D", data}, {"I", indices}}); });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "BatchGather: ";
  const Tensor data = normal<float>({2, 3, 2}), zero = Tensor::of<int32_t>({1}, {0});
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({2}, {0, 3})), name + "index 1 is 3, which is outside of 0 to 2");
  EXPECT_EQ(fact(data, Tensor::of<int64_t>({1}, {-1})), name + "index 0 is -1, which is outside of 0 to 2");
  EXPECT_EQ(fact(normal<float>({0, 3}), Tensor::of<int64_t>({1}, {3})),
            name + "index 0 is 3, which is outside of 0 to 2");
  EXPECT_EQ(fact(normal<float>({3}), zero), name + "DATA must be [B, R, ...], but is [3]");
  EXPECT_EQ(fact(normal<float>({1, 1, 1, 1, 1, 1, 1, 1}), Tensor::of<int32_t>({1, 1}, {0})),
            name + "a tensor has at most 8 dimensions");
  const Feeds feeds = {{"D", data}, {"I", zero}, {"d", normal<float>({2, 3, 2})}};
  EXPECT_NE(
      error_of([&] { run_op_on(kGradient, feeds); }).find("the gradient of OUTPUT must be [2, 1, 2], but is [2, 3, 2]"),
      std::string::npos);
}

// Gather and BatchGather differ in the axis that they have by themselves alone.

Tensor counting(const Shape& shape) {
  Tensor t = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<double>()[i] = static_cast<double>(i);
  return t;
}

// As Caffe2 1.10 gives them.
TEST(BatchGather, AlongAnyAxis) {
  const Feeds feeds = {{"D", counting({2, 3, 4})}, {"I", Tensor::of<int32_t>({2}, {2, 0})}};
  const Tensor second = Tensor::of<double>({2, 2, 4}, {8, 9, 10, 11, 0, 1, 2, 3, 20, 21, 22, 23, 12, 13, 14, 15});
  const Tensor last = Tensor::of<double>({2, 3, 2}, {2, 0, 6, 4, 10, 8, 14, 12, 18, 16, 22, 20});
  for (const char* type : {"Gather", "BatchGather"}) {
    const auto along = [&](int axis) { return make_op(type, {"D", "I"}, {"Y"}, {make_arg("axis", axis)}); };
    EXPECT_EQ(compare(run_op_on(along(1), feeds)[0], second, 0), "") << type;
    EXPECT_EQ(compare(run_op_on(along(2), feeds)[0], last, 0), "") << type;
    EXPECT_EQ(compare(run_op_on(along(-1), feeds)[0], last, 0), "") << type;
    for (const int axis : {1, -1}) EXPECT_EQ(check_gradient(along(axis), feeds, {"D"}), "") << type << axis;
  }
  EXPECT_EQ(compare(run_op_on(make_op("BatchGather", {"D", "I"}, {"Y"}, {make_arg("axis", 0)}),
                              {{"D", counting({3, 2})}, {"I", Tensor::of<int32_t>({2}, {2, 0})}})[0],
                    Tensor::of<double>({2, 2}, {4, 5, 0, 1}), 0),
            "");
}

TEST(BatchGather, OfIndicesOfTheirOwn) {
  const std::vector<Argument> args = {make_arg("axis", 1), make_arg("match_outer", 1)};
  const Feeds feeds = {
      {"D", counting({2, 3, 4})}, {"I", Tensor::of<int64_t>({2, 2}, {0, 2, 1, 1})}, {"d", counting({2, 2, 4})}};
  for (const char* type : {"Gather", "BatchGather"}) {
    const OperatorDef def = make_op(type, {"D", "I"}, {"Y"}, args);
    EXPECT_EQ(compare(run_op_on(def, feeds)[0],
                      Tensor::of<double>({2, 2, 4}, {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 16, 17, 18, 19}), 0),
              "")
        << type;
    EXPECT_EQ(check_gradient(def, feeds, {"D"}), "") << type;
  }
  const OperatorDef gradient = make_op("BatchGatherGradient", {"D", "I", "d"}, {"dD"}, args);
  const Tensor dd =
      Tensor::of<double>({2, 3, 4}, {0, 1, 2, 3, 0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0, 20, 22, 24, 26, 0, 0, 0, 0});
  EXPECT_EQ(compare(run_op_on(gradient, feeds)[0], dd, 0), "");
  EXPECT_EQ(check_gradient(gradient, feeds, {"d"}), "");
  EXPECT_NE(
      error_of([&] {
        run_op_on(make_op("BatchGather", {"D", "I"}, {"Y"}, args),
                  {{"D", counting({2, 3})}, {"I", Tensor::of<int64_t>({3}, {0, 1, 1})}});
      })
          .find("with match_outer INDICES must begin with the 1 dimensions of DATA [2, 3] before the axis, but is "
                "[3]"),
      std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::batch_gather_test

// The reductions of operators/reduce/reduce.cc against a walk over all elements and central differences, to the second
// order. A row is an operator.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/operators/op_test.h"

namespace stepnet::testing::reduce_test {
namespace {

struct NaiveReduction {
  double start = 0;
  std::function<double(double, double)> join;
  std::function<double(double, double)> finish = [](double value, double) { return value; };  // of so many elements
};

using Axes = std::vector<int64_t>;

OperatorDef reduction(const std::string& type, const Axes& axes, bool keepdims) {
  OperatorDef def = make_op(type, {"X"}, {"Y"}, {make_arg("keepdims", keepdims)});
  if (!axes.empty()) *def.add_arg() = make_arg("axes", axes);
  return def;
}

Tensor naive_reduce(const NaiveReduction& naive, const Tensor& x, const Axes& axes, bool keepdims) {
  const int rank = x.rank();
  std::vector<bool> reduced(rank, axes.empty());
  for (const int64_t a : axes) reduced[a < 0 ? a + rank : a] = true;
  Shape shape;
  for (int d = 0; d < rank; ++d)
    if (!reduced[d] || keepdims) shape.push_back(reduced[d] ? 1 : x.dim(d));
  Tensor y = Tensor::zeros(DType::float64, shape);
  std::ranges::fill(y.span<double>(), naive.start);
  std::vector<double> counts(y.size(), 0);
  const Tensor values = to_double(x);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t at = 0, step = 1;
    for (int64_t d = rank - 1, rest = i; d >= 0; rest /= x.dim(d), --d) {
      if (reduced[d]) continue;
      at += rest % x.dim(d) * step;
      step *= x.dim(d);
    }
    double& to = y.data<double>()[at];
    to = naive.join(to, values.data<double>()[i]);
    ++counts[at];
  }
  for (int64_t j = 0; j < y.size(); ++j) y.data<double>()[j] = naive.finish(y.data<double>()[j], counts[j]);
  return y;
}

// "" or the first reduction that is wrong.
std::string check_reduction(const std::string& type, const NaiveReduction& naive) {
  auto wrong = [&](const Tensor& x, const Axes& axes, double tol) {
    for (const bool keepdims : {false, true}) {
      const Tensor y = run_op_on(reduction(type, axes, keepdims), {{"X", x}})[0];
      if (y.dtype() != x.dtype()) return "the result is " + y.str();
      const std::string text = compare(y, naive_reduce(naive, x, axes, keepdims), tol);
      if (!text.empty()) return fmt::format("{} over [{}]: {}", x.str(), fmt::join(axes, ", "), text);
    }
    return std::string();
  };
  std::string text;
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{-1}, Axes{1}, Axes{1, 2}, Axes{2, 0}, Axes{1, -1}, Axes{0, 1, 2, 3}})
    if (text.empty()) text = wrong(normal<double>({2, 3, 4, 9}), axes, 1e-13);
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}})
    if (text.empty()) text = wrong(normal<float>({40, 30, 25}), axes, 1e-5);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}, Shape{3, 0, 0}})
    if (text.empty()) text = wrong(normal<double>(shape), shape.rank() == 3 ? Axes{0} : Axes{}, 1e-13);
  return text;
}

std::string check_reduction_gradients(const std::string& type) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{0, 3, 2}})
    for (const Axes& axes : {Axes{1}, Axes{-1}, Axes{1, 2}})
      for (const bool keepdims : {false, true}) {
        const std::string text = check_gradient(reduction(type, axes, keepdims), {{"X", normal<double>(shape)}}, {"X"});
        if (!text.empty()) return fmt::format("{} over [{}]: {}", shape.str(), fmt::join(axes, ", "), text);
      }
  return check_gradient(make_op(type, {"X"}, {"Y"}), {{"X", normal<double>({3, 4})}}, {"X"}) +
         check_gradient(make_op(type, {"X"}, {"Y"}), {{"X", normal<double>({})}}, {"X"});
}

// Y as it is computed from X, for gradient operators that are run alone.
Feeds gradient_feeds(const std::string& type, const Tensor& x, const Tensor& dy) {
  return {{"dY", dy}, {"X", x}, {"Y", run_op_on(make_op(type, {"X"}, {"Y"}), {{"X", x}})[0]}};
}

// Of the gradient operator, with respect to those of its inputs dY, X and Y that it has derivatives of.
std::string check_reduction_second_order(const std::string& type, const std::vector<std::string>& wrt) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{0, 3, 2}})
    for (const Axes& axes : {Axes{1}, Axes{-1}, Axes{1, 2}, Axes{}})
      for (const bool keepdims : {false, true}) {
        OperatorDef def = reduction(type + "Gradient", axes, keepdims);
        const Tensor x = normal<double>(shape);
        const OperatorDef forward = reduction(type, axes, keepdims);
        if (axes.empty() && x.size() == 0) continue;  // nothing has no maximum
        const Tensor y = run_op_on(forward, {{"X", x}})[0];
        def.clear_input();
        for (const char* name : {"dY", "X", "Y"}) def.add_input(name);
        const Feeds feeds = {{"dY", normal<double>(y.shape(), 2)}, {"X", x}, {"Y", y}};
        def.set_output(0, "dX");
        const std::string text = check_gradient(def, feeds, wrt, 1e-7, 1e-6);
        if (!text.empty()) return fmt::format("{} over [{}]: {}", shape.str(), fmt::join(axes, ", "), text);
      }
  return "";
}

struct Row {
  const char* type;
  NaiveReduction naive;
  std::vector<std::string> second_order;  // the inputs of its gradient that have derivatives
};

double sum(double a, double b) { return a + b; }

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"ReduceSum", {0, sum}, {"dY"}},
      {"ReduceMean", {0, sum, [](double all, double count) { return count > 0 ? all / count : 0; }}, {"dY"}},
      {"ReduceL1", {0, [](double all, double v) { return all + std::abs(v); }}, {"dY"}},
      {"ReduceL2",
       {0, [](double all, double v) { return all + v * v; }, [](double all, double) { return std::sqrt(all); }},
       {"dY", "X", "Y"}},
      {"ReduceMax", {-HUGE_VAL, [](double most, double v) { return std::max(most, v); }}, {"dY"}},
      {"ReduceMin", {HUGE_VAL, [](double least, double v) { return std::min(least, v); }}, {"dY"}}};
  return all;
}

TEST(Reductions, EqualAWalkOverAllElements) {
  for (const Row& row : rows()) EXPECT_EQ(check_reduction(row.type, row.naive), "") << row.type;
}

TEST(Reductions, Gradients) {
  for (const Row& row : rows()) EXPECT_EQ(check_reduction_gradients(row.type), "") << row.type;
}

TEST(Reductions, GradientsOfGradients) {
  for (const Row& row : rows()) EXPECT_EQ(check_reduction_second_order(row.type, row.second_order), "") << row.type;
}

TEST(Reductions, SumsAndNormsOfNothingAreZero) {
  for (const char* type : {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2"}) {
    const Feeds feeds = {{"X", normal<float>({2, 0, 3})}};
    EXPECT_EQ(compare(run_op_on(reduction(type, {1}, false), feeds)[0], Tensor::zeros(DType::float32, {2, 3}), 0), "");
    EXPECT_EQ(compare(run_op_on(reduction(type, {}, false), feeds)[0], Tensor::scalar(0.0F), 0), "") << type;
    EXPECT_EQ(check_gradient(reduction(type, {1}, false), {{"X", normal<double>({2, 0, 3})}}, {"X"}), "") << type;
  }
}

// What is said of Y is said of dY, too.
TEST(Reductions, TheGivenGradientHasTheShapeOfY) {
  for (const Row& row : rows()) {
    const auto error = [&](const Shape& dy, const Shape& y) {
      return error_of([&] {
        run_op_on(make_op(std::string(row.type) + "Gradient", {"dY", "X", "Y"}, {"dX"}, {make_arg("axes", Axes{0})}),
                  {{"dY", normal<float>(dy)}, {"X", normal<float>({2, 3})}, {"Y", normal<float>(y)}});
      });
    };
    const std::string of_dy = error({3}, {1, 3}), of_y = error({1, 3}, {3});
    EXPECT_NE(of_dy.find("dY is [3], but X [2, 3] is reduced to [1, 3]"), std::string::npos) << of_dy;
    EXPECT_NE(of_y.find("Y is [3], but X [2, 3] is reduced to [1, 3]"), std::string::npos) << of_y;
  }
}

TEST(ReduceSum, DimensionsStayByDefault) {
  EXPECT_EQ(run_op_on(make_op("ReduceSum", {"X"}, {"Y"}), {{"X", normal<float>({2, 3})}})[0].shape(), (Shape{1, 1}));
}

TEST(ReduceSum, LongRowsOfFloatsAreAddedInDouble) {
  Tensor x = Tensor::empty(DType::float32, {1 << 20});
  std::ranges::fill(x.span<float>(), 0.1F);
  EXPECT_EQ(run_op_on(reduction("ReduceSum", {0}, false), {{"X", x}})[0].item<float>(), 0.1F * (1 << 20));
}

TEST(ReduceSum, GradientNetsOfThePublicFormatGiveYToo) {
  const Feeds feeds = gradient_feeds("ReduceSum", normal<float>({2, 3}), Tensor::of<float>({1, 1}, {2.5F}));
  for (const bool gives_y : {false, true}) {
    OperatorDef def = make_op("ReduceSumGradient", {"dY", "X"}, {"dX"});
    if (gives_y) def.add_input("Y");
    const Tensor dx = run_op_on(def, gives_y ? feeds : Feeds{feeds[0], feeds[1]})[0];
    EXPECT_EQ(compare(dx, Tensor::of<float>({2, 3}, {2.5F, 2.5F, 2.5F, 2.5F, 2.5F, 2.5F}), 0), "");
  }
}

TEST(ReduceSum, BadAxesAreNamed) {
  auto error = [](const Axes& axes) {
    return error_of([&] { run_op_on(reduction("ReduceSum", axes, true), {{"X", normal<float>({2, 3})}}); });
  };
  EXPECT_NE(error({2}).find("axis 2 is out of range for 2 dimensions"), std::string::npos);
  EXPECT_NE(error({-3}).find("axis -3 is out of range for 2 dimensions"), std::string::npos);
  EXPECT_NE(error({1, 0, -1}).find("argument \"axes\" names dimension 1 twice"), std::string::npos);
}

TEST(ReduceL1, ZeroHasTheGradientZero) {
  const Feeds feeds = gradient_feeds("ReduceL1", Tensor::of<float>({3}, {-2, 0, 5}), Tensor::of<float>({1}, {3}));
  const Tensor dx = run_op_on(make_op("ReduceL1Gradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({3}, {-3, 0, 3}), 0), "");
}

TEST(ReduceL2, ANormOfZeroHasTheGradientZero) {
  const Feeds feeds = gradient_feeds("ReduceL2", Tensor::of<float>({2}, {0, 0}), Tensor::of<float>({1}, {3}));
  const Tensor dx = run_op_on(make_op("ReduceL2Gradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({2}, {0, 0}), 0), "");
}

TEST(ReduceL2, ANormOfZeroHasDerivativesOfZero) {
  const Tensor zero = Tensor::zeros(DType::float64, {1, 2}), one = Tensor::of<double>({1, 1}, {1});
  const OperatorDef def = make_op("ReduceL2Gradient", {"dY", "X", "Y"}, {"dX"}, {make_arg("axes", Axes{1})});
  const Feeds feeds = {{"dY", one}, {"X", zero}, {"Y", Tensor::zeros(DType::float64, {1, 1})}};
  EXPECT_EQ(check_gradient(def, feeds, {"dY", "X"}), "");
}

// An extreme, and four numbers of which the two in the middle are it.
struct Extreme {
  const char* type;
  int64_t of_integers;
  std::array<float, 4> twice;
};
const Extreme kExtremes[] = {{"ReduceMax", 7, {1, 4, 4, 2}}, {"ReduceMin", -2, {4, 1, 1, 2}}};

TEST(ReduceExtremes, OfIntegers) {
  const Tensor x = Tensor::of<int64_t>({3}, {7, -2, 5});
  for (const Extreme& e : kExtremes)
    EXPECT_EQ(run_op_on(make_op(e.type, {"X"}, {"Y"}), {{"X", x}})[0].item<int64_t>(), e.of_integers);
}

TEST(ReduceExtremes, EachOfEqualElementsGetsAllOfTheGradient) {
  for (const Extreme& e : kExtremes) {
    const Feeds feeds = gradient_feeds(e.type, Tensor::of<float>({4}, e.twice), Tensor::of<float>({1}, {3}));
    EXPECT_EQ(feeds[2].second.item<float>(), e.twice[1]);
    const Tensor dx = run_op_on(make_op(std::string(e.type) + "Gradient", {"dY", "X", "Y"}, {"dX"}), feeds)[0];
    EXPECT_EQ(compare(dx, Tensor::of<float>({4}, {0, 3, 3, 0}), 0), "") << e.type;
  }
}

TEST(ReduceExtremes, NaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const Extreme& e : kExtremes) {
    for (const auto& values : {std::array{nan, 1.0F, 2.0F}, {1.0F, nan, 2.0F}, {1.0F, 2.0F, nan}}) {
      const Tensor row = Tensor::of<float>({1, 3}, values);
      for (const Tensor& x : {row, row.reshaped({3, 1})}) {
        const Tensor y = run_op_on(make_op(e.type, {"X"}, {"Y"}), {{"X", x}})[0];
        EXPECT_TRUE(std::isnan(y.item<float>())) << e.type;
      }
    }
    for (const float sign : {1.0F, -1.0F}) {
      const Tensor x = Tensor::of<float>({2}, {sign * infinity, sign * infinity});
      EXPECT_EQ(run_op_on(make_op(e.type, {"X"}, {"Y"}), {{"X", x}})[0].item<float>(), sign * infinity) << e.type;
    }
  }
}

TEST(ReduceExtremes, OfNothingAreErrors) {
  for (const Extreme& e : kExtremes) {
    auto run = [&](const Shape& shape) {
      return run_op_on(reduction(e.type, {1}, false), {{"X", normal<float>(shape)}});
    };
    const std::string text = error_of([&] { run({2, 0}); });
    EXPECT_NE(text.find("X [2, 0] has no elements along the dimensions to be reduced; nothing has no maximum or "
                        "minimum"),
              std::string::npos)
        << text;
    EXPECT_EQ(run({0, 0})[0].shape(), Shape{0});
    EXPECT_EQ(run({0, 3})[0].shape(), Shape{0});
  }
}

// ReduceFront... and ReduceBack...

OperatorDef front_back(const std::string& type, int64_t dims, bool lengths = false) {
  const std::vector<std::string> inputs = lengths ? std::vector<std::string>{"X", "L"} : std::vector<std::string>{"X"};
  return make_op(type, inputs, {"Y"}, {make_arg("num_reduce_dim", dims)});
}

// Each is ReduceSum, ReduceMean or ReduceMax over the first or the last dimensions.
TEST(ReduceFrontBack, AreReductionsOverTheFirstOrTheLastDimensions) {
  const Tensor x = normal<double>({2, 3, 4, 3});
  for (const std::string what : {"Sum", "Mean", "Max"})
    for (int64_t dims = 1; dims <= 4; ++dims) {
      Axes front, back;
      for (int64_t d = 0; d < dims; ++d) front.push_back(d), back.push_back(3 - d);
      const Feeds feeds = {{"X", x}};
      const Tensor by_front = run_op_on(front_back("ReduceFront" + what, dims), feeds)[0];
      const Tensor by_back = run_op_on(front_back("ReduceBack" + what, dims), feeds)[0];
      EXPECT_EQ(compare(by_front, run_op_on(reduction("Reduce" + what, front, false), feeds)[0], 1e-14), "") << what;
      EXPECT_EQ(compare(by_back, run_op_on(reduction("Reduce" + what, back, false), feeds)[0], 1e-14), "") << what;
      EXPECT_EQ(compare(run_op_on(front_back("ReduceBack" + what, 0), feeds)[0], x, 0), "");
      EXPECT_EQ(compare(run_op_on(make_op("ReduceFront" + what, {"X"}, {"Y"}), feeds)[0],
                        run_op_on(front_back("ReduceFront" + what, 1), feeds)[0], 0),
                "");
    }
}

// What Caffe2 1.10 gives for 1 to 12 in four rows; a length of 0, for which it takes an element, gives 0 here.
struct WithLengths {
  const char* what;
  std::vector<float> front, back;
};
const std::vector<WithLengths>& with_lengths() {
  static const std::vector<WithLengths> all = {{"Sum", {0, 7, 30}, {0, 9, 24, 10}},
                                               {"Mean", {0, 3.5F, 7.5F}, {0, 4.5F, 8, 10}},
                                               {"Max", {0, 5, 12}, {0, 5, 9, 10}}};
  return all;
}
const Tensor kToTwelve = Tensor::of<float>({4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
const Tensor kFrontLengths = Tensor::of<int32_t>({3}, {0, 2, 4}), kBackLengths = Tensor::of<int64_t>({4}, {0, 2, 3, 1});

TEST(ReduceFrontBack, TakeAsManyElementsAsLengthsSay) {
  for (const WithLengths& w : with_lengths()) {
    const auto run = [&](const std::string& side, const Tensor& lengths) {
      return run_op_on(front_back("Reduce" + side + w.what, 1, true), {{"X", kToTwelve}, {"L", lengths}})[0];
    };
    EXPECT_EQ(compare(run("Front", kFrontLengths), Tensor::of<float>({3}, std::span<const float>(w.front)), 0), "");
    EXPECT_EQ(compare(run("Back", kBackLengths), Tensor::of<float>({4}, std::span<const float>(w.back)), 0), "");
  }
}

TEST(ReduceFrontBack, GradientsAreThoseOfThePublicFormat) {
  const auto run = [](const std::string& type, const Tensor& dy, const Tensor& lengths) {
    return run_op_on(make_op(type, {"dY", "X", "L"}, {"dX"}), {{"dY", dy}, {"X", kToTwelve}, {"L", lengths}})[0];
  };
  const Tensor front = Tensor::of<float>({3}, {1, 2, 3}), back = Tensor::of<float>({4}, {1, 2, 3, 4});
  EXPECT_EQ(compare(run("ReduceFrontSumGradient", front, kFrontLengths),
                    Tensor::of<float>({4, 3}, {0, 2, 3, 0, 2, 3, 0, 0, 3, 0, 0, 3}), 0),
            "");
  EXPECT_EQ(compare(run("ReduceFrontMeanGradient", front, kFrontLengths),
                    Tensor::of<float>({4, 3}, {0, 1, 0.75F, 0, 1, 0.75F, 0, 0, 0.75F, 0, 0, 0.75F}), 0),
            "");
  EXPECT_EQ(compare(run("ReduceBackSumGradient", back, kBackLengths),
                    Tensor::of<float>({4, 3}, {0, 0, 0, 2, 2, 0, 3, 3, 3, 4, 0, 0}), 0),
            "");
  EXPECT_EQ(compare(run("ReduceBackMeanGradient", back, kBackLengths),
                    Tensor::of<float>({4, 3}, {0, 0, 0, 1, 1, 0, 1, 1, 1, 4, 0, 0}), 0),
            "");
  const Tensor x = Tensor::of<float>({4, 3}, {1, 1, 5, 3, 2, 5, 3, 0, 5, 2, 2, 5}),
               y = Tensor::of<float>({3}, {3, 2, 5});
  EXPECT_EQ(compare(run_op_on(make_op("ReduceFrontMaxGradient", {"dY", "X", "Y"}, {"dX"}),
                              {{"dY", front}, {"X", x}, {"Y", y}})[0],
                    Tensor::of<float>({4, 3}, {0, 0, 3, 1, 2, 3, 1, 0, 3, 0, 2, 3}), 0),
            "");
}

TEST(ReduceFrontBack, Gradients) {
  for (const std::string what : {"Sum", "Mean", "Max"})
    for (const std::string side : {"Front", "Back"}) {
      const std::string type = "Reduce" + side + what;
      for (const Shape& shape : {Shape{3, 4, 2}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}})
        for (int64_t dims = 0; dims <= 2; ++dims) {
          const Feeds feeds = {{"X", normal<double>(shape)}};
          EXPECT_EQ(check_gradient(front_back(type, dims), feeds, {"X"}), "") << type << shape.str() << dims;
        }
      const Tensor x = normal<double>({4, 4}), lengths = Tensor::of<int32_t>({4}, {2, 0, 4, 1});
      Feeds feeds = {{"X", x}, {"L", lengths}};
      EXPECT_EQ(check_gradient(front_back(type, 1, true), feeds, {"X"}), "") << type;
      feeds.insert(feeds.end(),
                   {{"Y", run_op_on(front_back(type, 1, true), feeds)[0]}, {"dY", normal<double>({4}, 2)}});
      std::vector<std::string> inputs = {"dY", "X", "Y", "L"};
      if (what != "Max") inputs.erase(inputs.begin() + 2);
      EXPECT_EQ(check_gradient(make_op(type + "Gradient", inputs, {"dX"}), feeds, {"dY"}), "") << type;
    }
}

TEST(ReduceFrontBack, NothingGivesZero) {
  for (const char* type : {"ReduceFrontSum", "ReduceFrontMean", "ReduceFrontMax"})
    EXPECT_EQ(compare(run_op_on(front_back(type, 1), {{"X", normal<float>({0, 3})}})[0],
                      Tensor::zeros(DType::float32, {3}), 0),
              "")
        << type;
}

TEST(ReduceFrontBack, BadInputIsNamed) {
  const auto error = [](const OperatorDef& def, const Tensor& lengths) {
    const std::string text = error_of([&] { run_op_on(def, {{"X", normal<float>({4, 3})}, {"L", lengths}}); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor two = Tensor::of<int32_t>({2}, {1, 1}), long_one = Tensor::of<int32_t>({3}, {1, 5, 1});
  EXPECT_EQ(error(front_back("ReduceFrontSum", 3), two),
            "ReduceFrontSum: argument \"num_reduce_dim\" is 3, but X [4, 3] has 2 dimensions");
  EXPECT_EQ(error(front_back("ReduceBackSum", -1), two),
            "ReduceBackSum: argument \"num_reduce_dim\" must be at least 0, but is -1");
  EXPECT_EQ(error(front_back("ReduceFrontMean", 2, true), two),
            "ReduceFrontMean: with LENGTHS one dimension is reduced, but argument \"num_reduce_dim\" is 2");
  EXPECT_EQ(error(front_back("ReduceFrontMax", 1, true), two),
            "ReduceFrontMax: LENGTHS is [2], but X [4, 3] has 3 results");
  EXPECT_EQ(error(front_back("ReduceFrontMax", 1, true), long_one),
            "ReduceFrontMax: length 1 is 5, which is outside of 0 to 4");
}

}  // namespace
}  // namespace stepnet::testing::reduce_test

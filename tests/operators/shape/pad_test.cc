// Pad: against a loop over all elements, in each mode, with pads that cut, and what it refuses.
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::pad_test {
namespace {

struct Case {
  Shape x;
  std::vector<int64_t> pads;
  std::string mode = "constant";
};
const Case kCases[] = {
    {{3}, {2, 1}},
    {{3}, {2, 2}, "edge"},
    {{3}, {2, 2}, "reflect"},
    {{2, 3}, {1, 0, 0, 2}},
    {{2, 3}, {0, 0, 0, 0}, "reflect"},
    {{2, 3, 4}, {1, 0, 3, 0, 2, 1}, "reflect"},
    {{2, 3, 4}, {4, 0, 3, 0, 5, 9}, "edge"},
    {{2, 3, 4}, {0, 4, 0, 1, 0, 2}},
    {{4, 5}, {-1, 2, 2, -3}},
    {{4, 5}, {-1, 2, 2, -3}, "edge"},
    {{4, 5}, {-1, 2, 2, -3}, "reflect"},
    {{4, 5}, {-2, 0, -2, 0}, "edge"},
    {{4, 5}, {3, -5, -3, 0}, "reflect"},
    {{3}, {2, -4}},
    {{3}, {-4, 2}, "edge"},
    {{1, 1}, {1, 1, 0, 0}, "edge"},
    {{0, 2}, {1, 0, 1, 1}},
    {{2, 0}, {1, 0, 0, 0}, "edge"},
    {{}, {}},
};

OperatorDef pad(const Case& c, const std::vector<Argument>& more = {}, const char* type = "Pad") {
  std::vector<Argument> args = {make_arg("pads", c.pads), make_arg("mode", c.mode)};
  args.insert(args.end(), more.begin(), more.end());
  return make_op(type, {"X"}, {"Y"}, args);
}

// From a place that may lie outside, one step of the mode at a time.
int64_t place_of(const std::string& mode, int64_t i, int64_t size) {
  while (mode != "constant" && (i < 0 || i >= size)) {
    if (mode == "edge") i += i < 0 ? 1 : -1;
    if (mode == "reflect") i = i < 0 ? -i : 2 * (size - 1) - i;
  }
  return i >= 0 && i < size ? i : -1;
}

Tensor padded(const Case& c, const Tensor& x, double value) {
  const int rank = x.rank();
  Shape shape;
  for (int d = 0; d < rank; ++d) shape.push_back(x.dim(d) + c.pads[d] + c.pads[rank + d]);
  Tensor y = Tensor::empty(DType::float64, shape);
  for (int64_t k = 0; k < y.size(); ++k) {
    int64_t left = k, from = 0, stride = 1;
    bool inside = true;
    for (int d = rank - 1; d >= 0; left /= shape[d--]) {
      const int64_t i = place_of(c.mode, left % shape[d] - c.pads[d], x.dim(d));
      inside = inside && i >= 0;
      from += i * stride;
      stride *= x.dim(d);
    }
    y.data<double>()[k] = inside ? x.data<double>()[from] : value;
  }
  return y;
}

std::string text_of(const Case& c) { return fmt::format("{} by [{}], {}", c.x.str(), fmt::join(c.pads, ", "), c.mode); }

TEST(Pad, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(compare(run_op_on(pad(c), {{"X", x}})[0], padded(c, x, 0), 0), "") << text_of(c);
    const auto seven = pad(c, {make_arg("value", 7.0f)});
    EXPECT_EQ(compare(run_op_on(seven, {{"X", x}})[0], padded(c, x, 7), 0), "") << text_of(c);
  }
}

TEST(Pad, OfOtherTypes) {
  const Case c{{2}, {1, 2}};
  const OperatorDef three = pad(c, {make_arg("value", 3.0f)});
  EXPECT_EQ(compare(run_op_on(three, {{"X", Tensor::of<int32_t>({2}, {1, 2})}})[0],
                    Tensor::of<int32_t>({5}, {3, 1, 2, 3, 3}), 0),
            "");
  EXPECT_EQ(compare(run_op_on(three, {{"X", Tensor::of<int64_t>({2}, {1, 2})}})[0],
                    Tensor::of<int64_t>({5}, {3, 1, 2, 3, 3}), 0),
            "");
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor y = run_op_on(pad(c, {make_arg("value", infinity)}), {{"X", Tensor::of<float>({2}, {1, 2})}})[0];
  EXPECT_EQ(y.data<float>()[4], infinity);
}

TEST(Pad, Gradients) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(check_gradient(pad(c, {make_arg("value", 7.0f)}), {{"X", x}}, {"X"}), "") << text_of(c);
    EXPECT_EQ(check_gradient(pad(c, {}, "PadGradient"), {{"X", padded(c, x, 1)}}, {"X"}), "") << text_of(c);
  }
}

// An element that was taken several times gets a gradient as often.
TEST(Pad, GradientCountsHowOftenAnElementWasTaken) {
  auto counts = [](const Case& c, const Shape& y) {
    const Tensor ones =
        run_op_on(make_op("ConstantFill", {}, {"Y"},
                          {make_arg("value", 1.0f), make_arg("shape", std::vector<int64_t>(y.begin(), y.end()))}),
                  {})[0];
    return run_op_on(pad(c, {}, "PadGradient"), {{"X", ones}})[0];
  };
  EXPECT_EQ(compare(counts({{3}, {2, 1}}, {6}), Tensor::of<float>({3}, {1, 1, 1}), 0), "");
  EXPECT_EQ(compare(counts({{3}, {2, 1}, "edge"}, {6}), Tensor::of<float>({3}, {3, 1, 2}), 0), "");
  EXPECT_EQ(compare(counts({{3}, {2, 1}, "reflect"}, {6}), Tensor::of<float>({3}, {1, 3, 2}), 0), "");
  EXPECT_EQ(compare(counts({{3}, {-1, 1}}, {3}), Tensor::of<float>({3}, {0, 1, 1}), 0), "");
}

TEST(Pad, Errors) {
  auto fact = [](const Case& c, const std::vector<Argument>& more = {}, const char* type = "Pad") {
    const std::string text = error_of([&] { run_op_on(pad(c, more, type), {{"X", normal<float>(c.x)}}); });
    return text.substr(0, text.find('\n'));
  };
  const int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(fact({{3}, {1}}), "Pad: argument \"pads\" has 1 values, of which half cannot be beginnings");
  EXPECT_EQ(fact({{3}, {1, 2, 3, 4}}),
            "Pad: argument \"pads\" has 4 values, but shape [3] needs 2: all beginnings, then all ends");
  EXPECT_EQ(fact({{2, 3}, {0, -2, 0, -2}}), "Pad: pads of -2 and -2 for dimension 1 of [2, 3] leave -1 elements");
  EXPECT_EQ(fact({{3}, {3, 0}, "reflect"}), "Pad: dimension 0 of size 3 cannot be reflected 3 elements far");
  EXPECT_EQ(fact({{0}, {0, 1}, "edge"}), "Pad: dimension 0 has no element to repeat 1 times");
  EXPECT_NE(fact({{3}, {1, 1}, "wrap"}).find("argument \"mode\""), std::string::npos);
  EXPECT_NE(fact({{3}, {most, most}}).find("are too large"), std::string::npos);
  EXPECT_NE(fact({{3}, {least, least}}).find("are too large"), std::string::npos);
  EXPECT_NE(fact({{3}, {most, -most}}).find("are too large"), std::string::npos);
  const int64_t large = int64_t{1} << 61;
  EXPECT_NE(fact({{3, 3}, {large, large, 0, 0}}).find("more elements than 64 bits can count"), std::string::npos);
  EXPECT_EQ(fact({{2}, {2, 1}}, {}, "PadGradient"),
            "PadGradient: pads of 2 and 1 for dimension 0 of [2] leave -1 elements");
  EXPECT_EQ(fact({{5}, {3, 0}, "reflect"}, {}, "PadGradient"),
            "PadGradient: dimension 0 of size 2 cannot be reflected 3 elements far");
  auto fraction = [](float value) {
    const OperatorDef op = pad({{1}, {1, 0}}, {make_arg("value", value)});
    return error_of([&] { run_op_on(op, {{"X", Tensor::of<int32_t>({1}, {1})}}); });
  };
  EXPECT_NE(fraction(0.5f).find("is 0.5, which is no whole number"), std::string::npos);
  EXPECT_NE(fraction(std::numeric_limits<float>::quiet_NaN()).find("no whole number"), std::string::npos);
  EXPECT_NE(fraction(3e9f).find("no whole number that fits"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::pad_test

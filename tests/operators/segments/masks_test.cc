// SequenceMask and MaskByLength against plain loops and central differences.
#include <limits>

#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::masks_test {
namespace {

namespace of_sequence_mask {

struct Case {
  std::string mode;
  Shape x;
  int axis = 1;
  int batch = -1;   // -1: not given
  int repeat = -1;  // -1: not given
  std::vector<int32_t> values = {};
  int radius = 10;
};

const Case kCases[] = {
    {"sequence", {3, 4}, 1, -1, -1, {2, 0, 9}},
    {"sequence", {2, 2, 5}, 2, -1, -1, {5, 1, 2, 3}},
    {"sequence", {2, 2, 5}, 1, -1, -1, {7, 3}},
    {"sequence", {2, 3, 4}, -1, 0, -1, {1, 4, 2}},
    {"sequence", {3, 2, 2}, 1, -1, 2, {0, 1, 2}},
    {"sequence", {2, 2, 3, 2}, 2, 0, 3, {3, 1}},
    {"sequence", {2, 3}, 1, -1, 1, {0, 1}},
    {"sequence", {1, 1}, 1, -1, -1, {1}},
    {"sequence", {0, 3}, 1, -1, -1, {}},
    {"sequence", {2, 0}, 1, -1, -1, {0, 4}},
    {"sequence", {4}, 0, -1, -1, {3}},
    {"window", {4, 5}, 1, -1, -1, {0, 2, 4, -3}, 1},
    {"window", {2, 3, 4}, 2, 0, -1, {0, 3, 1}, 0},
    {"upper", {3, 4}},
    {"upper", {4, 3}},
    {"lower", {3, 4}},
    {"lower", {4, 3}},
    {"upperdiag", {3, 4}},
    {"lowerdiag", {4, 3}},
    {"upper", {2, 3, 3}, 2, 0},
    {"lower", {2, 3, 4}, 2},
};

bool is_masked(const Case& c, int64_t i, int64_t j) {
  if (c.mode == "sequence") return j >= c.values[i];
  if (c.mode == "window") return j > c.values[i] + c.radius || j < c.values[i] - c.radius;
  if (c.mode == "upper") return j > i;
  if (c.mode == "lower") return j < i;
  return c.mode == "upperdiag" ? j >= i : j <= i;
}

Tensor masked(const Case& c, const Tensor& x, double fill) {
  const int rank = x.rank(), axis = c.axis < 0 ? c.axis + rank : c.axis;
  const int repeat = c.repeat < 0 ? rank : c.repeat;
  Tensor y = x.clone();
  for (int64_t k = 0; k < x.size(); ++k) {
    int64_t left = k, i = 0, j = 0, i_step = 1, j_step = 1;
    for (int d = rank - 1; d >= 0; left /= x.dim(d--)) {
      const int64_t at = left % x.dim(d);
      if (d >= repeat || d <= c.batch) continue;
      (d >= axis ? j : i) += at * (d >= axis ? j_step : i_step);
      (d >= axis ? j_step : i_step) *= x.dim(d);
    }
    if (is_masked(c, i, j)) y.data<double>()[k] = fill;
  }
  return y;
}

OperatorDef def_of(const Case& c, std::vector<Argument> args, const char* output = "Y") {
  args.push_back(make_arg("mode", c.mode));
  args.push_back(make_arg("axis", c.axis));
  args.push_back(make_arg("radius", c.radius));
  if (c.batch >= 0) args.push_back(make_arg("batch", c.batch));
  if (c.repeat >= 0) args.push_back(make_arg("repeat_from_axis", c.repeat));
  const bool has_values = c.mode == "sequence" || c.mode == "window";
  return make_op("SequenceMask", has_values ? std::vector<std::string>{"X", "L"} : std::vector<std::string>{"X"},
                 {output}, args);
}

Feeds feeds_of(const Case& c, const Tensor& x) {
  return {{"X", x}, {"L", Tensor::of<int32_t>({static_cast<int64_t>(c.values.size())}, c.values)}};
}

TEST(SequenceMask, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(compare(run_op_on(def_of(c, {}), feeds_of(c, x))[0], masked(c, x, -infinity), 0), "") << c.mode;
    const auto seven = def_of(c, {make_arg("fill_val", 7.0f)});
    EXPECT_EQ(compare(run_op_on(seven, feeds_of(c, x))[0], masked(c, x, 7), 0), "") << c.mode;
    const auto zero = def_of(c, {make_arg("fill_val", 7.0f), make_arg("grad", 1)}, "X");
    EXPECT_EQ(compare(run_op_on(zero, feeds_of(c, x))[0], masked(c, x, 0), 0), "") << c.mode << " in place";
  }
}

TEST(SequenceMask, WindowsOfAnyRadius) {
  Case c{"window", {2, 3}, 1, -1, -1, {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}};
  const Tensor x = normal<double>(c.x);
  OperatorDef def = def_of(c, {});
  for (Argument& arg : *def.mutable_arg())
    if (arg.name() == "radius") arg.set_i(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(compare(run_op_on(def, feeds_of(c, x))[0], x, 0), "");
}

TEST(SequenceMask, Gradients) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_of(c, normal<double>(c.x));
    EXPECT_EQ(check_gradient(def_of(c, {make_arg("fill_val", 2.0f)}), feeds, {"X"}), "") << c.mode;
    EXPECT_EQ(check_gradient(def_of(c, {make_arg("grad", true)}), feeds, {"X"}), "") << c.mode;
  }
}

// Backward reads the lengths and nothing of X or Y.
TEST(SequenceMask, GradientOfMinusInfinity) {
  const Case c{"sequence", {2, 3}, 1, -1, -1, {1, 2}};
  NetDef net;
  for (const char* name : {"X", "L", "dY"}) net.add_external_input(name);
  *net.add_op() = def_of(c, {});
  const GradientResult result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"X"}, .stop = {}});
  EXPECT_EQ(result.kept, std::set<std::string>{"L"});
}

TEST(SequenceMask, Errors) {
  auto fact = [](const Case& c, std::vector<Argument> args = {}) {
    const std::string text = error_of([&] { run_op_on(def_of(c, std::move(args)), feeds_of(c, normal<double>(c.x))); });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "SequenceMask: ";
  EXPECT_EQ(fact({"sequence", {2, 3}, 1, -1, -1, {1, -2}}), name + "length 1 is -2, which is negative");
  EXPECT_EQ(fact({"sequence", {2, 3}, 1, -1, -1, {1, 2, 3}}),
            name + "the input [2, 3] has 2 rows to mask, but sequence_lengths [3] has 3 values");
  EXPECT_EQ(fact({"upper", {2, 3}, 1, -1, 1}),
            name + "argument \"repeat_from_axis\" goes with mode \"sequence\", not \"upper\"");
  EXPECT_EQ(fact({"upper", {2, 3}, 1, 1}),
            name + "argument \"batch\" is dimension 1, which must come before \"axis\", dimension 1");
  EXPECT_EQ(fact({"sequence", {2, 3}, 1, -1, 0, {1, 1}}),
            name + "argument \"repeat_from_axis\" is dimension 0, which comes before \"axis\", dimension 1");
  EXPECT_EQ(fact({"window", {2, 3}, 1, -1, -1, {1, 1}, -1}),
            name + "argument \"radius\" must be at least 0, but is -1");
  EXPECT_EQ(fact({"upper", {3}}), name + "axis 1 is out of range for 1 dimensions");
  EXPECT_NE(fact({"middle", {2, 3}}).find("argument \"mode\""), std::string::npos);
  auto raw = [](const std::string& mode, const std::vector<std::string>& inputs) {
    const Feeds feeds = {{"X", normal<double>({2, 3})}, {"L", Tensor::of<int32_t>({2}, {1, 1})}};
    return error_of([&] { run_op_on(make_op("SequenceMask", inputs, {"Y"}, {make_arg("mode", mode)}), feeds); });
  };
  EXPECT_NE(raw("sequence", {"X"}).find("mode \"sequence\" needs a second input, with the length for each row"),
            std::string::npos);
  EXPECT_NE(raw("lower", {"X", "L"}).find("mode \"lower\" takes no second input"), std::string::npos);
}

}  // namespace of_sequence_mask

namespace of_mask_by_length {

OperatorDef mask_op(bool with_beyond, const std::vector<Argument>& args = {}) {
  std::vector<std::string> inputs = {"X", "lengths", "timestep"};
  if (with_beyond) inputs.emplace_back("BEYOND");
  return make_op("MaskByLength", inputs, {"Y"}, args);
}

Feeds feeds_of(const Shape& shape, const std::vector<int32_t>& lengths, const std::vector<int32_t>& timesteps) {
  return {{"X", normal<double>(shape)},
          {"lengths", Tensor::of<int32_t>({static_cast<int64_t>(lengths.size())}, lengths)},
          {"timestep", Tensor::of<int32_t>({static_cast<int64_t>(timesteps.size())}, timesteps)},
          {"BEYOND", normal<double>(shape, 2)}};
}

// Row by row, over R timesteps and B samples.
Tensor masked(const Feeds& feeds, bool with_beyond, bool beyond) {
  Tensor y = feeds[0].second.clone();
  const auto lengths = feeds[1].second.span<int32_t>(), timesteps = feeds[2].second.span<int32_t>();
  if (y.size() == 0) return y;
  const size_t size = y.size() / (lengths.size() * timesteps.size());
  for (size_t r = 0; r < timesteps.size(); ++r)
    for (size_t b = 0; b < lengths.size(); ++b)
      for (size_t i = 0; i < size; ++i) {
        const size_t at = (r * lengths.size() + b) * size + i;
        if ((timesteps[r] >= lengths[b]) != beyond)
          y.data<double>()[at] = with_beyond ? feeds[3].second.data<double>()[at] : 0;
      }
  return y;
}

std::vector<Feeds> cases() {
  return {
      feeds_of({1, 3, 2}, {0, 2, 1}, {1}), feeds_of({3, 2}, {0, 2, 1}, {1}), feeds_of({4, 2, 3}, {2, 4}, {0, 1, 2, 3}),
      feeds_of({2, 2}, {1, 9}, {5, 0}),    feeds_of({1, 0, 3}, {}, {2}),     feeds_of({2, 2, 0}, {1, 2}, {0, 1}),
      feeds_of({0, 2, 3}, {1, 2}, {}),     feeds_of({1, 1, 1, 2}, {1}, {0})};
}

TEST(MaskByLength, IsTheLoop) {
  for (const Feeds& feeds : cases()) {
    const Feeds three(feeds.begin(), feeds.begin() + 3);
    SCOPED_TRACE(feeds[0].second.str());
    EXPECT_EQ(compare(run_op_on(mask_op(false), three)[0], masked(feeds, false, false), 0), "");
    EXPECT_EQ(compare(run_op_on(mask_op(true), feeds)[0], masked(feeds, true, false), 0), "");
    EXPECT_EQ(compare(run_op_on(mask_op(false, {make_arg("beyond", true)}), three)[0], masked(feeds, false, true), 0),
              "");
  }
}

TEST(MaskByLength, Gradients) {
  for (const Feeds& feeds : cases()) {
    const Feeds three(feeds.begin(), feeds.begin() + 3);
    SCOPED_TRACE(feeds[0].second.str());
    EXPECT_EQ(check_gradient(mask_op(true), feeds, {"X", "BEYOND"}), "");
    EXPECT_EQ(check_gradient(mask_op(false), three, {"X"}), "");
    EXPECT_EQ(check_gradient(mask_op(false, {make_arg("beyond", true)}), three, {"X"}), "");
  }
}

TEST(MaskByLength, InPlaceAndOfOtherTypes) {
  Feeds feeds = feeds_of({1, 2, 2}, {0, 3}, {1});
  feeds.pop_back();
  feeds[0].second = Tensor::of<int32_t>({1, 2, 2}, {1, 2, 3, 4});
  OperatorDef op = mask_op(false);
  op.set_output(0, "X");
  EXPECT_EQ(compare(run_op_on(op, feeds)[0], Tensor::of<int32_t>({1, 2, 2}, {0, 0, 3, 4}), 0), "");
  feeds[0].second = Tensor::of<bool>({1, 2, 2}, {true, true, true, false});
  EXPECT_EQ(compare(run_op_on(mask_op(false), feeds)[0], Tensor::of<bool>({1, 2, 2}, {false, false, true, false}), 0),
            "");
}

std::string fact_of(const OperatorDef& op, const Feeds& feeds) {
  const std::string text = error_of([&] { run_op_on(op, feeds); });
  return text.substr(0, text.find('\n'));
}

TEST(MaskByLength, Errors) {
  const Feeds good = feeds_of({1, 2, 3}, {1, 2}, {0});
  auto with = [&](size_t i, const Tensor& value) {
    Feeds bad = good;
    bad[i].second = value;
    return fact_of(mask_op(true), bad);
  };
  const std::string name = "MaskByLength: ";
  EXPECT_EQ(with(0, normal<double>({1, 3, 3})),
            name + "X must be [1, 2, ...] for the timesteps [1] and the lengths [2], but is [1, 3, 3]");
  EXPECT_EQ(with(0, normal<double>({})),
            name + "X must be [1, 2, ...] for the timesteps [1] and the lengths [2], but is []");
  EXPECT_EQ(with(1, Tensor::of<int32_t>({1, 2}, {1, 2})),
            name + "lengths must be [B], one for each sample, but is [1, 2]");
  EXPECT_EQ(with(2, Tensor::of<int32_t>({}, {1})), name + "timestep must be [R], but is []");
  EXPECT_EQ(with(3, normal<double>({1, 2, 2})),
            name + "BEYOND must be double[1, 2, 3] as X is, but is double[1, 2, 2]");
  EXPECT_EQ(with(3, normal<float>({1, 2, 3})), name + "BEYOND must be double[1, 2, 3] as X is, but is float[1, 2, 3]");
  EXPECT_EQ(fact_of(mask_op(true, {make_arg("beyond", true)}), good),
            name + "with \"beyond\" there is no input BEYOND");
  Feeds strings = good;
  strings[0].second = Tensor::empty(DType::string, {1, 2, 3});
  strings.pop_back();
  EXPECT_EQ(fact_of(mask_op(false), strings), name + "X holds strings, of which none is zero");
}

}  // namespace of_mask_by_length

}  // namespace
}  // namespace stepnet::testing::masks_test

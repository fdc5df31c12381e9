#include "tests/operators/op_test.h"

namespace stepnet::testing::flatten_test {
namespace {

OperatorDef flatten(int axis) { return make_op("Flatten", {"X"}, {"Y"}, {make_arg("axis", axis)}); }
const OperatorDef kToVec = make_op("FlattenToVec", {"X"}, {"Y"});

struct Case {
  Shape x;
  int axis;
  Shape y;
};
const Case kCases[] = {{{2, 3, 4}, 0, {1, 24}}, {{2, 3, 4}, 1, {2, 12}}, {{2, 3, 4}, 2, {6, 4}},
                       {{2, 3, 4}, 3, {24, 1}}, {{2, 3, 4}, -1, {6, 4}}, {{5}, 1, {5, 1}},
                       {{}, 0, {1, 1}},         {{3, 0, 2}, 1, {3, 0}},  {{0, 7}, 1, {0, 7}}};

TEST(Flatten, MakesAMatrix) {
  for (const Case& c : kCases) {
    const Tensor x = normal<float>(c.x);
    EXPECT_EQ(compare(run_op_on(flatten(c.axis), {{"X", x}})[0], x.reshaped(c.y), 0), "");
    EXPECT_EQ(compare(run_op_on(kToVec, {{"X", x}})[0], x.reshaped({x.size()}), 0), "");
  }
  const Tensor x = normal<float>({2, 3, 2});
  EXPECT_EQ(run_op_on(make_op("Flatten", {"X"}, {"Y"}), {{"X", x}})[0].str(), "float[2, 6]");
  const Tensor words = Tensor::of<std::string>({1, 2}, {"a", "b"});
  EXPECT_EQ(run_op_on(kToVec, {{"X", words}})[0].data<std::string>()[1], "b");
}

TEST(Flatten, Gradients) {
  for (const Case& c : kCases) {
    const Feeds feeds = {{"X", normal<double>(c.x)}};
    EXPECT_EQ(check_gradient(flatten(c.axis), feeds, {"X"}), "");
    EXPECT_EQ(check_gradient(kToVec, feeds, {"X"}), "");
  }
}

TEST(Flatten, RefusesAnAxisThatIsNotThere) {
  auto fact = [](int axis, const Shape& x) {
    const std::string text = error_of([&] { run_op_on(flatten(axis), {{"X", normal<float>(x)}}); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(3, {2, 3}), "Flatten: axis 3 is out of range for 2 dimensions");
  EXPECT_EQ(fact(-3, {2, 3}), "Flatten: axis -3 is out of range for 2 dimensions");
  EXPECT_EQ(fact(1, {}), "Flatten: axis 1 is out of range for 0 dimensions");
}

}  // namespace
}  // namespace stepnet::testing::flatten_test

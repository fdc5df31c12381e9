#include "tests/operators/op_test.h"

namespace stepnet::testing::tile_test {
namespace {

OperatorDef tile(int64_t tiles, int axis, const char* type = "Tile") {
  return make_op(type, {"X"}, {"Y"}, {make_arg("tiles", tiles), make_arg("axis", axis)});
}

struct Case {
  Shape x;
  int64_t tiles;
  int axis;
};
const Case kCases[] = {{{2, 3}, 1, 0}, {{2, 3}, 3, 0}, {{2, 3}, 2, 1},    {{2, 3, 2}, 3, 1},
                       {{4}, 5, -1},   {{1, 1}, 4, 1}, {{2, 0, 3}, 2, 1}, {{0, 2}, 3, 1}};

// Element [o, t * size + a, i] of the copies is [o, a, i].
Tensor tiled(const Case& c, const Tensor& x) {
  const int axis = c.axis < 0 ? c.axis + x.rank() : c.axis;
  const int64_t outer = x.shape().size_between(0, axis), inner = x.shape().size_between(axis + 1, x.rank());
  const int64_t size = x.dim(axis);
  Tensor y = Tensor::empty(DType::float64, x.shape().with(axis, size * c.tiles));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t a = 0; a < size * c.tiles; ++a)
      for (int64_t i = 0; i < inner; ++i)
        y.data<double>()[(o * size * c.tiles + a) * inner + i] = x.data<double>()[(o * size + a % size) * inner + i];
  return y;
}

TEST(Tile, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(compare(run_op_on(tile(c.tiles, c.axis), {{"X", x}})[0], tiled(c, x), 0), "");
  }
  EXPECT_EQ(compare(run_op_on(make_op("Tile", {"X"}, {"Y"}), {{"X", normal<float>({2})}})[0], normal<float>({2}), 0),
            "");
  const Tensor words = run_op_on(tile(2, 0), {{"X", Tensor::of<std::string>({2}, {"a", "b"})}})[0];
  EXPECT_EQ(words.data<std::string>()[3], "b");
}

TEST(Tile, Gradients) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    EXPECT_EQ(check_gradient(tile(c.tiles, c.axis), {{"X", x}}, {"X"}), "");
    EXPECT_EQ(check_gradient(tile(c.tiles, c.axis, "TileGradient"), {{"X", tiled(c, x)}}, {"X"}), "");
  }
}

// The inputs win over the arguments.
TEST(Tile, TakesTilesAndAxisAsInputs) {
  for (const Case& c : kCases) {
    const Tensor x = normal<double>(c.x);
    const Feeds feeds = {{"X", x},
                         {"n", Tensor::of<int32_t>({1}, {static_cast<int32_t>(c.tiles)})},
                         {"a", Tensor::scalar<int64_t>(c.axis)}};
    const std::vector<Argument> others = {make_arg("tiles", 7), make_arg("axis", 5)};
    const OperatorDef both = make_op("Tile", {"X", "n", "a"}, {"Y"}, others);
    EXPECT_EQ(compare(run_op_on(both, feeds)[0], tiled(c, x), 0), "");
    EXPECT_EQ(check_gradient(both, feeds, {"X"}), "");
    const OperatorDef one = make_op("Tile", {"X", "n"}, {"Y"}, {make_arg("axis", c.axis)});
    EXPECT_EQ(compare(run_op_on(one, feeds)[0], tiled(c, x), 0), "");
    EXPECT_EQ(check_gradient(one, feeds, {"X"}), "");
  }
}

TEST(Tile, InputsThatAreNoNumberOfTiles) {
  auto fact = [](const Tensor& tiles, const Tensor& axis) {
    const Feeds feeds = {{"X", normal<float>({2})}, {"n", tiles}, {"a", axis}};
    const std::string text = error_of([&] { run_op_on(make_op("Tile", {"X", "n", "a"}, {"Y"}), feeds); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor one = Tensor::scalar<int32_t>(1);
  EXPECT_EQ(fact(Tensor::scalar<int32_t>(0), one), "Tile: the number of tiles must be at least 1, but is 0");
  EXPECT_EQ(fact(Tensor::of<int32_t>({2}, {1, 1}), one),
            "Tile: the number of tiles must be one integer, but is int32[2]");
  EXPECT_EQ(fact(one, Tensor::of<int64_t>({0}, {})), "Tile: the axis must be one integer, but is int64[0]");
  EXPECT_EQ(fact(one, Tensor::scalar<int64_t>(-2)), "Tile: axis -2 is out of range for 1 dimensions");
  EXPECT_EQ(fact(Tensor::scalar<int64_t>(int64_t{1} << 62), Tensor::scalar<int32_t>(0)),
            "Tile: 4611686018427387904 tiles of [2] are more than 64 bits can count");
  EXPECT_NE(fact(normal<float>({1}), one).find("float"), std::string::npos);
}

TEST(Tile, Errors) {
  auto fact = [](const OperatorDef& def, const Shape& x) {
    const std::string text = error_of([&] { run_op_on(def, {{"X", normal<float>(x)}}); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(tile(0, 0), {2}), "Tile: argument \"tiles\" must be at least 1, but is 0");
  EXPECT_EQ(fact(tile(int64_t{1} << 62, 0), {2, 1}),
            "Tile: 4611686018427387904 tiles of [2, 1] are more than 64 bits can count");
  EXPECT_NE(fact(tile(int64_t{1} << 61, 0), {2, 4}).find("64 bits can count"), std::string::npos);
  EXPECT_EQ(fact(tile(2, 1), {2}), "Tile: axis 1 is out of range for 1 dimensions");
  EXPECT_EQ(fact(tile(2, 0, "TileGradient"), {3}),
            "TileGradient: dimension 0 of [3] has size 3, which is not 2 tiles of one size");
}

}  // namespace
}  // namespace stepnet::testing::tile_test

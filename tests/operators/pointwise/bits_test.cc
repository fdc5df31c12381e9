// Operators that leave bits against those that they stand for: the same bytes, whatever the values and sizes.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::bits_test {
namespace {

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// Numbers around the bounds 0, -0.5 and 0.75, and what is no number.
template <class T>
Tensor values(int64_t size) {
  constexpr T kSpecial[] = {T(0),     -T(0),    T(-0.5), T(0.75), std::numeric_limits<T>::infinity(),
                            T(1e-30), T(-1e30), T(0.5),  T(-2),   -std::numeric_limits<T>::infinity()};
  Tensor x = normal<T>({size}, 5);
  for (int64_t i = 0; i < size; i += 2) x.template span<T>()[i] = kSpecial[i / 2 % std::size(kSpecial)];
  for (int64_t i = 13; i < size; i += 29) x.template span<T>()[i] = std::numeric_limits<T>::quiet_NaN();
  return x;
}

struct Pair {
  std::string type;
  std::vector<Argument> args, of_bits;
};

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all = {
      {"Relu", {}, {make_arg("min", 0.0F)}},
      {"Clip", {make_arg("min", -0.5F), make_arg("max", 0.75F)}, {make_arg("min", -0.5F), make_arg("max", 0.75F)}},
      {"Clip", {make_arg("max", 0.75F)}, {make_arg("max", 0.75F)}},
      {"LeakyRelu", {make_arg("alpha", 0.3F)}, {make_arg("min", 0.0F), make_arg("alpha", 0.3F)}}};
  return all;
}

template <class T>
void check_pairs() {
  for (const int64_t size : {0, 1, 7, 8, 9, 16, 1003, 100001})
    for (const Pair& p : pairs()) {
      SCOPED_TRACE(fmt::format("{} of {}", p.type, size));
      const Tensor x = values<T>(size), dy = values<T>(size);
      const Tensor y = run_op_on(make_op(p.type, {"X"}, {"Y"}, p.args), {{"X", x}})[0];
      const auto bits = run_op_on(make_op("ClipWithBits", {"X"}, {"Y", "bits"}, p.of_bits), {{"X", x}});
      EXPECT_TRUE(same_bytes(bits[0], y));
      EXPECT_EQ(bits[1].str(), fmt::format("uint8[{}]", (size + 7) / 8));
      const auto over = run_op_on(make_op("ClipWithBits", {"X"}, {"X", "bits"}, p.of_bits), {{"X", x}});
      EXPECT_TRUE(same_bytes(over[0], y) && same_bytes(over[1], bits[1]));
      const Tensor dx = run_op_on(make_op(p.type + "Gradient", {"Y", "dY"}, {"dX"}, p.args), {{"Y", y}, {"dY", dy}})[0];
      const std::vector<Argument> alpha =
          p.type == "LeakyRelu" ? std::vector{make_arg("alpha", 0.3F)} : std::vector<Argument>{};
      const Feeds feeds = {{"dY", dy}, {"bits", bits[1]}};
      EXPECT_TRUE(same_bytes(run_op_on(make_op("SelectByBits", {"dY", "bits"}, {"dX"}, alpha), feeds)[0], dx));
      EXPECT_TRUE(same_bytes(run_op_on(make_op("SelectByBits", {"dY", "bits"}, {"dY"}, alpha), feeds)[0], dx));
    }
}

TEST(ClipWithBits, AreTheOperatorsThatTheyStandFor) {
  check_pairs<float>();
  check_pairs<double>();
}

TEST(ClipWithBits, Gradient) {
  for (const Pair& p : pairs())
    EXPECT_EQ(check_gradient(make_op("ClipWithBits", {"X"}, {"Y", "bits"}, p.of_bits), {{"X", normal<double>({3, 7})}},
                             {"X"}),
              "");
}

TEST(ClipWithBits, BadBoundsAreErrors) {
  const Feeds feeds = {{"X", normal<float>({2})}};
  const auto error = [&](const std::vector<Argument>& args) {
    return error_of([&] { run_op_on(make_op("ClipWithBits", {"X"}, {"Y", "bits"}, args), feeds); });
  };
  EXPECT_NE(error({make_arg("min", 1.0F), make_arg("max", 0.0F)}).find("min is 1"), std::string::npos);
  EXPECT_NE(error({make_arg("alpha", 0.1F)}).find("an alpha goes with a min of 0"), std::string::npos);
}

TEST(SelectByBits, BitsMustFit) {
  const Feeds feeds = {{"X", normal<float>({9})}, {"bits", Tensor::of<uint8_t>({1}, {3})}};
  const std::string error = error_of([&] { run_op_on(make_op("SelectByBits", {"X", "bits"}, {"Y"}), feeds); });
  EXPECT_NE(error.find("bits is [1], but X, which is [9], needs [2]"), std::string::npos) << error;
}

// The same draws as with bools, whole channels too, and the same gradient.
template <class T>
void check_dropout(const Shape& shape, const std::vector<Argument>& args) {
  SCOPED_TRACE(shape.str());
  std::vector<Argument> packed = args;
  packed.push_back(make_arg("packed", 1));
  const Feeds feeds = {{"X", normal<T>(shape, 2)}};
  const auto plain = run_op_on(make_op("Dropout", {"X"}, {"Y", "mask"}, args), feeds);
  const auto bits = run_op_on(make_op("Dropout", {"X"}, {"Y", "mask"}, packed), feeds);
  EXPECT_TRUE(same_bytes(bits[0], plain[0]));
  ASSERT_EQ(bits[1].size(), (plain[1].size() + 7) / 8);
  for (int64_t i = 0; i < 8 * bits[1].size(); ++i) {
    const bool bit = (bits[1].span<uint8_t>()[i / 8] >> (i % 8) & 1) != 0;
    EXPECT_EQ(bit, i < plain[1].size() && plain[1].span<bool>()[i]) << i;
  }
  const Feeds given = {{"dY", normal<T>(shape, 3)}, {"mask", plain[1]}, {"bits", bits[1]}};
  const std::vector<Argument> ratio = {make_arg("ratio", find_arg(make_op("", {}, {}, args), "ratio")->f())};
  EXPECT_TRUE(same_bytes(run_op_on(make_op("SelectByBits", {"dY", "bits"}, {"dX"}, ratio), given)[0],
                         run_op_on(make_op("DropoutGrad", {"dY", "mask"}, {"dX"}, args), given)[0]));
}

TEST(Dropout, PackedMasksAreTheSameBits) {
  for (const float ratio : {0.0F, 0.3F, 0.9F})
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 5}, Shape{8}, Shape{300, 301}}) {
      check_dropout<float>(shape, {make_arg("ratio", ratio)});
      check_dropout<double>(shape, {make_arg("ratio", ratio)});
    }
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 3, 0}, Shape{9, 40, 3, 3}})
    check_dropout<float>(shape, {make_arg("ratio", 0.5F), make_arg("channels", 1)});
}

TEST(Dropout, PackedInTestKeepsAll) {
  const Tensor x = normal<float>({11}, 2);
  const auto out =
      run_op_on(make_op("Dropout", {"X"}, {"Y", "mask"}, {make_arg("packed", 1), make_arg("is_test", 1)}), {{"X", x}});
  EXPECT_TRUE(same_bytes(out[0], x));
  EXPECT_TRUE(same_bytes(out[1], Tensor::of<uint8_t>({2}, {255, 7})));
}

}  // namespace
}  // namespace stepnet::testing::bits_test

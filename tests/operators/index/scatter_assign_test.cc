#include "tests/operators/op_test.h"

namespace stepnet::testing::scatter_assign_test {
namespace {

const OperatorDef kAssign = make_op("ScatterAssign", {"D", "I", "S"}, {"D"});

TEST(ScatterAssign, OverwritesRows) {
  const Tensor data = Tensor::of<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  const Feeds feeds = {
      {"D", data}, {"I", Tensor::of<int32_t>({2}, {2, 0})}, {"S", Tensor::of<float>({4}, {6, 7, 8, 9})}};
  EXPECT_EQ(compare(run_op_on(kAssign, feeds)[0], Tensor::of<float>({3, 2}, {8, 9, 2, 3, 6, 7}), 0), "");
}

TEST(ScatterAssign, TheLastOfEqualIndicesCounts) {
  const Feeds feeds = {{"D", Tensor::of<std::string>({2}, {"a", "b"})},
                       {"I", Tensor::of<int64_t>({1, 2}, {1, 1})},
                       {"S", Tensor::of<std::string>({2}, {"c", "d"})}};
  const Tensor y = run_op_on(kAssign, feeds)[0];
  EXPECT_EQ(y.data<std::string>()[0] + y.data<std::string>()[1], "ad");
}

TEST(ScatterAssign, OfNothing) {
  const Feeds none = {{"D", normal<float>({2, 3})}, {"I", Tensor::of<int64_t>({0}, {})}, {"S", normal<float>({0, 3})}};
  EXPECT_EQ(compare(run_op_on(kAssign, none)[0], normal<float>({2, 3}), 0), "");
  const Feeds empty = {{"D", normal<float>({0, 3})}, {"I", Tensor::of<int64_t>({0}, {})}, {"S", normal<float>({0})}};
  EXPECT_EQ(run_op_on(kAssign, empty)[0].str(), "float[0, 3]");
}

TEST(ScatterAssign, Errors) {
  auto fact = [](const Tensor& data, const Tensor& indices, const Tensor& slices) {
    const std::string text = error_of([&] { run_op_on(kAssign, {{"D", data}, {"I", indices}, {"S", slices}}); });
    return text.substr(0, text.find('\n'));
  };
  const std::string name = "ScatterAssign: ";
  const Tensor data = normal<float>({3, 2}), two = Tensor::of<int32_t>({2}, {0, 1});
  EXPECT_EQ(fact(data, Tensor::of<int32_t>({2}, {0, 3}), normal<float>({2, 2})),
            name + "index 1 is 3, which is outside of 0 to 2");
  EXPECT_EQ(fact(data, Tensor::of<int64_t>({1}, {-1}), normal<float>({2})),
            name + "index 0 is -1, which is outside of 0 to 2");
  EXPECT_EQ(fact(data, two, normal<float>({2, 3})),
            name + "SLICES [2, 3] has 6 elements, but there are 2 indices of rows of 2");
  EXPECT_EQ(fact(data, two, normal<double>({2, 2})), name + "SLICES must be float as DATA is, but is double");
  EXPECT_EQ(fact(normal<float>({}), two, normal<float>({2})), name + "DATA is a single value, which has no rows");
  const Feeds itself = {{"D", normal<float>({2, 2})}, {"I", two}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("ScatterAssign", {"D", "I", "D"}, {"D"}), itself);
            }).find("output \"OUTPUT\" cannot have the name of the input \"SLICES\""),
            std::string::npos);
  const Feeds feeds = {{"D", data}, {"I", two}, {"S", normal<float>({2, 2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("ScatterAssign", {"D", "I", "S"}, {"Y"}), feeds);
            }).find("must be the same blob"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::scatter_assign_test

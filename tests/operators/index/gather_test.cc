#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::gather_test {
namespace {

const OperatorDef kGather = make_op("Gather", {"D", "I"}, {"Y"});

TEST(Gather, TakesRows) {
  const Tensor d = Tensor::of<float>({3, 2}, {0, 1, 2, 3, 4, 5});
  const Feeds feeds = {{"D", d}, {"I", Tensor::of<int32_t>({2, 2}, {2, 0, 1, 2})}};
  EXPECT_EQ(compare(run_op_on(kGather, feeds)[0], Tensor::of<float>({2, 2, 2}, {4, 5, 0, 1, 2, 3, 4, 5}), 0), "");
}

TEST(Gather, TakesAnyTypeAndShape) {
  const Tensor words = Tensor::of<std::string>({2}, {"a", "b"});
  EXPECT_EQ(run_op_on(kGather, {{"D", words}, {"I", Tensor::scalar<int64_t>(1)}})[0].data<std::string>()[0], "b");
  EXPECT_EQ(run_op_on(kGather, {{"D", normal<float>({3, 4})}, {"I", Tensor::of<int64_t>({0}, {})}})[0].str(),
            "float[0, 4]");
  EXPECT_EQ(run_op_on(kGather, {{"D", normal<float>({1, 0})}, {"I", Tensor::of<int64_t>({2}, {0, 0})}})[0].str(),
            "float[2, 0]");
}

TEST(Gather, GradientIsSparse) {
  const Feeds feeds = {{"D", normal<double>({4, 3})}, {"I", Tensor::of<int32_t>({3}, {1, 3, 1})}};
  EXPECT_EQ(check_gradient(kGather, feeds, {"D"}), "");
  NetDef net;
  for (const char* name : {"D", "I", "dY"}) net.add_external_input(name);
  *net.add_op() = kGather;
  const auto result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"D"}, .stop = {}});
  EXPECT_EQ(net.op_size(), 1);
  EXPECT_EQ(result.gradients.at("D").indices, "I");
  EXPECT_EQ(result.gradients.at("D").values, "dY");
}

TEST(Gather, GradientIsDenseIfAsked) {
  const OperatorDef def = make_op("Gather", {"D", "I"}, {"Y"}, {make_arg("dense_gradient", 1)});
  const Feeds feeds = {{"D", normal<double>({4, 3})}, {"I", Tensor::of<int64_t>({2, 2}, {1, 3, 1, 0})}};
  EXPECT_EQ(check_gradient(def, feeds, {"D"}), "");
}

TEST(Gather, RefusesRowsThatDoNotExist) {
  const Tensor d = normal<float>({3, 2});
  EXPECT_NE(error_of([&] {
              run_op_on(kGather, {{"D", d}, {"I", Tensor::of<int64_t>({2}, {0, 3})}});
            }).find("index 1 is 3, which is outside of 0 to 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              run_op_on(kGather, {{"D", d}, {"I", Tensor::of<int32_t>({1}, {-1})}});
            }).find("index 0 is -1"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(kGather, {{"D", Tensor::scalar<float>(1)}, {"I", Tensor::of<int64_t>({1}, {0})}});
            }).find("has no rows"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::gather_test

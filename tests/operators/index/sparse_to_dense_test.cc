#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::sparse_to_dense_test {
namespace {

const Tensor kIndices = Tensor::of<int32_t>({3}, {1, 3, 1});
const Tensor kValues = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
const OperatorDef kTwoInputs = make_op("SparseToDense", {"I", "V"}, {"Y"});

TEST(SparseToDense, AddsRowsOfOneIndex) {
  const Tensor y = run_op_on(kTwoInputs, {{"I", kIndices}, {"V", kValues}})[0];
  EXPECT_EQ(compare(y, Tensor::of<float>({4, 2}, {0, 0, 6, 8, 0, 0, 3, 4}), 0), "");
}

TEST(SparseToDense, TakesTheNumberOfRows) {
  const Feeds feeds = {{"I", kIndices}, {"V", kValues}, {"D", normal<float>({5, 2})}};
  const Tensor by_input = run_op_on(make_op("SparseToDense", {"I", "V", "D"}, {"Y"}), feeds)[0];
  EXPECT_EQ(compare(by_input, Tensor::of<float>({5, 2}, {0, 0, 6, 8, 0, 0, 3, 4, 0, 0}), 0), "");
  const OperatorDef by_arg = make_op("SparseToDense", {"I", "V"}, {"Y"}, {make_arg("output_first_dim", 5)});
  EXPECT_EQ(compare(run_op_on(by_arg, feeds)[0], by_input, 0), "");
}

TEST(SparseToDense, TakesIntegersAndNothing) {
  const Feeds none = {{"I", Tensor::of<int64_t>({0}, {})}, {"V", integers<int64_t>({0, 2}, 0, 1)}};
  EXPECT_EQ(run_op_on(kTwoInputs, none)[0].str(), "int64[0, 2]");
  const Feeds one = {{"I", Tensor::of<int64_t>({1}, {0})}, {"V", Tensor::of<int32_t>({1}, {7})}};
  EXPECT_EQ(compare(run_op_on(kTwoInputs, one)[0], Tensor::of<int32_t>({1}, {7}), 0), "");
}

TEST(SparseToDense, Gradient) {
  const Feeds feeds = {{"I", kIndices}, {"V", normal<double>({3, 2})}, {"D", normal<double>({5, 2})}};
  EXPECT_EQ(check_gradient(kTwoInputs, feeds, {"V"}), "");
  EXPECT_EQ(check_gradient(make_op("SparseToDense", {"I", "V", "D"}, {"Y"}), feeds, {"V"}), "");
}

TEST(SparseToDense, RefusesWhatDoesNotFit) {
  auto error = [](const Tensor& indices, const Tensor& values, const std::vector<Argument>& args = {}) {
    return error_of([&] {
      run_op_on(make_op("SparseToDense", {"I", "V"}, {"Y"}, args), {{"I", indices}, {"V", values}});
    });
  };
  EXPECT_NE(error(kIndices, normal<float>({2, 2})).find("[2, 2] do not begin with the indices' shape [3]"),
            std::string::npos);
  EXPECT_NE(error(kIndices, kValues, {make_arg("output_first_dim", 3)}).find("index 1 is 3"), std::string::npos);
  EXPECT_NE(error(Tensor::of<int64_t>({1}, {-1}), normal<float>({1})).find("index 0 is -1"), std::string::npos);
  EXPECT_NE(
      error(Tensor::of<int64_t>({1}, {std::numeric_limits<int64_t>::max()}), normal<float>({1})).find("too large"),
      std::string::npos);
  EXPECT_NE(error(kIndices, kValues, {make_arg("output_first_dim", -1)}).find("at least 0"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sparse_to_dense_test

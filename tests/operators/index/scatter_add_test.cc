// ScatterAdd and its gradient against plain loops and central differences, in place, and what its gradients read.
#include "tests/operators/indexed_add_test.h"

namespace stepnet::testing::scatter_add_test {
namespace {

const IndexedAdd kAdd = {"ScatterAdd", true};

TEST(ScatterAdd, ForwardIsTheFormula) { expect_forward_is_the_formula(kAdd); }

TEST(ScatterAdd, Gradients) { expect_gradients_are_right(kAdd); }

TEST(ScatterAdd, GradientOfGradient) { expect_second_order_is_right(kAdd, Tensor::of<int32_t>({2, 2}, {2, 0, 1, 1})); }

TEST(ScatterAdd, OnlyTheSourcesGradientReadsTheIndices) { expect_only_the_sources_gradient_reads_the_indices(kAdd); }

TEST(ScatterAdd, InPlaceOfData) { expect_in_place_of_data(kAdd, integers<int32_t>({4, 3}, 0, 3)); }

TEST(ScatterAdd, BadInputIsNamed) {
  const auto error_with = [](int input, const Tensor& value, int axis = 0) {
    return indexed_error(kAdd, indexed_feeds<float>(kAdd, {4, 2}, 0, 1), input, value, axis);
  };
  expect_contains(error_with(1, Tensor::of<int32_t>({1, 2}, {0, 4})), "index 1 is 4, which is outside of 0 to 3");
  expect_contains(error_with(1, Tensor::of<int32_t>({1, 2}, {-1, 0})), "index 0 is -1, which is outside of 0 to 3");
  expect_contains(error_with(1, Tensor::of<int32_t>({2}, {0, 1})),
                  "INDICES [2] must have the shape of DATA [4, 2] but for axis 0");
  expect_contains(error_with(2, normal<float>({2, 2})), "SRC is [2, 2], but INDICES [1, 2]");
  error_with(1, Tensor::of<int32_t>({1, 2}, {0, 1}), 2);
  error_with(0, Tensor::scalar<float>(1));
}

}  // namespace
}  // namespace stepnet::testing::scatter_add_test

// IndexAdd and its gradient against plain loops and central differences, in place, and what its gradients read.
#include "tests/operators/indexed_add_test.h"

namespace stepnet::testing::index_add_test {
namespace {

const IndexedAdd kAdd = {"IndexAdd", false};

TEST(IndexAdd, ForwardIsTheFormula) { expect_forward_is_the_formula(kAdd); }

TEST(IndexAdd, Gradients) { expect_gradients_are_right(kAdd); }

TEST(IndexAdd, GradientOfGradient) { expect_second_order_is_right(kAdd, Tensor::of<int64_t>({3}, {2, 0, 2})); }

TEST(IndexAdd, OnlyTheSourcesGradientReadsTheIndices) { expect_only_the_sources_gradient_reads_the_indices(kAdd); }

TEST(IndexAdd, InPlaceOfData) { expect_in_place_of_data(kAdd, Tensor::of<int32_t>({4}, {3, 2, 1, 0})); }

TEST(IndexAdd, BadInputIsNamed) {
  const auto error_with = [](int input, const Tensor& value, int axis = 0) {
    return indexed_error(kAdd, indexed_feeds<float>(kAdd, {4, 3}, 0, 2), input, value, axis);
  };
  expect_contains(error_with(1, Tensor::of<int32_t>({2}, {0, 4})), "index 1 is 4, which is outside of 0 to 3");
  expect_contains(error_with(1, Tensor::of<int32_t>({2}, {-1, 0})), "index 0 is -1, which is outside of 0 to 3");
  expect_contains(error_with(1, Tensor::of<int32_t>({1, 2}, {0, 1})),
                  "INDICES must have one dimension, but are [1, 2]");
  expect_contains(error_with(2, normal<float>({3, 3})),
                  "SRC must be [2, 3] for DATA [4, 3] and 2 indices, but is [3, 3]");
  error_with(1, Tensor::of<int32_t>({2}, {0, 1}), 2);
  error_with(0, Tensor::scalar<float>(1));
}

}  // namespace
}  // namespace stepnet::testing::index_add_test

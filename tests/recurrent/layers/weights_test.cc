// Weights between the conventions of Stepnet, PyTorch and ONNX: which block of rows goes where, and there and back.
#include "recurrent/layers/weights.h"

#include "tests/operators/op_test.h"

namespace stepnet::testing::weights_test {
namespace {

constexpr WeightOrder kOrders[] = {WeightOrder::stepnet, WeightOrder::pytorch, WeightOrder::onnx};
constexpr CellKind kCells[] = {CellKind::lstm, CellKind::gru, CellKind::rnn};

int64_t gate_count(CellKind cell) { return cell == CellKind::lstm ? 4 : cell == CellKind::gru ? 3 : 1; }

// In Stepnet's or PyTorch's form, numbers that are all different.
template <class T>
std::vector<Tensor> weights_of(const CellWeights& cell, int64_t h, int64_t inputs) {
  std::vector<Tensor> all;
  T next = 0;
  auto add = [&](const Shape& shape) {
    all.push_back(Tensor::empty(dtype_of<T>(), shape));
    for (T& v : all.back().span<T>()) v = next++;
  };
  for (int layer = 0; layer < cell.layers; ++layer)
    for (int d = 0; d < cell.directions; ++d) {
      add({gate_count(cell.cell) * h, layer == 0 ? inputs : cell.directions * h});
      add({gate_count(cell.cell) * h, h});
      add({gate_count(cell.cell) * h});
      add({gate_count(cell.cell) * h});
    }
  return all;
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].dtype(), b[i].dtype());
    EXPECT_EQ(compare(a[i], b[i], 0), "") << i;
  }
}

TEST(CellWeights, ThereAndBackIsTheIdentity) {
  for (const CellKind kind : kCells)
    for (const int layers : {1, 3})
      for (const int directions : {1, 2})
        for (const WeightOrder a : kOrders)
          for (const WeightOrder b : kOrders) {
            const CellWeights cell{kind, layers, directions};
            const auto given = convert_weights(cell, WeightOrder::stepnet, a, weights_of<float>(cell, 2, 3));
            expect_equal(convert_weights(cell, b, a, convert_weights(cell, a, b, given)), given);
            EXPECT_EQ(given.size(), weight_names(cell, a).size());
          }
}

TEST(CellWeights, AnyTypeAndSizeIsMoved) {
  const CellWeights cell{CellKind::lstm, 1, 2};
  for (const auto& [h, inputs] : {std::pair{1, 1}, {0, 2}, {2, 0}}) {
    const auto wide = weights_of<double>(cell, h, inputs);
    const auto whole = weights_of<int32_t>(cell, h, inputs);
    const auto there = convert_weights(cell, WeightOrder::stepnet, WeightOrder::onnx, wide);
    expect_equal(convert_weights(cell, WeightOrder::onnx, WeightOrder::stepnet, there), wide);
    const auto there_too = convert_weights(cell, WeightOrder::stepnet, WeightOrder::onnx, whole);
    expect_equal(convert_weights(cell, WeightOrder::onnx, WeightOrder::stepnet, there_too), whole);
  }
}

// Gates are the tens of the numbers, in Stepnet's order.
std::vector<Tensor> named_rows(CellKind cell) {
  Tensor w = Tensor::empty(DType::float32, {gate_count(cell), 1}),
         b = Tensor::empty(DType::float32, {gate_count(cell)});
  for (int64_t g = 0; g < gate_count(cell); ++g) {
    w.data<float>()[g] = static_cast<float>(10 * g + 1);
    b.data<float>()[g] = static_cast<float>(10 * g + 2);
  }
  Tensor second = b.clone();
  for (float& v : second.span<float>()) v += 1;
  return {w, w.clone(), b, second};
}

TEST(CellWeights, GatesGoToTheirPlaces) {
  const auto lstm = named_rows(CellKind::lstm);  // i 0, f 10, o 20, g 30
  const CellWeights one{CellKind::lstm, 1, 1};
  const auto torch = convert_weights(one, WeightOrder::stepnet, WeightOrder::pytorch, lstm);
  EXPECT_EQ(compare(torch[0], Tensor::of<float>({4, 1}, {1, 11, 31, 21}), 0), "");
  EXPECT_EQ(compare(torch[3], Tensor::of<float>({4}, {3, 13, 33, 23}), 0), "");
  const auto onnx = convert_weights(one, WeightOrder::stepnet, WeightOrder::onnx, lstm);
  ASSERT_EQ(onnx.size(), 3U);
  EXPECT_EQ(compare(onnx[0], Tensor::of<float>({1, 4, 1}, {1, 21, 11, 31}), 0), "");
  EXPECT_EQ(compare(onnx[2], Tensor::of<float>({1, 8}, {2, 22, 12, 32, 3, 23, 13, 33}), 0), "");
  const CellWeights gru{CellKind::gru, 1, 1};  // reset 0, update 10, candidate 20
  const auto rows = named_rows(CellKind::gru);
  expect_equal(convert_weights(gru, WeightOrder::stepnet, WeightOrder::pytorch, rows), rows);
  EXPECT_EQ(compare(convert_weights(gru, WeightOrder::pytorch, WeightOrder::onnx, rows)[1],
                    Tensor::of<float>({1, 3, 1}, {11, 1, 21}), 0),
            "");
}

TEST(CellWeights, NamesAreThoseOfTheConvention) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(weight_names({CellKind::rnn, 1, 2}, WeightOrder::pytorch),
            (Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
                   "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"}));
  EXPECT_EQ(weight_names({CellKind::gru, 2, 1}, WeightOrder::onnx),
            (Names{"W_l0", "R_l0", "B_l0", "W_l1", "R_l1", "B_l1"}));
}

TEST(CellWeights, WhatDoesNotFitIsNamed) {
  const CellWeights cell{CellKind::lstm, 1, 1};
  auto error = [&](WeightOrder from, size_t place, const Tensor& tensor) {
    auto weights = convert_weights(cell, WeightOrder::stepnet, from, weights_of<float>(cell, 2, 3));
    weights[place] = tensor;
    return error_of([&] { convert_weights(cell, from, WeightOrder::stepnet, weights); });
  };
  EXPECT_EQ(error(WeightOrder::pytorch, 0, normal<float>({7, 3})),
            "weight_ih_l0 is float[7, 3], but its 7 rows do not divide into 4 gates");
  EXPECT_EQ(error(WeightOrder::pytorch, 1, normal<float>({8, 3})), "weight_hh_l0 is float[8, 3], but must be [8, 2]");
  EXPECT_EQ(error(WeightOrder::pytorch, 3, normal<float>({4})), "bias_hh_l0 is float[4], but must be [8]");
  EXPECT_EQ(error(WeightOrder::pytorch, 2, normal<double>({8})),
            "bias_ih_l0 is double[8], but weight_ih_l0 is float[8, 3]: all must have one type");
  EXPECT_EQ(error(WeightOrder::onnx, 0, normal<float>({8, 3})), "W_l0 is float[8, 3], but must have 3 dimensions");
  EXPECT_EQ(error(WeightOrder::onnx, 0, normal<float>({2, 8, 3})), "W_l0 is float[2, 8, 3], but must be [1, 8, 3]");
  EXPECT_EQ(error(WeightOrder::onnx, 2, normal<float>({1, 8})), "B_l0 is float[1, 8], but must be [1, 16]");
  EXPECT_EQ(error_of([&] { convert_weights(cell, WeightOrder::onnx, WeightOrder::stepnet, {normal<float>({1})}); }),
            "layers: 1, directions: 1 have 3 tensors (W_l0, R_l0, B_l0), but 1 are given");
}

}  // namespace
}  // namespace stepnet::testing::weights_test

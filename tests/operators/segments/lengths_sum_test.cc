// LengthsSum, LengthsMean and their sparse forms: against loops, gradients, and what they refuse.
#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::lengths_sum_test {
namespace {

OperatorDef dense(const std::string& kind) { return make_op("Lengths" + kind, {"D", "L"}, {"Y"}); }
OperatorDef sparse(const std::string& kind) { return make_op("SparseLengths" + kind, {"D", "I", "L"}, {"Y"}); }

Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

struct Case {
  Shape data;
  std::vector<int32_t> indices;
  std::vector<int32_t> lengths;  // of the indices
};
const Case kCases[] = {{{4, 3}, {3, 0, 3, 1, 1, 2}, {3, 0, 1, 2}},
                       {{5}, {4, 4, 0}, {1, 2}},
                       {{2, 1, 2}, {1}, {0, 1, 0}},
                       {{3, 2}, {}, {0, 0}},
                       {{3, 2}, {}, {}},
                       {{3, 0}, {2, 1}, {2}}};

// The rows that the indices name, one after the other.
Tensor rows_of(const Case& c, const Tensor& data) {
  const int64_t row = data.shape().size_between(1, data.rank()), count = static_cast<int64_t>(c.indices.size());
  Tensor rows = Tensor::empty(DType::float64, c.data.with(0, count));
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < row; ++j) rows.data<double>()[k * row + j] = data.data<double>()[c.indices[k] * row + j];
  return rows;
}

Tensor sums_of(const Case& c, const Tensor& rows, bool mean) {
  const int64_t row = rows.shape().size_between(1, rows.rank()), segments = static_cast<int64_t>(c.lengths.size());
  Tensor sums = Tensor::zeros(DType::float64, c.data.with(0, segments));
  for (int64_t s = 0, at = 0; s < segments; at += c.lengths[s++])
    for (int64_t k = 0; k < c.lengths[s]; ++k)
      for (int64_t j = 0; j < row; ++j)
        sums.data<double>()[s * row + j] += rows.data<double>()[(at + k) * row + j] / (mean ? c.lengths[s] : 1);
  return sums;
}

TEST(LengthsSum, IsTheLoop) {
  for (const Case& c : kCases) {
    const Tensor data = normal<double>(c.data), rows = rows_of(c, data);
    for (const bool mean : {false, true}) {
      const std::string kind = mean ? "Mean" : "Sum";
      const Tensor expected = sums_of(c, rows, mean);
      EXPECT_EQ(compare(run_op_on(dense(kind), {{"D", rows}, {"L", ints(c.lengths)}})[0], expected, 1e-14), "");
      const Feeds feeds = {{"D", data}, {"I", ints(c.indices)}, {"L", ints(c.lengths)}};
      EXPECT_EQ(compare(run_op_on(sparse(kind), feeds)[0], expected, 1e-14), "");
    }
  }
}

TEST(LengthsSum, TakesBothKindsOfIntegers) {
  const Feeds feeds = {{"D", Tensor::of<float>({3, 1}, {1, 2, 4})},
                       {"I", Tensor::of<int64_t>({3}, {2, 0, 1})},
                       {"L", Tensor::of<int64_t>({2}, {2, 1})}};
  EXPECT_EQ(compare(run_op_on(sparse("Sum"), feeds)[0], Tensor::of<float>({2, 1}, {5, 2}), 0), "");
  EXPECT_EQ(compare(run_op_on(sparse("Mean"), feeds)[0], Tensor::of<float>({2, 1}, {2.5f, 2}), 0), "");
}

TEST(LengthsSum, Gradients) {
  for (const Case& c : kCases)
    for (const std::string kind : {"Sum", "Mean"}) {
      const Tensor data = normal<double>(c.data), rows = rows_of(c, data), lengths = ints(c.lengths);
      EXPECT_EQ(check_gradient(dense(kind), {{"D", rows}, {"L", lengths}}, {"D"}), "");
      EXPECT_EQ(check_gradient(sparse(kind), {{"D", data}, {"I", ints(c.indices)}, {"L", lengths}}, {"D"}), "");
      const Feeds feeds = {{"d", sums_of(c, rows, false)}, {"L", lengths}};
      for (const std::string prefix : {"Lengths", "SparseLengths"})
        EXPECT_EQ(check_gradient(make_op(prefix + kind + "Gradient", {"d", "L"}, {"dD"}), feeds, {"d"}), "");
    }
}

TEST(LengthsSum, TileRepeatsRows) {
  const OperatorDef tile = make_op("LengthsTile", {"D", "L"}, {"Y"});
  const Feeds feeds = {{"D", Tensor::of<int64_t>({3, 2}, {1, 2, 3, 4, 5, 6})}, {"L", ints({2, 0, 1})}};
  EXPECT_EQ(compare(run_op_on(tile, feeds)[0], Tensor::of<int64_t>({3, 2}, {1, 2, 1, 2, 5, 6}), 0), "");
  for (const Shape& shape : {Shape{3, 2}, Shape{3}, Shape{3, 0}})
    EXPECT_EQ(check_gradient(tile, {{"D", normal<double>(shape)}, {"L", ints({2, 0, 3})}}, {"D"}), "");
}

TEST(LengthsSum, SparseGradientHasTheIndices) {
  NetDef net;
  for (const char* name : {"D", "I", "L", "dY"}) net.add_external_input(name);
  *net.add_op() = sparse("Sum");
  const auto result = add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {"D"}, .stop = {}});
  EXPECT_EQ(net.op_size(), 2);
  EXPECT_EQ(net.op(1).type(), "SparseLengthsSumGradient");
  EXPECT_EQ(result.gradients.at("D").indices, "I");
  EXPECT_EQ(result.kept, (std::set<std::string>{"I", "L"}));
}

TEST(LengthsSum, Errors) {
  auto fact = [](const OperatorDef& def, const Tensor& data, const Tensor& indices, const Tensor& lengths) {
    const Feeds feeds = {{"D", data}, {"I", indices}, {"L", lengths}};
    const std::string text = error_of([&] { run_op_on(def, feeds); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor data = normal<float>({3, 2}), two = ints({0, 2});
  EXPECT_EQ(fact(dense("Sum"), data, two, ints({2, 2})), "LengthsSum: the lengths add up to 4, but there are 3 rows");
  EXPECT_EQ(fact(dense("Mean"), data, two, ints({4, -1})), "LengthsMean: length 1 is -1, which is negative");
  EXPECT_EQ(fact(sparse("Sum"), data, two, ints({3})),
            "SparseLengthsSum: the lengths add up to 3, but there are 2 indices");
  EXPECT_EQ(fact(sparse("Mean"), data, ints({0, 3}), ints({2})),
            "SparseLengthsMean: index 1 is 3, which is outside of 0 to 2");
  EXPECT_EQ(fact(sparse("Sum"), data, ints({-1}), ints({1})),
            "SparseLengthsSum: index 0 is -1, which is outside of 0 to 2");
  EXPECT_EQ(fact(sparse("Sum"), data, integers<int32_t>({1, 2}, 0, 1), ints({2})),
            "SparseLengthsSum: INDICES must have one dimension, but have shape [1, 2]");
  EXPECT_EQ(fact(dense("Sum"), data, two, Tensor::scalar<int32_t>(3)),
            "LengthsSum: LENGTHS must have one dimension, but have shape []");
  EXPECT_EQ(fact(dense("Sum"), normal<float>({}), two, ints({1})),
            "LengthsSum: DATA is a single value, which has no rows");
  EXPECT_EQ(fact(make_op("LengthsSumGradient", {"D", "L"}, {"Y"}), data, two, ints({1})),
            "LengthsSumGradient: the first input [3, 2] has 3 rows, but there are 1 lengths");
}

// The gradients' names in the public format, whose third input has a row for each place.
TEST(LengthsSum, GradientsOfThePublicFormat) {
  for (const Case& c : kCases)
    for (const std::string kind : {"Sum", "Mean"}) {
      const Tensor data = normal<double>(c.data), rows = rows_of(c, data), lengths = ints(c.lengths);
      const Feeds feeds = {{"d", sums_of(c, rows, false)}, {"L", lengths}, {"D", rows}, {"I", ints(c.indices)}};
      const Tensor dx = run_op_on(make_op("Lengths" + kind + "Gradient", {"d", "L"}, {"dD"}), feeds)[0];
      const OperatorDef dense = make_op("LengthsIndicesInGradient" + kind + "Gradient", {"d", "L", "D"}, {"dD"});
      const OperatorDef sparse = make_op("SparseLengthsIndicesInGradient" + kind + "Gradient", {"d", "L", "I"}, {"dD"});
      for (const OperatorDef& def : {dense, sparse}) {
        EXPECT_EQ(compare(run_op_on(def, feeds)[0], dx, 0), "") << def.type();
        EXPECT_EQ(check_gradient(def, feeds, {"d"}), "") << def.type();
      }
    }
  const Feeds feeds = {{"d", normal<float>({2, 1})}, {"L", ints({2, 1})}, {"I", ints({0, 0})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("SparseLengthsIndicesInGradientSumGradient", {"d", "L", "I"}, {"dD"}), feeds);
            }).find("the lengths add up to 3, but there are 2 rows"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::lengths_sum_test

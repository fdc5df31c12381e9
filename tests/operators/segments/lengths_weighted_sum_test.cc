// LengthsWeightedSum and SparseLengthsWeightedSum: against loops, gradients of rows and weights, what they refuse.
#include <limits>

#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::lengths_weighted_sum_test {
namespace {

const OperatorDef kDense = make_op("LengthsWeightedSum", {"D", "W", "L"}, {"Y"});
const OperatorDef kSparse = make_op("SparseLengthsWeightedSum", {"D", "W", "I", "L"}, {"Y"});
const OperatorDef kRows = make_op("LengthsWeightedSumGradient", {"W", "d", "L"}, {"dD"});
const OperatorDef kSparseRows = make_op("SparseLengthsWeightedSumGradient", {"W", "d", "L"}, {"dD"});
const OperatorDef kWeights = make_op("LengthsWeightedSumWeightsGradient", {"D", "d", "L"}, {"dW"});
const OperatorDef kSparseWeights = make_op("SparseLengthsWeightedSumWeightsGradient", {"D", "d", "I", "L"}, {"dW"});

Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>({static_cast<int64_t>(values.size())}, values);
}

struct Case {
  Shape data;
  std::vector<int32_t> indices;
  std::vector<int32_t> lengths;  // of the indices
  int64_t row() const { return data.size_between(1, data.rank()); }
  int64_t places() const { return static_cast<int64_t>(indices.size()); }
  int64_t segments() const { return static_cast<int64_t>(lengths.size()); }
};
const Case kCases[] = {{{4, 3}, {3, 0, 3, 1, 1, 2}, {3, 0, 1, 2}},
                       {{5}, {4, 4, 0}, {1, 2}},
                       {{2, 1, 2}, {1}, {0, 1, 0}},
                       {{3, 2}, {}, {0, 0}},
                       {{3, 2}, {}, {}},
                       {{3, 0}, {2, 1}, {2}}};

Feeds feeds_of(const Case& c) {
  return {{"D", normal<double>(c.data)},
          {"W", normal<double>({c.places()}, 2)},
          {"I", ints(c.indices)},
          {"L", ints(c.lengths)},
          {"d", normal<double>(c.data.with(0, c.segments()), 3)}};
}

// The same with the rows that the indices name as the data.
Feeds gathered(const Case& c, Feeds feeds) {
  Tensor rows = Tensor::empty(DType::float64, c.data.with(0, c.places()));
  for (int64_t k = 0; k < c.places(); ++k)
    for (int64_t j = 0; j < c.row(); ++j)
      rows.data<double>()[k * c.row() + j] = feeds[0].second.data<double>()[c.indices[k] * c.row() + j];
  feeds[0].second = rows;
  return feeds;
}

// Calls fn(segment, place) for each place, in order.
template <class Fn>
void for_places(const Case& c, const Fn& fn) {
  int64_t place = 0;
  for (int64_t s = 0; s < c.segments(); ++s)
    for (int32_t k = 0; k < c.lengths[s]; ++k) fn(s, place++);
}

TEST(LengthsWeightedSum, IsTheLoop) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_of(c);
    const double *data = feeds[0].second.data<double>(), *weights = feeds[1].second.data<double>();
    Tensor y = Tensor::zeros(DType::float64, c.data.with(0, c.segments()));
    for_places(c, [&](int64_t s, int64_t k) {
      for (int64_t j = 0; j < c.row(); ++j)
        y.data<double>()[s * c.row() + j] += weights[k] * data[c.indices[k] * c.row() + j];
    });
    EXPECT_EQ(compare(run_op_on(kSparse, feeds)[0], y, 1e-14), "") << c.data.str();
    EXPECT_EQ(compare(run_op_on(kDense, gathered(c, feeds))[0], y, 1e-14), "") << c.data.str();
  }
}

TEST(LengthsWeightedSum, GradientOperatorsAreTheLoops) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_of(c);
    const double *data = feeds[0].second.data<double>(), *weights = feeds[1].second.data<double>();
    const double* dy = feeds[4].second.data<double>();
    Tensor rows = Tensor::empty(DType::float64, c.data.with(0, c.places()));
    Tensor products = Tensor::zeros(DType::float64, {c.places()});
    for_places(c, [&](int64_t s, int64_t k) {
      for (int64_t j = 0; j < c.row(); ++j) {
        rows.data<double>()[k * c.row() + j] = weights[k] * dy[s * c.row() + j];
        products.data<double>()[k] += data[c.indices[k] * c.row() + j] * dy[s * c.row() + j];
      }
    });
    EXPECT_EQ(compare(run_op_on(kRows, feeds)[0], rows, 0), "") << c.data.str();
    EXPECT_EQ(compare(run_op_on(kSparseRows, feeds)[0], rows, 0), "") << c.data.str();
    EXPECT_EQ(compare(run_op_on(kSparseWeights, feeds)[0], products, 1e-14), "") << c.data.str();
    EXPECT_EQ(compare(run_op_on(kWeights, gathered(c, feeds))[0], products, 1e-14), "") << c.data.str();
  }
}

TEST(LengthsWeightedSum, TakesBothKindsOfIntegers) {
  const Feeds feeds = {{"D", Tensor::of<float>({3, 1}, {1, 2, 4})},
                       {"W", Tensor::of<float>({3}, {2, 3, 5})},
                       {"I", Tensor::of<int64_t>({3}, {2, 0, 1})},
                       {"L", Tensor::of<int64_t>({2}, {2, 1})}};
  EXPECT_EQ(compare(run_op_on(kSparse, feeds)[0], Tensor::of<float>({2, 1}, {11, 10}), 0), "");
}

TEST(LengthsWeightedSum, Gradients) {
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_of(c), dense = gathered(c, feeds);
    EXPECT_EQ(check_gradient(kDense, dense, {"D", "W"}), "") << c.data.str();
    EXPECT_EQ(check_gradient(kSparse, feeds, {"D", "W"}), "") << c.data.str();
    EXPECT_EQ(check_gradient(kRows, feeds, {"W", "d"}), "") << c.data.str();
    EXPECT_EQ(check_gradient(kSparseRows, feeds, {"W", "d"}), "") << c.data.str();
    EXPECT_EQ(check_gradient(kWeights, dense, {"D", "d"}), "") << c.data.str();
    EXPECT_EQ(check_gradient(kSparseWeights, feeds, {"D", "d"}), "") << c.data.str();
  }
}

TEST(LengthsWeightedSum, OnlyWhatIsReadIsKept) {
  auto differentiated = [](const std::string& wanted) {
    NetDef net;
    for (const char* name : {"D", "W", "I", "L", "dY"}) net.add_external_input(name);
    *net.add_op() = kSparse;
    return add_gradient_operators(net, {.targets = {{"Y", "dY"}}, .wanted = {wanted}, .stop = {}});
  };
  const GradientResult table = differentiated("D");
  EXPECT_EQ(table.gradients.at("D").indices, "I");
  EXPECT_TRUE(table.gradients.at("D").is_sparse());
  EXPECT_EQ(table.kept, (std::set<std::string>{"W", "I", "L"}));
  const GradientResult weights = differentiated("W");
  EXPECT_EQ(weights.gradients.at("W").dense, "W_grad");
  EXPECT_EQ(weights.kept, (std::set<std::string>{"D", "I", "L"}));
}

TEST(LengthsWeightedSum, Errors) {
  auto fact = [](const OperatorDef& def, const Tensor& weights, const Tensor& indices, const Tensor& lengths) {
    const Feeds feeds = {{"D", normal<float>({3, 2})}, {"W", weights}, {"I", indices}, {"L", lengths}};
    const std::string text = error_of([&] { run_op_on(def, feeds); });
    return text.substr(0, text.find('\n'));
  };
  const Tensor two = normal<float>({2}), three = normal<float>({3}), ids = ints({0, 2});
  const std::string sparse = "SparseLengthsWeightedSum: ", dense = "LengthsWeightedSum: ";
  EXPECT_EQ(fact(kDense, two, ids, ints({3})), dense + "there are 2 weights for 3 rows");
  EXPECT_EQ(fact(kDense, three, ids, ints({2, 2})), dense + "the lengths add up to 4, but there are 3 rows");
  EXPECT_EQ(fact(kSparse, three, ids, ints({2})), sparse + "there are 3 weights for 2 indices");
  EXPECT_EQ(fact(kSparse, two, ids, ints({3})), sparse + "the lengths add up to 3, but there are 2 indices");
  EXPECT_EQ(fact(kSparse, two, ids, ints({3, -1})), sparse + "length 1 is -1, which is negative");
  EXPECT_EQ(fact(kSparse, two, ints({0, 3}), ints({2})), sparse + "index 1 is 3, which is outside of 0 to 2");
  EXPECT_EQ(fact(kSparse, two, ints({-1, 0}), ints({2})), sparse + "index 0 is -1, which is outside of 0 to 2");
  EXPECT_EQ(fact(kSparse, normal<float>({2, 1}), ids, ints({2})),
            sparse + "WEIGHTS must have one dimension, but have shape [2, 1]");
  EXPECT_NE(fact(kSparse, normal<double>({2}), ids, ints({2})).find("double"), std::string::npos);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(fact(kSparse, two, ids, Tensor::of<int64_t>({2}, {2, most})),
            sparse + "the lengths up to length 1 add up to more than 64 bits can count");
}

TEST(LengthsWeightedSum, ErrorsOfGradientOperators) {
  auto fact = [](const OperatorDef& def, const Shape& data, const Shape& dy, int64_t weights) {
    const Feeds feeds = {{"D", normal<float>(data)},
                         {"d", normal<float>(dy)},
                         {"W", normal<float>({weights})},
                         {"I", ints({0, 1})},
                         {"L", ints({2, 0})}};
    const std::string text = error_of([&] { run_op_on(def, feeds); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(fact(kRows, {2}, {3, 2}, 2), "LengthsWeightedSumGradient: there are 3 segments' gradients for 2 lengths");
  EXPECT_EQ(fact(kRows, {2}, {2, 2}, 3),
            "LengthsWeightedSumGradient: the lengths add up to 2, but there are 3 weights");
  EXPECT_EQ(fact(kSparseWeights, {2, 3}, {2, 2}, 2),
            "SparseLengthsWeightedSumWeightsGradient: rows of DATA [2, 3] are not those of SEGMENT_GRADS [2, 2]");
  EXPECT_EQ(fact(kWeights, {3, 2}, {2, 2}, 2),
            "LengthsWeightedSumWeightsGradient: the lengths add up to 2, but there are 3 rows");
}

// Both gradients in one operator, and that of the rows with the indices, as nets of the public format have them.
TEST(LengthsWeightedSum, GradientsOfThePublicFormat) {
  const std::string both = "WeightedSumWithMainInputGradient", in_gradient = "SparseLengthsIndicesInGradient";
  const OperatorDef dense = make_op("Lengths" + both, {"W", "d", "L", "D"}, {"dD", "dW"});
  const OperatorDef rows = make_op(in_gradient + "WeightedSumGradient", {"W", "d", "L", "I"}, {"dD"});
  for (const Case& c : kCases) {
    const Feeds feeds = feeds_of(c), gathered_feeds = gathered(c, feeds);
    const Tensor dx = run_op_on(kRows, feeds)[0], dw = run_op_on(kSparseWeights, feeds)[0];
    EXPECT_EQ(compare(run_op_on(rows, feeds)[0], dx, 0), "");
    EXPECT_EQ(check_gradient(rows, feeds, {"W", "d"}), "");
    const auto check = [&](const OperatorDef& def, const Feeds& given) {
      const auto out = run_op_on(def, given);
      EXPECT_EQ(compare(out[0], dx, 0), "") << def.type();
      EXPECT_EQ(compare(out[1], dw, 1e-14), "") << def.type();
      EXPECT_EQ(check_gradient(def, given, {"W", "d", "D"}), "") << def.type();
    };
    check(dense, gathered_feeds);
    for (const std::string& type : {"SparseLengths" + both, in_gradient + both})
      check(make_op(type, {"W", "d", "L", "D", "I"}, {"dD", "dW"}), feeds);
  }
}

}  // namespace
}  // namespace stepnet::testing::lengths_weighted_sum_test

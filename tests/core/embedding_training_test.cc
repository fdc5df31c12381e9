// An embedding that is trained on the sparse gradient of its look-up: the same table as by the dense optimizer on the
// dense gradient, where that is so by arithmetic, and rows that are never looked up keep their bits and their moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::embedding_training_test {
namespace {

constexpr int64_t kRows = 7, kColumns = 3;
using Steps = std::vector<std::vector<int64_t>>;

struct Optimizer {
  std::string type;
  std::vector<std::string> inputs;  // "grad" stands for the gradient, "indices" for its indices
  std::vector<std::string> outputs;
  std::vector<Argument> args = {};
};

// The loss of a batch of looked-up rows, its gradient, and the optimizer's step. A dense optimizer gets the sparse
// gradient made dense.
class Embedding {
 public:
  Embedding(const Optimizer& optimizer, float rate) {
    workspace_.tensor("table") = normal<double>({kRows, kColumns});
    for (const char* name : {"moment", "moment_2"}) workspace_.tensor(name) = uniform<double>({kRows, kColumns}, 0, 1);
    workspace_.tensor("rate") = Tensor::scalar<float>(rate);
    workspace_.tensor("one") = Tensor::scalar<float>(1);
    workspace_.tensor("iter") = Tensor::scalar<int64_t>(0);
    *net_.add_op() = make_op("Gather", {"table", "words"}, {"rows"});
    *net_.add_op() = make_op("Tanh", {"rows"}, {"features"});
    *net_.add_op() = make_op("SquaredL2Distance", {"features", "target"}, {"distance"});
    *net_.add_op() = make_op("AveragedLoss", {"distance"}, {"loss"});
    add_step(optimizer);
    *net_.add_op() = make_op("Iter", {"iter"}, {"iter"});
  }

  // `shape` is that of the words of a batch.
  void train(const Steps& steps, const Shape& shape) {
    for (size_t s = 0; s < steps.size(); ++s) {
      workspace_.tensor("words") = Tensor::of<int64_t>(shape, std::span(steps[s]));
      Shape rows = shape;
      rows.push_back(kColumns);
      workspace_.tensor("target") = uniform<double>(rows, -0.5, 0.5, 30 + s);
      if (!bound_) bound_ = std::make_unique<Net>(net_, workspace_);
      RunContext run;
      bound_->run(run);
    }
  }
  const Tensor& blob(const std::string& name) const { return workspace_.fetch(name); }

 private:
  void add_step(const Optimizer& optimizer) {
    GradientRequest request;
    request.targets.emplace_back("loss", "");
    request.wanted.insert("table");
    const GradientName gradient = add_gradient_operators(net_, request).gradients.at("table");
    EXPECT_TRUE(gradient.is_sparse());
    OperatorDef step = make_op(optimizer.type, optimizer.inputs, optimizer.outputs, optimizer.args);
    const bool sparse = std::ranges::count(optimizer.inputs, "indices") > 0;
    if (!sparse)
      *net_.add_op() = make_op("SparseToDense", {gradient.indices, gradient.values, "table"}, {"dense_gradient"});
    for (std::string& name : *step.mutable_input()) {
      if (name == "indices") name = gradient.indices;
      if (name == "grad") name = sparse ? gradient.values : "dense_gradient";
    }
    for (std::string& name : *step.mutable_output())
      if (name == "grad") name = sparse ? gradient.values : "dense_gradient";
    *net_.add_op() = step;
  }

  Workspace workspace_;
  NetDef net_;
  std::unique_ptr<Net> bound_;
};

const Optimizer kSparseAdagrad = {"SparseAdagrad", {"table", "moment", "indices", "grad", "rate"}, {"table", "moment"}};
const Optimizer kAdagrad = {"Adagrad", {"table", "moment", "grad", "rate"}, {"table", "moment"}};
const Optimizer kSparseAdam = {
    "SparseAdam", {"table", "moment", "moment_2", "indices", "grad", "rate", "iter"}, {"table", "moment", "moment_2"}};
const Optimizer kAdam = {
    "Adam", {"table", "moment", "moment_2", "grad", "rate", "iter"}, {"table", "moment", "moment_2"}};
const Optimizer kScatter = {"ScatterWeightedSum", {"table", "one", "indices", "grad", "rate"}, {"table"}};
const Optimizer kDescent = {"WeightedSum", {"table", "one", "grad", "rate"}, {"table"}};
const Optimizer kSparseMomentum = {"SparseMomentumSGDUpdate",
                                   {"grad", "moment", "rate", "table", "indices"},
                                   {"grad", "moment", "table"},
                                   {make_arg("momentum", 0.75f), make_arg("nesterov", 1)}};
const Optimizer kMomentum = {"MomentumSGDUpdate",
                             {"grad", "moment", "rate", "table"},
                             {"grad", "moment", "table"},
                             {make_arg("momentum", 0.75f), make_arg("nesterov", 1)}};

// Row 6 is never looked up; no batch has a word twice.
const Steps kDistinct = {{0, 1, 2, 3}, {5, 3, 1, 0}, {4, 2, 0, 5}, {1, 5, 4, 2}, {3, 0, 5, 1}};
const Steps kRepeated = {{0, 0, 2, 3}, {5, 5, 5, 5}, {4, 2, 4, 5}, {1, 1, 4, 4}, {3, 0, 3, 1}};
// Every word in every batch.
const Steps kAll = {{0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {1, 0, 3, 2, 5, 4, 6}, {2, 4, 6, 0, 1, 3, 5}};

void expect_same_tables(const Optimizer& sparse, const Optimizer& dense, float rate, const Steps& steps,
                        const Shape& shape) {
  Embedding by_rows(sparse, rate), as_table(dense, rate);
  by_rows.train(steps, shape);
  as_table.train(steps, shape);
  for (const char* name : {"table", "moment", "moment_2"})
    EXPECT_EQ(compare(by_rows.blob(name), as_table.blob(name), 1e-13), "") << sparse.type << ' ' << name;
  EXPECT_NE(compare(by_rows.blob("table"), normal<double>({kRows, kColumns}), 1e-3), "");
}

void expect_row_untouched(const Optimizer& optimizer, float rate, const Steps& steps, int64_t row) {
  Embedding before(optimizer, rate), after(optimizer, rate);
  after.train(steps, {2, 2});
  for (const char* name : {"table", "moment", "moment_2"}) {
    const size_t size = kColumns * sizeof(double), at = static_cast<size_t>(row) * size;
    EXPECT_EQ(std::memcmp(before.blob(name).raw() + at, after.blob(name).raw() + at, size), 0)
        << optimizer.type << ' ' << name;
  }
}

TEST(EmbeddingTraining, AdagradOfRowsIsAdagrad) {
  expect_same_tables(kSparseAdagrad, kAdagrad, -0.25f, kDistinct, {2, 2});
  expect_same_tables(kSparseAdagrad, kAdagrad, -0.25f, kAll, {7});
}

// Descent is linear in the gradient, so that repeated words make no difference.
TEST(EmbeddingTraining, DescentOfRowsIsDescent) {
  expect_same_tables(kScatter, kDescent, -0.25f, kDistinct, {2, 2});
  expect_same_tables(kScatter, kDescent, -0.25f, kRepeated, {4, 1});
  expect_same_tables(kScatter, kDescent, -0.25f, kAll, {7, 1});
}

// Moments of a row decay only when it is looked up, so that every row must be for the two to agree.
TEST(EmbeddingTraining, AdamAndMomentumOfAllRowsAreDense) {
  expect_same_tables(kSparseAdam, kAdam, -0.0625f, kAll, {7});
  expect_same_tables(kSparseMomentum, kMomentum, 0.125f, kAll, {7, 1});
  Embedding by_rows(kSparseAdam, -0.0625f), as_table(kAdam, -0.0625f);
  by_rows.train(kDistinct, {4});
  as_table.train(kDistinct, {4});
  EXPECT_NE(compare(by_rows.blob("moment"), as_table.blob("moment"), 1e-3), "");
}

TEST(EmbeddingTraining, RowsNeverLookedUpKeepTheirBits) {
  for (const Optimizer& optimizer : {kSparseAdagrad, kSparseAdam, kScatter})
    for (const Steps& steps : {kDistinct, kRepeated}) expect_row_untouched(optimizer, -0.25f, steps, 6);
  expect_row_untouched(kSparseMomentum, 0.25f, kRepeated, 6);
}

}  // namespace
}  // namespace stepnet::testing::embedding_training_test

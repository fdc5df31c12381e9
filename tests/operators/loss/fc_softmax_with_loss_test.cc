// FCSoftmaxWithLoss against FC and SoftmaxWithLoss, in blocks of every size, and by central differences.
#include "core/compute/threads.h"
#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::fc_softmax_with_loss_test {
namespace {

constexpr int64_t kRows = 7, kClasses = 5, kWidth = 3;

template <class T>
Feeds feeds_of(int64_t rows, int64_t classes, int64_t width) {
  return {{"X", normal<T>({rows, width}, 1)},
          {"W", normal<T>({classes, width}, 2)},
          {"b", normal<T>({classes}, 3)},
          {"T", integers<int32_t>({rows}, 0, classes - 1, 4)},
          {"w", uniform<T>({rows}, 0, 2, 5)}};
}

// The loss, dX, dW and db of the operators that it stands for.
std::vector<Tensor> whole(const Feeds& feeds, bool biased, bool weighted, float scale) {
  NetDef net;
  *net.add_op() =
      make_op("FC", biased ? std::vector<std::string>{"X", "W", "b"} : std::vector<std::string>{"X", "W"}, {"s"});
  *net.add_op() = make_op("SoftmaxWithLoss",
                          weighted ? std::vector<std::string>{"s", "T", "w"} : std::vector<std::string>{"s", "T"},
                          {"p", "loss"}, {make_arg("scale", scale)});
  GradientRequest request;
  request.targets = {{"loss", ""}};
  request.wanted = {"X", "W"};
  if (biased) request.wanted.insert("b");
  const GradientResult result = add_gradient_operators(net, request);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext run;
  run_net_once(net, workspace, run);
  std::vector<Tensor> made = {workspace.fetch("loss")};
  for (const char* name : {"X", "W", "b"})
    if (const auto it = result.gradients.find(name); it != result.gradients.end())
      made.push_back(workspace.fetch(it->second.dense));
  return made;
}

OperatorDef in_blocks(int64_t rows, bool biased, bool weighted, float scale = 1) {
  std::vector<std::string> inputs = {"X", "W", "T"};
  if (biased || weighted) inputs.emplace_back(biased ? "b" : "");
  if (weighted) inputs.emplace_back("w");
  std::vector<std::string> outputs = {"loss", "dX", "dW"};
  if (biased) outputs.emplace_back("db");
  return make_op("FCSoftmaxWithLoss", inputs, outputs, {make_arg("block_rows", rows), make_arg("scale", scale)});
}

class FCSoftmaxWithLoss : public ::testing::Test {
 protected:
  void TearDown() override { set_threads(0); }
};

TEST_F(FCSoftmaxWithLoss, IsTheLossOfAnFcInBlocksOfAnySize) {
  const Feeds feeds = feeds_of<double>(kRows, kClasses, kWidth);
  for (const bool biased : {false, true})
    for (const bool weighted : {false, true}) {
      const std::vector<Tensor> should = whole(feeds, biased, weighted, 0.5F);
      for (const int64_t rows : {0, 1, 2, 3, 6, 7, 100}) {
        const std::vector<Tensor> is = run_op_on(in_blocks(rows, biased, weighted, 0.5F), feeds);
        ASSERT_EQ(is.size(), should.size());
        for (size_t i = 0; i < is.size(); ++i) EXPECT_EQ(compare(is[i], should[i], 1e-12), "") << rows << " " << i;
      }
    }
}

TEST_F(FCSoftmaxWithLoss, OfFloatsIsNearThatOfDoubles) {
  const Feeds feeds = feeds_of<float>(300, 1000, 24);
  Feeds wide;
  for (const auto& [name, value] : feeds) wide.emplace_back(name, name == "T" ? value : to_double(value));
  const std::vector<Tensor> is = run_op_on(in_blocks(64, true, true), feeds), should = whole(wide, true, true, 1);
  for (size_t i = 0; i < is.size(); ++i) EXPECT_EQ(compare(is[i], should[i], 1e-5), "") << i;
}

// As of every product, bits depend on the number of threads.
TEST_F(FCSoftmaxWithLoss, HasTheSameBitsInEveryRun) {
  const Feeds feeds = feeds_of<float>(500, 700, 32);
  set_threads(1);
  const std::vector<Tensor> alone = run_op_on(in_blocks(0, true, true), feeds);
  for (const int threads : {1, 2, 3}) {
    set_threads(threads);
    const std::vector<Tensor> is = run_op_on(in_blocks(0, true, true), feeds),
                              again = run_op_on(in_blocks(0, true, true), feeds);
    EXPECT_EQ(compare(is[0], alone[0], 0), "") << threads;
    for (size_t i = 0; i < is.size(); ++i) {
      EXPECT_EQ(compare(is[i], again[i], 0), "") << threads << " " << i;
      EXPECT_EQ(compare(is[i], alone[i], 1e-6), "") << threads << " " << i;
    }
  }
}

TEST_F(FCSoftmaxWithLoss, OfNoRowsOfOneAndOfNoWeight) {
  const Feeds none = feeds_of<double>(0, kClasses, kWidth);
  const std::vector<Tensor> y = run_op_on(in_blocks(0, true, true), none);
  EXPECT_EQ(y[0].item<double>(), 0);
  EXPECT_EQ(y[1].shape(), (Shape{0, kWidth}));
  EXPECT_EQ(compare(y[2], Tensor::zeros(DType::float64, {kClasses, kWidth}), 0), "");
  EXPECT_EQ(compare(y[3], Tensor::zeros(DType::float64, {kClasses}), 0), "");
  const Feeds one = feeds_of<double>(1, kClasses, kWidth);
  const std::vector<Tensor> is = run_op_on(in_blocks(0, true, false), one), should = whole(one, true, false, 1);
  for (size_t i = 0; i < is.size(); ++i) EXPECT_EQ(compare(is[i], should[i], 1e-12), "") << i;
  Feeds weightless = feeds_of<double>(kRows, kClasses, kWidth);
  weightless[4].second = Tensor::zeros(DType::float64, {kRows});
  for (const Tensor& t : run_op_on(in_blocks(2, true, true), weightless))
    EXPECT_EQ(compare(t, Tensor::zeros(DType::float64, t.shape()), 0), "");
}

TEST_F(FCSoftmaxWithLoss, LeavesOutWhatIsNotWanted) {
  const Feeds feeds = feeds_of<double>(kRows, kClasses, kWidth);
  const std::vector<Tensor> should = whole(feeds, true, false, 1);
  for (size_t only = 0; only < 4; ++only) {
    OperatorDef op = in_blocks(2, true, false);
    for (int i = 0; i < 4; ++i)
      if (i != static_cast<int>(only)) op.set_output(i, "");
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
    NetDef net;
    *net.add_op() = op;
    RunContext run;
    run_net_once(net, workspace, run);
    EXPECT_EQ(compare(workspace.fetch(op.output(static_cast<int>(only))), should[only], 1e-12), "") << only;
  }
}

// Also where the operator has not left the gradients, and of those that it leaves.
TEST_F(FCSoftmaxWithLoss, Gradients) {
  const Feeds feeds = feeds_of<double>(4, 3, 2);
  OperatorDef op = in_blocks(3, true, true, 2);
  EXPECT_EQ(check_gradient(op, feeds, {"X", "W", "b", "w"}), "");
  EXPECT_EQ(check_gradient(op, feeds, {"X", "W", "b"}, 1e-7, 1e-5, {"loss"}), "");
  op.mutable_output()->DeleteSubrange(1, 3);
  EXPECT_EQ(check_gradient(op, feeds, {"X", "W", "b", "w"}), "");
}

TEST_F(FCSoftmaxWithLoss, RefusesWhatDoesNotFit) {
  const auto refused = [](const char* name, const Tensor& value) {
    Feeds feeds = feeds_of<double>(kRows, kClasses, kWidth);
    for (auto& [blob, old] : feeds)
      if (blob == name) old = value;
    return error_of([&] { run_op_on(in_blocks(0, true, true), feeds); });
  };
  EXPECT_NE(refused("X", normal<double>({kRows, 4})).find("rows of 4 values"), std::string::npos);
  EXPECT_NE(refused("b", normal<double>({2})).find("b must be [5]"), std::string::npos);
  EXPECT_NE(refused("w", normal<double>({2})).find("weights is"), std::string::npos);
  EXPECT_NE(refused("T", integers<int32_t>({2}, 0, 1)).find("need 7 values"), std::string::npos);
  EXPECT_NE(refused("T", integers<int32_t>({kRows}, 5, 5)).find("the label of row 0 is 5"), std::string::npos);
}

TEST_F(FCSoftmaxWithLoss, GradientScalesInPlaceAndElsewhere) {
  const Tensor x = normal<double>({3, 2}, 1), w = normal<double>({4, 2}, 2);
  for (const double factor : {1.0, -2.5}) {
    for (const bool in_place : {false, true}) {
      const OperatorDef op =
          make_op("FCSoftmaxWithLossGradient", {"g", "x", "w"},
                  in_place ? std::vector<std::string>{"x", "w"} : std::vector<std::string>{"dx", "dw"});
      const std::vector<Tensor> y = run_op_on(op, {{"g", Tensor::scalar(factor)}, {"x", x.clone()}, {"w", w.clone()}});
      for (int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[0].data<double>()[i], factor * x.data<double>()[i]);
      for (int64_t i = 0; i < w.size(); ++i) EXPECT_EQ(y[1].data<double>()[i], factor * w.data<double>()[i]);
    }
  }
}

}  // namespace
}  // namespace stepnet::testing::fc_softmax_with_loss_test

// Losses of a training run beside those of PyTorch's optimizers, which tests/data/pytorch_losses/record.py records: the
// same weights and batches, 300 steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <vector>

#include "core/io/npy.h"
#include "stepnet/arguments.h"
#include "stepnet/text.h"
#include "stepnet/trainer.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::testing::pytorch_losses_test {
namespace {

constexpr int64_t kSamples = 40, kInputs = 3, kHidden = 8, kSteps = 300;

Tensor values(int64_t rows, int64_t columns, double a, double b, double c) {
  Tensor t = Tensor::empty(DType::float32, {rows, columns});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      t.data<float>()[i * columns + j] =
          static_cast<float>(c * std::sin(a * static_cast<double>(i) + b * static_cast<double>(j) + 1));
  return t;
}

OperatorDef given(const std::string& name, const Tensor& value) {
  OperatorDef op;
  op.set_type("GivenTensorFill");
  op.add_output(name);
  *op.add_arg() = make_arg("shape", std::vector<int64_t>(value.shape().begin(), value.shape().end()));
  const auto span = value.span<float>();
  *op.add_arg() = make_arg("values", std::vector<float>(span.begin(), span.end()));
  return op;
}

NetDef regression() {
  NetDef net = parse_net_text(R"(
    name: "regression"
    op { type: "FC" input: "x" input: "W" input: "b" output: "s" }
    op { type: "Tanh" input: "s" output: "h" }
    op { type: "FC" input: "h" input: "V" input: "c" output: "guess" }
    op { type: "MSELoss" input: "guess" input: "y" output: "loss" }
    [stepnet.model] { loss: "loss" batch: 8 data { column: "x" } data { column: "y" } })");
  NetDef& init = *net.MutableExtension(model)->mutable_init();
  *init.add_op() = given("W", values(kHidden, kInputs, 0.7, 1.9, 0.5));
  *init.add_op() = given("b", Tensor::zeros(DType::float32, {kHidden}));
  *init.add_op() = given("V", values(1, kHidden, 0.3, 1.1, 0.5));
  *init.add_op() = given("c", Tensor::zeros(DType::float32, {1}));
  return net;
}

void write_samples(const TempFolder& folder) {
  const Tensor x = values(kSamples, kInputs, 1.3, 2.1, 1);
  Tensor y = Tensor::empty(DType::float32, {kSamples, 1});
  for (int64_t i = 0; i < kSamples; ++i) {
    const float* row = x.data<float>() + i * kInputs;
    y.data<float>()[i] = static_cast<float>(std::sin(2.0 * row[0]) + 0.5 * row[1]);
  }
  write_npy(folder.file("x.npy"), x);
  write_npy(folder.file("y.npy"), y);
}

OptimizerOptions options_of(const std::string& optimizer) {
  static const std::map<std::string, double> rates = {{"adam", 0.01},     {"adamw", 0.01}, {"adagrad", 0.05},
                                                      {"rmsprop", 0.005}, {"sgd", 0.1},    {"momentum", 0.02},
                                                      {"nesterov", 0.02}};
  OptimizerOptions o;
  o.optimizer = optimizer;
  o.lr = rates.at(optimizer);
  o.clip = 0;
  o.weight_decay = 0.05;
  return o;
}

TEST(PytorchLosses, AreThoseOfTheSameOptimizers) {
  const TempFolder folder;
  write_samples(folder);
  std::istringstream lines(read_all(source_path("tests/data/pytorch_losses/losses.txt")));
  int optimizers = 0;
  for (std::string line; std::getline(lines, line); ++optimizers) {
    std::istringstream recorded(line);
    TrainOptions o;
    recorded >> o.optimizer.optimizer;
    SCOPED_TRACE(o.optimizer.optimizer);
    o.optimizer = options_of(o.optimizer.optimizer);
    o.data = {"x=" + folder.file("x.npy"), "y=" + folder.file("y.npy")};
    o.holdout = 0;
    o.order = "given";
    o.iterations = kSteps;
    TrainEvents events;
    double worst = 0;
    int compared = 0;
    events.iteration = [&](const TrainProgress& p) {
      if (p.iteration % 10 != 1) return;
      double expected = 0;
      recorded >> expected;
      worst = std::max(worst, std::abs(p.loss - expected));
      ++compared;
    };
    Trainer(regression(), o, events).run();
    EXPECT_TRUE(recorded);
    EXPECT_EQ(compared, kSteps / 10);
    EXPECT_LT(worst, 1e-5);
  }
  EXPECT_EQ(optimizers, 7);
}

}  // namespace
}  // namespace stepnet::testing::pytorch_losses_test

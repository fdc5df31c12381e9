// Training on arrays in memory.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "core/io/npy.h"
#include "stepnet/stepnet.h"
#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::arrays_test {
namespace {

constexpr const char* kPlane = R"(
  op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
  op { type: "MSELoss" input: "y" input: "target" output: "loss" }
  [stepnet.model] {
    init { op { type: "XavierFill" output: "W" arg { name: "shape" ints: 1 ints: 2 } }
           op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } } }
    loss: "loss" batch: 16
    data { column: "x" }
    data { column: "target" }
  })";

class Arrays : public ::testing::Test {
 protected:
  Arrays() { set_threads(1); }
  ~Arrays() override { set_threads(0); }

  TempFolder folder_;
};

TEST_F(Arrays, AreTrainedOn) {
  const NetDef net = parse_net_text(kPlane);
  stepnet::Tensor x = stepnet::Tensor::empty(stepnet::DType::float32, {200, 2});
  stepnet::Tensor target = stepnet::Tensor::empty(stepnet::DType::float32, {200, 1});
  for (int i = 0; i < 200; ++i) {
    const auto width = static_cast<float>(i % 7), height = static_cast<float>(i % 11);
    x.data<float>()[2 * i] = width;
    x.data<float>()[2 * i + 1] = height;
    target.data<float>()[i] = 2 * width - height;
  }
  stepnet::TrainOptions options;
  options.arrays = {{"x", x}, {"target", target}};  // in place of files, which options.data names
  options.fold = "1/5";
  options.epochs = 60;
  options.optimizer.lr = 0.05;
  const stepnet::TrainResult result = stepnet::Trainer(net, options).run();
  std::printf("held-out loss %.6f\n", *result.validation_loss);
  EXPECT_LT(*result.validation_loss, 1e-3);
  // The same as from files, and beside files.
  write_npy(folder_.file("x.npy"), x);
  write_npy(folder_.file("target.npy"), target);
  TrainOptions files = options, mixed = options;
  files.arrays.clear();
  files.data = {"x=" + folder_.file("x.npy"), "target=" + folder_.file("target.npy")};
  mixed.arrays.erase("x");
  mixed.data = {files.data[0]};
  EXPECT_EQ(Trainer(net, files).run().validation_loss, result.validation_loss);
  EXPECT_EQ(Trainer(net, mixed).run().validation_loss, result.validation_loss);
}

TEST_F(Arrays, ThatAreOthersAreNoticed) {
  const NetDef net = parse_net_text(kPlane);
  TrainOptions options;
  options.arrays = {{"x", Tensor::zeros(DType::float64, {40, 2})}, {"target", Tensor::zeros(DType::int32, {40, 1})}};
  options.arrays.at("target").data<int32_t>()[7] = 1;
  options.iterations = 2;
  options.out = folder_.file("run");
  expect_contains(error_text([&] { Trainer(net, options); }),
                  "target");  // fed as int32 unless the model says float
  options.arrays.at("target") = Tensor::zeros(DType::float32, {40, 1});
  EXPECT_TRUE(Trainer(net, options).run().finished);
  options.resume = true;
  options.iterations = 3;
  TrainOptions other = options;
  other.arrays.at("target") = Tensor::zeros(DType::float32, {40, 1});
  other.arrays.at("target").data<float>()[7] = 1;
  expect_contains(error_text([&] { Trainer(net, other); }), "are not those that the run was started with");
  EXPECT_TRUE(Trainer(net, options).run().finished);
}

TEST_F(Arrays, ThatAreNoSamplesAreRefused) {
  const auto refusal = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options;
    options.arrays = {{"x", Tensor::zeros(DType::float32, {40, 2})},
                      {"target", Tensor::zeros(DType::float32, {40, 1})}};
    options.iterations = 1;
    change(options);
    return error_text([&] { Trainer(parse_net_text(kPlane), options); });
  };
  expect_contains(refusal([](TrainOptions& o) { o.arrays["x"] = Tensor::scalar(1.0f); }),
                  "the array \"x\" holds one value, but its first dimension must count samples");
  expect_contains(refusal([](TrainOptions& o) { o.arrays["x"] = Tensor(); }), "which has no numbers");
  expect_contains(refusal([](TrainOptions& o) {
                    o.arrays["x"] = Tensor::zeros(DType::float32, {39, 2});
                  }),
                  "has 40 samples, but the array \"x\" has 39");
  expect_contains(refusal([](TrainOptions& o) { o.arrays.erase("x"); }), "the data have no column \"x\"");
  expect_contains(refusal([](TrainOptions& o) { o.held_out_data = {"x=x.npy"}; }), "no other data");
  expect_contains(refusal([](TrainOptions& o) { o.text = "t"; }), "a text and data are both given");
}

}  // namespace
}  // namespace stepnet::testing::arrays_test

// Reductions, searches, losses and sparse optimizers of sizes that teams of threads share, and faults in their inputs.
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::reductions_test {
namespace {

const Argument kSecond = make_arg("axes", std::vector<int64_t>{1});

TEST_F(GpuTest, ReductionsOfAnySize) {
  for (const Shape& shape : {Shape{3, 1, 2}, Shape{2, 70, 3}, Shape{3, 5000, 2}, Shape{2, 3000, 40}, Shape{2, 0, 3}}) {
    const Feeds feeds = {{"X", normal<double>(shape, 1)}};
    for (const char* type : {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2"})
      EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}, {kSecond}), feeds, 1e-11), "") << type << shape.str();
    EXPECT_EQ(compare_devices(make_op("SumSqrElements", {"X"}, {"Y"}), feeds, 1e-10), "") << shape.str();
    if (shape.size() == 0) continue;
    for (const char* type : {"ReduceMax", "ReduceMin"})
      EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}, {kSecond}), feeds, 0), "") << type << shape.str();
  }
}

TEST_F(GpuTest, SearchesOfLongLines) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor x = uniform<double>({3, 500}, 0, 9);
  x.span<double>()[77] = nan;
  x.span<double>()[600] = x.span<double>()[900] = 10;
  const Argument k = make_arg("k", 7);
  EXPECT_EQ(compare_devices(make_op("ArgMax", {"X"}, {"Y"}), {{"X", x}}, 0), "");
  EXPECT_EQ(compare_devices(make_op("TopK", {"X"}, {"V", "I", "F"}, {k}), {{"X", x}}, 0, 1), "");
}

TEST_F(GpuTest, RowsThatRepeatAreStepsInOrder) {
  std::vector<int64_t> rows(300);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i * i % 37);
  const Tensor indices = Tensor::of<int64_t>({300}, std::span<const int64_t>(rows));
  const Feeds feeds = {{"p", normal<float>({40, 33}, 1)},
                       {"h", uniform<float>({40, 33}, 0, 2)},
                       {"i", indices},
                       {"g", normal<float>({300, 33}, 2)},
                       {"lr", Tensor::of<float>({1}, {-0.125f})}};
  EXPECT_EQ(compare_devices(make_op("SparseAdagrad", {"p", "h", "i", "g", "lr"}, {"p", "h"}), feeds, 1e-5), "");
}

TEST_F(GpuTest, NormClipScalesWhatIsOnTheGpu) {
  const Feeds feeds = {{"a", normal<float>({5000}, 1)}, {"b", normal<double>({3, 4}, 2)}};
  const OperatorDef clip = make_op("GlobalNormClip", {"a", "b"}, {"a", "c", "norm"}, {make_arg("max_norm", 0.5f)});
  EXPECT_EQ(compare_devices(clip, feeds, 1e-5), "");
}

TEST_F(GpuTest, CountersStayOnTheGpu) {
  EXPECT_EQ(compare_devices(make_op("Iter", {"i"}, {"i"}), {{"i", Tensor::of<int64_t>({1}, {41})}}, 0), "");
  EXPECT_EQ(compare_devices(make_op("Iter", {"i"}, {"i"}), {{"i", Tensor::of<int32_t>({1}, {41})}}, 0), "");
}

TEST_F(GpuTest, LabelsThatAreNoClassAreErrors) {
  const Device gpu{DeviceKind::cuda, 0};
  NetDef net;
  *net.add_op() = make_op("SoftmaxWithLoss", {"X", "T"}, {"P", "loss"});
  net.mutable_device_option()->set_device_type(CUDA);
  Workspace workspace;
  for (const auto& [name, value] : Feeds{{"X", normal<float>({3, 4}, 1)}, {"T", Tensor::of<int32_t>({3}, {0, 4, 1})}}) {
    Tensor there = Tensor::empty(value.dtype(), value.shape(), gpu);
    there.copy_from(value);
    workspace.tensor(name) = there;
  }
  RunContext run;
  const std::string error = error_of([&] {
    run_net_once(net, workspace, run);
    Tensor::empty(DType::float32, {}).copy_from(workspace.fetch("loss"));
  });
  EXPECT_NE(error.find("SoftmaxWithLoss: a label is 4, outside of [0, 4)"), std::string::npos) << error;
}

}  // namespace
}  // namespace stepnet::testing::reductions_test

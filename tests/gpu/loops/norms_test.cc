// BatchNorm and Softmax on a GPU, by its library and without it, give what they give on the CPU.
#include "gpu/loops/norms.h"

#include <algorithm>

#include "stepnet/arguments.h"
#include "stepnet/gradients.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::norms_test {
namespace {

class GpuNorms : public GpuTest {
 protected:
  void TearDown() override { gpu::use_vendor_norms(true); }
};

Tensor on(Device device, const Tensor& t) {
  Tensor there = Tensor::empty(t.dtype(), t.shape(), device);
  there.copy_from(t);
  return there;
}

// Outputs and gradients of a net of one operator, for `dY` on its first output.
std::map<std::string, Tensor> run_norm(const OperatorDef& op, const Feeds& feeds, const std::set<std::string>& wanted,
                                       Device device) {
  NetDef net;
  *net.add_op() = op;
  if (device.kind == DeviceKind::cuda) net.mutable_op(0)->mutable_device_option()->set_device_type(CUDA);
  for (const auto& [name, value] : feeds) net.add_external_input(name);
  const auto found = add_gradient_operators(net, {.targets = {{op.output(0), "dY"}}, .wanted = wanted, .stop = {}});
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = on(device, value);
  RunContext run;
  run_net_once(net, blobs, run);
  std::map<std::string, Tensor> values;
  for (const std::string& name : op.output())
    if (!name.empty()) values[name] = on({}, blobs.fetch(name));
  for (const std::string& name : wanted) values["d" + name] = on({}, blobs.fetch(found.gradients.at(name).dense));
  return values;
}

void expect_equal(const OperatorDef& op, const Feeds& feeds, const std::set<std::string>& wanted, double tol) {
  const auto expected = run_norm(op, feeds, wanted, {});
  for (const bool by_library : {true, false}) {
    gpu::use_vendor_norms(by_library);
    for (const auto& [name, value] : run_norm(op, feeds, wanted, kGpu))
      EXPECT_EQ(compare(value, expected.at(name), tol, ErrorScale::tensor), "")
          << name << (by_library ? " by the library" : "");
  }
}

template <class T>
Feeds norm_feeds(const Shape& x, int64_t channels) {
  return {{"X", normal<T>(x, 1, 3, 2)},
          {"scale", normal<T>({channels}, 2)},
          {"bias", normal<T>({channels}, 3)},
          {"est_mean", normal<T>({channels}, 4)},
          {"est_var", uniform<T>({channels}, 1, 2, 5)},
          {"dY", normal<T>(x, 6)}};
}

OperatorDef norm_op(bool is_test, const std::string& order, float epsilon) {
  std::vector<std::string> outputs = {"Y"};
  if (!is_test) outputs.insert(outputs.end(), {"est_mean", "est_var", "saved_mean", "saved_inv"});
  return make_op("BatchNorm", {"X", "scale", "bias", "est_mean", "est_var"}, outputs,
                 {make_arg("is_test", int{is_test}), make_arg("order", order), make_arg("epsilon", epsilon),
                  make_arg("momentum", 0.7F)});
}

template <class T>
void check_norms(const Shape& x, const std::string& order, float epsilon, double tol) {
  const int64_t channels = order == "NHWC" ? x[x.rank() - 1] : x[1];
  for (const bool is_test : {false, true}) {
    SCOPED_TRACE(fmt::format("{} {}{}", x, order, is_test ? ", evaluation" : ""));
    expect_equal(norm_op(is_test, order, epsilon), norm_feeds<T>(x, channels), {"X", "scale", "bias"}, tol);
  }
}

TEST_F(GpuNorms, BatchNormOfAllLayouts) {
  for (const Shape& x : {Shape{5, 3}, Shape{2, 3, 7}, Shape{2, 4, 3, 2}, Shape{1, 2, 9}, Shape{6, 1}})
    for (const char* order : {"NCHW", "NHWC"}) {
      check_norms<double>(x, order, 1e-5F, 1e-12);
      check_norms<float>(x, order, 1e-5F, 1e-4);
    }
}

// Of one element there is no variance divided by m - 1; the imitated library refuses 13 channels, and an epsilon of 0.
TEST_F(GpuNorms, BatchNormThatTheLibraryCannotDo) {
  check_norms<double>({1, 4}, "NCHW", 0.1F, 1e-12);
  check_norms<double>({3, 13, 2}, "NCHW", 1e-5F, 1e-12);
  check_norms<double>({3, 2, 2}, "NCHW", 0, 1e-10);
  expect_equal(norm_op(true, "NCHW", 0.1F), norm_feeds<double>({0, 3}, 3), {"X", "scale"}, 0);
}

// Outputs without gradients, but those without a name.
std::map<std::string, Tensor> run_forward(const OperatorDef& op, const Feeds& feeds, Device device) {
  NetDef net;
  *net.add_op() = op;
  if (device.kind == DeviceKind::cuda) net.mutable_op(0)->mutable_device_option()->set_device_type(CUDA);
  Workspace blobs;
  for (const auto& [name, value] : feeds) blobs.tensor(name) = on(device, value);
  RunContext run;
  run_net_once(net, blobs, run);
  std::map<std::string, Tensor> values;
  for (const std::string& name : op.output())
    if (!name.empty()) values[name] = on({}, blobs.fetch(name));
  return values;
}

TEST_F(GpuNorms, BatchNormInPlaceAndWithFewOutputs) {
  OperatorDef op = norm_op(false, "NCHW", 1e-3F);
  op.set_output(3, "");  // the statistics of the batch
  op.set_output(4, "");
  const Feeds feeds = norm_feeds<double>({4, 3, 2}, 3);
  for (const char* y : {"X", "Y"}) {
    op.set_output(0, y);
    const auto expected = run_forward(op, feeds, {});
    for (const bool by_library : {true, false}) {
      gpu::use_vendor_norms(by_library);
      for (const auto& [name, value] : run_forward(op, feeds, kGpu))
        EXPECT_EQ(compare(value, expected.at(name), 1e-12, ErrorScale::tensor), "") << name;
    }
  }
}

// It adds up in another order than our own kernels.
TEST_F(GpuNorms, TheLibraryIsAsked) {
  if (!gpu::vendor_norms().there) GTEST_SKIP() << "cuDNN is not installed";
  const auto results = [](bool by_library) {
    gpu::use_vendor_norms(by_library);
    return run_forward(norm_op(false, "NCHW", 1e-3F), norm_feeds<float>({64, 3, 1000}, 3), kGpu);
  };
  const auto theirs = results(true), ours = results(false);
  EXPECT_TRUE(std::ranges::any_of(
      theirs, [&](const auto& entry) { return compare(entry.second, ours.at(entry.first), 0) != ""; }));
}

TEST_F(GpuNorms, SoftmaxOfRowsOfAnySize) {
  for (const char* type : {"Softmax", "LogSoftmax"})
    for (const Shape& x : {Shape{3, 5}, Shape{1, 1}, Shape{2, 300}, Shape{4, 13}, Shape{0, 4}, Shape{3, 0}}) {
      SCOPED_TRACE(fmt::format("{} of {}", type, x));
      const OperatorDef op = make_op(type, {"X"}, {"Y"});
      expect_equal(op, {{"X", normal<double>(x, 1, 0, 5)}, {"dY", normal<double>(x, 2)}}, {"X"}, 1e-12);
      expect_equal(op, {{"X", normal<float>(x, 1, 0, 5)}, {"dY", normal<float>(x, 2)}}, {"X"}, 1e-5);
    }
}

TEST_F(GpuNorms, SoftmaxInPlace) {
  EXPECT_EQ(compare_devices(make_op("Softmax", {"X"}, {"X"}), {{"X", normal<float>({3, 7}, 1)}}, 1e-6), "");
  EXPECT_EQ(compare_devices(make_op("SoftmaxGradient", {"Y", "dY"}, {"dY"}),
                            {{"Y", uniform<float>({3, 7}, 0, 1, 1)}, {"dY", normal<float>({3, 7}, 2)}}, 1e-6),
            "");
}

// What the library is not asked for.
TEST_F(GpuNorms, SizesBeyondTheLibrary) {
  const gpu::VendorChannels small{DType::float32, 4, 3, 2, 1e-5};
  if (!gpu::vendor_norms().there) GTEST_SKIP() << "cuDNN is not installed";
  const auto taken = [&](auto change, gpu::NormRun run) {
    gpu::VendorChannels c = small;
    change(c);
    return vendor_takes(c, run);
  };
  const auto none = [](gpu::VendorChannels&) {};
  EXPECT_TRUE(taken(none, gpu::NormRun::training));
  EXPECT_TRUE(taken(none, gpu::NormRun::evaluation));
  const auto huge = [](gpu::VendorChannels& c) { c.outer = int64_t{1} << 40; };
  const auto many = [](gpu::VendorChannels& c) { c.outer = 70'000; };
  const auto whole = [](gpu::VendorChannels& c) { c.dtype = DType::int32; };
  const auto negative = [](gpu::VendorChannels& c) { c.epsilon = -1; };
  EXPECT_FALSE(taken(huge, gpu::NormRun::training));
  EXPECT_TRUE(taken(many, gpu::NormRun::training));
  EXPECT_FALSE(taken(many, gpu::NormRun::evaluation));
  EXPECT_FALSE(taken(whole, gpu::NormRun::training));
  EXPECT_FALSE(taken(negative, gpu::NormRun::evaluation));
  EXPECT_FALSE(gpu::vendor_takes(gpu::VendorRows{DType::float32, 70'000, 2}));
  EXPECT_FALSE(gpu::vendor_takes(gpu::VendorRows{DType::float32, 0, 2}));
  gpu::use_vendor_norms(false);
  EXPECT_FALSE(taken(none, gpu::NormRun::training));
}

}  // namespace
}  // namespace stepnet::testing::norms_test

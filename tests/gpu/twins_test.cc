// Operators with a CUDA twin give on a GPU what they give on the CPU.
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::twins_test {

namespace {

template <class T>
void check_activation(const std::string& type, double tol) {
  for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 5}, Shape{300, 1000}}) {
    const Tensor x = normal<T>(shape, 1, 0, 3);
    const Tensor y = uniform<T>(shape, 0.1, 0.9);
    EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}), {{"X", x}}, tol), "");
    EXPECT_EQ(compare_devices(make_op(type + "Gradient", {"Y", "dY"}, {"dX"}), {{"Y", y}, {"dY", x}}, tol), "");
  }
  EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}), {{"X", Tensor::of<T>({4}, {-1000, -89, 89, 1000})}}, tol), "");
}

TEST_F(GpuTest, Tanh) {
  check_activation<float>("Tanh", 1e-6);
  check_activation<double>("Tanh", 1e-14);
}
TEST_F(GpuTest, Sigmoid) {
  check_activation<float>("Sigmoid", 1e-6);
  check_activation<double>("Sigmoid", 1e-14);
}

// In a build with CUDA, nets that do not ask for a GPU run without one.
TEST(GpuBuild, RunsNetsOnTheCpu) {
  const Tensor x = Tensor::of<float>({2}, {0, 1});
  const auto y = run_op_on(make_op("Tanh", {"X"}, {"Y"}), {{"X", x}});
  EXPECT_EQ(compare(y.at(0), Tensor::of<float>({2}, {0, 0.76159416f}), 1e-6), "");
}

}  // namespace
}  // namespace stepnet::testing::twins_test

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

template <class T>
void check_bits(const Shape& shape) {
  const Tensor x = normal<T>(shape, 1), dy = normal<T>(shape, 2);
  const std::vector<Argument> clip = {make_arg("min", -0.5F), make_arg("max", 0.75F)},
                              leaky = {make_arg("min", 0.0F), make_arg("alpha", 0.25F)};
  for (const auto& args : {clip, leaky})
    EXPECT_EQ(compare_devices(make_op("ClipWithBits", {"X"}, {"Y", "bits"}, args), {{"X", x}}, 0), "");
  const Tensor bits = run_op_on(make_op("ClipWithBits", {"X"}, {"Y", "bits"}, clip), {{"X", x}})[1];
  for (const float alpha : {0.0F, 0.25F})
    EXPECT_EQ(compare_devices(make_op("SelectByBits", {"X", "bits"}, {"Y"}, {make_arg("alpha", alpha)}),
                              {{"X", dy}, {"bits", bits}}, 0),
              "");
  // Draws there are others than here.
  for (const int channels : {0, 1}) {
    if (channels != 0 && shape.rank() < 2) continue;
    std::vector<Argument> args = {make_arg("ratio", 0.25F), make_arg("channels", channels)};
    const auto plain = run_op_on_gpu(make_op("Dropout", {"X"}, {"Y", "mask"}, args), {{"X", x}});
    args.push_back(make_arg("packed", 1));
    const auto packed = run_op_on_gpu(make_op("Dropout", {"X"}, {"Y", "mask"}, args), {{"X", x}});
    EXPECT_EQ(compare(packed[0], plain[0], 0), "");
    for (int64_t i = 0; i < 8 * packed[1].size(); ++i) {
      const bool bit = (packed[1].span<uint8_t>()[i / 8] >> (i % 8) & 1) != 0;
      ASSERT_EQ(bit, i < plain[1].size() && plain[1].span<bool>()[i]) << i;
    }
  }
}

TEST_F(GpuTest, Bits) {
  for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 5}, Shape{4, 5, 9}, Shape{300, 1000}}) {
    check_bits<float>(shape);
    check_bits<double>(shape);
  }
}

// In a build with CUDA, nets that do not ask for a GPU run without one.
TEST(GpuBuild, RunsNetsOnTheCpu) {
  const Tensor x = Tensor::of<float>({2}, {0, 1});
  const auto y = run_op_on(make_op("Tanh", {"X"}, {"Y"}), {{"X", x}});
  EXPECT_EQ(compare(y.at(0), Tensor::of<float>({2}, {0, 0.76159416f}), 1e-6), "");
}

}  // namespace
}  // namespace stepnet::testing::twins_test

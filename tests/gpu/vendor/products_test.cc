// Products with several algorithms to choose from, and the gradient of a bias in the product: on a GPU by cuBLASLt, on
// the imitated device by its stand-in.
#include "gpu/loops/products.h"

#include <cstdlib>
#include <random>

#include "core/compute/backend.h"
#include "core/gradcheck/examples.h"
#include "core/io/files.h"
#include "gpu/vendor/product_choices.h"
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::products_test {
namespace {

class GpuProducts : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    setenv("STEPNET_PRODUCT_CHOICES", path_.c_str(), 1);
  }
  void TearDown() override { unsetenv("STEPNET_PRODUCT_CHOICES"); }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("choices");
};

// Halves, too.
template <class T>
Tensor normal_in(const Shape& shape, uint64_t seed) {
  return in_type(dtype_of<T>(), normal<double>(shape, seed));
}

template <class T>
std::string compare_fc(const std::string& type, int64_t m, int64_t n, int64_t k, double tol) {
  const bool transposed = type == "FCTransposed";
  const Feeds feeds = {{"x", normal_in<T>({m, k}, 1)},
                       {"w", normal_in<T>(transposed ? Shape{k, n} : Shape{n, k}, 2)},
                       {"b", normal_in<T>({n}, 3)},
                       {"dy", normal_in<T>({m, n}, 4)}};
  const OperatorDef forward = make_op(type, {"x", "w", "b"}, {"y"});
  const OperatorDef backward = make_op(type + "Gradient", {"x", "w", "dy"}, {"dw", "db", "dx"});
  const auto wide = [](const Tensor& t) { return in_type(DType::float64, t); };
  for (const OperatorDef& def : {forward, backward}) {
    const std::vector<Tensor> cpu = run_op_on(def, feeds), once = run_op_on_gpu(def, feeds),
                              again = run_op_on_gpu(def, feeds);
    for (size_t i = 0; i < once.size(); ++i) {
      if (std::string wrong = compare(wide(once[i]), wide(cpu[i]), tol, ErrorScale::tensor); !wrong.empty())
        return wrong;
      if (std::string wrong = compare(wide(once[i]), wide(again[i]), 0); !wrong.empty()) return "again: " + wrong;
    }
  }
  return "";
}

TEST_F(GpuProducts, AreTheCpusWhateverIsChosen) {
  std::minstd_rand random(1);
  for (int i = 0; i < 6; ++i) {
    const auto size = [&] { return static_cast<int64_t>(1 + random() % (i % 3 == 0 ? 100 : 30)); };
    const int64_t m = size(), n = size(), k = size();
    for (const char* type : {"FC", "FCTransposed"}) {
      EXPECT_EQ(compare_fc<float>(type, m, n, k, 1e-5), "") << type << " " << m << " " << n << " " << k;
      EXPECT_EQ(compare_fc<double>(type, m, n, k, 1e-12), "") << type << " " << m << " " << n << " " << k;
      EXPECT_EQ(compare_fc<float16>(type, m, n, k, 4e-3), "") << type << " " << m << " " << n << " " << k;
      EXPECT_EQ(compare_fc<bfloat16>(type, m, n, k, 3e-2), "") << type << " " << m << " " << n << " " << k;
    }
  }
  gpu::ProductChoices(path_).read();  // what has been kept is a file of choices
}

// A product that is first met in a capture, and what runs before and after it, have the same bits.
TEST_F(GpuProducts, HaveTheSameBitsInAGraph) {
  const Tensor a = on_gpu(normal<float>({48, 40}, 1)), b = on_gpu(normal<float>({40, 24}, 2));
  const auto run = [&](Tensor& c, int64_t m) {
    gpu::run_vendor_product(0, gpu::with_strides({.m = m, .n = 24, .k = 40}), reinterpret_cast<const float*>(a.raw()),
                            reinterpret_cast<const float*>(b.raw()), reinterpret_cast<float*>(c.raw()), nullptr);
  };
  for (const bool first_in_graph : {false, true}) {
    const int64_t m = first_in_graph ? 47 : 48;
    Tensor outside = on_gpu(Tensor::zeros(DType::float32, {m, 24})),
           inside = on_gpu(Tensor::zeros(DType::float32, {m, 24}));
    if (!first_in_graph) run(outside, m);
    const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] { run(inside, m); });
    graph->replay();
    run(outside, m);
    EXPECT_EQ(compare(copied_to(outside, {}), copied_to(inside, {}), 0), "");
  }
}

}  // namespace
}  // namespace stepnet::testing::products_test

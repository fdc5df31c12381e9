// Products by gpu/vendor/cublas.cc on the stand-in for cuBLASLt, which insists on its rules: how algorithms are asked
// for and chosen, and that all of them have the same results.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "core/compute/backend.h"
#include "core/gradcheck/examples.h"
#include "core/io/files.h"
#include "core/operator/observer.h"
#include "gpu/loops/products.h"
#include "gpu/vendor/product_choices.h"
#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/run_context.h"
#include "stepnet/text.h"
#include "tests/gpu/gpu_test.h"
#include "tests/gpu/vendor/stand_in/cublas_lt.h"

namespace stepnet::testing::cublas_lt_test {
namespace {

using Offers = std::vector<LtOffer>;

class LtProducts : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    lt() = {};
  }
  void TearDown() override {
    unsetenv("STEPNET_PRODUCT_CHOICES");
    EXPECT_EQ(lt().broken, std::vector<std::string>());
    lt() = {};
  }

  static LtStandIn& lt() { return lt_stand_in(); }
  static void offer(const Offers& offers) {
    lt().offers = [=](const LtQuestion&) { return offers; };
  }
  void use_file() { setenv("STEPNET_PRODUCT_CHOICES", path_.c_str(), 1); }
  static std::vector<int32_t> ids_to(const void* c) {
    std::vector<int32_t> ids;
    for (const LtStandIn::Run& run : lt().runs)
      if (run.to == c) ids.push_back(run.id);
    return ids;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("choices");
};

// Halves, too.
template <class T>
Tensor normal_in(const Shape& shape, uint64_t seed) {
  return in_type(dtype_of<T>(), normal<double>(shape, seed));
}

// A product on a device; sizes that no other test has make it one that has not been asked for.
template <class T>
struct Product {
  gpu::ProductSizes sizes;
  Tensor a, b, bias, before, expected;
  Tensor there_a, there_b, there_c, there_bias;
  int device;
  int64_t shift, shift_b;  // elements by which all addresses are off, and B's

  Product(gpu::ProductSizes s, bool has_bias, int on = 0, int64_t off = 0)
      : sizes(s), device(on), shift(off), shift_b(off / 2) {
    a = normal_in<T>({s.m * s.k + off}, 1);
    b = normal_in<T>({s.k * s.n + off}, 2);
    before = normal_in<T>({s.m * s.n + off}, 3);
    if (has_bias) bias = normal_in<T>({s.n + off}, 4);
    const Device place{DeviceKind::cuda, static_cast<int8_t>(on)};
    there_a = copied_to(a, place);
    there_b = copied_to(b, place);
    there_c = copied_to(before, place);
    if (has_bias) there_bias = copied_to(bias, place);
    by_hand();
  }

  static T* at(Tensor& t, int64_t off) { return reinterpret_cast<T*>(t.raw()) + off; }
  T* c() { return at(there_c, shift); }

  // Whether the bias has been added, too.
  bool run() {
    return gpu::run_vendor_product(device, gpu::with_strides(sizes), at(there_a, shift), at(there_b, shift_b), c(),
                                   there_bias.defined() ? at(there_bias, shift) : nullptr);
  }
  Tensor result() const { return in_type(DType::float64, copied_to(there_c, {})); }

  void by_hand() {
    const Tensor x = in_type(DType::float64, a), y = in_type(DType::float64, b), was = in_type(DType::float64, before);
    const Tensor more =
        bias.defined() ? in_type(DType::float64, bias) : Tensor::zeros(DType::float64, {sizes.n + shift});
    expected = Tensor::zeros(DType::float64, before.shape());
    for (int64_t i = 0; i < shift; ++i) expected.data<double>()[i] = was.data<double>()[i];
    for (int64_t i = 0; i < sizes.m; ++i)
      for (int64_t j = 0; j < sizes.n; ++j) {
        const int64_t to = shift + i * sizes.n + j;
        double sum = (sizes.accumulate ? was.data<double>()[to] : 0) + more.data<double>()[shift + j];
        for (int64_t p = 0; p < sizes.k; ++p)
          sum += x.data<double>()[shift + (sizes.trans_a ? p * sizes.m + i : i * sizes.k + p)] *
                 y.data<double>()[shift_b + (sizes.trans_b ? j * sizes.k + p : p * sizes.n + j)];
        expected.data<double>()[to] = sum;
      }
  }
  void expect_right(double tol = 1e-5) const {
    EXPECT_EQ(compare(result(), expected, tol, ErrorScale::tensor), "") << sizes.m << " " << sizes.n << " " << sizes.k;
  }
};

TEST_F(LtProducts, AreAskedForWhenTheirAddressesAreKnown) {
  Product<float> p({.m = 3, .n = 8, .k = 101}, true);
  EXPECT_TRUE(p.run());
  p.expect_right();
  ASSERT_EQ(lt().questions.size(), 1U);
  EXPECT_EQ(lt().questions[0].epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(lt().questions[0].reductions, 2U);
  EXPECT_EQ(lt().questions[0].wanted, 8);
  for (const uint32_t alignment : lt().questions[0].alignments) EXPECT_EQ(alignment, 256U);
  Product<float> shifted({.m = 3, .n = 8, .k = 101}, true, 0, 8);
  EXPECT_TRUE(shifted.run());
  shifted.expect_right();
  ASSERT_EQ(lt().questions.size(), 2U);
  EXPECT_EQ(std::to_array(lt().questions[1].alignments), (std::array<uint32_t, 5>{16, 32, 32, 32, 32}));
}

TEST_F(LtProducts, ABiasAcrossUnitsOf16BytesIsNotTheLibrarys) {
  Product<float> p({.m = 3, .n = 8, .k = 102}, true, 0, 2);
  EXPECT_FALSE(p.run());
  Product<double> wide({.m = 3, .n = 8, .k = 102}, true, 0, 1);
  EXPECT_FALSE(wide.run());
  for (const LtQuestion& q : lt().questions) EXPECT_EQ(q.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(lt().questions.size(), 2U);
  Product<double> aligned({.m = 3, .n = 8, .k = 102}, true, 0, 2);
  EXPECT_TRUE(aligned.run());
  aligned.expect_right(1e-13);
}

TEST_F(LtProducts, TakeTheFirstThatIsFineAndFits) {
  offer({{.id = 1, .state = CUBLAS_STATUS_NOT_SUPPORTED},
         {.id = 2, .workspace = size_t{1} << 30},
         {.id = 3, .check = CUBLAS_STATUS_INVALID_VALUE},
         {.id = 4, .workspace = 4096},
         {.id = 5}});
  Product<float> p({.m = 4, .n = 5, .k = 103}, false);
  p.run();
  p.run();
  p.expect_right();
  EXPECT_EQ(ids_to(p.c()), std::vector<int32_t>(2, 4));
  EXPECT_EQ(lt().questions.size(), 1U);
}

TEST_F(LtProducts, GoOnToTheNextWhereACallIsRefused) {
  offer({{.id = 1, .call = CUBLAS_STATUS_NOT_SUPPORTED}, {.id = 2, .call = CUBLAS_STATUS_INVALID_VALUE}, {.id = 3}});
  Product<float> p({.m = 4, .n = 5, .k = 104}, false);
  p.run();
  p.run();
  p.expect_right();
  EXPECT_EQ(ids_to(p.c()), std::vector<int32_t>(2, 3));
}

TEST_F(LtProducts, AFailureOfTheDeviceIsAnError) {
  offer({{.id = 1, .call = CUBLAS_STATUS_EXECUTION_FAILED}, {.id = 2}});
  Product<float> p({.m = 4, .n = 5, .k = 105}, false);
  EXPECT_NE(error_of([&] { p.run(); }).find("(cublasLtMatmul)"), std::string::npos);
}

// Each is answered only where one more demand is given up.
TEST_F(LtProducts, AreAskedForInOtherWaysWhereThereIsNone) {
  using Accepts = bool (*)(const LtQuestion&);
  const Accepts ways[] = {[](const LtQuestion& q) { return q.epilogue == CUBLASLT_EPILOGUE_DEFAULT; },
                          [](const LtQuestion& q) { return q.alignments[0] == 4 && q.alignments[3] == 4; },
                          [](const LtQuestion& q) { return q.reductions == 7; }};
  int64_t k = 110;
  for (const cublasStatus_t none : {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    size_t questions = 2;
    for (const Accepts accepts : ways) {
      lt() = {};
      lt().answer_to_none = none;
      lt().offers = [=](const LtQuestion& q) { return accepts(q) ? Offers{{}} : Offers{}; };
      Product<float> p({.m = 4, .n = 8, .k = ++k, .accumulate = true}, true);
      EXPECT_FALSE(p.run());
      EXPECT_EQ(lt().questions.size(), questions++);
    }
  }
}

TEST_F(LtProducts, ABiasThatTheLibraryHasNoAlgorithmForIsAddedAfterwards) {
  lt().offers = [](const LtQuestion& q) { return q.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? Offers{{}} : Offers{}; };
  const Feeds feeds = {
      {"x", normal<float>({3, 106}, 1)}, {"w", normal<float>({8, 106}, 2)}, {"b", normal<float>({8}, 3)}};
  EXPECT_EQ(compare_devices(make_op("FC", {"x", "w", "b"}, {"y"}), feeds, 1e-5), "");
  EXPECT_EQ(lt().questions.size(), 2U);
}

// Also the second time.
TEST_F(LtProducts, NoAlgorithmAtAllIsAnErrorForPeople) {
  lt().offers = [](const LtQuestion&) { return Offers{}; };
  lt().answer_to_none = CUBLAS_STATUS_NOT_SUPPORTED;
  Product<float16> p({.trans_b = true, .m = 4, .n = 8, .k = 107}, true);
  const std::string expected =
      "cuBLASLt 130100 has no algorithm for the product of float16 [4, 107] [107, 8] stored [n, k], bias, rows apart "
      "107 107 8, batch 1 apart 0 0 0, aligned 256 256 256 256: not supported\n"
      "  fix report it with the name of the GPU; operands whose addresses are multiples of 16 bytes may have one";
  EXPECT_EQ(error_of([&] { p.run(); }), expected);
  for (const LtQuestion& q : lt().questions) EXPECT_EQ(q.reductions, 2U);
  EXPECT_EQ(lt().questions.size(), 3U);
  EXPECT_EQ(error_of([&] { p.run(); }), expected);
}

// The library's number of matrices has 32 bits.
TEST_F(LtProducts, TooManyAtATimeAreRefused) {
  Tensor a = on_gpu(Tensor::of<float>({1}, {2}));
  const gpu::ProductSizes sizes{.m = 1, .n = 1, .k = 1, .batch = (int64_t{1} << 32) + 1};
  const auto* x = reinterpret_cast<const float*>(std::as_const(a).raw());
  const std::string error = error_of(
      [&] { gpu::run_vendor_product(0, gpu::with_strides(sizes), x, x, reinterpret_cast<float*>(a.raw()), nullptr); });
  EXPECT_NE(error.find("cannot count to 4294967297 products"), error.npos) << error;
}

TEST_F(LtProducts, WithoutAFileNothingIsTimed) {
  offer({{.id = 2, .microseconds = 300}, {.id = 3}});
  Product<float> p({.m = 4, .n = 5, .k = 120}, false);
  p.run();
  p.expect_right();
  EXPECT_EQ(lt().runs.size(), 1U);
  EXPECT_EQ(lt().runs[0].id, 2);
}

// Nothing is accumulated twice, and the bits are those of every later run, in a graph and on another device.
TEST_F(LtProducts, TheFastestIsTakenOnceAndForAll) {
  if (gpu::device_count() < 2) GTEST_SKIP() << "one device";
  use_file();
  offer({{.id = 2, .microseconds = 2000},
         {.id = 4, .call = CUBLAS_STATUS_NOT_SUPPORTED},
         {.id = 5, .workspace = 512},
         {.id = 6, .microseconds = 1000}});
  const gpu::ProductSizes sizes{.m = 4, .n = 8, .k = 121, .accumulate = true};
  Product<float> first(sizes, true), again(sizes, true), other(sizes, true, 1), in_graph(sizes, true);
  first.run();
  first.expect_right();
  EXPECT_EQ(ids_to(first.c()), std::vector<int32_t>{5});
  EXPECT_GT(lt().runs.size(), 10U);
  lt().runs.clear();
  again.run();
  const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] { in_graph.run(); });
  graph->replay();
  offer({{.id = 6}, {.id = 5, .microseconds = 2000}});  // now it would be another one
  other.run();
  EXPECT_EQ(lt().runs.size(), 3U);
  for (const Product<float>* p : {&again, &in_graph, &other}) EXPECT_EQ(compare(p->result(), first.result(), 0), "");
}

TEST_F(LtProducts, WhatIsFirstMetInACaptureStaysAsItWas) {
  if (gpu::device_count() < 2) GTEST_SKIP() << "one device";
  use_file();
  offer({{.id = 3, .workspace = 512, .microseconds = 500}, {.id = 4}});
  const gpu::ProductSizes sizes{.m = 4, .n = 8, .k = 122};
  Product<float> in_graph(sizes, false), after(sizes, false), other(sizes, false, 1);
  const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] { in_graph.run(); });
  graph->replay();
  in_graph.expect_right();
  after.run();
  other.run();
  ASSERT_EQ(lt().runs.size(), 3U);
  for (const LtStandIn::Run& run : lt().runs) EXPECT_EQ(run.id, 3);
  EXPECT_TRUE(lt().runs[0].captured);
  EXPECT_EQ(gpu::ProductChoices(path_).read().size(), 1U);
}

TEST_F(LtProducts, AlgorithmsThatLookTheSameAreOne) {
  use_file();
  offer({{.id = 2, .microseconds = 3000}, {.id = 2}, {.id = 2, .splits = 4, .microseconds = 1000}});
  Product<float> p({.m = 4, .n = 5, .k = 123}, false);
  p.run();
  const auto choices = gpu::ProductChoices(path_).read();
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices.begin()->first.device, "imitated, 9.0, 1 multiprocessors");
  EXPECT_EQ(choices.begin()->first.version, "130100");
  EXPECT_EQ(choices.begin()->second.algorithm, "2 0 0 4 0 0 0 0 none");
}

TEST_F(LtProducts, AFileThatIsNoneStopsTheRun) {
  write_file(path_, "no choices\n");
  use_file();
  offer({{.id = 2}, {.id = 3}});
  Product<float> p({.m = 4, .n = 5, .k = 124}, false);
  EXPECT_EQ(error_of([&] { p.run(); }).rfind(path_ + ":1: is no JSON object of texts", 0), 0U);
  std::filesystem::remove(path_);
  p.run();
  p.expect_right();
}

// FCGradient and its kin, on the CPU and on the device, and what their products wrote beside dW.
class LtSums : public LtProducts {
 protected:
  template <class T>
  std::vector<cublasLtEpilogue_t> epilogues(const std::string& type, int64_t m, int64_t n, int64_t k, double tol) {
    lt().runs.clear();
    const bool transposed = type == "FCTransposed";
    const Feeds feeds = {{"x", normal_in<T>({m, k}, 1)},
                         {"w", normal_in<T>(transposed ? Shape{k, n} : Shape{n, k}, 2)},
                         {"dy", normal_in<T>({m, n}, 4)}};
    const OperatorDef def = make_op(type + "Gradient", {"x", "w", "dy"}, {"dw", "db"});
    const std::vector<Tensor> expected = run_op_on(def, feeds);
    for (int i = 0; i < 2; ++i) {
      const std::vector<Tensor> found = run_op_on_gpu(def, feeds);
      for (size_t o = 0; o < 2; ++o)
        EXPECT_EQ(
            compare(in_type(DType::float64, found[o]), in_type(DType::float64, expected[o]), tol, ErrorScale::tensor),
            "")
            << type << o;
    }
    std::vector<cublasLtEpilogue_t> all;
    for (const LtStandIn::Run& run : lt().runs) all.push_back(run.epilogue);
    return all;
  }

  // `sums`: how long an algorithm with them takes.
  static void offer_sums(int sums) {
    lt().offers = [=](const LtQuestion& q) {
      const bool is_sums = q.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
      return Offers{{.id = is_sums ? 3 : 2, .microseconds = is_sums ? sums : 1000}};
    };
  }
};

TEST_F(LtSums, AreNotAskedForWithoutAFile) {
  offer_sums(0);
  for (const auto epilogue : epilogues<float>("FC", 6, 5, 130, 1e-5)) EXPECT_EQ(epilogue, CUBLASLT_EPILOGUE_DEFAULT);
}

TEST_F(LtSums, AreInTheProductWhereThatIsFaster) {
  use_file();
  offer_sums(0);
  EXPECT_EQ(epilogues<float>("FC", 6, 5, 131, 1e-5).back(), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(epilogues<float16>("FC", 6, 5, 131, 1e-2).back(), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(epilogues<bfloat16>("FC", 6, 5, 131, 5e-2).back(), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(epilogues<float>("FCTransposed", 6, 5, 131, 1e-5).back(), CUBLASLT_EPILOGUE_BGRADA);
  EXPECT_EQ(epilogues<double>("FC", 6, 5, 131, 1e-12).back(), CUBLASLT_EPILOGUE_BGRADB);
}

TEST_F(LtSums, AreSeparateWhereThatIsFaster) {
  use_file();
  offer_sums(5000);
  EXPECT_EQ(epilogues<float>("FC", 6, 5, 132, 1e-5).back(), CUBLASLT_EPILOGUE_DEFAULT);
  bool kept = false;
  for (const auto& [key, choice] : gpu::ProductChoices(path_).read()) kept = kept || choice.algorithm == "separately";
  EXPECT_TRUE(kept);
}

TEST_F(LtSums, AreSeparateWhereThereIsNoAlgorithm) {
  use_file();
  lt().offers = [](const LtQuestion& q) { return q.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? Offers{{}} : Offers{}; };
  lt().answer_to_none = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(epilogues<float>("FC", 6, 5, 133, 1e-5).size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(LtSums, OfFactorsInTf32AreSeparate) {
  use_file();
  offer_sums(0);
  gpu::allow_tf32(true);
  EXPECT_EQ(epilogues<float>("FC", 6, 5, 134, 1e-5).back(), CUBLASLT_EPILOGUE_DEFAULT);
  gpu::allow_tf32(false);
}

// A graph has the arithmetic with which it was captured: another one asks for another graph.
TEST_F(LtProducts, OfGraphsAreAsIsAllowedNow) {
  NetDef net = parse_net_text(
      "device_option { device_type: 1 } op { type: 'RecurrentNetwork' input: 'x' input: 'h0' input: 'w' input: 'b' "
      "output: 'h_all' output: 'h_last' arg { name: 'disabled_passes' strings: 'persistent' } [stepnet.recurrent] { "
      "sequence { outer: 'x' inner: 'x_t' } state { input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' last: "
      "'h_last' } step_net { name: 'cell' external_input: 'x_t' external_input: 'h_prev' external_input: 'w' "
      "external_input: 'b' external_output: 'h' op { type: 'FC' input: 'h_prev' input: 'w' input: 'b' output: 's' arg "
      "{ name: 'axis' i: 2 } } "
      "op { type: 'Add' input: 's' input: 'x_t' output: 'h' } } } }",
      "a cell");
  expand_recurrent(net);
  Workspace blobs;
  blobs.tensor("x") = on_gpu(normal<float>({4, 3, 5}, 1));
  blobs.tensor("h0") = on_gpu(normal<float>({3, 5}, 2));
  blobs.tensor("w") = on_gpu(normal<float>({5, 5}, 3));
  blobs.tensor("b") = on_gpu(normal<float>({5}, 4));
  RunContext context;
  Net made(net, blobs);
  const auto products_of_a_run = [&] {
    lt().runs.clear();
    made.run(context);
    return lt().runs.size();
  };
  for (int i = 0; i < 3; ++i) products_of_a_run();
  EXPECT_EQ(products_of_a_run(), 0U);
  gpu::allow_tf32(true);
  EXPECT_EQ(products_of_a_run(), 4U);
  gpu::allow_tf32(false);
  EXPECT_EQ(products_of_a_run(), 0U);
}

// What is there already is added to, and there is no algorithm that does.
TEST_F(LtSums, ThatAreAddedUpAreSeparate) {
  use_file();
  offer_sums(0);
  const gpu::ProductSizes s = gpu::with_strides({.trans_a = true, .m = 5, .n = 8, .k = 135, .accumulate = true});
  const Tensor dy = normal<float>({135, 5}, 1), x = normal<float>({135, 8}, 2);
  Tensor there_dy = on_gpu(dy), there_x = on_gpu(x), c = on_gpu(Tensor::zeros(DType::float32, {5, 8})),
         sums = on_gpu(Tensor::zeros(DType::float32, {8}));
  const auto at = [](Tensor& t, int64_t off = 0) { return reinterpret_cast<float*>(t.raw()) + off; };
  int separately = 0;
  const auto apart = [&](float* to, float* to_sums) {
    EXPECT_NE(to, at(c));
    EXPECT_NE(to_sums, at(sums));
    ++separately;
    gpu::run_vendor_product(0, s, at(there_dy), at(there_x), to, nullptr);
  };
  EXPECT_TRUE(gpu::run_vendor_product_with_sums(0, s, at(there_dy), at(there_x), at(c), gpu::SummedOperand::a, at(sums),
                                                apart));
  EXPECT_GT(separately, 0);
  for (const LtStandIn::Run& run : lt().runs)
    EXPECT_EQ(run.vector == at(sums), run.to == at(c));  // what is timed writes elsewhere
  const Tensor found = copied_to(sums, {});
  for (int64_t i = 0; i < 5; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < 135; ++p) sum += static_cast<double>(dy.data<float>()[p * 5 + i]);
    EXPECT_NEAR(found.data<float>()[i], sum, 1e-4);
  }
  // dW is added to once.
  const Tensor product =
      run_op_on(make_op("MatMul", {"dy", "x"}, {"c"}, {make_arg("trans_a", int64_t{1})}), {{"dy", dy}, {"x", x}})[0];
  EXPECT_EQ(compare(copied_to(c, {}), product, 1e-5, ErrorScale::tensor), "");
  // A vector across units of 16 bytes.
  EXPECT_FALSE(gpu::run_vendor_product_with_sums(0, s, at(there_dy), at(there_x), at(c), gpu::SummedOperand::a,
                                                 at(sums, 1), apart));
}

// An FC and Relu in a net, and what became of them.
class LtRelu : public LtProducts {
 protected:
  template <class T>
  static Feeds feeds(const std::string& type, int64_t m, int64_t n, int64_t k) {
    return {{"x", normal_in<T>({m, k}, 1)},
            {"w", normal_in<T>(type == "FCTransposed" ? Shape{k, n} : Shape{n, k}, 2)},
            {"b", normal_in<T>({n}, 3)}};
  }
  // z = FC(x, w, b), with b or without, and y = Relu(z), or in place z.
  static NetDef net_of(const std::string& type, bool has_bias, bool in_place) {
    NetDef net;
    net.mutable_device_option()->set_device_type(CUDA);
    *net.add_op() =
        make_op(type, has_bias ? std::vector<std::string>{"x", "w", "b"} : std::vector<std::string>{"x", "w"}, {"z"});
    *net.add_op() = make_op("Relu", {"z"}, {in_place ? "z" : "y"});
    for (const char* name : {"x", "w", "b"}) net.add_external_input(name);
    net.add_external_output(in_place ? "z" : "y");
    return net;
  }
  // Two runs, of which the second is as the first; the result.
  static Tensor run(const NetDef& def, const Feeds& fed, NetObserver* observer = nullptr) {
    Workspace blobs;
    for (const auto& [name, value] : fed) blobs.tensor(name) = on_gpu(value);
    Net net(def, blobs, {.release_intermediates = true});
    RunContext context;
    context.observer = observer;
    const auto result = [&] {
      net.run(context);
      return copied_to(blobs.fetch(def.external_output(0)), {});
    };
    const Tensor first = result();
    EXPECT_EQ(compare(in_type(DType::float64, first), in_type(DType::float64, result()), 0), "");
    return first;
  }
  template <class T>
  std::vector<cublasLtEpilogue_t> epilogues(const std::string& type, int64_t k, double tol, bool has_bias = true,
                                            bool in_place = false) {
    lt().runs.clear();
    const Feeds fed = feeds<T>(type, 6, 8, k);
    const NetDef def = net_of(type, has_bias, in_place);
    const Tensor found = run(def, fed), z = run_op_on(def.op(0), fed)[0],
                 expected = run_op_on(make_op("Relu", {"z"}, {"y"}), {{"z", z}})[0];
    EXPECT_EQ(compare(in_type(DType::float64, found), in_type(DType::float64, expected), tol, ErrorScale::tensor), "");
    std::vector<cublasLtEpilogue_t> all;
    for (const LtStandIn::Run& run : lt().runs) all.push_back(run.epilogue);
    return all;
  }
  // `relu`: how long an algorithm with it takes.
  static void offer_relu(int relu) {
    lt().offers = [=](const LtQuestion& q) {
      const bool is_relu = (q.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
      return Offers{{.id = is_relu ? 3 : 2, .microseconds = is_relu ? relu : 1000}};
    };
  }
};

TEST_F(LtRelu, IsNotAskedForWithoutAFile) {
  offer_relu(0);
  for (const bool in_place : {false, true})
    for (const auto epilogue : epilogues<float>("FC", 140, 1e-5, true, in_place))
      EXPECT_EQ(epilogue, CUBLASLT_EPILOGUE_BIAS);
}

TEST_F(LtRelu, IsInTheProductWhereThatIsFaster) {
  use_file();
  offer_relu(0);
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(epilogues<float>("FC", 141, 1e-5, true, in_place).back(), CUBLASLT_EPILOGUE_RELU_BIAS);
    EXPECT_EQ(epilogues<float>("FC", 141, 1e-5, false, in_place).back(), CUBLASLT_EPILOGUE_RELU);
    EXPECT_EQ(epilogues<double>("FCTransposed", 141, 1e-12, true, in_place).back(), CUBLASLT_EPILOGUE_RELU_BIAS);
    EXPECT_EQ(epilogues<float16>("FC", 141, 1e-2, true, in_place).back(), CUBLASLT_EPILOGUE_RELU_BIAS);
    EXPECT_EQ(epilogues<bfloat16>("FC", 141, 5e-2, false, in_place).back(), CUBLASLT_EPILOGUE_RELU);
  }
  gpu::ProductChoices(path_).read();
}

TEST_F(LtRelu, IsSeparateWhereThatIsFaster) {
  use_file();
  offer_relu(5000);
  EXPECT_EQ(epilogues<float>("FC", 142, 1e-5).back(), CUBLASLT_EPILOGUE_BIAS);
  bool kept = false;
  for (const auto& [key, choice] : gpu::ProductChoices(path_).read())
    kept = kept || (key.product.find(", bias and Relu") != key.product.npos && choice.algorithm == "separately");
  EXPECT_TRUE(kept);
}

TEST_F(LtRelu, IsSeparateWhereThereIsNoAlgorithm) {
  use_file();
  lt().offers = [](const LtQuestion& q) { return (q.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 ? Offers{} : Offers{{}}; };
  lt().answer_to_none = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(epilogues<float>("FC", 143, 1e-5), std::vector(2, CUBLASLT_EPILOGUE_BIAS));
}

// An algorithm that is refused when it is called leaves Relu to its own kernel.
TEST_F(LtRelu, IsSeparateWhereACallIsRefused) {
  use_file();
  lt().offers = [](const LtQuestion& q) {
    const bool is_relu = (q.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
    return Offers{{.call = is_relu ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS}};
  };
  EXPECT_EQ(epilogues<float>("FC", 144, 1e-5).back(), CUBLASLT_EPILOGUE_BIAS);
}

// A bias across units of 16 bytes is none that the library adds.
TEST_F(LtRelu, BehindABiasThatIsNotTheLibrarysIsSeparate) {
  use_file();
  offer_relu(0);
  Tensor x = on_gpu(normal<float>({4, 145}, 1)), w = on_gpu(normal<float>({145, 8}, 2)),
         b = on_gpu(normal<float>({9}, 3)), y = on_gpu(Tensor::zeros(DType::float32, {4, 8}));
  const auto at = [](Tensor& t) { return reinterpret_cast<float*>(t.raw()); };
  EXPECT_FALSE(gpu::run_vendor_product_with_relu(0, gpu::with_strides({.m = 4, .n = 8, .k = 145}), at(x), at(w), at(y),
                                                 at(b) + 1, [](float*) { FAIL(); }));
}

class Nobody : public NetObserver {
 public:
  void before(const BoundOp&) override {}
  void after(const BoundOp&) override {}
};

// Whoever looks at operators one by one sees what each of them makes.
TEST_F(LtRelu, OfAnObservedRunIsAnOperatorOfItsOwn) {
  use_file();
  offer_relu(0);
  Nobody nobody;
  const NetDef def = net_of("FC", true, true);
  const Feeds fed = feeds<float>("FC", 6, 8, 146);
  const Tensor seen = run(def, fed, &nobody);
  EXPECT_EQ(lt().runs.back().epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(compare(run(def, fed), seen, 1e-5), "");
  EXPECT_EQ(lt().runs.back().epilogue, CUBLASLT_EPILOGUE_RELU_BIAS);
}

template <class T>
void check_random(gpu::ProductSizes s, bool bias, int64_t shift, bool captured, double tol) {
  Product<T> p(s, bias, 0, shift), again(s, bias, 0, shift);
  bool added = false;
  if (captured) {
    const auto graph = backend(DeviceKind::cuda).capture(kGpu, [&] { added = p.run(); });
    graph->replay();
    p.result();
  } else {
    added = p.run();
  }
  EXPECT_EQ(again.run(), added);
  EXPECT_EQ(compare(p.result(), again.result(), 0), "");
  if (bias == added) p.expect_right(tol);
}

// Random products with random offers, in and out of graphs, with a file and without.
TEST_F(LtProducts, OfAnyKindAreThoseByHand) {
  std::minstd_rand random(7);
  const auto flip = [&] { return random() % 2 != 0; };
  for (int i = 0; i < 400; ++i) {
    if (i % 2 == 0)
      use_file();
    else
      unsetenv("STEPNET_PRODUCT_CHOICES");
    const unsigned seed = random();
    lt().runs.clear();
    lt().questions.clear();
    lt().offers = [=](const LtQuestion& q) {
      std::minstd_rand r(seed + q.epilogue + q.reductions);
      Offers offers;
      const auto status = [&] { return r() % 4 == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS; };
      for (unsigned count = r() % 4; count > 0; --count)
        offers.push_back({.id = static_cast<int32_t>(r() % 20),
                          .workspace = r() % 3 * 512,
                          .microseconds = static_cast<int>(r() % 20),
                          .state = status(),
                          .check = status(),
                          .call = status()});
      if (q.epilogue == CUBLASLT_EPILOGUE_DEFAULT) offers.push_back({.id = 50});
      return offers;
    };
    const gpu::ProductSizes s{.trans_a = flip(),
                              .trans_b = flip(),
                              .m = static_cast<int64_t>(1 + random() % 12),
                              .n = static_cast<int64_t>(1 + random() % 12),
                              .k = static_cast<int64_t>(200 + i),
                              .accumulate = flip()};
    const bool bias = flip(), captured = i % 4 < 2;
    const int64_t shift = flip() ? 0 : static_cast<int64_t>(random() % 17);
    switch (random() % 4) {
      case 0:
        check_random<float>(s, bias, shift, captured, 1e-5);
        break;
      case 1:
        check_random<double>(s, bias, shift, captured, 1e-13);
        break;
      case 2:
        check_random<float16>(s, bias, shift, captured, 4e-3);
        break;
      default:
        check_random<bfloat16>(s, bias, shift, captured, 3e-2);
    }
  }
}

}  // namespace
}  // namespace stepnet::testing::cublas_lt_test

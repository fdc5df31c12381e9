// Reductions, searches, losses and sparse optimizers of sizes that teams of threads share, and faults in their inputs.
#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::reductions_test {
namespace {

const Argument kSecond = make_arg("axes", std::vector<int64_t>{1});

TEST_F(GpuTest, ReductionsOfAnySize) {
  for (const Shape& shape :
       {Shape{3, 1, 2}, Shape{2, 70, 3}, Shape{3, 5000, 2}, Shape{3, 20'000, 2}, Shape{2, 3000, 40}, Shape{2, 0, 3}}) {
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

// A line with a NaN is all NaN, and none is taken for one of no length.
TEST_F(GpuTest, NormsOfNotNumbersAreNone) {
  for (const int64_t size : {3, 500}) {
    Tensor x = normal<double>({3, size}, 1);
    x.span<double>()[1] = std::numeric_limits<double>::quiet_NaN();
    const Feeds feeds = {{"X", x}, {"dY", normal<double>({3, size}, 2)}};
    EXPECT_EQ(compare_devices(make_op("Normalize", {"X"}, {"Y"}), feeds, 1e-12, size), "");
    EXPECT_EQ(compare_devices(make_op("NormalizeGradient", {"X", "dY"}, {"dX"}), feeds, 1e-12, size), "");
  }
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

TEST_F(GpuTest, ReductionsOfTheFirstOrTheLastDimensions) {
  for (const Shape& shape : {Shape{3, 1, 2}, Shape{70, 3}, Shape{5000, 2}, Shape{2, 5000}, Shape{20'000, 2},
                             Shape{2, 20'000}, Shape{300, 40}, Shape{0, 3}})
    for (const std::string side : {"Front", "Back"}) {
      const int64_t values = side == "Front" ? shape.from(1).size() : shape.size_between(0, shape.rank() - 1);
      const int64_t size = values > 0 ? shape.size() / values : 0;
      Feeds feeds = {{"X", normal<double>(shape, 1)}, {"L", integers<int32_t>({values}, 0, size)}};
      for (const bool lengths : {false, true})
        for (const std::string what : {"Sum", "Mean", "Max"}) {
          std::vector<std::string> in = {"X"};
          if (lengths) in.emplace_back("L");
          const OperatorDef def = make_op("Reduce" + side + what, in, {"Y"});
          EXPECT_EQ(compare_devices(def, feeds, 1e-11), "") << def.type() << shape.str();
          const Tensor y = run_op_on(def, feeds)[0];
          Feeds more = feeds;
          more.insert(more.end(), {{"Y", y}, {"dY", normal<double>(y.shape(), 2)}});
          in.insert(in.begin(), "dY");
          if (what == "Max") in.insert(in.begin() + 2, "Y");
          EXPECT_EQ(compare_devices(make_op(def.type() + "Gradient", in, {"dX"}), more, 1e-13), "") << def.type();
        }
    }
}

TEST_F(GpuTest, ExtremesOfManyTensors) {
  Feeds feeds;
  std::vector<std::string> names, gradients;
  for (int k = 0; k < 70; ++k) {
    names.push_back("X" + std::to_string(k));
    gradients.push_back("d" + std::to_string(k));
    feeds.emplace_back(names.back(), normal<float>({300, 7}, static_cast<uint64_t>(k) + 1));
  }
  for (const std::string type : {"Max", "Min"}) {
    EXPECT_EQ(compare_devices(make_op(type, names, {"Y"}), feeds, 0), "") << type;
    EXPECT_EQ(compare_devices(make_op(type, names, {"X0"}), feeds, 0), "") << type;
    Feeds more = feeds;
    more.insert(more.end(), {{"Y", run_op_on(make_op(type, names, {"Y"}), feeds)[0]}, {"dY", normal<float>({300, 7})}});
    std::vector<std::string> in = {"Y", "dY"};
    in.insert(in.end(), names.begin(), names.end());
    EXPECT_EQ(compare_devices(make_op(type + "Gradient", in, gradients), more, 0), "") << type;
    in[0] = "";
    EXPECT_EQ(compare_devices(make_op(type + "Gradient", in, gradients), more, 0), "") << type;
  }
}

TEST_F(GpuTest, TopKFillsUpWhereThereAreFewer) {
  const Argument k = make_arg("k", 5);
  const Feeds feeds = {{"X", normal<double>({40, 3})}, {"dV", normal<double>({40, 5}, 2)}};
  EXPECT_EQ(compare_devices(make_op("TopK", {"X"}, {"V", "I", "F"}, {k}), feeds, 0), "");
  Feeds more = feeds;
  more.emplace_back("I", run_op_on(make_op("TopK", {"X"}, {"V", "I"}, {k}), feeds)[1]);
  EXPECT_EQ(compare_devices(make_op("TopKGradient", {"dV", "I", "X"}, {"dX"}, {k}), more, 0), "");
  EXPECT_EQ(compare_devices(make_op("TopKSecondGradient", {"X", "I"}, {"ddV"}, {k}), more, 0), "");
}

TEST_F(GpuTest, OptimizersOfThePublicFormat) {
  Feeds feeds = {{"p", normal<float>({40, 3}, 1)},          {"h", uniform<float>({40, 3}, 0, 2, 2)},
                 {"m", normal<float>({40, 3}, 3)},          {"g", normal<float>({40, 3}, 4)},
                 {"lr", Tensor::of<float>({1}, {-0.125F})}, {"iter", Tensor::of<int64_t>({1}, {4})},
                 {"i", integers<int64_t>({90}, 0, 39)},     {"gs", normal<float>({90, 3}, 5)},
                 {"r", uniform<float>({40}, 0.5, 2, 6)},    {"c", integers<double>({40}, 0, 9)}};
  const std::vector<Argument> decays = {make_arg("weight_decay", 0.25F), make_arg("epsilon", 0.01F)};
  std::vector<Argument> halves = decays;
  halves.push_back(make_arg("counter_halflife", 3));
  for (const OperatorDef& def : {
           make_op("Adagrad", {"p", "h", "g", "lr"}, {"p", "h", "rate", "update"}, decays),
           make_op("SparseAdagrad", {"p", "h", "i", "gs", "lr"}, {"p", "h"}, decays),
           make_op("RowWiseSparseAdagrad", {"p", "r", "i", "gs", "lr"}, {"p", "r"}, decays),
           make_op("RowWiseSparseAdagrad", {"p", "r", "i", "gs", "lr", "c"}, {"p", "r"}, halves),
           make_op("Adam", {"p", "m", "h", "g", "lr", "iter"}, {"p", "m", "h", "step"}),
           make_op("SparseAdam", {"p", "m", "h", "i", "gs", "lr", "iter"}, {"p", "m", "h", "step"}),
       })
    EXPECT_EQ(compare_devices(def, feeds, 1e-5), "") << def.type();
}

TEST_F(GpuTest, LearningRatesOfThePublicFormat) {
  const auto check = [](const std::string& policy, std::vector<Argument> args) {
    args.insert(args.end(), {make_arg("policy", policy), make_arg("base_lr", 0.5F)});
    for (int64_t iter = 0; iter < 12; ++iter) {
      const Feeds feeds = {{"i", Tensor::of<int64_t>({1}, {iter})}};
      EXPECT_EQ(compare_devices(make_op("LearningRate", {"i"}, {"lr"}, args), feeds, 1e-7), "") << policy << iter;
    }
  };
  const Argument constant = make_arg("constant_warmup_num_iter", 2), linear = make_arg("linear_warmup_num_iter", 3);
  check("gate", {make_arg("num_iter", 4), make_arg("multiplier_2", 0.25F)});
  check("slope", {make_arg("num_iter_1", 2), make_arg("num_iter_2", 8), make_arg("multiplier_2", 0.25F)});
  check("cyclical", {make_arg("max_lr", 2.0F), make_arg("stepsize", 3), make_arg("decay", 0.5F)});
  check("constantThenLinearWarmup", {constant, linear});
  check("compositeCyclical", {constant, linear, make_arg("cyclical_max_lr", 2.0F), make_arg("cyclical_step_size", 3)});
}

TEST_F(GpuTest, MoreOptimizers) {
  Feeds feeds = {{"p", normal<float>({40, 30}, 1)},         {"h", uniform<float>({40, 30}, 0, 2, 2)},
                 {"d", uniform<float>({40, 30}, 0, 2, 3)},  {"g", normal<float>({40, 30}, 4)},
                 {"lr", Tensor::of<float>({1}, {-0.125F})}, {"iter", Tensor::of<int64_t>({1}, {4})},
                 {"i", integers<int64_t>({90}, 0, 39)},     {"gs", normal<float>({90, 30}, 5)},
                 {"b", Tensor::of<float>({1}, {2})},        {"wd", Tensor::of<float>({1}, {0.1F})}};
  for (const OperatorDef& def : {
           make_op("Adadelta", {"p", "h", "d", "g", "lr"}, {"p", "h", "d"}),
           make_op("SparseAdadelta", {"p", "h", "d", "i", "gs", "lr"}, {"p", "h", "d"}),
           make_op("Wngrad", {"p", "b", "g", "lr"}, {"p", "b", "rate", "update"}),
           make_op("SparseWngrad", {"p", "b", "i", "gs", "lr"}, {"p", "b"}),
           make_op("DecayAdagrad", {"p", "h", "d", "g", "lr", "iter"}, {"p", "h", "d"}),
           make_op("Lars", {"p", "g", "wd", "b", "b"}, {"rate"}),
       })
    EXPECT_EQ(compare_devices(def, feeds, 1e-5), "") << def.type();
}

// Of more elements than threads have one each: several at once, and some that are left.
TEST_F(GpuTest, AdamOfLargeParameters) {
  const auto check = [](const Feeds& feeds, double tol) {
    const std::vector<std::string> in = {"p", "m", "h", "g", "lr", "iter"};
    EXPECT_EQ(compare_devices(make_op("Adam", in, {"p", "m", "h", "step"}), feeds, tol), "");
    EXPECT_EQ(compare_devices(make_op("Adam", in, {"p", "m", "h"}), feeds, tol), "");
    EXPECT_EQ(compare_devices(make_op("AdamW", in, {"p", "m", "h"}), feeds, tol), "");
  };
  constexpr int64_t kSize = 300'003;
  check({{"p", normal<float>({kSize}, 1)},
         {"m", normal<float>({kSize}, 2)},
         {"h", uniform<float>({kSize}, 0, 2, 3)},
         {"g", normal<float>({kSize}, 4)},
         {"lr", Tensor::of<float>({1}, {-0.125F})},
         {"iter", Tensor::of<int64_t>({1}, {4})}},
        1e-5);
  check({{"p", normal<double>({kSize}, 1)},
         {"m", normal<double>({kSize}, 2)},
         {"h", uniform<double>({kSize}, 0, 2, 3)},
         {"g", normal<double>({kSize}, 4)},
         {"lr", Tensor::of<double>({1}, {-0.125})},
         {"iter", Tensor::of<int32_t>({1}, {4})}},
        1e-12);
}

TEST_F(GpuTest, IterationsBeforeTheFirstAreErrors) {
  const Feeds feeds = {{"p", normal<float>({40, 3}, 1)},         {"m", normal<float>({40, 3}, 2)},
                       {"h", uniform<float>({40, 3}, 0, 2)},     {"r", uniform<float>({40}, 0, 2)},
                       {"g", normal<float>({40, 3}, 3)},         {"lr", Tensor::of<float>({1}, {-0.125F})},
                       {"iter", Tensor::of<int64_t>({1}, {-3})}, {"i", integers<int64_t>({9}, 0, 39)},
                       {"gs", normal<float>({9, 3}, 4)},         {"one", Tensor::of<float>({1}, {1})}};
  for (const OperatorDef& def : {
           make_op("Adam", {"p", "m", "h", "g", "lr", "iter"}, {"p", "m", "h"}),
           make_op("DecayAdagrad", {"p", "m", "h", "g", "lr", "iter"}, {"p", "m", "h"}),
           make_op("Lamb", {"p", "m", "h", "g", "lr", "iter"}, {"p", "m", "h"}),
           make_op("NAdam", {"p", "m", "h", "one", "g", "lr", "iter"}, {"p", "m", "h", "one"}),
           make_op("SparseAdam", {"p", "m", "h", "i", "gs", "lr", "iter"}, {"p", "m", "h"}),
           make_op("RowWiseSparseAdam", {"p", "m", "r", "i", "gs", "lr", "iter"}, {"p", "m", "r"}),
       }) {
    NetDef net;
    *net.add_op() = def;
    net.mutable_device_option()->set_device_type(CUDA);
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = on_gpu(value);
    RunContext run;
    run_net_once(net, workspace, run);
    const std::string error = error_of([&] { copied_to(workspace.fetch("p"), {}); });
    EXPECT_NE(error.find(def.type() + ": iter is -3, outside of [0, "), error.npos) << def.type() << ": " << error;
  }
}

TEST_F(GpuTest, PathsNormsAndRows) {
  const Feeds scores = {{"P", normal<float>({30, 7})}, {"T", normal<float>({7, 7}, 2)}};
  EXPECT_EQ(compare_devices(make_op("ViterbiPath", {"P", "T"}, {"path"}), scores, 0), "");
  for (const int p : {1, 2}) {
    const std::vector<Argument> args = {make_arg("p", p), make_arg("average", 1)};
    const Feeds feeds = {{"X", normal<double>({9000})}, {"dY", normal<double>({1})}};
    EXPECT_EQ(compare_devices(make_op("LpNorm", {"X"}, {"Y"}, args), feeds, 1e-12), "");
    EXPECT_EQ(compare_devices(make_op("LpNormGradient", {"X", "dY"}, {"dX"}, args), feeds, 1e-14), "");
  }
  const Feeds rows = {{"C", integers<bool>({9}, 0, 1)}, {"X", normal<float>({9, 4})}, {"Y", normal<float>({9, 4}, 2)}};
  EXPECT_EQ(compare_devices(make_op("Conditional", {"C", "X", "Y"}, {"Z"}), rows, 0), "");
  EXPECT_EQ(compare_devices(make_op("IsEmpty", {"X"}, {"Y"}), rows, 0), "");
}

}  // namespace
}  // namespace stepnet::testing::reductions_test
